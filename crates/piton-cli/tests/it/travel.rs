//! Time travel and resume safety with workflows, in real processes: `fork --only`, `fork --document`, `retry --set`,
//! `diff RUN RUN`, `resume --explain` and `--force` (R7, V3 to V5).

use crate::world::World;

/// What `price` says is outside of the document, and counted.
const FLOW: &str = r"
nodes:
  - {id: in, data: {type: start, variables: [{variable: what, required: true}]}}
  - {id: price, data: {type: command, checkpoint: true, command: [sh, -c, 'echo $0 >> calls; echo 7', '{{#in.what#}}']}}
  - {id: note, data: {type: command, command: [echo, '{{#in.what#}} for {{#price.stdout#}}']}}
  - {id: check, data: {type: command, command: [test, -e, ready]}}
  - {id: out, data: {type: end, outputs: [{variable: note, value_selector: [note, stdout]}]}}
edges: [{source: in, target: price}, {source: price, target: note}, {source: note, target: check}, {source: check, target: out}]
";

/// A world with a run `r` that failed at `check`.
fn failed() -> World {
    let world = World::new();
    world.write("flow.yml", FLOW);
    assert_eq!(world.piton(["run", "flow.yml", "-i", "what=tea", "--id", "r"]).code, Some(1));
    world
}

