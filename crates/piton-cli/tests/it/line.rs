//! The one line of a folder's checkpoints (25.11): the same for every verb, whoever made them.

use crate::world::World;

fn id(world: &World, reference: &str) -> String {
    world.piton(["show", reference, "--json"]).json()["id"].as_str().unwrap().to_owned()
}

/// 25.11: `restore @-` twice goes two back, and a third time says that there is nothing before.
#[test]
fn going_one_back_twice_leads_two_back() {
    let world = World::new();
    for number in ["1", "2", "3"] {
        world.write("a", number);
        assert_eq!(world.piton(["save", "-m", number]).code, Some(0));
    }
    for expected in ["2", "1"] {
        let said = world.piton(["restore", "@-", "--yes"]);
        assert_eq!((said.code, world.lines("a")), (Some(0), vec![expected.to_owned()]), "{}", said.whole());
        assert_eq!(world.piton(["diff", "@", "--json"]).json()["changes"].as_array().unwrap().len(), 0);
    }
    let said = world.piton(["restore", "@-", "--yes"]);
    assert!(said.code == Some(1) && said.stderr.contains("there is only one checkpoint"), "{}", said.whole());
    for expected in ["2", "3"] {
        assert_eq!(world.piton(["undo", "--yes"]).code, Some(0));
        assert_eq!(world.lines("a"), [expected]);
    }
    // What was done since goes on from there.
    assert_eq!(world.piton(["restore", "@-", "--yes"]).code, Some(0));
    world.write("a", "4");
    assert_eq!(world.piton(["save"]).code, Some(0));
    assert_eq!(world.piton(["restore", "@-", "--yes"]).code, Some(0));
    assert_eq!(world.lines("a").len(), 1);
    assert_ne!(world.lines("a"), ["4"]);
}

/// 25.11: saves, guards and workflows with files are on one line; what changes nothing is no step on it, and a
/// workflow's checkpoint without files is none of files.
#[test]
fn whoever_made_them_checkpoints_are_on_one_line() {
    let world = World::new();
    world.write("a", "1");
    assert_eq!(world.piton(["save", "-m", "mine"]).code, Some(0));
    let saved = id(&world, "@");
    assert_eq!(world.piton(["guard", "--", "true"]).code, Some(0));
    assert_eq!(id(&world, "@"), saved, "nothing changed");
    let guarded = world.piton(["guard", "--json", "--", "sh", "-c", "echo 2 > a"]).json()["id"].clone();
    assert_eq!((id(&world, "@"), id(&world, "@-")), (guarded.as_str().unwrap().to_owned(), saved.clone()));
    let status = world.piton(["status", "--json"]).json();
    assert_eq!(status["checkpoint"], guarded, "{status}");
    let change = world.piton(["diff", "@-", "@", "--json"]).json();
    assert_eq!(change["changes"][0]["path"], "a", "{change}");

    // The start node is marked, so this run has checkpoints of its state.
    let flow = "nodes: [{id: s, data: {type: start, checkpoint: true}}, {id: e, data: {type: end}}]\n\
                edges: [{source: s, target: e}]\n";
    std::fs::write(world.root().join("flow.yml"), flow).unwrap();
    assert_eq!(world.piton(["run", "../flow.yml", "--id", "plain"]).code, Some(0));
    assert!(!world.piton(["log", "plain", "--checkpoints", "--json"]).stdout.is_empty());
    assert_eq!(id(&world, "@"), guarded.as_str().unwrap());
    assert_eq!(world.piton(["restore", "@-", "--yes"]).code, Some(0));
    assert_eq!(world.lines("a"), ["1"]);
}

/// `REF:path`: a file as a checkpoint has it, to the byte.
#[test]
fn a_file_of_a_checkpoint_is_shown() {
    let world = World::new();
    std::fs::create_dir(world.work().join("src")).unwrap();
    for text in ["one\n", "two\n"] {
        world.write("src/a", text);
        assert_eq!(world.piton(["save"]).code, Some(0));
    }
    assert_eq!(world.piton(["show", "@:src/a"]).stdout, "two\n");
    assert_eq!(world.piton(["show", "@-:src/a"]).stdout, "one\n");
    assert_eq!(world.piton_in(&world.work().join("src"), ["show", "@-:a"]).stdout, "one\n");
    let json = world.piton(["show", "@-:src/a", "--json"]).json();
    assert_eq!((&json["text"], &json["path"]), (&"one\n".into(), &"src/a".into()), "{json}");
    let none = world.piton(["show", "@-:src/b"]);
    assert!(none.code == Some(1) && none.stderr.contains("has no src/b"), "{}", none.whole());
    assert_eq!(world.piton(["show", "@-:../../etc/passwd"]).code, Some(2));
    assert_eq!(world.piton(["diff", "@:src/a"]).code, Some(2), "it is no checkpoint");
}
