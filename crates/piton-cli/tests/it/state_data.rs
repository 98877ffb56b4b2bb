//! What a run's state tells beside how it stands (R2, R4, C1): progress while it runs, how a paused one goes on, the files
//! that it changed, what was checked of its work, and how urgent and large it was said to be.

use serde_json::{Value as Json, json};

use crate::world::{World, wait_until};

/// Waits outside for a file, and makes another.
const WAITS: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: work, data: {type: command, command: [sh, -c, 'echo x >> begun; while ! test -e go; do sleep 0.05; done; echo x > made']}}
  - {id: out, data: {type: end, outputs: []}}
edges: [{source: in, target: work}, {source: work, target: out}]
";

fn show(world: &World, reference: &str) -> Json {
    world.piton(["show", reference, "--json"]).json()
}

/// R2: while a run is at work, another process sees where it is; paused, it says how it goes on.
#[test]
fn progress_is_seen_while_a_run_is_at_work_and_a_paused_one_says_how_it_goes_on() {
    let world = World::new();
    world.write("flow.yml", WAITS);
    let running = world.command(["run", "flow.yml", "--id", "first"]).spawn().unwrap();
    wait_until(|| !world.lines("begun").is_empty());
    let shown = show(&world, "first");
    let progress = &shown["progress"];
    assert_eq!((&progress["current"], &progress["step"]), (&json!("work"), &json!("work")), "{shown}");
    assert_eq!((&progress["percent"], &progress["last_progress"]), (&json!(33), &json!("in finished")), "{shown}");
    assert_eq!(world.piton(["stop", "first", "--now"]).code, Some(0));
    world.wait(running);
    let paused = show(&world, "first");
    assert_eq!(paused["status"], "paused");
    let instructions = paused["resume_instructions"].as_str().unwrap();
    assert!(instructions.contains("resume first") && instructions.contains("behind in"), "{instructions}");
    world.write("go", "");
    assert_eq!(world.piton(["resume", "first"]).code, Some(0));
    let over = show(&world, "first");
    assert_eq!((&over["progress"], &over["resume_instructions"]), (&Json::Null, &Json::Null), "{over}");
}

/// R2: what a document's `verify` came to and which files were changed is recorded when the run completes. A check that
/// fails fails no run; the command says so.
#[test]
fn checks_of_a_document_and_the_files_of_its_run_are_recorded() {
    let world = World::new();
    world.write("go", "");
    let checks = "verify: ['test -s made', [sh, -c, 'echo broken >&2; exit 3'], [no-such-program-here]]\n";
    world.write("flow.yml", &format!("{WAITS}{checks}"));
    world.write("old", "");
    let ran = world.piton(["run", "flow.yml", "--files", "--id", "first", "--json"]);
    assert_eq!(ran.code, Some(1), "{}", ran.whole());
    let outcome: Json = serde_json::from_str(ran.stdout.lines().next_back().unwrap()).unwrap();
    assert_eq!(outcome["status"], "completed", "{outcome}");
    let shown = show(&world, "first");
    assert_eq!(shown["files_modified"], json!(["begun", "made"]), "{shown}");
    let checks: Vec<(&str, bool)> = shown["verification"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (check["name"].as_str().unwrap(), check["passed"].as_bool().unwrap()))
        .collect();
    let wrong = "sh -c echo broken >&2; exit 3";
    assert_eq!(checks, [("test -s made", true), (wrong, false), ("no-such-program-here", false)], "{shown}");
    assert_eq!(shown["verification"][1]["detail"], "broken");
    assert_eq!(shown["verification"], outcome["verification"]);
    let text = world.piton(["show", "first"]).stdout;
    assert!(text.contains("passed: test -s made") && text.contains("modified") && text.contains("begun"), "{text}");
    // They are steps of the run: what finished isn't done again, and a completed run tells the same.
    let again = world.piton(["run", "flow.yml", "--files", "--id", "first", "--json"]);
    assert_eq!((again.code, world.lines("begun").len()), (Some(1), 1), "{}", again.whole());
    // Without checks that fail, all is well.
    world.write("flow.yml", &format!("{WAITS}verify: ['test -s made']\n"));
    assert_eq!(world.piton(["run", "flow.yml"]).code, Some(0));
}

/// At Strict no program is run, and so no check either.
#[test]
fn what_a_document_checks_is_run_only_where_programs_are() {
    let world = World::new();
    world.write("strict.toml", "level = \"strict\"\n");
    let nodes = "nodes:\n  - {id: in, data: {type: start}}\n  - {id: out, data: {type: end, outputs: []}}\n";
    world.write("flow.yml", &format!("{nodes}edges: [{{source: in, target: out}}]\nverify: ['touch proof']\n"));
    let ran = world.piton(["run", "flow.yml", "--config", "strict.toml"]);
    assert_ne!(ran.code, Some(0), "{}", ran.whole());
    assert!(!world.work().join("proof").exists());
    assert_eq!(world.piton(["run", "flow.yml"]).code, Some(0), "the control");
    assert!(world.work().join("proof").exists());
}

/// R2, C1: a guarded program's checks and files, and what changed at a checkpoint.
#[test]
fn checks_and_files_of_a_guarded_program_are_recorded() {
    let world = World::new();
    world.write("old", "what was here before");
    let guard = ["guard", "--json", "--verify", "test -e made", "--verify", "echo no; exit 1", "--", "sh", "-c"];
    let said = world.piton([&guard[..], &["echo 1 > made; rm old"]].concat());
    assert_eq!(said.code, Some(1), "{}", said.whole());
    let view = said.json();
    let passed = |view: &Json| {
        let checks = view["verification"].as_array().unwrap().clone();
        checks.iter().map(|check| check["passed"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((view["status"].as_str(), passed(&view)), (Some("completed"), vec![true, false]));
    let shown = show(&world, view["run"].as_str().unwrap());
    assert_eq!((&shown["files_modified"], passed(&shown)), (&json!(["made", "old"]), vec![true, false]), "{shown}");
    let closed = show(&world, view["id"].as_str().unwrap());
    let changes: Vec<(&str, &str)> = closed["change"]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["path"].as_str().unwrap(), change["kind"].as_str().unwrap()))
        .collect();
    assert_eq!(changes, [("made", "created"), ("old", "deleted")], "{closed}");
    // What a program that failed has changed is told too; it isn't checked.
    let failed = world.piton(["guard", "--json", "--verify", "touch checked", "--", "sh", "-c", "rm made; exit 4"]);
    assert_eq!(failed.code, Some(4), "{}", failed.whole());
    assert_eq!(show(&world, failed.json()["run"].as_str().unwrap())["files_modified"], json!(["made"]));
    assert!(!world.work().join("checked").exists());
}

/// R2: how urgent and how large a run is said to be when it is submitted.
#[test]
fn priority_and_complexity_of_a_submitted_run_are_kept() {
    let world = World::new();
    world.write("flow.yml", WAITS);
    let put = world.piton(["submit", "flow.yml", "--priority", "5", "--complexity", "2.5", "--json"]).json();
    let shown = show(&world, put["run"].as_str().unwrap());
    assert_eq!((&shown["priority"], &shown["estimated_complexity"]), (&json!(5), &json!(2.5)), "{shown}");
}