/// R7: one step on the data of the run, with changes, leaves no trace in the run.
#[test]
fn one_step_is_tried_alone() {
    let world = failed();
    let before = world.piton(["log", "r", "--json"]).stdout;
    let tried = world.piton(["fork", "r", "--only", "check", "--json"]);
    assert_eq!((tried.code, tried.json()["error"].as_str()), (Some(1), Some("\"test\" ended with 1")));
    let at = "r/price";
    let tried = world.piton(["fork", at, "--only", "note", "--set", "price.stdout=9", "--json"]);
    assert_eq!(tried.json()["output"]["stdout"], "tea for 9\n", "{}", tried.stderr);
    assert_eq!(world.lines("calls"), ["tea"], "what is done isn't done again");
    assert_eq!(world.piton(["log", "r", "--json"]).stdout, before);
    let unknown = world.piton(["fork", at, "--only", "nowhere"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("run r has no step nowhere"), "{}", unknown.whole());
    let early = world.piton(["fork", at, "--only", "check"]);
    assert_eq!(early.code, Some(1));
    assert!(early.stderr.contains("error: step check isn't next at r@"), "{}", early.stderr);
    assert!(early.stderr.contains(": note comes before it"), "{}", early.stderr);
}

/// 25.3: what a step runs acts on a copy of the files, unless the user says otherwise.
#[test]
fn a_step_is_tried_in_a_copy_of_the_files() {
    let world = failed();
    let tried = world.piton(["fork", "r/in", "--only", "price", "--set", "what=coffee", "--json"]);
    assert_eq!(tried.json()["output"]["stdout"], "7\n", "{}", tried.stderr);
    assert!(tried.json()["files"].is_string(), "{}", tried.stdout);
    assert_eq!(world.lines("calls"), ["tea"], "the folder is as it was");
    let said = world.piton(["fork", "r/in", "--only", "price", "--set", "what=coffee", "--in-place"]);
    assert!(said.code == Some(0) && said.stderr.contains("acts on the real folder"), "{}", said.whole());
    assert_eq!(world.lines("calls"), ["tea", "coffee"]);
}

/// 25.3: a setting that finished steps had used already is said to come too late, with the fork for which it doesn't.
#[test]
fn a_setting_that_comes_too_late_is_said_to() {
    let world = failed();
    world.write("ready", "");
    let late = world.piton(["fork", "r", "--set", "what=coffee"]);
    assert!(late.code == Some(0) && late.stderr.contains("price, note had used what already"), "{}", late.whole());
    let command = late.stderr.split('`').find(|code| code.starts_with("piton fork")).unwrap();
    let forked = world.wait(world.shell(command).spawn().unwrap());
    assert_eq!((forked.code, forked.stderr.contains("already")), (Some(0), false), "{}", forked.whole());
    let resumed = world.piton(["resume", forked.stdout.trim(), "--json"]);
    assert_eq!(resumed.json()["outputs"]["note"], "coffee for 7\n\n", "{}", resumed.whole());
    assert_eq!(world.lines("calls"), ["tea", "coffee"]);
}

/// A run from any node on with changed variables is another run; `diff` says what they did differently.
#[test]
fn a_run_goes_on_from_a_node_with_changed_variables() {
    let world = failed();
    world.write("ready", "");
    let again = world.piton(["retry", "r", "--from", "note", "--set", "price.stdout=9", "--yes", "--json"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let result = again.json();
    assert_eq!(result["outputs"]["note"], "tea for 9\n");
    assert_eq!(world.lines("calls"), ["tea"]);
    let other = result["run"].as_str().unwrap();
    assert_eq!(world.piton(["resume", "r"]).code, Some(0), "the first one is as it was");
    let said = world.piton(["diff", "r", other]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    for line in [r#"~ price.stdout  "7\n" → 9"#, r#"~ note.stdout  "tea for 7\n\n" → "tea for 9\n""#] {
        assert!(said.stdout.contains(line), "{line}: {}", said.stdout);
    }
    let same = world.piton(["diff", "r", "r", "--json"]).json();
    assert_eq!(same["changes"], serde_json::json!([]));
}

/// V3, V5: a changed document says what stays valid, and a fork does the rest again.
#[test]
fn a_changed_document_keeps_what_it_does_not_affect() {
    let world = failed();
    world.write("changed.yml", &FLOW.replace(" for {{#price", " at {{#price"));
    insta::assert_snapshot!(world.piton(["resume", "r", "--explain", "--document", "changed.yml"]).whole(), @r"
    --- stdout
    danger: schema: the document is another one: note
    changed: note
    affected: check, note, out
    stays valid: in, price
    outdated: note
    --- stderr
    `--force` goes on with it and keeps all that finished; `piton fork r --document FILE` does again what is outdated
    --- exit 4
    ");
    let refused = world.piton(["run", "changed.yml", "-i", "what=tea", "--id", "r"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    world.write("ready", "");
    assert_eq!(world.piton(["fork", "r", "--document", "changed.yml", "--id", "second"]).code, Some(0));
    let ended = world.piton(["resume", "second", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.json()["outputs"]["note"], "tea at 7\n\n");
    assert_eq!(world.lines("calls"), ["tea"], "what stayed valid wasn't done again");
}

/// V4, V5: under its own id a run goes on with a changed document only by force; what finished stays, and the run keeps the
/// document. What is pending must have a place in it, for a fork too.
#[test]
fn a_run_goes_on_with_a_changed_document_under_its_own_id() {
    let world = failed();
    world.write(
        "changed.yml",
        &FLOW.replace(" for {{#price", " at {{#price").replace("test, -e, ready", "test, -e, steady"),
    );
    let before = world.piton(["show", "r", "--json"]).stdout;
    insta::assert_snapshot!(world.piton(["resume", "r", "--document", "changed.yml"]).whole(), @r"
    --- stderr
    error: run r was begun in other surroundings
      caused by: danger: schema: the document is another one: check, note

    hint: nothing was changed. The same command with `--force` goes on all the same.
    --- exit 4
    ");
    world.write(
        "without.yml",
        &FLOW
            .replace("  - {id: check, data: {type: command, command: [test, -e, ready]}}\n", "")
            .replace(", {source: note, target: check}, {source: check, target: out}", ", {source: note, target: out}"),
    );
    for arguments in [
        &["resume", "r", "--document", "without.yml", "--force"][..],
        &["run", "without.yml", "-i", "what=tea", "--id", "r", "--force"],
        &["fork", "r", "--document", "without.yml"],
    ] {
        let refused = world.piton(arguments);
        assert_eq!(refused.code, Some(4), "{}", refused.stderr);
        assert!(refused.stderr.contains("which no longer has check"), "{}", refused.stderr);
    }
    let said = world.piton(["resume", "r", "--explain", "--document", "without.yml"]);
    assert_eq!(said.code, Some(4));
    assert!(said.stdout.contains("pending, and gone from the document: check"), "{}", said.stdout);
    assert_eq!(world.piton(["show", "r", "--json"]).stdout, before, "what was refused is as it was");

    let forced = world.piton(["resume", "r", "--document", "changed.yml", "--force"]);
    assert_eq!(forced.code, Some(1), "there is no file `steady` yet: {}", forced.stderr);
    world.write("steady", "");
    let ended = world.piton(["resume", "r", "--json"]);
    assert_eq!(ended.json()["outputs"]["note"], "tea for 7\n\n", "what finished stays as it is: {}", ended.stderr);
    assert_eq!(world.lines("calls"), ["tea"]);
}

/// V5, F12: a lowered security level is refused, and `--force` goes on and writes it down.
#[test]
fn a_lowered_security_level_is_refused_unless_forced() {
    let world = World::new();
    world.write(
        "flow.yml",
        &FLOW
            .replace(
                "type: command, checkpoint: true, command: [sh, -c, 'echo $0 >> calls; echo 7', '{{#in.what#}}']",
                "type: template-transform, template: '7', variables: []",
            )
            .replace("price.stdout", "price.output")
            .replace(
                "type: command, command: [test, -e, ready]",
                "type: http-request, method: get, url: 'http://127.0.0.1:1/', timeout: 1",
            )
            .replace(
                "type: command, command: [echo, '{{#in.what#}} for {{#price.output#}}']",
                "type: template-transform, template: 'x', variables: []",
            )
            .replace("[note, stdout]", "[note, output]"),
    );
    world.write("strict.toml", "level = \"strict\"\n");
    world.write("open.toml", "level = \"permissive\"\naudit = \"audit.jsonl\"\n");
    let run = world.piton(["run", "flow.yml", "-i", "what=tea", "--id", "r", "--config", "strict.toml"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let before = world.piton(["show", "r", "--json"]).stdout;
    insta::assert_snapshot!(world.piton(["resume", "r", "--config", "open.toml"]).whole(), @r"
    --- stderr
    error: run r was begun in other surroundings
      caused by: danger: security_level: Strict → Permissive
      caused by: warning: network_policy: what may be reached is different

    hint: nothing was changed. The same command with `--force` goes on all the same.
    --- exit 4
    ");
    assert_eq!(world.piton(["show", "r", "--json"]).stdout, before, "what was refused is as it was");
    assert_eq!(world.piton(["resume", "r", "--explain", "--config", "open.toml"]).code, Some(4));
    assert_eq!(world.piton(["resume", "r", "--explain", "--config", "strict.toml"]).code, Some(0));
    // It fails again, because nothing listens there; but it went on.
    let forced = world.piton(["resume", "r", "--force", "--config", "open.toml"]);
    assert_eq!(forced.code, Some(1), "{}", forced.stderr);
    let audit = std::fs::read_to_string(world.work().join("audit.jsonl")).unwrap();
    assert!(audit.contains("force_resume_with_changes") && audit.contains("Strict → Permissive"), "{audit}");
}
