//! `piton test`, `validate` and `graph`: our own cases, and how failures look. Cases of others are run by
//! `scripts/shared-cases`, where they are.

use std::path::Path;

use piton_testing::level::by_level;

use crate::world::World;

#[test]
fn our_own_cases_pass() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../piton-app/tests/cases");
    let count = std::fs::read_dir(&cases).unwrap().count();
    assert!(count >= 40, "{count}");
    let said = World::new().piton(["test".as_ref(), "--outside".as_ref(), cases.as_os_str()]);
    assert_eq!((said.code, said.stdout), (Some(0), format!("{count} passed, 0 failed\n")), "{}", said.stderr);
}

#[test]
fn the_examples_pass() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workflows");
    let said = World::new().piton(["test".as_ref(), examples.as_os_str()]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "9 passed, 0 failed\n"), "{}", said.stderr);
}

/// A program that a case's document names leaves a file behind, and a request reaches a server of ours: neither happens
/// unless the user lets it. What the case answers itself does.
#[test]
fn a_case_runs_nothing_outside_unless_it_is_let() {
    let world = World::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let url = format!("http://{}/x", server.local_addr().unwrap());
    let case = |name: &str, node: &str, state: &str| {
        let folder = world.work().join(name);
        std::fs::create_dir(&folder).unwrap();
        let document = format!(
            "nodes: [{{id: a, data: {{type: start}}}}, {{id: n, data: {node}}}, {{id: b, data: {{type: end, outputs: []}}}}]\nedges: [{{source: a, target: n}}, {{source: n, target: b}}]\n"
        );
        std::fs::write(folder.join("workflow.yml"), document).unwrap();
        std::fs::write(folder.join("state.yml"), state).unwrap();
        std::fs::write(folder.join("out.toml"), "status = \"completed\"\n").unwrap();
    };
    let made = world.work().join("made");
    let touch = format!("{{type: command, command: [touch, '{}']}}", made.display());
    case("program", &touch, "");
    case("scripted", &touch, "mock_commands: [{command: [touch], stdout: fine}]");
    case("request", &format!("{{type: http-request, method: get, url: '{url}'}}"), "");
    case(
        "other_port",
        &format!("{{type: http-request, method: get, url: '{url}'}}"),
        "mock_server: [{method: GET, path: /x}]",
    );
    let said = world.piton(["test", "program"]);
    assert!(said.code == Some(1) && said.stdout.contains("`piton test --outside`"), "{}", said.whole());
    for refused in ["request", "other_port"] {
        assert_eq!(world.piton(["test", refused]).code, Some(1), "{refused}");
    }
    let said = world.piton(["test", "scripted"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    assert!(!made.exists(), "a program ran");
    assert!(server.accept().is_err(), "a request went out");
    // The negative control: when it is let, both see it.
    assert_eq!(world.piton(["test", "--outside", "program"]).code, Some(0));
    assert!(made.exists());
}

/// Promise 15: killed at moments that the seed chooses, in process and by SIGKILL, our own cases come to the same.
#[test]
fn our_own_cases_survive_being_killed_everywhere() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../piton-app/tests/cases");
    let (budget, seed) = by_level((Some("25"), "7"), (Some("25"), "7"), (None, "1"));
    let mut arguments = vec!["test", "--outside", cases.to_str().unwrap(), "--kill-everywhere", "--seed", seed];
    arguments.extend(budget.iter().flat_map(|budget| ["--budget", budget]));
    let said = World::new().piton(arguments);
    println!("{}", said.stdout);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("by SIGKILL"), "{}", said.stdout);
}

/// F1, promise 21: documents as other tools export them are valid, and say what they need of the machine.
#[test]
fn exports_are_valid_and_say_what_they_need() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../piton-app/tests/cases");
    let folders = std::fs::read_dir(&cases).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = folders
        .filter(|folder| folder.file_name().unwrap().to_string_lossy().starts_with("export_"))
        .map(|folder| folder.join("workflow.yml"))
        .collect();
    files.sort();
    assert!(files.len() >= 30, "{}", files.len());
    let arguments = ["validate", "--json"].map(std::ffi::OsString::from).into_iter();
    let said = World::new().piton(arguments.chain(files.iter().map(|file| file.clone().into_os_string())));
    assert_eq!(said.code, Some(0), "{}", said.stdout);
    let mut needs = std::collections::BTreeMap::new();
    for line in said.stdout.lines() {
        let report: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(report["errors"], serde_json::json!([]), "{line}");
        for need in report["needs"].as_array().unwrap() {
            *needs.entry(need["need"].as_str().unwrap().to_owned()).or_insert(0) += 1;
        }
    }
    let counted: Vec<_> = needs.iter().map(|(need, count)| (need.as_str(), *count)).collect();
    assert_eq!(counted, [("model", 7), ("network", 7), ("sandbox", 1)]);
}

