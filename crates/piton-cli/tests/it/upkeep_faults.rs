//! The verbs that look after a store, killed at system calls that change something and on a disk that is full. Promises
//! 1 and 4.

use std::path::Path;
use std::process::Command;

use piton_testing::level::by_level;
use piton_testing::scratch::{Scratch, copy_tree};
use piton_testing::strace::{self, CHANGING, FailAt, KillAt, When};

use crate::world::World;

/// How many moments of each verb are tried.
fn tried() -> usize {
    by_level(4, 10, usize::MAX)
}

/// Spread over the whole.
fn sample<T: Clone>(all: &[T], count: usize) -> Vec<T> {
    let step = all.len().div_ceil(count.min(all.len()).max(1)).max(1);
    all.iter().step_by(step).cloned().collect()
}

const PLAIN: &str = "sqlite:../stores/plain.db";

/// A verb, and the folder of stores that it works on.
struct Case {
    name: &'static str,
    arguments: Vec<String>,
    /// Stores that must be whole whatever happens.
    whole: Vec<&'static str>,
    /// Whether one of the two keys opens the store afterwards, and which runs must be there, is looked at with these.
    keys: Vec<&'static str>,
}

/// The stores: a plain one with a thinned past and the same as files, an encrypted one, one that is damaged, an export.
fn stores(world: &World) -> Vec<Case> {
    let stores = world.root().join("stores");
    std::fs::create_dir(&stores).unwrap();
    let ok = |arguments: &[&str]| {
        let said = world.piton(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.whole());
    };
    for n in 0..4 {
        world.write("a.txt", &format!("{n}\n").repeat(2_000));
        ok(&["--store", "sqlite:../stores/plain.db", "save"]);
    }
    world.write("flow.yml", crate::world::THREE_NODES);
    ok(&["--store", "sqlite:../stores/plain.db", "run", "flow.yml", "-i", "name=Ada", "--id", "x"]);
    ok(&["init", "--store", "sqlite:../stores/secret.db", "--encrypt", "--key-file", "../stores/old.key"]);
    ok(&["copy", "sqlite:../stores/plain.db", "sqlite:../stores/secret.db", "--key-file", "../stores/old.key"]);
    ok(&["copy", "sqlite:../stores/plain.db", "file:../stores/plain"]);
    ok(&["init", "--store", "file:../stores/files", "--encrypt", "--key-file", "../stores/old.key"]);
    let export = format!("{} --store sqlite:../stores/plain.db export x > ../stores/x.piton", crate::world::BINARY);
    assert!(world.program("sh", ["-c", &export]).status().unwrap().success());
    let mut damaged = std::fs::read(stores.join("plain.db")).unwrap();
    // The newest pages are those of the run.
    let at = damaged.len() - 4096 + 2000;
    damaged[at] ^= 1;
    std::fs::write(stores.join("damaged.db"), damaged).unwrap();
    let case = |name, arguments: &str, whole: &[&'static str], keys: &[&'static str]| Case {
        name,
        arguments: arguments.split(' ').map(str::to_owned).collect(),
        whole: whole.to_vec(),
        keys: keys.to_vec(),
    };
    vec![
        case("gc", "--store sqlite:../stores/plain.db gc --completed 0s --per-folder 2 --now --yes", &[PLAIN], &[]),
        case(
            "gc of files",
            "--store file:../stores/plain gc --completed 0s --per-folder 2 --now --yes",
            &["file:../stores/plain"],
            &[],
        ),
        case(
            "copy",
            "copy sqlite:../stores/plain.db sqlite:../stores/copy.db",
            &[PLAIN, "sqlite:../stores/copy.db"],
            &[],
        ),
        case(
            "copy into an encrypted store",
            "copy sqlite:../stores/plain.db file:../stores/files --to-key-file ../stores/old.key",
            &[PLAIN, "file:../stores/files"],
            &[],
        ),
        case(
            "import",
            "--store sqlite:../stores/imported.db import ../stores/x.piton",
            &["sqlite:../stores/imported.db"],
            &[],
        ),
        case("repair", "--store sqlite:../stores/damaged.db check --repair --yes", &[PLAIN], &[]),
        case(
            "key rotation",
            "--store sqlite:../stores/secret.db key rotate --key-file ../stores/old.key --new-key-file ../stores/new.key",
            &[],
            &["old.key", "new.key"],
        ),
    ]
}

