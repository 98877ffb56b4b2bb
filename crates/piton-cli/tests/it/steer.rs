//! `ls`, `events`, `retry`, `fork`, `restore`, `stop`, `cancel`, `answer`, and a run that another process drives.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use piton_runtime::{AgentContext, Context, Message, OpenRun, Outcome, Run, RunError, Wait, Waits};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{CheckpointRecord, TokenUsage, Trigger, Value};
use serde_json::{Value as Json, json};

use crate::world::{World, wait_until, without_ages};

/// The second command fails until there is a file `ready`; the first leaves a line for each time it ran.
const FLAKY: &str = r"
nodes:
  - {id: in, data: {type: start, variables: [{variable: name, required: true}]}}
  - {id: fetch, data: {type: command, checkpoint: true, command: [sh, -c, 'echo $0 >> calls; echo hello $0', '{{#in.name#}}']}}
  - {id: check, data: {type: command, command: [test, -e, ready]}}
  - {id: out, data: {type: end, outputs: [{variable: greeting, value_selector: [fetch, stdout]}]}}
edges:
  - {source: in, target: fetch}
  - {source: fetch, target: check}
  - {source: check, target: out}
";

/// A command that says that it runs, and ends when there is a file `go`.
const SLOW: &str = r"
nodes:
  - {id: in, data: {type: start}}
  - {id: wait, data: {type: command, command: [sh, -c, 'touch begun; while ! test -e go; do sleep 0.05; done']}}
  - {id: more, data: {type: command, command: [sh, -c, 'echo x >> more']}}
  - {id: out, data: {type: end}}
edges:
  - {source: in, target: wait}
  - {source: wait, target: more}
  - {source: more, target: out}
";

/// A world with a failed run `r`.
fn failed() -> World {
    let world = World::new();
    world.write("flow.yml", FLAKY);
    assert_eq!(world.piton(["run", "flow.yml", "-i", "name=Ada", "--id", "r"]).code, Some(1));
    world
}

fn steps(world: &World, run: &str) -> Vec<String> {
    let shown = world.piton(["show", run, "--steps", "--json"]).json();
    let steps = shown["steps"].as_array().unwrap().iter();
    steps.map(|step| format!("{} {}", step["step"].as_str().unwrap(), step["status"].as_str().unwrap())).collect()
}