#[test]
fn a_failure_says_what_differs_and_ends_with_one() {
    let world = World::new();
    let folder = world.work().join("case");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(
        folder.join("workflow.yml"),
        "nodes: [{id: a, data: {type: start, variables: [{variable: x, type: number}]}}, {id: b, data: {type: end, outputs: [{variable: y, value_selector: [a, x]}]}}]\nedges: [{source: a, target: b}]\n",
    )
    .unwrap();
    std::fs::write(folder.join("in.json"), "{\"x\": 1}").unwrap();
    std::fs::write(folder.join("out.toml"), "status = \"completed\"\noutputs = {y = 2}\n").unwrap();
    insta::assert_snapshot!(world.piton(["test", "case", "--junit", "report.xml"]).whole(), @r"
    --- stdout
    FAIL  case
          outputs.y: expected 2, got 1
    0 passed, 1 failed
    --- exit 1
    ");
    let report = std::fs::read_to_string(world.work().join("report.xml")).unwrap();
    assert!(report.contains("failures=\"1\""), "{report}");
}

#[test]
fn a_document_is_judged_with_file_line_and_node() {
    let world = World::new();
    world.write("flow.yml", "nodes:\n  - {id: a, data: {type: start}}\n  - {id: b, data: {type: end, outputs: [{variable: y, value_selector: [aa, x]}]}}\nedges: [{source: a, target: b}]\n");
    insta::assert_snapshot!(world.piton(["validate", "flow.yml"]).whole(), @r#"
    --- stdout
    flow.yml:3: error: node "b": /nodes/1/data: it uses a variable of "aa", which is not a node
      hint: did you mean "a"?
    flow.yml: not valid, 1 error
    --- exit 1
    "#);
    insta::assert_snapshot!(world.piton(["graph", "flow.yml", "--format", "mermaid"]).whole(), @r#"
    --- stdout
    flowchart TD
      n0(["a<br/><i>start</i>"])
      n1(["b<br/><i>end</i>"])
      n0 --> n1
    --- exit 0
    "#);
}

/// A workflow in a file of its own is part of the run: it goes on though the file is gone.
#[test]
fn a_run_needs_the_files_that_it_was_made_of_no_more() {
    let world = World::new();
    let outer = |file: &str| {
        format!(
            "nodes:\n  - {{id: in, data: {{type: start, variables: [{{variable: name}}]}}}}\n  - {{id: greet, data: {{type: sub-workflow, file: {file}, variables: [{{variable: who, value_selector: [in, name]}}]}}}}\n  - {{id: wait, data: {{type: command, command: [test, -e, ready]}}}}\n  - {{id: again, data: {{type: sub-workflow, file: {file}, variables: [{{variable: who, value_selector: [greet, text]}}]}}}}\n  - {{id: out, data: {{type: end, outputs: [{{variable: text, value_selector: [again, text]}}]}}}}\nedges: [{{source: in, target: greet}}, {{source: greet, target: wait}}, {{source: wait, target: again}}, {{source: again, target: out}}]\n"
        )
    };
    world.write("flow.yml", &outer("greet.yml"));
    world.write(
        "greet.yml",
        "nodes:\n  - {id: s, data: {type: start, variables: [{variable: who}]}}\n  - {id: t, data: {type: template-transform, template: 'Hello {{ w }}', variables: [{variable: w, value_selector: [s, who]}]}}\n  - {id: e, data: {type: end, outputs: [{variable: text, value_selector: [t, output]}]}}\nedges: [{source: s, target: t}, {source: t, target: e}]\n",
    );
    let failed = world.piton(["run", "flow.yml", "--id", "a", "-i", "name=Ada"]);
    assert_eq!(failed.code, Some(1), "{}", failed.whole());
    std::fs::remove_file(world.work().join("greet.yml")).unwrap();
    world.write("ready", "");
    let resumed = world.piton(["resume", "a", "--json"]);
    assert_eq!(resumed.json()["outputs"]["text"], "Hello Hello Ada", "{}", resumed.whole());

    for (file, wanted) in [("greet.yml", "No such file"), ("../greet.yml", "no path below the folder")] {
        world.write("flow.yml", &outer(file));
        let refused = world.piton(["run", "flow.yml", "--id", "b", "-i", "name=Ada"]);
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr.contains(wanted) && refused.stderr.contains("line 3"), "{}", refused.whole());
    }
    assert_ne!(world.piton(["show", "b"]).code, Some(0), "no run was created");
    world.write("flow.yml", &outer("greet.yml"));
    world.write("greet.yml", "nodes:\n  - {id: s, data: {type: start}}\n  - {id: x}\nedges: []\n");
    let said = world.piton(["validate", "flow.yml"]);
    assert!(
        said.stdout.contains("flow.yml:3") && said.stdout.contains("greet.yml: ") && said.stdout.contains("line 3"),
        "{}",
        said.stdout
    );
}
