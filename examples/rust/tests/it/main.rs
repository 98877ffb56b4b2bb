//! Every program here does what its first lines say.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

fn run(program: &str, folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn durable_steps_that_finished_do_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_durable_steps");
    let mut child =
        Command::new(program).arg("a.db").current_dir(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // When the second summary begins, the list and the first summary are done.
    assert_eq!(said.by_ref().filter(|line| line == "working: summarise").nth(1).unwrap(), "working: summarise");
    child.kill().unwrap();
    child.wait().unwrap();
    let report = "bees are busy. wasps are busy. ants are busy";
    let again = format!("working: summarise\nworking: summarise\nworking: write\n{report}\n");
    assert_eq!(run(program, folder.path(), &["a.db"]), again);
    assert!(run(program, folder.path(), &["a.db"]).starts_with("it was done before"));
}

/// The guide is right as it is pasted: its program is this one, to the letter, and it can be started again.
#[test]
fn the_program_of_the_guide_can_be_started_twice() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/rust.md")).unwrap();
    let block =
        |language: &str| guide.split_once(&format!("```{language}\n")).unwrap().1.split_once("\n```").unwrap().0;
    let source = include_str!("../../src/bin/weekly_report.rs");
    assert!(source.trim_end().ends_with(block("rust")) && block("rust").starts_with("use "), "{}", block("rust"));
    // The dependencies are those that this package has.
    let own = include_str!("../../Cargo.toml");
    for line in block("toml").lines().skip(1) {
        let name = line.split(' ').next().unwrap();
        assert!(own.contains(&format!("\n{name}")), "{line}");
    }
    assert!(root.join("crates/piton/Cargo.toml").exists());
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_weekly_report");
    assert_eq!(run(program, folder.path(), &[]), "bees are busy\nwasps are busy\n");
    assert!(run(program, folder.path(), &[]).starts_with("it was done before"));
}

#[test]
fn a_budget_holds_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_agent_with_budget");
    let first = run(program, folder.path(), &["a.db"]);
    assert!(first.starts_with("0 calls were paid before\nturn 1: ls\n  harmless\nturn 2: rm -rf build\n  checkpoint "));
    assert!(first.contains("turn 3 wasn't asked") && first.ends_with("paid: 2 calls, 0.04\n"), "{first}");
    let second = run(program, folder.path(), &["a.db"]);
    assert!(second.starts_with("2 calls were paid before"), "{second}");
    assert!(second.ends_with("paid: 2 calls, 0.04\n"), "{second}");
}

#[test]
fn a_tool_that_fails_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let said = run(env!("CARGO_BIN_EXE_undo_files"), folder.path(), &["scratch"]);
    assert_eq!(
        said,
        "the disk caught fire: 2 files are as they were\nthe session changed nothing: true\nnotes.txt: \"first\\nsecond\\n\"\n"
    );
    assert!(!folder.path().join("scratch/project/left-over.txt").exists());
}

#[test]
fn a_question_is_answered_by_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_person_in_the_loop");
    assert_eq!(run(program, folder.path(), &["saved"]), "Publish it? Say yes or no when you start this again.\n");
    assert_eq!(run(program, folder.path(), &["saved"]), "Publish it? Say yes or no when you start this again.\n");
    assert_eq!(run(program, folder.path(), &["saved", "yes"]), "approved: Bool(true)\n");
}

/// A model, a security level, an audit sink and a store of the program's own, in thirty lines; the model is asked once.
#[test]
fn a_model_of_ones_own_is_asked_once() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_model_of_ones_own");
    let asked = run(program, folder.path(), &["runs.db"]);
    assert!(asked.contains("draft mine any\n"), "{asked}");
    assert!(asked.ends_with("Publish “A poem on bees”? Say it when you start this again.\n"), "{asked}");
    let done = run(program, folder.path(), &["runs.db", "yes"]);
    assert!(done.contains("Resume") && !done.contains("mine any"), "{done}");
    assert!(done.contains(r#"Completed({"ok": String("yes")})"#), "{done}");
}
