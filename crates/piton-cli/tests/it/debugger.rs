//! `piton debug`: with commands from a pipe, and with a test that talks to it as a page would.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value as Json, json};

use crate::world::{Said, World};

/// The second command fails until there is a file `ready`; the first leaves a line for each time it ran.
const FLAKY: &str = r"
nodes:
  - {id: in, data: {type: start, variables: [{variable: name, required: true}]}}
  - {id: fetch, data: {type: command, command: [sh, -c, 'echo $0 >> calls; echo hello $0', '{{#in.name#}}']}}
  - {id: check, data: {type: command, command: [test, -e, ready]}}
  - {id: out, data: {type: end, outputs: [{variable: greeting, value_selector: [fetch, stdout]}]}}
edges:
  - {source: in, target: fetch}
  - {source: fetch, target: check}
  - {source: check, target: out}
";

fn world() -> World {
    let world = World::new();
    world.write("flow.yml", FLAKY);
    world
}

/// A debugger that is talked to, one line and one object at a time.
struct Talk {
    child: Child,
    stdin: ChildStdin,
    stdout: std::io::Lines<BufReader<ChildStdout>>,
}

impl Talk {
    fn begin(world: &World, arguments: &[&str]) -> Self {
        let mut command = world.command(arguments.iter().chain(&["--json"]));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        Self { child, stdin, stdout }
    }

    /// The next object that it writes.
    fn hear(&mut self) -> Json {
        serde_json::from_str(&self.stdout.next().expect("it says something").unwrap()).unwrap()
    }

    fn say(&mut self, line: &str) -> Json {
        writeln!(self.stdin, "{line}").unwrap();
        self.hear()
    }

    fn end(mut self) -> Option<i32> {
        drop(self.stdin);
        self.child.wait().unwrap().code()
    }
}

fn place(stop: &Json) -> (&str, &str, &str) {
    let word = |name: &str| stop[name].as_str().unwrap_or("none");
    (word("phase"), word("step"), word("reason"))
}

