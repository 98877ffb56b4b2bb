//! What is said when something is wrong, and with which exit code.

use std::process::Stdio;

use crate::world::{THREE_NODES, World};

#[test]
fn looking_without_a_store_makes_none() {
    let world = World::new();
    insta::assert_snapshot!(world.piton(["log"]).whole(), @r"
    --- stderr
    error: there is no store for [ROOT]/work yet

    hint: it is made by `piton init`, or by the first `piton guard -- PROGRAM`, `piton save` or `piton run DOC`.
    --- exit 1
    ");
    for verb in [vec!["show"], vec!["show", "x"], vec!["diff", "--state", "@-", "@"], vec!["resume", "x"]] {
        assert_eq!(world.piton(verb).code, Some(1));
    }
    assert!(!world.root().join("home").exists());
    insta::assert_snapshot!(world.piton(["log", "--store", "sqlite:none.db"]).whole(), @r"
    --- stderr
    error: there is no store at sqlite:none.db

    hint: `piton --store sqlite:none.db init` makes one there, `piton --store sqlite:none.db init --encrypt --key-file FILE` an encrypted one; or look where it really is.
    --- exit 1
    ");
    assert!(!world.work().join("none.db").exists());
}

#[test]
fn a_wrong_store_url_is_wrong_usage() {
    let world = World::new();
    insta::assert_snapshot!(world.piton(["log", "--store", "mongodb://x"]).whole(), @r#"
    --- stderr
    error: store URL "mongodb://x" is not valid: mongodb: is not known here, only az:, file:, gs:, memory:, postgres:, postgresql:, redis:, rediss:, s3:, sqlite:

    hint: a store is written as sqlite:/path/to/store.db, file:/path/to/folder or postgres://USER@HOST/DATABASE.
    --- exit 2
    "#);
    insta::assert_snapshot!(world.piton(["log", "--store", "sqlite:"]).whole(), @r#"
    --- stderr
    error: store URL "sqlite:" is not valid: the path is missing

    hint: a store is written as sqlite:/path/to/store.db, file:/path/to/folder or postgres://USER@HOST/DATABASE.
    --- exit 2
    "#);
    insta::assert_snapshot!(world.piton(["log", "--store", "sqlite:///x.db"]).whole(), @r#"
    --- stderr
    error: store URL "sqlite:///x.db" is not valid: the path follows the colon at once, with no slashes of its own

    hint: a store is written as sqlite:/path/to/store.db, file:/path/to/folder or postgres://USER@HOST/DATABASE.
    --- exit 2
    "#);
    let said = world.command(["log"]).env("PITON_STORE", "/x.db").output().unwrap();
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8(said.stderr).unwrap().contains("hint: PITON_STORE names it"));
}

#[test]
fn a_file_that_is_no_store_is_left_alone() {
    let world = World::new();
    world.write("text.db", &"this is no database, it is a text. ".repeat(100));
    let said = world.piton(["init", "--store", "sqlite:text.db"]);
    insta::assert_snapshot!(said.whole(), @r"
    --- stderr
    error: [ROOT]/work/text.db is not valid: it is not a Piton store: it is not an SQLite database

    hint: nothing was changed; name another file with `--store URL`.
    --- exit 1
    ");
    assert!(std::fs::read_to_string(world.work().join("text.db")).unwrap().starts_with("this is no database"));
}

#[test]
fn an_unknown_run() {
    let world = World::with_run();
    insta::assert_snapshot!(world.piton(["resume", "nope"]).whole(), @r"
    --- stderr
    error: there is no run nope here

    hint: `piton ls` shows the runs of this folder, `piton ls --all` those of all.
    --- exit 1
    ");
    assert_eq!(world.piton(["log", "nope"]).code, Some(1));
    assert_eq!(world.piton(["log"]).stdout.matches("nope").count(), 0, "resume creates nothing");
}

#[test]
fn documents_that_cannot_run() {
    let world = World::new();
    insta::assert_snapshot!(world.piton(["run", "none.yml"]).whole(), @r"
    --- stderr
    error: can't read none.yml
      caused by: No such file or directory (os error 2)

    hint: names count from the folder that piton works in; `-C DIR` names another.
    --- exit 1
    ");
    world.write("flow.txt", THREE_NODES);
    insta::assert_snapshot!(world.piton(["run", "flow.txt"]).whole(), @r"
    --- stderr
    error: flow.txt is not a document

    hint: its name should end with .yml, .yaml, .json or .toml.
    --- exit 2
    ");
    world.write("flow.yml", THREE_NODES);
    insta::assert_snapshot!(world.piton(["run", "flow.yml", "--id", "r"]).whole(), @r#"
    --- stderr
    error: the inputs are not valid
      caused by: input "name": it is required

    hint: nothing was run. Inputs are given with `-i NAME=TEXT` or `--inputs FILE`.
    --- exit 1
    "#);
    world.write("broken.yml", &THREE_NODES.replace("target: out", "target: gone"));
    insta::assert_snapshot!(world.piton(["run", "broken.yml", "-i", "name=x"]).whole(), @r#"
    --- stderr
    error: the document is not valid
      caused by: /edges/1/target (line 8): there is no node "gone"

    hint: nothing was run. `piton validate broken.yml` says how to put it right.
    --- exit 1
    "#);
    assert_eq!(world.piton(["log"]).stdout, "", "no run was created");
}

#[test]
fn a_failed_node_fails_the_run_and_can_be_tried_again() {
    let world = World::new();
    world.write(
        "flow.yml",
        "
nodes:
  - {id: in, data: {type: start}}
  - {id: check, data: {type: command, command: [test, -e, ready]}}
  - {id: out, data: {type: end, outputs: [{variable: code, value_selector: [check, exit_code]}]}}
edges:
  - {source: in, target: check}
  - {source: check, target: out}
",
    );
    insta::assert_snapshot!(world.piton(["run", "flow.yml", "--id", "r"]).whole(), @r#"
    --- stderr
    run r started
    in: started
    in: finished
    check: started
    check: failed: "test" ended with 1
    error: run r failed
      caused by: node check failed: "test" ended with 1

    hint: what finished is kept. `piton resume r` goes on from there.
    --- exit 1
    "#);
    let said = world.piton(["resume", "r", "--json", "-q"]);
    insta::assert_snapshot!(said.whole(), @r#"
    --- stdout
    {"id":"r","run":"r","status":"failed","outputs":null,"error":"node check failed: \"test\" ended with 1","usage":{"input":0,"output":0,"total":0,"cost":0.0}}
    --- stderr
    error: run r failed
      caused by: node check failed: "test" ended with 1

    hint: what finished is kept. `piton resume r` goes on from there.
    --- exit 1
    "#);
    assert_eq!(world.piton(["show", "r", "--json"]).json()["error"], said.json()["error"]);
    world.write("ready", "");
    insta::assert_snapshot!(world.piton(["resume", "r"]).whole(), @r#"
    --- stdout
    {
      "code": 0
    }
    --- stderr
    run r (flow.yml) goes on from its finished steps, 1 step done; last: step check failed: "test" ended with 1
    in: finished before, skipped
    check: started
    check: finished
    out: started
    out: finished
    run r completed
    --- exit 0
    "#);
}

#[test]
fn another_document_under_the_same_id_is_refused() {
    let world = World::with_run();
    world.write("flow.yml", &THREE_NODES.replace("Hello", "Bye"));
    insta::assert_snapshot!(world.piton(["run", "flow.yml", "-i", "name=Ada", "--id", "first"]).whole(), @r"
    --- stderr
    error: run first exists with a document of its own

    hint: choose another --id, or go on with its own document: `piton resume first`.
    --- exit 4
    ");
}

#[test]
fn hostile_ids_are_refused_before_anything_else() {
    let world = World::new();
    world.write("flow.yml", THREE_NODES);
    insta::assert_snapshot!(world.piton(["run", "flow.yml", "--id", "../../x"]).whole(), @r#"
    --- stderr
    error: invalid value '../../x' for '--id <RUN>': run id "../../x" is not valid: it must start with a letter or a digit

    For more information, try '--help'.
    --- exit 2
    "#);
    let long = "a".repeat(300);
    let refused = |arguments: &[&str]| {
        let said = world.piton(arguments);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(said.stderr.starts_with("error: ") && said.stderr.len() < 700, "{}", said.stderr);
        assert!(!said.stderr.contains(['\u{202e}', '\u{7f}', '\x1b']), "{}", said.stderr);
    };
    for id in [
        "'; DROP TABLE run; --",
        "",
        "a/b",
        "a\nb",
        "*",
        "-rf",
        &long,
        "\u{202e}x",
        ".",
        "..",
        "a b",
        "\u{7f}",
        "\x1b[2J",
    ] {
        refused(&["run", "flow.yml", "-i", "name=x", &format!("--id={id}")]);
        refused(&["resume", "--", id]);
    }
    for reference in
        ["../../x", "'; DROP", "/etc/passwd", "@7", "a@b", "a@1/../x", "@~", "@-x", "a@99999999999", "", &long, "a/\n"]
    {
        refused(&["show", "--", reference]);
        // Here it is a path, which may be fine as such: there is no store to look in.
        let said = world.piton(["log", "--", reference]);
        assert!(matches!(said.code, Some(1 | 2)) && said.stdout.is_empty(), "{reference:?}: {}", said.whole());
        assert!(said.stderr.starts_with("error: ") && !said.stderr.contains(['\u{202e}', '\x1b']), "{}", said.stderr);
        refused(&["diff", "--state", "--", reference, "@"]);
        refused(&["diff", "--state", "--", "@", reference]);
    }
    assert!(!world.root().join("home").exists(), "nothing was made");
}

#[test]
fn wrong_usage() {
    let world = World::new();
    for arguments in [
        vec!["fly"],
        vec!["log", "-n", "-1"],
        vec!["log", "-q", "-v"],
        vec!["run"],
        vec!["run", "flow.yml", "-i", "novalue"],
        vec!["diff", "--state", "@"],
        vec!["init", "--here", "--store", "sqlite:x"],
    ] {
        let said = world.piton(&arguments);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{arguments:?}");
    }
    assert_eq!(world.piton(["-C", "gone", "log"]).code, Some(1));
}

#[test]
fn a_full_disk_behind_stdout_is_an_error() {
    let world = World::with_run();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let said = world.command(["log"]).stdout(Stdio::from(full)).output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8(said.stderr).unwrap().starts_with("error: can't write to stdout"));
}

#[test]
fn labels_and_errors_cannot_control_the_terminal() {
    let world = World::new();
    world.write(
        "flow.yml",
        r#"
nodes:
  - {id: in, data: {type: start}}
  - {id: shout, data: {type: command, command: [sh, -c, "printf '\\033[2Jgone' >&2; exit 3"]}}
  - {id: out, data: {type: end}}
edges:
  - {source: in, target: shout}
  - {source: shout, target: out}
"#,
    );
    let run = world.piton(["run", "flow.yml", "--id", "r"]);
    assert_eq!(run.code, Some(1));
    let show = world.piton(["show", "r", "--steps"]);
    for text in [run.stderr, show.stdout] {
        assert!(text.contains(r"\u{1b}[2Jgone") && !text.contains('\x1b'), "{text}");
    }
}

/// `piton log | head -1`: a reader that has seen enough is no error. A command that can't write says so.
#[test]
fn a_reader_that_has_gone_is_no_error() {
    let world = World::with_run();
    let verbs = [
        "--help",
        "log",
        "log --json",
        "ls",
        "status",
        "show first",
        "events first",
        "graph flow.yml",
        "merge-file -p flow.yml flow.yml flow.yml",
        "reference commands",
        "completions bash",
        "export first",
        "check",
        "hook show",
    ];
    for verb in verbs {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut gone = world.command(verb.split(' '));
        let said = world.wait(gone.stdout(writer).spawn().unwrap());
        // Half of an export is none.
        let is_half = verb == "export first";
        assert!(!said.stderr.contains("panicked"), "{verb}: {}", said.whole());
        assert_eq!(
            (said.code, said.stderr.contains("error:")),
            (Some(i32::from(is_half)), is_half),
            "{verb}: {}",
            said.whole()
        );
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut full_disk = world.command(verb.split(' '));
        let said = world.wait(full_disk.stdout(full).spawn().unwrap());
        assert!(!said.stderr.contains("panicked"), "{verb}: {}", said.whole());
        // Help is printed by the parser of the command line, which doesn't report that it can't write.
        assert!(verb == "--help" || said.stderr.contains("can't write"), "{verb}: {}", said.whole());
    }
}
/// A program that reads JSON is told of wrong usage too, whichever part of piton finds it. Asking for help or the
/// version isn't wrong usage.
#[test]
fn wrong_usage_is_an_object_for_programs() {
    let world = World::new();
    for arguments in [
        &["show", "--json", "@@"][..],
        &["restore", "--json"],
        &["nosuchverb", "--json"],
        &["stop", "r", "--grace", "nan", "--json"],
        &["--json", "log", "--nope\u{1b}[2J"],
        &["--json"],
    ] {
        let said = world.piton(arguments);
        let json = said.json();
        assert_eq!((said.code, json["exit_code"].as_u64()), (Some(2), Some(2)), "{arguments:?}");
        assert!(json["error"].as_str().is_some_and(|error| !error.is_empty()), "{json}");
        assert!(!said.stderr.is_empty() && !said.stderr.contains('\u{1b}'), "{arguments:?}");
    }
    insta::assert_snapshot!(world.piton(["restore", "--json"]).stdout, @r#"{"causes":[],"error":"the following required arguments were not provided: <REF>","exit_code":2,"hint":"Usage: piton restore --json <REF> [PATH]...\nFor more information, try '--help'.","kind":"usage"}"#);
    for asked in [["--help", "--json"], ["--json", "--version"]] {
        let said = world.piton(asked);
        assert!(said.code == Some(0) && said.stdout.contains("piton") && !said.stdout.contains("exit_code"));
    }
    let program = world.piton(["-q", "-v", "guard", "--", "true", "--json"]);
    assert_eq!((program.code, program.stdout.as_str()), (Some(2), ""), "that is the program's word");
}

/// One file that can't be read doesn't keep the others from being looked at.
#[test]
fn every_document_is_reported() {
    let world = World::new();
    world.write("good.yml", THREE_NODES);
    world.write("bad.yml", "nodes: []");
    let files = ["validate", "gone.yml", "good.yml", "bad.yml"];
    let said = world.piton(files);
    assert_eq!(said.code, Some(1), "{}", said.whole());
    for line in ["gone.yml: error: can't read gone.yml: ", "good.yml: valid, 3 nodes", "bad.yml: not valid, "] {
        assert!(said.stdout.contains(line), "{}", said.whole());
    }
    let said = world.piton(files.iter().chain(&["--json"]));
    let objects: Vec<serde_json::Value> = said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let valid: Vec<_> = objects.iter().map(|object| object["valid"].as_bool().unwrap()).collect();
    assert_eq!((said.code, valid), (Some(1), vec![false, true, false]), "{}", said.whole());
    assert!(objects[0]["errors"][0]["message"].as_str().unwrap().starts_with("can't read gone.yml"));
    assert_eq!(world.piton(["validate", "good.yml", "gone.txt"]).code, Some(2), "that is no name of a document");
}

/// Texts of others are escaped for the terminal only: a program that reads along gets them as they are.
#[test]
fn programs_get_texts_as_they_are() {
    let world = World::with_run();
    let odd = "a\u{1b}[2J\nb";
    assert_eq!(world.piton(["save"]).code, Some(0));
    let failed = world.piton(["restore", "@", odd, "--json"]);
    assert_eq!(failed.code, Some(1), "{}", failed.stdout);
    assert!(failed.json()["error"].as_str().unwrap().ends_with(odd), "{}", failed.stdout);
    assert!(failed.json()["hint"].as_str().unwrap().contains(odd), "{}", failed.stdout);
    assert!(failed.stderr.contains(r"a\u{1b}[2J\nb") && !failed.stderr.contains('\u{1b}'), "{}", failed.stderr);
    let name = format!("{odd}.yml");
    world.write(&name, THREE_NODES);
    assert_eq!(world.piton(["run", &name, "-i", "name=Ada", "--id", "odd"]).code, Some(0));
    let plan = |more: &[&str]| world.piton([&["gc", "--completed", "0s", "--dry-run"], more].concat());
    let planned = plan(&["--json"]).json();
    assert!(
        planned["entails"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains(odd)),
        "{planned}"
    );
    let shown = plan(&[]);
    assert!(shown.stdout.contains(r"a\u{1b}[2J\nb") && !shown.stdout.contains('\u{1b}'), "{}", shown.stdout);
}
