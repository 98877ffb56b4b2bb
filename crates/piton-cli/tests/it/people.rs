//! Runs that ask people and runs that are stopped, with real processes: `run`, `answer`, `resume`, `stop`, signals.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::world::{World, wait_until};

/// One branch asks twice, another works as long as there is a file `hold`.
const ASKING: &str = r"
nodes:
  - {id: in, data: {type: start}}
  - {id: work, data: {type: command, command: [sh, -c, 'echo work >> calls; touch begun; while test -e hold; do sleep 0.05; done; echo done']}}
  - {id: title, data: {type: human-input, prompt: 'Which title?', variables: [{name: title, type: string, required: true}]}}
  - {id: review, data: {type: human-input, title: Review, prompt: 'Publish it?', resume_mode: approval, variables: [{name: stars, type: number}]}}
  - {id: yes, data: {type: template-transform, template: 'yes'}}
  - {id: no, data: {type: template-transform, template: 'no'}}
  - {id: out, data: {type: end, outputs: [
      {variable: title, value_selector: [title, title]}, {variable: yes, value_selector: [yes, output]},
      {variable: stars, value_selector: [review, stars]}, {variable: work, value_selector: [work, stdout]}]}}
edges:
  - {source: in, target: work}
  - {source: in, target: title}
  - {source: in, target: review}
  - {source: review, sourceHandle: approve, target: 'yes'}
  - {source: review, sourceHandle: reject, target: 'no'}
  - {source: 'yes', target: out}
  - {source: 'no', target: out}
  - {source: title, target: out}
  - {source: work, target: out}
";

/// A command that holds as long as there is a file `hold`, beside one that fails as soon as there is a file `fail`.
const HOLDING: &str = r"
nodes:
  - {id: in, data: {type: start}}
  - {id: quick, data: {type: command, command: [sh, -c, 'echo quick >> calls; echo a']}}
  - {id: slow, data: {type: command, command: [sh, -c, 'echo slow >> calls; touch begun; while test -e hold; do sleep 0.02; done; echo b']}}
  - {id: after, data: {type: command, command: [sh, -c, 'echo after >> calls; echo c']}}
  - {id: out, data: {type: end, outputs: [{variable: a, value_selector: [quick, stdout]}, {variable: b, value_selector: [slow, stdout]}, {variable: c, value_selector: [after, stdout]}]}}
edges:
  - {source: in, target: quick}
  - {source: quick, target: slow}
  - {source: slow, target: after}
  - {source: after, target: out}
";

fn world(document: &str) -> World {
    let world = World::new();
    world.write("flow.yml", document);
    world
}

fn status(world: &World) -> String {
    world.piton(["show", "r", "--json"]).json()["status"].as_str().unwrap().to_owned()
}