fn piped(world: &World, arguments: &[&str], commands: &str) -> Said {
    let mut child = {
        let mut command = world.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    world.wait(child)
}

/// R7: a session from a pipe, as a person reads it.
#[test]
fn a_session_from_a_pipe() {
    let world = world();
    world.write("ready", "");
    let commands = "# to the first command, and over it\nto fetch\nstep\nvars fetch.stdout\nbreak out if fetch.stdout contains Ada\nwhere\ncontinue\nvars in\ncontinue\n";
    let said = piped(&world, &["debug", "flow.yml", "-i", "name=Ada", "--id", "r", "-q"], commands);
    insta::assert_snapshot!(said.whole(), @r#"
    --- stdout
    stopped before in (start): initial
    stopped before fetch (command): reached
    stopped after fetch (command): step
      gave {"exit_code":0,"stderr":"","stdout":"hello Ada\n"}
    "hello Ada\n"
    stops before out if fetch.stdout contains Ada
    stopped after fetch (command): step
      gave {"exit_code":0,"stderr":"","stdout":"hello Ada\n"}
    stops before out if fetch.stdout contains Ada
    stopped before out (end): breakpoint
    {
      "name": "Ada"
    }
    run r is completed; `back STEP` goes back in a new run, `quit` ends
    {
      "greeting": "hello Ada\n"
    }
    --- exit 0
    "#);
    assert_eq!(world.lines("calls"), ["Ada"]);
}

/// R5, R7: back to before a step that has run, with another variable: it runs again, and so does what follows.
#[test]
fn going_back_and_on_again_with_other_variables() {
    let world = world();
    world.write("ready", "");
    let mut talk = Talk::begin(&world, &["debug", "flow.yml", "-i", "name=Ada", "--id", "r"]);
    assert_eq!(place(&talk.hear()), ("before", "in", "initial"));
    let stop = talk.say("to out");
    assert_eq!(place(&stop), ("before", "out", "reached"));
    assert_eq!(stop["run"], "r");
    let back = talk.say("back fetch");
    assert_eq!((&back["answer"], &back["to"]), (&json!("goes_back"), &json!("before fetch")));
    assert!(back["entails"].to_string().contains("what fetch did in the world stays"), "{back}");
    assert_eq!(place(&talk.hear()), ("before", "fetch", "back"));
    assert_eq!(talk.say("set in.name=Bob")["variables"], json!(["in.name"]));
    let stop = talk.say("step");
    assert_eq!((place(&stop), &stop["gave"]["stdout"]), (("after", "fetch", "step"), &json!("hello Bob\n")));

    // To an entry of the log by its number: the one that the run began with.
    assert_eq!(talk.say("back r@1")["to"], "r@1");
    assert_eq!(place(&talk.hear()), ("before", "in", "back"));
    assert_eq!(talk.say("vars in")["kind"], "not_found", "nothing has run there");
    assert_eq!(place(&talk.say("continue")), ("none", "none", "completed"));

    // A completed run stays as it is.
    assert_eq!(talk.say("continue")["kind"], "refused");
    assert_eq!(talk.say("back check")["answer"], "goes_back");
    let stop = talk.hear();
    assert_eq!(place(&stop), ("before", "check", "back"));
    assert_ne!(stop["run"], "r");
    assert_eq!(place(&talk.say("continue")), ("none", "none", "completed"));
    let ended = talk.say("quit");
    assert_eq!((&ended["status"], &ended["outputs"]["greeting"]), (&json!("completed"), &json!("hello Ada\n")));
    assert_eq!(talk.end(), Some(0));
    assert_eq!(world.lines("calls"), ["Ada", "Bob", "Ada"]);
}

/// R5: it stops after a node that fails; what was wrong is put right, and the run goes back before it.
#[test]
fn a_failure_is_put_right() {
    let world = world();
    let mut talk = Talk::begin(&world, &["debug", "flow.yml", "-i", "name=Ada", "--id", "r", "--on-error"]);
    talk.hear();
    let stop = talk.say("continue");
    assert_eq!(place(&stop), ("after", "check", "error"));
    assert!(stop["error"].as_str().unwrap().contains("ended with 1"), "{stop}");
    world.write("ready", "");
    assert_eq!(talk.say("back check")["answer"], "goes_back");
    assert_eq!(place(&talk.hear()), ("before", "check", "back"));
    assert_eq!(place(&talk.say("continue")), ("none", "none", "completed"));
    assert_eq!(talk.end(), Some(0));
    assert_eq!(world.lines("calls"), ["Ada"], "what is before it isn't done again");

    // Without the breakpoint the run fails, and stays to be looked at.
    let world = self::world();
    let mut talk = Talk::begin(&world, &["debug", "flow.yml", "-i", "name=Ada"]);
    talk.hear();
    assert_eq!(place(&talk.say("continue")), ("none", "none", "failed"));
    world.write("ready", "");
    assert_eq!(place(&talk.say("step")), ("before", "check", "step"), "the failed node is tried again");
    assert_eq!(talk.end(), Some(0));
}

/// R8, promise 10: a session that is killed at a stop goes on from there, with what was set, and does nothing twice.
#[test]
fn a_killed_session_goes_on() {
    let world = world();
    world.write("ready", "");
    let mut talk = Talk::begin(&world, &["debug", "flow.yml", "-i", "name=Ada", "--id", "r"]);
    talk.hear();
    talk.say("to check");
    talk.say("set fetch.stdout=changed");
    talk.child.kill().unwrap();
    talk.child.wait().unwrap();

    let mut talk = Talk::begin(&world, &["debug", "r"]);
    assert_eq!(place(&talk.hear()), ("before", "check", "initial"));
    assert_eq!(talk.say("vars fetch.stdout")["variables"], "changed");
    assert_eq!(talk.say("quit")["status"], "paused");
    assert_eq!(talk.end(), Some(0));

    // It is a run like any other.
    let resumed = world.piton(["resume", "r", "--json"]).json();
    assert_eq!(resumed["outputs"]["greeting"], "changed");
    assert_eq!(world.lines("calls"), ["Ada"]);
}

/// Each bad command says what is wrong, and the run stands as before.
#[test]
fn bad_commands_are_refused_with_a_reason() {
    let world = world();
    let mut talk = Talk::begin(&world, &["debug", "flow.yml", "-i", "name=Ada"]);
    talk.hear();
    for (line, why) in [
        ("jump", "there is no command"),
        ("step twice", "takes nothing behind it"),
        ("break fetsh", "did you mean \\\"fetch\\\"?"),
        ("to chek", "did you mean \\\"check\\\"?"),
        ("to nowhere-at-all", "the nodes are in, fetch, check, out"),
        ("break check if fetch.status nearly 5", "operator"),
        ("clear fetch", "no breakpoint"),
        ("vars fetch", "no variable"),
        ("vars fetsh.stdout", "did you mean"),
        ("set name=x", "NODE.VARIABLE"),
        ("set fetsh.stdout=x", "did you mean"),
        ("set", "set NODE.VARIABLE=VALUE"),
        ("back", "nothing to go back to"),
        ("back check", "hasn't run yet"),
        ("back chek", "did you mean"),
        ("back 4711", "no entry"),
        ("back other@3", "isn't the id of this run"),
    ] {
        let said = talk.say(line);
        assert!(said["error"].is_string() && said.to_string().contains(why), "{line}: {said}");
    }
    assert_eq!(place(&talk.say("step")), ("after", "in", "step"));
    assert_eq!(talk.end(), Some(0));

    let missing = world.piton(["debug", "gone.yml"]);
    assert_eq!(missing.code, Some(1), "{}", missing.whole());
    let both = world.piton(["debug", "some-run", "-i", "name=x"]);
    assert_eq!(both.code, Some(2), "{}", both.whole());
    let wrong = world.piton(["debug", "flow.yml", "-i", "name=Ada", "--break", "fetsh"]);
    assert!(wrong.code == Some(1) && wrong.stderr.contains("did you mean \"fetch\"?"), "{}", wrong.whole());
    assert!(!world.piton(["ls"]).stdout.contains("flow.yml  queued"), "nothing was begun");
}