#[test]
fn ls() {
    let world = failed();
    assert_eq!(world.piton(["run", "flow.yml", "-i", "name=Bob", "--id", "other"]).code, Some(1));
    world.write("ready", "");
    assert_eq!(world.piton(["resume", "other"]).code, Some(0));
    insta::assert_snapshot!(without_ages(&world.piton(["ls"]).whole()), @r"
    --- stdout
    RUN  STATE  STEP  WHEN  WORKED  WHAT
    other  completed  -  [AGE]  [TOOK]  flow.yml  name=Bob
    r  failed  check  [AGE]  [TOOK]  flow.yml  name=Ada
    --- exit 0
    ");
    insta::assert_snapshot!(without_ages(&world.piton(["ls", "--failed"]).whole()), @r#"
    --- stdout
    RUN  STATE  STEP  WHEN  WORKED  ERROR
    r  failed  check  [AGE]  [TOOK]  node check failed: "test" ended with 1
    --- exit 0
    "#);
    insta::assert_snapshot!(world.piton(["ls", "--waiting"]).whole(), @r"
    --- stderr
    nothing to show
    --- exit 0
    ");
    let first = world.piton(["ls", "-n", "1", "--json"]).json();
    assert_eq!((first["id"].as_str(), first["status"].as_str()), (Some("other"), Some("completed")));
    assert_eq!(first["usage"], json!({"input": 0, "output": 0, "total": 0, "cost": 0.0}));
    assert!(first["duration_ms"].is_u64() && first["stalled"] == false);

    // Another folder has another store; `--all` shows both.
    let elsewhere = world.root().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    assert_eq!(world.piton_in(&elsewhere, ["ls"]).code, Some(1), "no store here");
    let all = world.piton_in(&elsewhere, ["ls", "--all", "--json"]).stdout;
    assert_eq!(all.lines().count(), 2);
    assert_eq!(world.piton(["ls", "--waiting", "--failed"]).code, Some(2));
}

/// R1: a run whose process was killed is shown as stalled, and offered.
#[test]
fn a_run_whose_process_was_killed_is_stalled() {
    let world = World::new();
    world.write("slow.yml", SLOW);
    let mut child = world.command(["run", "slow.yml", "--id", "r"]).spawn().unwrap();
    wait_until(|| world.work().join("begun").exists());
    let said = world.piton(["ls", "--json"]).json();
    assert_eq!((said["status"].as_str(), said["stalled"].as_bool()), (Some("in_progress"), Some(false)));
    child.kill().unwrap();
    child.wait().unwrap();
    world.write("go", "");
    let said = world.piton(["ls"]);
    assert!(said.stdout.contains("stalled"), "{}", said.stdout);
    insta::assert_snapshot!(said.stderr, @"the process that drove a stalled run is dead: `piton resume r` goes on with it");
    insta::assert_snapshot!(world.piton(["resume", "r"]).whole(), @r"
    --- stdout
    {}
    --- stderr
    run r (slow.yml) goes on from its finished steps, 1 step done; last: step in finished
    in: finished before, skipped
    wait: started
    wait: finished
    more: started
    more: finished
    out: started
    out: finished
    run r completed
    --- exit 0
    ");
}

#[test]
fn events_are_what_happened_in_order() {
    let world = failed();
    let lines = |text: &str| -> String {
        let cut = text.lines().map(|line| line.split_once("  ").map_or(line, |(_, rest)| rest).trim_start().to_owned());
        without_ages(&cut.collect::<Vec<_>>().join("\n"))
    };
    insta::assert_snapshot!(lines(&world.piton(["events", "r"]).stdout), @r#"
    0  created  flow.yml
    1  started
    2  step  in  [TOOK]
    3  intent  fetch
    4  step  fetch  [TOOK]  [engine, variables]
    5  intent  check
    6  step  check  [TOOK]  "test" ended with 1
    7  state  failed  node check failed: "test" ended with 1
    "#);
    let json = world.piton(["events", "r", "--json"]).stdout;
    let last: Json = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!((last["kind"].as_str(), last["body"]["status"].as_str()), (Some("state_changed"), Some("failed")));
    // A run that is over is followed to its end, which is there.
    assert_eq!(world.piton(["events", "r", "-f"]).code, Some(0));
}

#[test]
fn events_can_be_followed_while_they_happen() {
    let world = World::new();
    world.write("slow.yml", SLOW);
    let run = world.command(["run", "slow.yml", "--id", "r"]).spawn().unwrap();
    wait_until(|| world.work().join("begun").exists());
    let mut follow = world.command(["events", "r", "-f", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let kind = |line: String| serde_json::from_str::<Json>(&line).unwrap()["kind"].as_str().unwrap().to_owned();
    let mut seen: Vec<_> = (0..3).map(|_| kind(lines.next().unwrap().unwrap())).collect();
    assert_eq!(seen, ["created", "claimed", "step_done"]);
    world.write("go", "");
    seen = lines.map(|line| kind(line.unwrap())).collect();
    assert_eq!(seen.last().map(String::as_str), Some("state_changed"), "{seen:?}");
    assert_eq!(follow.wait().unwrap().code(), Some(0), "it ends with the run");
    assert_eq!(world.wait(run).code, Some(0));
}

/// R5: from a step on everything is done again; without it only what failed.
#[test]
fn a_run_is_tried_again_from_a_step() {
    let world = failed();
    insta::assert_snapshot!(world.piton(["retry", "r", "--from", "fetch", "--dry-run"]).whole(), @r"
    --- stdout
    try run r again from step fetch
      2 steps are done again: fetch, check
      what fetch did in the world stays
    --- stderr
    nothing was done
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["retry", "r", "--from", "fetch"]).whole(), @r"
    --- stderr
    try run r again from step fetch
      2 steps are done again: fetch, check
      what fetch did in the world stays
    error: no person can be asked here, and nothing was done

    hint: `--yes` goes on without asking, `--dry-run` shows what would be done.
    --- exit 4
    ");
    insta::assert_snapshot!(world.piton(["retry", "r", "--from", "nope", "--yes"]).whole(), @r"
    --- stderr
    error: run r has no step nope

    hint: nothing was changed. `piton show r --steps` shows its steps.
    --- exit 1
    ");
    assert_eq!(steps(&world, "r").len(), 3, "nothing was done");
    assert_eq!(world.piton(["retry", "r"]).code, Some(1), "it fails again");
    assert_eq!(world.lines("calls").len(), 1, "what is done isn't done again");
    insta::assert_snapshot!(world.piton(["retry", "r", "--dry-run"]).whole(), @r"
    --- stdout
    try run r again where it failed
      step check is tried again
      2 finished steps stay
    --- stderr
    nothing was done
    --- exit 0
    ");
    let counted = world.piton(["retry", "r", "--from", "fetch", "--dry-run"]).stdout;
    assert!(counted.contains("2 steps are done again: fetch, check\n"), "each is counted once: {counted}");
    world.write("ready", "");
    let said = world.piton(["retry", "r", "--from", "fetch", "--yes", "--json", "-q"]);
    assert_eq!((said.code, said.json()["status"].as_str()), (Some(0), Some("completed")), "{}", said.stderr);
    assert_eq!(world.lines("calls").len(), 2);
    insta::assert_snapshot!(world.piton(["retry", "r"]).whole(), @r"
    --- stderr
    error: run r is completed, not failed

    hint: `piton fork r` branches a new run off it.
    --- exit 4
    ");
    insta::assert_snapshot!(world.piton(["retry", "r", "--from", "fetch", "--yes"]).whole(), @r"
    --- stderr
    error: run r is completed
      caused by: a run that is completed can't become in_progress

    hint: nothing was changed; `piton fork r` branches a new run off it.
    --- exit 4
    ");
}

#[test]
fn a_fork_goes_on_differently_and_leaves_its_parent_alone() {
    let world = failed();
    world.write("ready", "");
    insta::assert_snapshot!(world.piton(["fork", "r", "--id", "second", "--set", "fetch.stdout=changed"]).whole(), @r"
    --- stdout
    second
    --- stderr
    run second branched off r@7; `piton resume second` goes on with it
    --- exit 0
    ");
    let said = world.piton(["resume", "second", "--json", "-q"]);
    assert_eq!(said.json()["outputs"]["greeting"], "changed", "{}", said.stderr);
    assert_eq!(world.lines("calls").len(), 1, "what its parent did isn't done again");
    assert_eq!(world.piton(["show", "r", "--json"]).json()["status"], "failed");
    // Before `fetch`, with another input.
    let id = world.piton(["fork", "r@2", "--set", "name=Eve", "--json"]).json()["id"].as_str().unwrap().to_owned();
    assert_eq!(world.piton(["resume", &id, "--json", "-q"]).json()["outputs"]["greeting"], "hello Eve\n");
    assert_eq!(world.piton(["show", &id, "--json"]).json()["parent"], "r@2");

    insta::assert_snapshot!(world.piton(["fork", "r", "--id", "second"]).whole(), @r"
    --- stderr
    error: there is a run second already

    hint: choose another --id.
    --- exit 1
    ");
    insta::assert_snapshot!(world.piton(["fork", "r", "--set", "colour=red"]).whole(), @r"
    --- stderr
    error: run r has no input or variable colour

    hint: `piton show r --steps` shows what its steps gave: STEP.NAME changes a field of that.
    --- exit 1
    ");
    assert_eq!(world.piton(["fork", "r@99"]).code, Some(1));
}

#[test]
fn a_run_is_put_back_and_forward_again() {
    let world = failed();
    insta::assert_snapshot!(world.piton(["restore", "--state", "r@2", "--dry-run"]).whole(), @r"
    --- stdout
    put run r back to r@2
      2 steps are done again: fetch, check
      what fetch did in the world stays
    --- stderr
    nothing was done
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["restore", "--state", "r@2", "--dry-run", "--json", "-q"]).stdout, @r#"{"plan":"put run r back to r@2","entails":["2 steps are done again: fetch, check","what fetch did in the world stays"],"done":false}"#);
    insta::assert_snapshot!(world.piton(["restore", "--state", "r"]).whole(), @r"
    --- stderr
    error: r is a run; which of its checkpoints?

    hint: `piton log r` shows them; write RUN@7, or RUN@- for the one before the newest.
    --- exit 2
    ");
    assert_eq!(world.piton(["restore", "--state", "r@2"]).code, Some(4), "nobody agreed");
    insta::assert_snapshot!(world.piton(["restore", "--state", "r@2", "--yes"]).whole(), @r"
    --- stderr
    put run r back to r@2
      2 steps are done again: fetch, check
      what fetch did in the world stays
    run r is as it was at r@2, and paused; `piton resume r` goes on from there
    --- exit 0
    ");
    assert_eq!(world.piton(["show", "r", "--json"]).json()["status"], "paused");
    world.write("ready", "");
    assert_eq!(world.piton(["resume", "r"]).code, Some(0));
    assert_eq!(world.lines("calls").len(), 2, "fetch was undone, so it ran again");
    insta::assert_snapshot!(world.piton(["restore", "--state", "r@2", "--yes"]).whole(), @r"
    --- stderr
    error: run r is completed
      caused by: a run that is completed can't become in_progress

    hint: nothing was changed; `piton fork r` branches a new run off it.
    --- exit 4
    ");
}

#[test]
fn a_run_that_somebody_drives_is_stopped_by_asking_him() {
    let world = World::new();
    world.write("slow.yml", SLOW);
    let run = world.command(["run", "slow.yml", "--id", "r"]).spawn().unwrap();
    wait_until(|| world.work().join("begun").exists());
    let said = world.piton(["stop", "r", "-m", "lunch"]);
    assert_eq!(said.code, Some(0));
    assert!(
        said.stderr.starts_with("process ") && said.stderr.ends_with("was asked to stop run r\n"),
        "{}",
        said.stderr
    );
    world.write("go", "");
    let ended = world.wait(run);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("lunch") && ended.stderr.contains("`piton resume r` goes on"), "{}", ended.stderr);
    let shown = world.piton(["show", "r", "--json"]).json();
    assert_eq!(shown["status"], "paused");
    assert!(!world.work().join("more").exists(), "nothing began after the stop");
    assert_eq!(world.piton(["resume", "r"]).code, Some(0));
    assert_eq!(std::fs::read_to_string(world.work().join("more")).unwrap(), "x\n");
    insta::assert_snapshot!(world.piton(["stop", "r"]).whole(), @r"
    --- stderr
    error: run r is completed
      caused by: a run that is completed can't become paused

    hint: nothing was changed; `piton fork r` branches a new run off it.
    --- exit 4
    ");
}

#[test]
fn cancelling_is_for_good() {
    let world = failed();
    insta::assert_snapshot!(world.piton(["cancel", "r", "--dry-run"]).whole(), @r"
    --- stdout
    cancel run r for good
      it is failed
      2 finished steps stay in its log
    --- stderr
    nothing was done
    --- exit 0
    ");
    assert_eq!(world.piton(["cancel", "r"]).code, Some(4), "nobody agreed");
    insta::assert_snapshot!(world.piton(["cancel", "r", "--yes", "--json", "-q"]).whole(), @r#"
    --- stdout
    {"id":"r","run":"r","status":"cancelled","request":"done"}
    --- exit 0
    "#);
    insta::assert_snapshot!(world.piton(["cancel", "r", "--yes"]).whole(), @r"
    --- stderr
    run r was cancelled before
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["resume", "r"]).whole(), @r"
    --- stderr
    error: run r is cancelled
      caused by: a run that is cancelled can't become in_progress

    hint: nothing was changed; `piton fork r` branches a new run off it.
    --- exit 4
    ");
    assert_eq!(world.piton(["stop", "r"]).code, Some(0), "it doesn't run, as was wanted");
}

/// A program with a question, a budget and a conversation, of which the command line knows only what the store has.
async fn program(store: &str) -> Result<Value, RunError> {
    let context = Context::system(Arc::new(SqliteStore::open(store, SqliteOptions::default())?));
    let open = OpenRun {
        id: Some("post".parse()?),
        name: "weekly post".to_owned(),
        waits: Waits::Leave,
        ..OpenRun::default()
    };
    let outcome = Run::drive(&context, open, async |mut run| {
        let mut agent = AgentContext::open(&run).await?;
        if agent.ledger().calls == 0 {
            agent.push_message(&Message::user("write a post")).await?;
            agent.add_usage(TokenUsage { input: 900, output: 100, cost: 0.125 }).await.map_err(RunError::program)?;
            agent.save(&run, &CheckpointRecord::by(Trigger::UserInput).described("asked")).await?;
        }
        run.wait_for::<Value>("approval", Wait::new("Publish it?")).await
    })
    .await?;
    context.store.close().await?;
    match outcome {
        Outcome::Completed(answer) => Ok(answer),
        other => Err(RunError::program(format!("{other:?}"))),
    }
}

/// R8, F7: the question outlives its process, is listed with what the run cost so far, and is answered from another.
#[tokio::test]
async fn a_question_is_listed_and_answered_from_another_process() {
    let world = World::new();
    let file = world.work().join("runs.db");
    let store = file.to_str().unwrap();
    let url = format!("sqlite:{store}");
    assert!(program(store).await.unwrap_err().to_string().contains("Waiting"));
    insta::assert_snapshot!(without_ages(&world.piton(["ls", "--waiting", "--store", &url]).whole()), @r"
    --- stdout
    RUN  STATE  STEP  WHEN  WORKED  COST  QUESTION
    post  waiting  approval  [AGE]  [TOOK]  0.125  Publish it?
    --- exit 0
    ");
    let shown = world.piton(["show", "post", "--store", &url, "--json"]).json();
    assert_eq!((shown["status"].as_str(), shown["usage"]["total"].as_u64()), (Some("waiting"), Some(1000)));
    assert_eq!(shown["questions"][0]["prompt"], "Publish it?");
    let answer = |arguments: &[&str]| world.piton([&["answer", "post", "--store", &url][..], arguments].concat());
    insta::assert_snapshot!(answer(&["--question", "title", "--value", "x"]).whole(), @r"
    --- stderr
    error: run post waits for no answer to title

    hint: `piton --store sqlite:[ROOT]/work/runs.db show post` shows how it stands.
    --- exit 1
    ");
    insta::assert_snapshot!(answer(&["--set", "approved=true", "--set", "note=very good"]).whole(), @r"
    --- stderr
    question approval of run post is answered
    --- exit 0
    ");
    assert_eq!(answer(&["--set", "approved=false"]).code, Some(1), "it was answered");
    let given = program(store).await.unwrap();
    assert_eq!(given, Value::map([("approved", Value::from(true)), ("note", Value::from("very good"))]));
    assert_eq!(world.piton(["show", "post", "--store", &url, "--json"]).json()["status"], "completed");
    // The command line can't drive the run of another program.
    insta::assert_snapshot!(world.piton(["resume", "post", "--store", &url]).whole(), @r"
    --- stderr
    error: run post is not a workflow

    hint: the program that started it must go on with it; `piton --store sqlite:[ROOT]/work/runs.db show post` shows what it did.
    --- exit 1
    ");
}

#[test]
fn nobody_is_answered_who_did_not_ask() {
    let world = failed();
    insta::assert_snapshot!(world.piton(["answer", "r", "--set", "approved=true"]).whole(), @r"
    --- stderr
    error: run r waits for no answer

    hint: `piton show r` shows how it stands.
    --- exit 1
    ");
    assert_eq!(world.piton(["answer", "r"]).code, Some(2), "an answer is wanted");
    assert_eq!(world.piton(["answer", "r", "--set", "x=1", "--value", "2"]).code, Some(2));
    assert_eq!(world.piton(["answer", "nope", "--value", "2"]).code, Some(1));
}

/// Decision 2: a run that is alive elsewhere says by whom, and is waited for if that is wanted.
#[test]
fn a_run_that_somebody_drives_is_refused_or_waited_for() {
    let world = World::new();
    world.write("slow.yml", SLOW);
    let run = world.command(["run", "slow.yml", "--id", "r"]).spawn().unwrap();
    wait_until(|| world.work().join("begun").exists());
    for verb in [vec!["resume", "r"], vec!["run", "slow.yml", "--id", "r"], vec!["retry", "r", "--from", "in", "--yes"]]
    {
        let said = world.piton(&verb);
        assert_eq!(said.code, Some(4), "{verb:?}: {}", said.stderr);
        let by = format!("run r is being driven by process {} on ", run.id());
        assert!(said.stderr.contains(&by) && said.stderr.contains("hint: nothing was changed"), "{}", said.stderr);
    }
    let said = world.piton(["resume", "r", "--wait", "1"]);
    assert_eq!(said.code, Some(4), "it waited in vain: {}", said.stderr);
    assert!(said.stderr.contains("waiting: run r is being driven by process"), "{}", said.stderr);
    let waiting = world.command(["resume", "r", "--wait", "--json"]).stderr(Stdio::piped()).spawn().unwrap();
    world.write("go", "");
    assert_eq!(world.wait(run).code, Some(0));
    let said = world.wait(waiting);
    assert_eq!((said.code, said.json()["status"].as_str()), (Some(0), Some("completed")), "{}", said.stderr);
    assert_eq!(std::fs::read_to_string(world.work().join("more")).unwrap(), "x\n", "and nothing ran twice");
}

/// V1: where nothing whole can be found, piton says so. It doesn't guess, and nothing is done.
#[test]
fn a_damaged_log_is_not_gone_on_with() {
    let world = failed();
    let store = std::fs::read_dir(world.state()).unwrap().next().unwrap().unwrap().path().join("store.db");
    let mut bytes = std::fs::read(&store).unwrap();
    let at = bytes.windows(6).rposition(|window| window == b"failed").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&store, bytes).unwrap();
    insta::assert_snapshot!(world.piton(["resume", "r"]).whole(), @r"
    --- stderr
    error: run r doesn't go on by itself
      caused by: no checkpoint of the run is whole: ignore, abort?
      caused by: no whole checkpoint: 1 checks
      caused by: warning: integrity: the end of the log was passed over: [ROOT]/home/.local/state/piton/[HASH]/store.db: a page doesn't match its checksum
      caused by: error: integrity: no checkpoint of the run is whole

    hint: nothing was done. Make a copy of the store before anything else; `piton check` says what is damaged, `piton check --repair` keeps what is whole.
    --- exit 4
    ");
    assert_eq!(world.lines("calls").len(), 1);
}

#[test]
fn hostile_ids_are_refused_by_every_verb() {
    let world = World::new();
    for id in ["../../x", "'; DROP TABLE run; --", "a\nb", "*", "", "-rf", "\u{202e}x"] {
        for verb in [
            vec!["events", "--", id],
            vec!["answer", "--set", "a=1", "--", id],
            vec!["retry", "--", id],
            vec!["retry", "r", &format!("--from={id}\n")],
            vec!["fork", "--", id],
            vec!["fork", "r", &format!("--id={id}")],
            vec!["restore", "--", id],
            vec!["stop", "--", id],
            vec!["cancel", "--", id],
        ] {
            let said = world.piton(&verb);
            assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{verb:?}: {}", said.stderr);
            assert!(!said.stderr.contains(['\u{202e}', '\x1b']), "{}", said.stderr);
        }
    }
    assert!(!world.root().join("home").exists(), "nothing was made");
}
/// R6: an input is changed as the document wants it, whatever its text was, and one that wasn't given can be given. One
/// that it can't be is refused before there is a run.
#[test]
fn a_fork_has_the_inputs_that_it_was_given() {
    let world = World::new();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workflows/approval/workflow.yml");
    assert_eq!(world.piton(["run", examples, "-i", "amount=250", "--id", "pay"]).code, Some(3));
    let forked = world.piton(["fork", "pay@2", "--set", "amount=50", "--id", "pay2"]);
    assert_eq!(forked.code, Some(0), "{}", forked.stderr);
    let said = world.piton(["resume", "pay2", "--json", "-q"]);
    assert_eq!((said.code, said.json()["outputs"]["outcome"].as_str()), (Some(0), Some("paid")), "{}", said.whole());
    assert_eq!(world.piton(["fork", "pay@2", "--set", r#"amount="300""#, "--id", "pay3"]).code, Some(0));
    assert_eq!(world.piton(["resume", "pay3"]).code, Some(3));
    assert_eq!(world.piton(["show", "pay3", "--json"]).json()["questions"][0]["prompt"], "Pay 300?");
    let again = world.piton(["retry", "pay", "--from", "needs_approval", "--set", "amount=7", "--yes", "--json", "-q"]);
    assert_eq!(again.json()["outputs"]["outcome"], "paid", "{}", again.whole());
    let tried = world.piton(["fork", "pay@2", "--only", "needs_approval", "--set", "amount=7", "--json"]);
    assert_eq!(tried.code, Some(0), "{}", tried.whole());
    insta::assert_snapshot!(world.piton(["fork", "pay@2", "--set", "amount=much", "--id", "pay4"]).whole(), @r#"
    --- stderr
    error: the inputs are not valid
      caused by: input "amount": "much" is not a number

    hint: no run was made; --set NAME=VALUE gives another value.
    --- exit 1
    "#);
    assert_eq!(world.piton(["show", "pay4"]).code, Some(1), "there is no such run");

    world.write(
        "flow.yml",
        "nodes:
  - {id: in, data: {type: start, variables: [{variable: name, required: true}, {variable: title}, {variable: count, type: number, default: 1}]}}
  - {id: greet, data: {type: template-transform, template: '{{ title }} {{ name }} {{ count }}', variables: [{variable: name, value_selector: [in, name]}, {variable: title, value_selector: [in, title]}, {variable: count, value_selector: [in, count]}]}}
  - {id: out, data: {type: end, outputs: [{variable: greeting, value_selector: [greet, output]}]}}
edges:
  - {source: in, target: greet}
  - {source: greet, target: out}
",
    );
    assert_eq!(world.piton(["run", "flow.yml", "-i", "name=Ada", "--id", "g"]).code, Some(0));
    for at in ["g@0", "g@2"] {
        let id =
            world.piton(["fork", at, "--set", "title=Dr", "--set", "name=Eve", "--set", "count=2", "--json"]).json();
        let id = id["id"].as_str().unwrap();
        assert_eq!(world.piton(["resume", id, "--json", "-q"]).json()["outputs"]["greeting"], "Dr Eve 2", "{at}");
    }
}

/// A run that can't be stopped as it is gets a way on that is its own.
#[test]
fn what_cannot_be_stopped_says_what_can_be_done_instead() {
    let world = failed();
    insta::assert_snapshot!(world.piton(["stop", "r"]).whole(), @r"
    --- stderr
    error: run r is failed
      caused by: a run that is failed can't become paused

    hint: nothing was changed; `piton retry r` tries it again, `piton cancel r` gives it up.
    --- exit 4
    ");
    assert_eq!(world.piton(["fork", "r", "--id", "q"]).code, Some(0));
    let queued = world.piton(["stop", "q"]);
    assert_eq!(queued.code, Some(4));
    assert!(queued.stderr.contains("`piton resume q` begins it, `piton cancel q` gives it up"), "{}", queued.stderr);
}