/// A run that has begun its slow command.
fn begun(world: &World, arguments: &[&str]) -> Child {
    world.write("hold", "");
    let child = world.command([&["run", "flow.yml", "--id", "r"][..], arguments].concat()).spawn().unwrap();
    wait_until(|| world.work().join("begun").exists());
    child
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

fn release(world: &World) {
    std::fs::remove_file(world.work().join("hold")).unwrap();
}

/// F7, cli: exit 3 with the questions and how to answer them; two answers in any order from other processes, each
/// checked and used once; nothing runs twice.
#[test]
fn a_run_that_asks_exits_with_3_and_goes_on_with_answers_of_other_processes() {
    let world = world(ASKING);
    insta::assert_snapshot!(sorted(&world.piton(["run", "flow.yml", "--id", "r"]).whole()), @r"
    --- stderr
    run r started
    Review: asks: Publish it?
    Review: started
    checkpoint r@4
    checkpoint r@5
    in: finished
    in: started
    title: asks: Which title?
    title: started
    work: finished
    work: started
    run r waits for 2 answers
      review: Publish it?
        stars (number)
        token [TOKEN]
      `piton answer r --node review --set approved=true` answers
      title: Which title?
        title (string, required)
        token [TOKEN]
      `piton answer r --node title --set 'title=your answer'` answers
    then `piton resume r` goes on
    --- exit 3
    ");
    assert_eq!(status(&world), "waiting");
    let questions = world.piton(["ls", "--waiting", "--json"]).json()["questions"].clone();
    assert_eq!(questions[0]["token"].as_str().unwrap().len(), 32);
    let field =
        json!({"name": "title", "label": "", "type": "string", "required": true, "options": [], "default": null});
    assert_eq!((&questions[1]["step"], &questions[1]["fields"]), (&json!("title"), &json!([field])));

    insta::assert_snapshot!(world.piton(["answer", "r", "--set", "approved=true"]).whole(), @r"
    --- stderr
    error: run r waits for several answers: review, title

    hint: say which one with `--node STEP`, or by its token.
    --- exit 1
    ");
    let refused = ["answer", "r", "--node", "review", "--set", "stars=many", "--set", "approved=true"];
    insta::assert_snapshot!(world.piton(refused).whole(), @r#"
    --- stderr
    error: the answer to review is not valid: "stars": "many" is not a number

    hint: nothing was changed; the question is still open.
    --- exit 1
    "#);
    let said = world.piton([
        "answer",
        "r",
        "--node",
        "review",
        "--set",
        "stars=4",
        "--set",
        "approved=true",
        "--by",
        "Ada",
        "--json",
    ]);
    assert_eq!(
        said.json(),
        json!({"id": "r", "run": "r", "step": "review", "status": "waiting", "by": "Ada", "open": 1})
    );
    assert_eq!(world.piton(["answer", "r", "--node", "review", "--set", "approved=false"]).code, Some(1), "once");
    assert_eq!(world.piton(["resume", "r"]).code, Some(3), "one is still open");
    let said = world.piton(["answer", "r", "--set", "title=42", "--resume", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(said.json()["outputs"], json!({"stars": 4, "title": "42", "work": "done\n", "yes": "yes"}));
    assert_eq!(world.lines("calls"), ["work"]);
}

/// Lines that side by side come in any order.
fn sorted(text: &str) -> String {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let end = lines.iter().position(|line| line.starts_with("run r waits")).unwrap_or(lines.len());
    lines[2..end].sort();
    for line in &mut lines {
        if let Some((before, _)) = line.split_once("token ") {
            *line = format!("{before}token [TOKEN]");
        }
    }
    lines.join("\n")
}

/// F7, promise 1: killed while it waits for people and another branch works, the run loses neither the questions nor
/// an answer that was given meanwhile.
#[test]
fn killed_beside_an_open_question_the_run_goes_on_with_its_answer() {
    let world = world(ASKING);
    let mut child = begun(&world, &[]);
    wait_until(|| status(&world) == "waiting");
    assert_eq!(world.piton(["answer", "r", "--node", "title", "--set", "title=Bees"]).code, Some(0));
    child.kill().unwrap();
    child.wait().unwrap();
    release(&world);
    assert_eq!(world.piton(["answer", "r", "--node", "review", "--set", "approved=true"]).code, Some(0));
    let said = world.piton(["resume", "r", "--json"]);
    assert_eq!(said.json()["outputs"]["title"], "Bees", "{}", said.stderr);
    assert_eq!(world.lines("calls"), ["work", "work"], "what was in flight ran again, nothing else");
}

/// A process that drives the run goes on with an answer at once: it needn't be resumed.
#[test]
fn an_answer_reaches_a_process_that_works_at_another_branch() {
    let world = world(ASKING);
    let child = begun(&world, &["--json"]);
    wait_until(|| status(&world) == "waiting");
    // A user who wants to resume it as well is told that it goes on by itself.
    for (node, answer, more) in [("title", "title=Bees", None), ("review", "approved=true", Some("--resume"))] {
        let said = world.piton(["answer", "r", "--node", node, "--set", answer, "--json"].into_iter().chain(more));
        assert_eq!((said.code, said.json()["step"].as_str()), (Some(0), Some(node)), "{}", said.stderr);
    }
    wait_until(|| status(&world) == "in_progress");
    release(&world);
    let said = world.wait(child);
    assert_eq!(said.json()["status"], "completed", "{}", said.stderr);
}

/// F8: nothing begins, what runs may end, everything is kept, and the report says so.
#[test]
fn a_signal_stops_a_run_in_peace() {
    let world = world(HOLDING);
    let child = begun(&world, &["--json"]);
    signal(&child, "-TERM");
    release(&world);
    let said = world.wait(child);
    assert_eq!(said.code, Some(143), "{}", said.stderr);
    let result = said.json();
    assert_eq!((result["status"].as_str(), &result["outputs"]), (Some("paused"), &Json::Null));
    assert_eq!(
        result["stopped"],
        json!({"last_completed_node": "slow", "interrupted_nodes": [], "checkpoint_saved": true})
    );
    assert_eq!(world.lines("calls"), ["quick", "slow"], "nothing began");
    assert_eq!(world.piton(["resume", "r", "--json"]).json()["outputs"], json!({"a": "a\n", "b": "b\n", "c": "c\n"}));
    assert_eq!(world.lines("calls"), ["quick", "slow", "after"], "nothing ran twice");
}

/// F8: the second signal ends it at once, and the run is failed.
#[test]
fn a_second_signal_ends_a_run_at_once() {
    let world = world(HOLDING);
    let child = begun(&world, &["--json"]);
    signal(&child, "-INT");
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, "-INT");
    let said = world.wait(child);
    assert_eq!((said.code, said.json()["status"].as_str()), (Some(130), Some("failed")), "{}", said.stderr);
    assert_eq!(status(&world), "failed");
    release(&world);
    assert_eq!(world.piton(["resume", "r"]).code, Some(0), "whoever wants to can go on");
    assert_eq!(world.lines("calls"), ["quick", "slow", "slow", "after"]);
}

/// F8: `piton stop` reaches the process that drives the run; when the time is over what runs is cut short and named.
#[test]
fn a_stop_from_another_process_cuts_what_takes_too_long() {
    for arguments in [&["--now"][..], &["--grace", "1"]] {
        let world = world(HOLDING);
        let child = begun(&world, &["--json"]);
        let asked = Instant::now();
        assert_eq!(world.piton([&["stop", "r", "-m", "lunch"][..], arguments].concat()).code, Some(0));
        let said = world.wait(child);
        let result = said.json();
        assert_eq!((said.code, result["status"].as_str()), (Some(1), Some("paused")), "{}", said.stderr);
        assert_eq!(result["error"], "lunch");
        assert_eq!(
            result["stopped"],
            json!({"last_completed_node": "quick", "interrupted_nodes": ["slow"], "checkpoint_saved": true})
        );
        assert!(asked.elapsed() >= Duration::from_secs(u64::from(arguments.len() > 1)), "the time was given");
        release(&world);
        assert_eq!(world.piton(["resume", "r"]).code, Some(0));
        assert_eq!(world.lines("calls"), ["quick", "slow", "slow", "after"]);
    }
}

/// F8: killed while it is stopping, the run is as whole as ever.
#[test]
fn killed_while_it_stops_the_run_goes_on() {
    let world = world(HOLDING);
    let mut child = begun(&world, &[]);
    signal(&child, "-TERM");
    std::thread::sleep(Duration::from_millis(200));
    child.kill().unwrap();
    child.wait().unwrap();
    release(&world);
    let said = world.piton(["resume", "r", "--json"]);
    assert_eq!(said.json()["outputs"], json!({"a": "a\n", "b": "b\n", "c": "c\n"}), "{}", said.stderr);
    assert_eq!(world.lines("calls"), ["quick", "slow", "slow", "after"]);
}

/// Decision 5, sixth property: killed while it is being resumed, and resumed again.
#[test]
fn killed_while_it_resumes_the_run_goes_on() {
    let world = world(HOLDING);
    let mut child = begun(&world, &[]);
    for times in 1..3 {
        child.kill().unwrap();
        child.wait().unwrap();
        child = world.command(["resume", "r", "--json"]).spawn().unwrap();
        wait_until(|| world.lines("calls").len() == 2 + times);
    }
    release(&world);
    let said = world.wait(child);
    assert_eq!(said.json()["outputs"], json!({"a": "a\n", "b": "b\n", "c": "c\n"}), "{}", said.stderr);
    assert_eq!(world.lines("calls"), ["quick", "slow", "slow", "slow", "after"], "what was finished was skipped");
}

/// Decision 4: work that may or may not have taken place waits for a person. No process has to wait for the answer.
#[test]
fn uncertain_work_waits_for_a_person_of_another_process() {
    let document =
        HOLDING.replace("{id: slow, data: {type: command,", "{id: slow, data: {type: command, on_uncertain: ask,");
    for (answer, outputs, slow) in [
        (&["--set", "outcome=not_done"][..], json!({"a": "a\n", "b": "b\n", "c": "c\n"}), 2),
        (
            &["--set", "outcome=done", "--set", r#"output={"stdout": "B"}"#],
            json!({"a": "a\n", "b": "B", "c": "c\n"}),
            1,
        ),
    ] {
        let world = world(&document);
        let mut child = begun(&world, &[]);
        child.kill().unwrap();
        child.wait().unwrap();
        release(&world);
        let said = world.piton(["resume", "r", "--json"]);
        let result = said.json();
        assert_eq!((said.code, result["status"].as_str()), (Some(3), Some("waiting")), "{}", said.stderr);
        let prompt = result["questions"][0]["prompt"].as_str().unwrap();
        assert!(prompt.starts_with("Did slow take place? Its key is "), "{prompt}");
        assert_eq!(world.piton(["ls", "--waiting", "--json"]).json()["id"], "r");
        assert_eq!(world.piton(["answer", "r", "--set", "outcome=perhaps"]).code, Some(1), "not one of the choices");
        assert_eq!(world.piton([&["answer", "r"][..], answer].concat()).code, Some(0));
        let said = world.piton(["resume", "r", "--json"]);
        assert_eq!(said.json()["outputs"], outputs, "{}", said.stderr);
        assert_eq!(world.lines("calls").iter().filter(|line| *line == "slow").count(), slow);
    }
}

/// F8: a run that waits for people and is stopped stays a run that waits; the report is the stop's.
#[test]
fn a_stop_beside_open_questions_leaves_them_open() {
    let world = world(ASKING);
    let child = begun(&world, &["--json"]);
    wait_until(|| status(&world) == "waiting");
    assert_eq!(world.piton(["stop", "r", "--now"]).code, Some(0));
    let said = world.wait(child);
    let result = said.json();
    assert_eq!(result["stopped"]["interrupted_nodes"], json!(["work"]), "{}", said.stderr);
    assert_eq!(result["questions"].as_array().unwrap().len(), 2);
    assert_eq!(status(&world), "waiting");
    release(&world);
    for answer in [["review", "approved=false"], ["title", "title=Wasps"]] {
        assert_eq!(world.piton(["answer", "r", "--node", answer[0], "--set", answer[1]]).code, Some(0));
    }
    assert_eq!(world.piton(["resume", "r", "--json"]).json()["outputs"]["title"], "Wasps");
}

/// F7: a program of the user's is told when a question opens, and given the notice as JSON.
#[test]
fn a_program_is_told_when_somebody_is_asked() {
    let world = world(ASKING);
    world.write("piton.toml", "[notify]\ncommand = [\"sh\", \"-c\", \"cat >> told; echo >> told\"]\n");
    assert_eq!(world.piton(["run", "flow.yml", "--id", "r", "--config", "piton.toml"]).code, Some(3));
    let told = std::fs::read_to_string(world.work().join("told")).unwrap();
    let mut told: Vec<Json> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    told.sort_by_key(|notice| notice["message"].to_string());
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!((&told[0]["run"], &told[0]["event"]), (&json!("r"), &json!("waiting")));
    assert_eq!(told[0]["message"], "review: Publish it?");
    // Going on without an answer doesn't tell the program of the same questions again.
    assert_eq!(world.piton(["resume", "r", "--config", "piton.toml"]).code, Some(3));
    assert_eq!(std::fs::read_to_string(world.work().join("told")).unwrap().lines().count(), 2);

    world.write("wrong.toml", "[notify]\nwebhook = \"ftp://x\"\n");
    assert_eq!(world.piton(["run", "flow.yml", "--id", "s", "--config", "wrong.toml"]).code, Some(1));
}
