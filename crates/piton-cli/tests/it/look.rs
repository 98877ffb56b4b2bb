//! `log`, `show`, `diff` and references on what `run` left.

use std::io::{BufRead as _, BufReader};
use std::sync::Arc;

use piton_runtime::{AgentContext, Context, Message, OpenRun, Run};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{CheckpointRecord, Trigger, Value};
use serde_json::{Value as Json, json};

use crate::world::{THREE_NODES, World, without_ages};

/// Every node but the end is a checkpoint: entries 2, 3 and 4.
const CHECKPOINTS: &str = r"
nodes:
  - {id: in, data: {type: start, checkpoint: true, variables: [{variable: topic}, {variable: other}]}}
  - {id: fetch, data: {type: command, checkpoint: true, command: [printf, '{{#in.topic#}}\033[2J']}}
  - {id: write, data: {type: template-transform, checkpoint: true, template: 'on {{ facts }}', variables: [{variable: facts, value_selector: [fetch, stdout]}]}}
  - {id: out, data: {type: end, checkpoint: false, outputs: [{variable: report, value_selector: [write, output]}]}}
edges:
  - {source: in, target: fetch}
  - {source: fetch, target: write}
  - {source: write, target: out}
";

/// Adds a finished run with checkpoints.
fn with_checkpoints(world: &World, id: &str, topic: &str) {
    world.write("saves.yml", CHECKPOINTS);
    let said = world.piton(["run", "saves.yml", "-i", &format!("topic={topic}"), "--id", id]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

#[test]
fn running_says_how_it_goes_on_stderr_and_gives_the_outputs_on_stdout() {
    let world = World::with_run();
    let said = world.piton(["run", "flow.yml", "-i", "name=Bob", "--id", "second"]);
    insta::assert_snapshot!(said.whole(), @r#"
    --- stdout
    {
      "greeting": "Hello Bob!"
    }
    --- stderr
    run second started
    in: started
    in: finished
    greet: started
    greet: finished
    out: started
    out: finished
    run second completed
    --- exit 0
    "#);
    let said = world.piton(["run", "flow.yml", "-i", "name=Bob", "--id", "third", "--json", "-q"]);
    insta::assert_snapshot!(said.whole(), @r#"
    --- stdout
    {"id":"third","run":"third","status":"completed","outputs":{"greeting":"Hello Bob!"},"error":null,"usage":{"input":0,"output":0,"total":0,"cost":0.0}}
    --- exit 0
    "#);
    // Finished already: nothing runs, the outputs are those of then.
    let said = world.piton(["run", "flow.yml", "-i", "name=Bob", "--id", "third", "--json"]);
    insta::assert_snapshot!(said.whole(), @r#"
    --- stdout
    {"id":"third","run":"third","status":"completed","outputs":{"greeting":"Hello Bob!"},"error":null,"usage":{"input":0,"output":0,"total":0,"cost":0.0}}
    --- stderr
    run third completed
    --- exit 0
    "#);
    assert_eq!(world.piton(["resume", "third", "--json"]).json(), said.json());
}

#[test]
fn a_run_gets_an_id_of_its_own() {
    let world = World::with_run();
    let first = world.piton(["run", "flow.yml", "-i", "name=x", "--json"]).json();
    let second = world.piton(["run", "flow.yml", "-i", "name=x", "--json"]).json();
    assert_eq!(first["run"].as_str().unwrap().len(), 26);
    assert_ne!(first["run"], second["run"]);
    assert_eq!(first["outputs"], second["outputs"]);
}

#[test]
fn inputs_come_from_a_file_too() {
    let world = World::with_run();
    world.write("inputs.json", r#"{"name": "Eve"}"#);
    let said = world.piton(["run", "flow.yml", "--inputs", "inputs.json", "--json"]);
    assert_eq!(said.json()["outputs"]["greeting"], "Hello Eve!");
    let said = world.piton(["run", "flow.yml", "--inputs", "inputs.json", "-i", "name=Ada", "--json"]);
    assert_eq!(said.json()["outputs"]["greeting"], "Hello Ada!");
}

#[test]
fn log() {
    let world = World::with_run();
    insta::assert_snapshot!(without_ages(&world.piton(["log", "--all"]).whole()), @r"
    --- stdout
    ID  WHEN  WHAT  STATE  LABEL
    first@5  [AGE]  state  -  completed
    first@4  [AGE]  step  -  out
    first@3  [AGE]  step  -  greet
    first@2  [AGE]  step  -  in
    first@1  [AGE]  started  -
    first@0  [AGE]  created  -  flow.yml
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["log", "--all", "first", "-n", "2", "--json"]).whole(), @r#"
    --- stdout
    {"id":"first@5","run":"first","seq":5,"kind":"state_changed","label":"completed","created_at":"[TIME]","checkpoint":false,"parts":{}}
    {"id":"first@4","run":"first","seq":4,"kind":"step_done","label":"out","created_at":"[TIME]","checkpoint":false,"parts":{}}
    --- exit 0
    "#);
    // From a step or an entry back.
    insta::assert_snapshot!(without_ages(&world.piton(["log", "--all", "first/in"]).whole()), @r"
    --- stdout
    ID  WHEN  WHAT  STATE  LABEL
    first@2  [AGE]  step  -  in
    first@1  [AGE]  started  -
    first@0  [AGE]  created  -  flow.yml
    --- exit 0
    ");
    insta::assert_snapshot!(without_ages(&world.piton(["log", "--all", "first@1"]).whole()), @r"
    --- stdout
    ID  WHEN  WHAT  STATE  LABEL
    first@1  [AGE]  started  -
    first@0  [AGE]  created  -  flow.yml
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["log", "--checkpoints"]).whole(), @r"
    --- stderr
    nothing to show
    --- exit 0
    ");
    assert_eq!(world.piton(["log", "-n", "0"]).stdout, "");
}

#[test]
fn the_log_of_a_folder_has_all_its_runs_newest_first() {
    let world = World::with_run();
    with_checkpoints(&world, "second", "bees");
    let ids = |arguments: &[&str]| -> Vec<String> {
        let said = world.piton(arguments.iter().chain(&["--json"]));
        said.stdout
            .lines()
            .map(|line| serde_json::from_str::<Json>(line).unwrap()["id"].as_str().unwrap().to_owned())
            .collect()
    };
    // Its last entry but one has the lines about its checkpoints.
    assert_eq!(
        ids(&["log", "--all"]),
        [
            "second@8", "second@7", "second@6", "second@5", "second@4", "second@3", "second@2", "second@1", "second@0",
            "first@5", "first@4", "first@3", "first@2", "first@1", "first@0"
        ]
    );
    assert_eq!(ids(&["log", "--all", "-n", "10"])[9], "first@5");
    assert_eq!(ids(&["log", "--all", "-n", "1"]), ["second@8"]);
    assert_eq!(ids(&["log", "--checkpoints"]), ["second@5", "second@4", "second@2"]);
    assert_eq!(ids(&["log", "--checkpoints", "-n", "2", "second"]), ["second@5", "second@4"]);
}

#[test]
fn show_a_run_and_its_steps() {
    let world = World::with_run();
    insta::assert_snapshot!(without_ages(&world.piton(["show", "first", "--steps"]).whole()), @r#"
    --- stdout
    run  first
    name  flow.yml
    status  completed
    created  [TIME] ([AGE])
    updated  [TIME] ([AGE])
    folder  [ROOT]/work
    checkpoint  none
    steps  3 finished
    took  [TOOK]
    outputs  {"greeting":"Hello Ada!"}

    STEP  WHEN  TOOK  TRY  RESULT
    in  [AGE]  [TOOK]  1  {"name":"Ada"}
    greet  [AGE]  [TOOK]  1  {"output":"Hello Ada!"}
    out  [AGE]  [TOOK]  1  {"greeting":"Hello Ada!"}
    --- exit 0
    "#);
    insta::assert_snapshot!(world.piton(["show", "first", "--json"]).whole(), @r#"
    --- stdout
    {"id":"first","run":"first","short":"first","name":"flow.yml","kind":"workflow","status":"completed","created_at":"[TIME]","updated_at":"[TIME]","parent":null,"folder":"[ROOT]/work","outputs":{"greeting":"Hello Ada!"},"error":null,"checkpoint":null,"duration_ms":0,"recovery_attempts":0,"usage":{"input":0,"output":0,"total":0,"cost":0.0},"questions":[],"finished_steps":3,"priority":0,"estimated_complexity":null,"progress":null,"resume_instructions":null,"files_modified":[],"verification":[]}
    --- exit 0
    "#);
    let steps = world.piton(["show", "first", "--steps", "--json"]).json();
    assert_eq!(steps["steps"][1]["step"], "greet");
    assert_eq!(steps["steps"][1]["output"]["output"], "Hello Ada!");
    insta::assert_snapshot!(without_ages(&world.piton(["show", "first/greet"]).whole()), @r#"
    --- stdout
    step  greet
    run  first
    entry  first@3
    status  completed
    try  1
    started  [TIME] ([AGE])
    took  [TOOK]
    input  {"name":"Ada"}
    output  {"output":"Hello Ada!"}
    --- exit 0
    "#);
    assert_eq!(world.piton(["show", "first/greet", "--json"]).json()["input"]["name"], "Ada");
}

#[test]
fn show_a_checkpoint_and_its_values() {
    let world = World::with_run();
    with_checkpoints(&world, "second", "bees");
    let shown = world.piton(["show"]).stdout;
    let (head, rest) = shown.split_once("\nbody").unwrap();
    // Where the run is has the time that it took.
    let head: Vec<_> = head.lines().filter(|line| !line.contains("piton.workflow-position")).collect();
    insta::assert_snapshot!(without_ages(&head.join("\n")), @r"
    checkpoint  second@5
    kind  step
    label  write
    created  [TIME] ([AGE])
    part  variables  piton.variables 1  1c43213b858e21e082d7c8d679c40807f756841ca9a103a11fe4f86e06df26a8
    ");
    let (_, variables) = rest.split_once("\nvariables").unwrap();
    assert_eq!(
        serde_json::from_str::<Json>(variables).unwrap(),
        json!({
            "in": {"topic": "bees", "other": null},
            "fetch": {"exit_code": 0, "stderr": "", "stdout": "bees\u{1b}[2J"},
            "write": {"output": "on bees\u{1b}[2J"},
        })
    );
    let shown = world.piton(["show", "second@4", "--json"]).json();
    assert_eq!(
        (&shown["id"], &shown["label"], &shown["checkpoint"]),
        (&json!("second@4"), &json!("fetch"), &json!(true))
    );
    assert_eq!(shown["state"]["variables"]["fetch"]["stdout"], "bees\u{1b}[2J");
    assert_eq!(shown["body"]["output"], shown["state"]["variables"]["fetch"]);
    // What the JSON names can be shown by itself, whichever run has it.
    let root = shown["parts"]["variables"]["root"].as_str().unwrap();
    assert_eq!(world.piton(["run", "flow.yml", "-i", "name=x", "--id", "newer"]).code, Some(0));
    assert_eq!(world.piton(["show", root, "--json"]).json()["value"], shown["state"]["variables"]);
    let first = world.piton(["show", "second@2", "--json"]).json();
    let root = first["parts"]["variables"]["root"].as_str().unwrap();
    insta::assert_snapshot!(world.piton(["show", root]).whole(), @r#"
    --- stdout
    {
      "in": {
        "other": null,
        "topic": "bees"
      }
    }
    --- exit 0
    "#);
    insta::assert_snapshot!(without_ages(&world.piton(["show", "first@5"]).whole()), @r#"
    --- stdout
    entry  first@5
    kind  state
    label  completed
    created  [TIME] ([AGE])
    body
      {
      "at": "[TIME]",
      "exceptions": 0,
      "files_modified": [],
      "output": {
      "greeting": "Hello Ada!"
      },
      "recovered_from": null,
      "status": "completed",
      "verification": null
      }
    --- exit 0
    "#);
}

#[test]
fn references_lead_where_they_say() {
    let world = World::with_run();
    with_checkpoints(&world, "second", "bees");
    for (reference, id) in [
        ("@", "second@5"),
        ("@-", "second@4"),
        ("@--", "second@2"),
        ("@~2", "second@2"),
        ("second@", "second@5"),
        ("sec@-", "second@4"),
        ("s@0", "second@0"),
        ("f/greet", "first@3"),
        ("f", "first"),
    ] {
        assert_eq!(world.piton(["show", reference, "--json"]).json()["id"], id, "{reference}");
    }
    insta::assert_snapshot!(world.piton(["show", "@~3"]).whole(), @r"
    --- stderr
    error: @~3 doesn't exist: there are only 3 checkpoints

    hint: `piton log second` shows what there is.
    --- exit 1
    ");
    insta::assert_snapshot!(world.piton(["show", "first@"]).whole(), @r"
    --- stderr
    error: run first has no checkpoints yet

    hint: `piton log first` shows what there is.
    --- exit 1
    ");
    insta::assert_snapshot!(world.piton(["show", "first@6"]).whole(), @r"
    --- stderr
    error: first@6 doesn't exist: the log ends at entry 5

    hint: `piton log first` shows what there is.
    --- exit 1
    ");
    insta::assert_snapshot!(world.piton(["show", "first/nope"]).whole(), @r"
    --- stderr
    error: run first has no finished step nope

    hint: `piton show first --steps` shows its steps.
    --- exit 1
    ");
    insta::assert_snapshot!(world.piton(["show", &"a".repeat(64)]).whole(), @r"
    --- stderr
    error: there is no run or value aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa here

    hint: `piton log --checkpoints` shows the checkpoints; `piton show` of one shows the ids of its values.
    --- exit 1
    ");
}

#[test]
fn diff_of_states() {
    let world = World::with_run();
    with_checkpoints(&world, "second", "bees");
    // Where the run is differs too, with the time that it took.
    let variables = |arguments: &[&str]| -> String {
        let said = world.piton(arguments).stdout;
        said.lines().filter(|line| !line.contains(" /engine/")).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(variables(&["diff", "--state", "@--", "@"]), @r#"
    + /variables/fetch  {"exit_code":0,"stderr":"","stdout":"bees\u001b[2J"}
    + /variables/write  {"output":"on bees\u001b[2J"}
    "#);
    insta::assert_snapshot!(variables(&["diff", "--state", "@-", "@--"]), @r#"- /variables/fetch  {"exit_code":0,"stderr":"","stdout":"bees\u001b[2J"}"#);
    let json = world.piton(["diff", "--state", "@-", "@", "--json"]).json();
    assert_eq!((json["from"].as_str(), json["to"].as_str()), (Some("second@4"), Some("second@5")));
    let changes = json["changes"].as_array().unwrap();
    assert!(
        changes.contains(&json!({"new": {"output": "on bees\u{1b}[2J"}, "path": "/variables/write"})),
        "{changes:?}"
    );
    assert!(changes.contains(&json!({"old": "fetch", "new": "write", "path": "/engine/now/last"})), "{changes:?}");
    insta::assert_snapshot!(world.piton(["diff", "--state", "@", "@"]).whole(), @r"
    --- stderr
    the states of second@5 and second@5 are the same
    --- exit 0
    ");
    // Of two runs their newest checkpoints.
    with_checkpoints(&world, "third", "bees");
    assert_eq!(variables(&["diff", "--state", "second", "third"]), "");
    with_checkpoints(&world, "fourth", "ants");
    insta::assert_snapshot!(variables(&["diff", "--state", "second", "fourth"]), @r#"
    ~ /variables/fetch/stdout  "bees\u001b[2J" → "ants\u001b[2J"
    ~ /variables/in/topic  "bees" → "ants"
    ~ /variables/write/output  "on bees\u001b[2J" → "on ants\u001b[2J"
    "#);
    // A run and a checkpoint don't go together, and an entry without state is none.
    insta::assert_snapshot!(world.piton(["diff", "--state", "second", "@"]).whole(), @r"
    --- stderr
    error: second and @ are of different kinds

    hint: compare two checkpoints or two runs; RUN@ is the newest checkpoint of a run.
    --- exit 2
    ");
    insta::assert_snapshot!(world.piton(["diff", "--state", "first@1", "@"]).whole(), @r"
    --- stderr
    error: first@1 is an entry without state, not a checkpoint

    hint: `piton log --checkpoints` shows the checkpoints.
    --- exit 1
    ");
    assert_eq!(world.piton(["diff", "--state", "first/greet", "@"]).code, Some(2));
}

#[test]
fn an_ambiguous_beginning_lists_what_it_may_be() {
    let world = World::with_run();
    for id in ["run-a", "run-b"] {
        assert_eq!(world.piton(["run", "flow.yml", "-i", "name=x", "--id", id]).code, Some(0));
    }
    insta::assert_snapshot!(world.piton(["show", "run"]).whole(), @r"
    --- stderr
    error: run is the beginning of more than one run's id

    hint: write more of the id. run may be:
      run-b  completed  flow.yml
      run-a  completed  flow.yml
    --- exit 1
    ");
    assert_eq!(world.piton(["show", "run-a"]).code, Some(0));
    // The whole id of a run that is also the beginning of another.
    assert_eq!(world.piton(["run", "flow.yml", "-i", "name=x", "--id", "run"]).code, Some(0));
    assert_eq!(world.piton(["show", "run", "--json"]).json()["id"], "run");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let world = World::with_run();
    let mut child = world.command(["log", "--json"]).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let said = world.wait(child);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
}

/// Every verb gives JSON, one object a line, and nothing else on stdout.
#[test]
fn every_verb_speaks_json() {
    let world = World::new();
    world.write("flow.yml", THREE_NODES);
    world.write("saves.yml", CHECKPOINTS);
    for (arguments, field) in [
        (&["init"][..], "store"),
        (&["run", "saves.yml", "-i", "topic=x", "--id", "a"], "outputs"),
        (&["resume", "a"], "outputs"),
        (&["log", "--all"], "kind"),
        (&["show", "a", "--steps"], "steps"),
        (&["show", "@"], "state"),
        (&["show", "a/write"], "output"),
        (&["diff", "--state", "@-", "@"], "changes"),
    ] {
        for place in [0, arguments.len()] {
            let mut arguments = arguments.to_vec();
            arguments.insert(place, "--json");
            let said = world.piton(&arguments);
            assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.stderr);
            assert!(!said.stdout.is_empty());
            for line in said.stdout.lines() {
                assert!(!serde_json::from_str::<Json>(line).unwrap()[field].is_null(), "{arguments:?}: {line}");
            }
        }
    }
}
/// `@` is of the folder that it is written in: nothing of another folder is shown or written, though the store is the
/// same. What belongs to no folder is found from anywhere.
#[tokio::test]
async fn the_newest_checkpoint_is_of_this_folder() {
    let world = World::new();
    let store = format!("sqlite:{}", world.root().join("team.db").display());
    let folder = |name: &str| world.root().join(name);
    let piton = |name: &str, verb: &[&str]| world.piton_in(&folder(name), ["--store", &store].iter().chain(verb));
    for name in ["a", "b", "c"] {
        std::fs::create_dir(folder(name)).unwrap();
    }
    for name in ["a", "b"] {
        std::fs::write(folder(name).join(format!("{name}.txt")), name).unwrap();
        assert_eq!(piton(name, &["save"]).code, Some(0));
    }
    std::fs::remove_file(folder("a").join("a.txt")).unwrap();
    let plan = piton("a", &["restore", "@", "--dry-run"]);
    assert!(plan.stdout.contains("a.txt") && !plan.stdout.contains("b.txt"), "{}", plan.whole());
    let id = |name: &str| piton(name, &["show", "@", "--json"]).json()["id"].as_str().unwrap().to_owned();
    assert!(id("a").starts_with("a-") && id("b").starts_with("b-"), "{} {}", id("a"), id("b"));
    std::fs::write(folder("c").join("own"), "").unwrap();
    for verb in [&["restore", "@", "--exact", "--yes"][..], &["restore", "@", "--dry-run"], &["diff"], &["show", "@"]] {
        let refused = piton("c", verb);
        assert_eq!(refused.code, Some(1), "{}", refused.whole());
        assert!(refused.stderr.contains("there are no checkpoints of [ROOT]/c yet"), "{}", refused.stderr);
    }
    // A folder that is gone isn't this one either.
    std::fs::remove_dir_all(folder("b")).unwrap();
    assert_eq!(piton("c", &["restore", "@", "--exact", "--yes"]).code, Some(1));
    let left: Vec<_> = std::fs::read_dir(folder("c")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["own"]);

    let context =
        Context::system(Arc::new(SqliteStore::open(world.root().join("team.db"), SqliteOptions::default()).unwrap()));
    let open = OpenRun { id: Some("nobodys".parse().unwrap()), ..OpenRun::default() };
    Run::drive(&context, open, async |run| {
        let mut agent = AgentContext::open(&run).await?;
        agent.push_message(&Message::user("write a post")).await?;
        agent.save(&run, &CheckpointRecord::by(Trigger::UserInput)).await?;
        Ok(Value::Null)
    })
    .await
    .unwrap();
    context.store.close().await.unwrap();
    assert!(id("c").starts_with("nobodys@") && id("a").starts_with("a-"), "{} {}", id("c"), id("a"));
}

/// A folder that moved has its checkpoints still, in the state directory or inside it.
#[test]
fn a_moved_folder_keeps_its_newest_checkpoint() {
    for here in [false, true] {
        let world = World::new();
        if here {
            assert_eq!(world.piton(["init", "--here"]).code, Some(0));
        }
        world.write("a.txt", "kept");
        assert_eq!(world.piton(["save"]).code, Some(0));
        let moved = world.root().join("moved");
        std::fs::rename(world.work(), &moved).unwrap();
        std::fs::remove_file(moved.join("a.txt")).unwrap();
        let restored = world.command(["restore", "@", "--yes"]).current_dir(&moved).output().unwrap();
        assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
        assert_eq!(std::fs::read_to_string(moved.join("a.txt")).unwrap(), "kept");
    }
}

/// The history of a folder goes with it, by path and by what can be undone; so does that of a folder inside it.
#[test]
fn a_moved_folder_keeps_its_history() {
    for here in [false, true] {
        let world = World::new();
        if here {
            assert_eq!(world.piton(["init", "--here"]).code, Some(0));
        }
        std::fs::create_dir(world.work().join("sub")).unwrap();
        world.write("a.txt", "mine");
        world.write("sub/b.txt", "mine");
        assert_eq!(world.piton(["guard", "-q", "--", "sh", "-c", "echo its > a.txt"]).code, Some(0));
        if here {
            let below = ["guard", "-q", "--", "sh", "-c", "echo its > b.txt"];
            assert_eq!(world.piton_in(&world.work().join("sub"), below).code, Some(0));
        }
        let moved = world.root().join("moved");
        std::fs::rename(world.work(), &moved).unwrap();
        // Another folder at the old place changes nothing.
        std::fs::create_dir(world.work()).unwrap();
        let log = world.piton_in(&moved, ["log", "a.txt", "--json"]);
        assert_eq!(log.stdout.lines().count(), 2, "{}", log.whole());
        if here {
            // The newest operation is that of the folder below.
            let undone = world.piton_in(&moved.join("sub"), ["undo", "--yes"]);
            assert_eq!(undone.code, Some(0), "{}", undone.whole());
            assert_eq!(std::fs::read_to_string(moved.join("sub/b.txt")).unwrap(), "mine");
        }
        let undone = world.piton_in(&moved, ["undo", "--yes"]);
        assert_eq!(undone.code, Some(0), "{}", undone.whole());
        assert_eq!(std::fs::read_to_string(moved.join("a.txt")).unwrap(), "mine");
        // What is done at the new place is part of the same history, wherever it moves next.
        let again = world.root().join("again");
        std::fs::rename(&moved, &again).unwrap();
        let redone = world.piton_in(&again, ["redo", "--yes"]);
        assert_eq!(redone.code, Some(0), "{}", redone.whole());
        assert_eq!(std::fs::read_to_string(again.join("a.txt")).unwrap(), "its\n");
    }
}

/// A copy of a folder with its store begins anew, and what was imported from a folder of another machine isn't this
/// folder's.
#[test]
fn what_is_of_another_folder_is_not_taken_for_this_one() {
    let world = World::new();
    assert_eq!(world.piton(["init", "--here"]).code, Some(0));
    world.write("a.txt", "one");
    assert_eq!(world.piton(["guard", "-q", "--", "sh", "-c", "echo two > a.txt"]).code, Some(0));
    let copy = world.root().join("copy");
    assert!(world.program("cp", ["-a", "../work", "../copy"]).status().unwrap().success());
    let undo = world.piton_in(&copy, ["undo", "--yes"]);
    assert!(undo.code == Some(1) && undo.stderr.contains("there is nothing to undo"), "{}", undo.whole());

    let run = world.piton(["ls", "--json"]).stdout;
    let run: Json = serde_json::from_str(run.lines().next().unwrap()).unwrap();
    let export = format!("piton export {} > ../x.piton", run["id"].as_str().unwrap());
    assert!(world.shell(&export).status().unwrap().success());
    std::fs::remove_dir_all(world.work()).unwrap();
    let other = world.root().join("other");
    std::fs::create_dir(&other).unwrap();
    assert_eq!(world.piton_in(&other, ["import", "../x.piton"]).code, Some(0));
    for verb in [["show", "@"], ["restore", "@"]] {
        let refused = world.piton_in(&other, verb);
        assert_eq!(refused.code, Some(1), "{}", refused.whole());
        assert!(refused.stderr.contains("there are no checkpoints of [ROOT]/other yet"), "{}", refused.stderr);
    }
}

/// The store filters by text, kind and time; all of them have to fit.
#[test]
fn runs_are_listed_by_what_is_asked_for() {
    let world = World::with_run();
    assert_eq!(world.piton(["save"]).code, Some(0));
    let listed = |arguments: &[&str]| {
        let said = world.piton([&["ls", "--json"], arguments].concat());
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        said.stdout.lines().count()
    };
    assert_eq!((listed(&[]), listed(&["FIR"]), listed(&["flow.yml"]), listed(&["none"])), (2, 1, 1, 0));
    assert_eq!((listed(&["--kind", "workflow"]), listed(&["--kind", "guard"])), (1, 0));
    assert_eq!((listed(&["first", "--kind", "workspace"]), listed(&["--label", "x"])), (0, 0));
    assert_eq!((listed(&["--since", "1w"]), listed(&["--since", "0s"])), (2, 0));
    assert_eq!(world.piton(["ls", "--kind", "cake"]).code, Some(2));
}
