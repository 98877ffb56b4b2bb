//! Names that a person types (25.10): given when a run is created, found wherever a run is named.

use std::collections::BTreeSet;

use crate::world::World;

/// 25.10: runs are called by kind and number, in lists, messages and references; steps by their turn.
#[test]
fn runs_have_names_that_can_be_typed() {
    let world = World::new();
    world.write("a", "1\n");
    world.write(
        "flow.yml",
        "nodes: [{id: s, data: {type: start}}, {id: e, data: {type: end}}]\nedges: [{source: s, target: e}]\n",
    );
    let first = world.piton(["guard", "--", "sh", "-c", "echo 2 > a"]);
    assert!(first.stderr.contains("`piton undo guard-1`"), "{}", first.stderr);
    let second = world.piton(["guard", "--json", "--", "sh", "-c", "echo 3 > a"]).json();
    let flow = world.piton(["run", "flow.yml"]);
    assert!(flow.code == Some(0) && flow.stderr.contains("run flow-1 completed"), "{}", flow.whole());

    let listed = world.piton(["ls", "--json"]).stdout;
    let runs: Vec<serde_json::Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let short: BTreeSet<_> = runs.iter().map(|run| run["short"].as_str().unwrap()).collect();
    assert_eq!(short, BTreeSet::from(["flow-1", "guard-1", "guard-2"]));
    for run in &runs {
        let shown = world.piton(["show", run["short"].as_str().unwrap(), "--json"]).json();
        assert_eq!(shown["id"], run["id"]);
        // The beginning of a long id is short.
        let begins = &run["id"].as_str().unwrap()[..8];
        assert_eq!(world.piton(["show", begins, "--json"]).json()["id"], run["id"]);
    }
    let entry = world.piton(["show", "guard-2@1", "--json"]).json();
    assert_eq!(entry["run"], second["run"]);
    assert_eq!(world.piton(["log", "guard-2", "--checkpoints", "--json"]).code, Some(0));
    assert_eq!(world.piton(["undo", "guard-2", "--yes"]).code, Some(0));
    assert_eq!(world.lines("a"), ["2"]);
    let unknown = world.piton(["show", "guard-9"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("there is no run guard-9"), "{}", unknown.whole());
}

/// 25.10: processes that begin at the same time get names that differ.
#[test]
fn guards_that_begin_at_once_have_names_of_their_own() {
    let world = World::new();
    world.write("a", "1\n");
    assert_eq!(world.piton(["save"]).code, Some(0));
    let guards: Vec<_> = (0..6).map(|_| world.command(["guard", "--json", "--", "true"]).spawn().unwrap()).collect();
    for guard in guards {
        let said = world.wait(guard);
        assert_eq!(said.code, Some(0), "{}", said.whole());
    }
    let listed = world.piton(["ls", "--kind", "guard", "--json"]).stdout;
    let names: Vec<_> = listed
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["short"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!((names.len(), names.iter().collect::<BTreeSet<_>>().len()), (6, 6), "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("guard-")), "{names:?}");
}
