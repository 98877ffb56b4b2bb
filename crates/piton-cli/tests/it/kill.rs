//! `piton run` killed at any moment and resumed until it completes: what finished runs once, and the
//! outputs are those of a run that wasn't killed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

use crate::world::{World, wait_until};

/// Two commands that leave a line when they begin and one when they end, and are checkpoints; then a
/// template.
const FLOW: &str = r#"
nodes:
  - {id: in, data: {type: start, variables: [{variable: topic, required: true}]}}
  - id: fetch
    data: {type: command, checkpoint: true, command: [sh, -c, 'echo fetch >> begun; sleep 0.3; echo fetch >> ended; echo "about $1"', sh, '{{#in.topic#}}']}
  - id: write
    data: {type: command, checkpoint: true, command: [sh, -c, 'echo write >> begun; sleep 0.3; echo write >> ended; echo written']}
  - id: join
    data: {type: template-transform, template: '{{ a }}+{{ b }}', variables: [{variable: a, value_selector: [fetch, stdout]}, {variable: b, value_selector: [write, stdout]}]}
  - {id: out, data: {type: end, outputs: [{variable: text, value_selector: [join, output]}]}}
edges:
  - {source: in, target: fetch}
  - {source: fetch, target: write}
  - {source: write, target: join}
  - {source: join, target: out}
"#;

const RUN: [&str; 6] = ["run", "flow.yml", "-i", "topic=bees", "--id", "x"];

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn lines(folder: &Path, file: &str, line: &str) -> usize {
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    text.lines().filter(|found| *found == line).count()
}

/// The steps that the log has as finished.
fn finished(world: &World) -> Vec<String> {
    let said = world.piton(["show", "x", "--steps", "--json"]);
    if said.code != Some(0) {
        return Vec::new();
    }
    let steps = said.json()["steps"].as_array().unwrap().clone();
    steps
        .iter()
        .filter(|step| step["status"] == "completed")
        .map(|step| step["step"].as_str().unwrap().to_owned())
        .collect()
}

/// The step and the root of the variables of every checkpoint, newest first.
fn checkpoints(world: &World) -> Vec<(String, String)> {
    let said = world.piton(["log", "x", "--checkpoints", "--json"]);
    let entries = said.stdout.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    // However it is stored, it is shown with the root of its value.
    let root = |id: &str| text(&world.piton(["show", id, "--json"]).json()["parts"]["variables"]["root"]);
    entries.map(|entry| (text(&entry["label"]), root(entry["id"].as_str().unwrap()))).collect()
}

/// The outcome and the checkpoints of a run that isn't killed.
fn undisturbed() -> (Json, Vec<(String, String)>) {
    let world = World::new();
    world.write("flow.yml", FLOW);
    let said = world.piton(RUN.into_iter().chain(["--json"]));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let saved = checkpoints(&world);
    let steps: Vec<_> = saved.iter().map(|(step, _)| step.as_str()).collect();
    assert_eq!(steps, ["write", "fetch"]);
    (said.json(), saved)
}

/// The negative control: the lines that the others count would show a command that runs again.
#[test]
fn the_counter_counts() {
    let world = World::new();
    world.write("flow.yml", FLOW);
    for calls in 1..=2 {
        let said = world.piton(["run", "flow.yml", "-i", "topic=bees"]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        for node in ["fetch", "write"] {
            assert_eq!((lines(&world.work(), "begun", node), lines(&world.work(), "ended", node)), (calls, calls));
        }
    }
}

#[test]
fn killed_at_any_moment_it_goes_on_where_it_was() {
    let (expected, saved) = undisturbed();
    // Uneven steps, so that kills fall into the start of the process, commits, and both commands.
    for first in [5, 40, 90, 150, 260, 330, 420, 600] {
        let world = World::new();
        world.write("flow.yml", FLOW);
        let mut kept: Vec<String> = Vec::new();
        // How often each command had begun when it was first found finished.
        let mut begun: BTreeMap<&str, usize> = BTreeMap::new();
        let mut delay = Duration::from_millis(first);
        let result = (0..40).find_map(|round| {
            // In turn by its document and by its id alone, once it exists.
            let resume = round % 2 == 1 && world.piton(["show", "x"]).code == Some(0);
            let arguments: Vec<&str> = if resume { vec!["resume", "x"] } else { RUN.to_vec() };
            let mut child = world.command(arguments.into_iter().chain(["--json"])).spawn().unwrap();
            let end = Instant::now() + delay;
            while Instant::now() < end && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(2));
            }
            let _ = child.kill();
            let said = world.wait(child);
            let now = finished(&world);
            assert!(now.starts_with(&kept), "what was finished stays finished: {kept:?}, then {now:?}");
            kept = now;
            for node in ["fetch", "write"].into_iter().filter(|node| kept.iter().any(|step| step == node)) {
                let count = lines(&world.work(), "begun", node);
                assert_eq!(*begun.entry(node).or_insert(count), count, "{node} was finished and began again");
            }
            delay += Duration::from_millis(70);
            (said.code == Some(0)).then(|| said.json())
        });
        assert_eq!(result.expect("it gets on every time"), expected, "killed first after {first} ms");
        assert_eq!(kept, ["in", "fetch", "write", "join", "out"]);
        assert_eq!(checkpoints(&world), saved, "killed first after {first} ms: the variables are the same");
    }
}

