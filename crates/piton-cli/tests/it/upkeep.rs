//! `check`, `gc`, `copy`, `export` and `import`, as a user meets them.

use crate::world::World;

/// A folder with a few checkpoints in a store of its own.
fn world() -> (World, String) {
    let world = World::new();
    let store = format!("sqlite:{}", world.root().join("store.db").display());
    for n in 0..3 {
        world.write("a.txt", &format!("{n}\n").repeat(2_000));
        let saved = world.piton(["--store", &store, "save", "-m", &format!("number {n}")]);
        assert_eq!(saved.code, Some(0), "{}", saved.whole());
    }
    (world, store)
}

/// C6, promise 7: what is whole is called whole; a flipped byte is found, and a repair keeps the rest and the damaged
/// store too.
#[test]
fn damage_is_found_and_what_is_whole_is_kept() {
    let (world, store) = world();
    let piton = |verb: &[&str]| world.piton(["--store", &store].iter().chain(verb));
    let whole = piton(&["check", "--deep", "--json"]);
    assert_eq!(whole.code, Some(0), "{}", whole.whole());

    let path = world.root().join("store.db");
    let bytes = std::fs::read(&path).unwrap();
    let mut found = 0;
    for page in 2..bytes.len() / 4096 {
        let mut damaged = bytes.clone();
        damaged[page * 4096 + 4_000] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let checked = piton(&["check"]);
        assert_ne!(checked.code, Some(70), "page {page}: {}", checked.whole());
        if checked.code == Some(0) {
            continue;
        }
        found += 1;
        let repaired = piton(&["check", "--repair", "--yes"]);
        if repaired.code == Some(0) {
            assert_eq!(piton(&["check", "--deep"]).code, Some(0), "page {page}: after the repair all is well");
            assert_eq!(std::fs::read(world.root().join("store.db.damaged-1")).unwrap(), damaged, "nothing is deleted");
            std::fs::remove_file(world.root().join("store.db.damaged-1")).unwrap();
        }
    }
    assert!(found > 3, "only {found} flips were found");
}

/// Runs go from one store into another, and are the same there.
#[test]
fn runs_are_copied_exported_and_imported() {
    let (world, store) = world();
    let files = format!("file:{}", world.root().join("files").display());
    let copied = world.piton(["copy", &store, &files]);
    assert_eq!(copied.code, Some(0), "{}", copied.whole());
    let again = world.piton(["copy", &store, &files, "--json"]);
    assert_eq!(again.code, Some(0), "a copy can be repeated: {}", again.whole());
    let log = |store: &str| world.piton(["--store", store, "log", "--json"]).stdout;
    assert_eq!(log(&store), log(&files));
    world.write("a.txt", "gone");
    assert_eq!(world.piton(["--store", &files, "restore", "@", "--yes"]).code, Some(0));
    assert_eq!(std::fs::read_to_string(world.work().join("a.txt")).unwrap(), "2\n".repeat(2_000));

    world.write("flow.yml", "nodes:\n  - {id: in, data: {type: start}}\n  - {id: out, data: {type: end}}\nedges:\n  - {source: in, target: out}\n");
    assert_eq!(world.piton(["--store", &store, "run", "flow.yml", "--id", "x"]).code, Some(0));
    let exported = world.work().join("x.piton");
    let shown = exported.display();
    let command = format!("{} --store {store} export x > {shown}", crate::world::BINARY);
    assert!(world.program("sh", ["-c", &command]).status().unwrap().success());
    let other = format!("sqlite:{}", world.root().join("other.db").display());
    let imported = world.piton(["--store", &other, "import", exported.to_str().unwrap()]);
    assert_eq!(imported.code, Some(0), "{}", imported.whole());
    let show = |store: &str| world.piton(["--store", store, "show", "x", "--steps", "--json"]).json();
    assert_eq!(show(&other), show(&store));
}

/// C5: what nobody needs goes after a plan; what is needed stays.
#[test]
fn nothing_goes_that_is_kept() {
    let (world, store) = world();
    let planned = world.piton(["--store", &store, "gc", "--dry-run"]);
    assert_eq!(planned.code, Some(0), "{}", planned.whole());
    let done = world.piton(["--store", &store, "gc", "--yes", "--now"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert_eq!(world.piton(["--store", &store, "check", "--deep"]).code, Some(0));
    let list = world.piton(["--store", &store, "checkpoint", "list", "--json"]);
    assert_eq!(list.stdout.lines().count(), 3, "{}", list.whole());
}