/// The stores as they were at first.
fn anew(world: &World, kept: &Path) {
    let stores = world.root().join("stores");
    drop(std::fs::remove_dir_all(&stores));
    std::fs::create_dir(&stores).unwrap();
    copy_tree(kept, &stores).unwrap();
}

fn command(world: &World, case: &Case) -> Command {
    world.command(&case.arguments)
}

/// What must hold after a verb was cut short; then the verb again, which must get to its end.
fn look(world: &World, case: &Case, context: &str) {
    let stores = world.root().join("stores");
    let check = |store: &str| world.piton(["--store", store, "--key-file", "../stores/old.key", "check", "--deep"]);
    for store in &case.whole {
        let path = store.split_once(':').map(|(_, path)| world.work().join(path)).unwrap();
        if path.exists() {
            let checked = check(store);
            assert_eq!(checked.code, Some(0), "{context}: {store}: {}", checked.whole());
        }
    }
    if case.name == "repair" {
        assert!(stores.join("damaged.db").exists(), "{context}: there is a store all the while");
    }
    if !case.keys.is_empty() {
        let opens = |key: &&&str| {
            let key = format!("../stores/{key}");
            world.piton(["--store", "sqlite:../stores/secret.db", "--key-file", &key, "ls", "--all"]).code == Some(0)
        };
        assert_eq!(case.keys.iter().filter(opens).count(), 1, "{context}: exactly one key opens it");
    }
    let again = command(world, case).output().unwrap();
    // A rotation that was done can't be done again with the old key.
    let rotated = !case.keys.is_empty() && again.status.code() == Some(1);
    assert!(again.status.success() || rotated, "{context}: {}", String::from_utf8_lossy(&again.stderr));
    for store in &case.whole {
        let checked = check(store);
        assert_eq!(checked.code, Some(0), "{context}, again: {store}: {}", checked.whole());
    }
    if case.name == "repair" {
        let checked = check("sqlite:../stores/damaged.db");
        assert_eq!(checked.code, Some(0), "{context}, again: {}", checked.whole());
    }
}

/// Promise 1, for what looks after a store.
#[test]
fn upkeep_can_be_killed_at_system_calls() {
    let world = World::new();
    let cases = stores(&world);
    let kept = Scratch::in_memory();
    copy_tree(&world.root().join("stores"), kept.path()).unwrap();
    for case in &cases {
        anew(&world, kept.path());
        let trace = strace::trace(&command(&world, case), CHANGING, 32);
        assert!(trace.finished.success(), "{}: {:?}", case.name, trace.finished);
        let found = trace.kill_points(&world.root().join("stores"));
        let chosen: Vec<KillAt> = sample(&found.points, tried());
        let mut killed = 0;
        for point in &chosen {
            anew(&world, kept.path());
            let finished = strace::run(&command(&world, case), point.clone());
            killed += usize::from(finished.killed());
            look(&world, case, &format!("{} killed at {point:?}", case.name));
        }
        println!("{}: {} of {} points, {killed} killed", case.name, chosen.len(), found.points.len());
        assert!(killed * 2 >= chosen.len(), "{}: {killed} of {}", case.name, chosen.len());
    }
}

/// Promise 4, for what looks after a store: the error says that there is no space, and with space it goes on.
#[test]
fn upkeep_survives_a_full_disk() {
    let world = World::new();
    let cases = stores(&world);
    let kept = Scratch::in_memory();
    copy_tree(&world.root().join("stores"), kept.path()).unwrap();
    let mut full = 0;
    for case in &cases {
        for from in sample(&[1, 2, 4, 8, 16, 32, 64, 128], tried()) {
            anew(&world, kept.path());
            let finished = strace::run(&command(&world, case), FailAt::new("pwrite64", "ENOSPC", When::From(from)));
            if !finished.success() {
                full += 1;
                assert!(finished.stderr.contains("space"), "{}, from {from}: {}", case.name, finished.stderr);
            }
            look(&world, case, &format!("{} without space from write {from} on", case.name));
        }
    }
    assert!(full > cases.len(), "{full}");
}