#[test]
fn a_finished_command_never_runs_again() {
    let (expected, saved) = undisturbed();
    let world = World::new();
    world.write("flow.yml", FLOW);
    for round in 0..3 {
        let mut child = world.command(RUN).spawn().unwrap();
        // As soon as the second command begins, the first is in the log for good.
        let stderr = BufReader::new(child.stderr.take().unwrap());
        assert!(stderr.lines().any(|line| line.unwrap() == "write: started"), "round {round}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lines(&world.work(), "begun", "fetch"), 1, "round {round}");
    }
    let said = world.piton(["resume", "x", "--json"]);
    assert_eq!(said.json(), expected);
    assert_eq!(checkpoints(&world), saved);
    assert!(said.stderr.contains("fetch: finished before, skipped"), "{}", said.stderr);
    assert_eq!((lines(&world.work(), "begun", "fetch"), lines(&world.work(), "ended", "write")), (1, 1));
}

#[test]
fn a_signal_stops_it_and_says_how_to_go_on() {
    for (kind, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let world = World::new();
        world.write("flow.yml", FLOW);
        let mut child = world.command(RUN).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(stderr.any(|line| line == "write: started"));
        signal(&child, kind);
        let last = stderr.last().unwrap();
        assert_eq!(last, "hint: what finished is kept. `piton resume x` goes on from there.");
        assert_eq!(child.wait().unwrap().code(), Some(code));
        // The command was killed with it and is not counted as a failure of its own.
        assert_eq!(world.piton(["show", "x", "--json"]).json()["status"], "paused");
        let said = world.piton(["resume", "x", "--json"]);
        assert_eq!(said.json()["status"], "completed");
        assert_eq!((lines(&world.work(), "begun", "fetch"), lines(&world.work(), "ended", "write")), (1, 1));
    }
}

#[test]
fn a_run_that_is_being_driven_is_not_driven_twice() {
    let world = World::new();
    world.write("flow.yml", &FLOW.replace("sleep 0.3", "sleep 3"));
    let mut child = world.command(RUN).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(stderr.any(|line| line == "fetch: started"));
    let before = world.piton(["log", "x", "--all", "--json"]).stdout;
    for arguments in [&["resume", "x"][..], &RUN] {
        let said = world.piton(arguments);
        assert_eq!((said.code, said.stdout.as_str()), (Some(4), ""), "{}", said.stderr);
        let by_whom = format!("error: run x is being driven by process {} on ", child.id());
        assert!(
            said.stderr.starts_with(&by_whom) && said.stderr.contains("hint: nothing was changed"),
            "{}",
            said.stderr
        );
    }
    // Looking is allowed, and changes nothing.
    assert_eq!(world.piton(["show", "x", "--json"]).json()["status"], "in_progress");
    assert_eq!(world.piton(["show", "x/in", "--json"]).json()["output"]["topic"], "bees");
    let steps = world.piton(["show", "x", "--steps"]);
    assert!(steps.code == Some(0) && steps.stdout.contains("1 finished"), "{}", steps.stdout);
    assert_eq!(world.piton(["log", "x", "--all", "--json"]).stdout, before);
    assert!(child.try_wait().unwrap().is_none(), "it was looked at while it ran");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(lines(&world.work(), "begun", "fetch"), 1);
}

/// What a command has started doesn't go on after the run was killed: it would work beside the one that goes on.
#[test]
fn what_a_command_started_dies_with_a_killed_run() {
    let world = World::new();
    world.write(
        "flow.yml",
        "nodes:
  - {id: in, data: {type: start}}
  - {id: serve, data: {type: command, command: [sh, -c, 'sleep 1000 & sleep 0.3; echo $! > child; wait']}}
  - {id: out, data: {type: end}}
edges:
  - {source: in, target: serve}
  - {source: serve, target: out}
",
    );
    let run = world.command(["run", "flow.yml", "--id", "x"]).spawn().unwrap();
    wait_until(|| world.lines("child").len() == 1);
    let child = world.lines("child").remove(0);
    signal(&run, Signal::KILL);
    world.wait(run);
    let is_gone = || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    wait_until(is_gone);
}
