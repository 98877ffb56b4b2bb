//! Stores that something happened to, as a user meets them.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;

use piton_testing::scratch::{small_blocks, tiny_tmpfs};

use crate::world::{World, wait_until};

/// Saves a file so many times.
fn save(world: &World, store: &str, times: usize) {
    for n in 1..=times {
        world.write("a.txt", &format!("{n}\n").repeat(2_000));
        let saved = world.piton(["--store", store, "save", "-m", &format!("number {n}")]);
        assert_eq!(saved.code, Some(0), "{}", saved.whole());
    }
}

/// A database that lost the end of its last page is damaged at the first check and at the next, and can be repaired.
#[test]
fn a_database_that_was_cut_off_is_damaged_at_the_first_check() {
    let world = World::new();
    let store = format!("sqlite:{}", world.root().join("store.db").display());
    save(&world, &store, 3);
    let path = world.root().join("store.db");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1_000]).unwrap();
    for _ in 0..2 {
        let checked = world.piton(["--store", &store, "check"]);
        assert_eq!(checked.code, Some(1), "{}", checked.whole());
        assert!(checked.stdout.contains("the file ends in it"), "{}", checked.whole());
    }
    let repaired = world.piton(["--store", &store, "check", "--repair", "--yes"]);
    assert_eq!(repaired.code, Some(0), "{}", repaired.whole());
    assert_eq!(world.piton(["--store", &store, "check", "--deep"]).code, Some(0));
}

/// The WAL of another store is refused by whatever verb opens the store, and a repair doesn't mix it in either.
#[test]
fn the_log_of_another_store_is_refused_and_says_what_to_do() {
    let world = World::new();
    let url = |name: &str| format!("sqlite:{}", world.root().join(name).display());
    let (own, other) = (url("own.db"), url("other.db"));
    save(&world, &own, 3);
    save(&world, &other, 2);
    world.write("slow.yml", "nodes:\n  - {id: in, data: {type: start}}\n  - {id: wait, data: {type: command, command: [sh, -c, 'touch begun; while ! test -e go; do sleep 0.05; done']}}\n  - {id: out, data: {type: end}}\nedges:\n  - {source: in, target: wait}\n  - {source: wait, target: out}\n");
    let mut child = world.command(["--store", &other, "run", "slow.yml", "--id", "r"]).spawn().unwrap();
    wait_until(|| world.work().join("begun").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    world.write("go", "");
    let at = |name: &str| world.root().join(name);
    std::fs::copy(at("other.db-wal"), at("own.db-wal")).unwrap();
    let read = || (std::fs::read(at("own.db")).unwrap(), std::fs::read(at("own.db-wal")).unwrap());
    let before = read();
    for verb in [&["log"][..], &["check"], &["check", "--repair", "--yes"], &["save"]] {
        let refused = world.piton(["--store", &own].iter().chain(verb));
        assert_eq!(refused.code, Some(1), "{verb:?}: {}", refused.whole());
        assert!(refused.stderr.contains("own.db-wal is not the WAL of"), "{verb:?}: {}", refused.whole());
        assert!(refused.stderr.contains("Nothing was changed. Put it back"), "{verb:?}: {}", refused.whole());
        assert!(read() == before, "{verb:?}");
    }
    std::fs::remove_file(at("own.db-wal")).unwrap();
    assert_eq!(world.piton(["--store", &own, "check", "--deep"]).code, Some(0));
}

/// A missing file of a file store costs one entry: a repair keeps all other checkpoints, and says where they are.
#[test]
fn a_missing_entry_file_costs_one_entry() {
    let world = World::new();
    let store = format!("file:{}", world.root().join("store").display());
    save(&world, &store, 6);
    let piton = |verb: &[&str]| world.piton(["--store", &store].iter().chain(verb));
    std::fs::write(world.root().join("store/runs/notes.txt"), "mine").unwrap();
    let listed = piton(&["log"]);
    assert_eq!(listed.code, Some(0), "a stray file is in nobody's way: {}", listed.whole());
    let mut folders = std::fs::read_dir(world.root().join("store/runs")).unwrap().map(|entry| entry.unwrap().path());
    let run = folders.find(|path| path.is_dir()).unwrap();
    std::fs::remove_file(run.join("entries/0000000002.json")).unwrap();
    let checked = piton(&["check"]);
    assert_eq!(checked.code, Some(1), "{}", checked.whole());
    assert!(checked.stdout.contains("6 entries, 5 whole checkpoints"), "{}", checked.whole());
    let repaired = piton(&["check", "--repair", "--yes"]);
    assert_eq!(repaired.code, Some(0), "{}", repaired.whole());
    let name = run.file_name().unwrap().to_str().unwrap();
    let line = format!(
        "run {name}: entries up to 1 kept, 0 checkpoints lost, 1 entries can't be read; the whole checkpoints from \
         {name}@3 to {name}@6 are in run {name}-saved-6"
    );
    assert!(repaired.stdout.contains(&line), "{}", repaired.whole());
    assert_eq!(piton(&["check", "--deep"]).code, Some(0));
    for (place, n) in (1..).zip(3..=6) {
        let restored = piton(&["restore", &format!("{name}-saved-6@{place}"), "--yes"]);
        assert_eq!(restored.code, Some(0), "{}", restored.whole());
        assert!(world.lines("a.txt").iter().all(|line| *line == n.to_string()), "{n}");
    }
    world.write("a.txt", "later");
    let saved = piton(&["save"]);
    assert!(saved.stdout.starts_with(&format!("{name}@")), "{}", saved.whole());
    let number: u32 = saved.stdout[name.len() + 1..].split_whitespace().next().unwrap().parse().unwrap();
    assert!(number > 6, "no number is used again: {}", saved.whole());
}

/// With no space for anything, what is stored can be looked at.
#[test]
fn a_store_on_a_full_disk_can_be_looked_at() {
    let world = World::new();
    let disk = tiny_tmpfs(2 << 20);
    let store = format!("sqlite:{}", disk.path().join("store.db").display());
    save(&world, &store, 3);
    let ballast = disk.path().join("ballast");
    assert!(std::fs::write(&ballast, vec![1; 4 << 20]).is_err(), "the disk is full");
    let log = world.piton(["--store", &store, "log"]);
    assert_eq!(log.code, Some(0), "{}", log.whole());
    let newest = log.stdout.split_whitespace().find(|word| word.contains('@')).unwrap().to_owned();
    for verb in [&["show", &newest][..], &["status"], &["check"]] {
        let looked = world.piton(["--store", &store].iter().chain(verb));
        assert_eq!(looked.code, Some(0), "{verb:?}: {}", looked.whole());
    }
    world.write("a.txt", "more");
    let saved = world.piton(["--store", &store, "save"]);
    assert_eq!(saved.code, Some(1), "{}", saved.whole());
    assert!(saved.stderr.contains("no space is left"), "{}", saved.whole());
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(world.piton(["--store", &store, "save"]).code, Some(0));
}

/// Promise 4: a full disk is an error, never a signal, also where blocks are smaller than what SQLite maps. Whatever room is
/// left, from none to enough, each verb ends by itself, and in the end the work goes on.
#[test]
fn a_full_disk_with_small_blocks_is_an_error() {
    let world = World::new();
    let disk = small_blocks(2 << 20);
    let store = format!("sqlite:{}", disk.path().join("store.db").display());
    save(&world, &store, 2);
    let ballast = disk.path().join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    while file.write_all(&[1; 1024]).is_ok() {}
    let (mut failed, mut done) = (0, 0);
    for room in 0..48_u64 {
        for verb in [&["log"][..], &["save"]] {
            world.write("a.txt", &format!("{room}\n").repeat(100));
            let ended = world.command(["--store", &store].iter().chain(verb)).output().unwrap();
            assert_eq!(ended.status.signal(), None, "{verb:?} with {room} KiB left");
            match ended.status.code() {
                Some(0) => done += 1,
                Some(1) => failed += 1,
                other => panic!("{verb:?}: {other:?}: {}", String::from_utf8_lossy(&ended.stderr)),
            }
        }
        let left = file.metadata().unwrap().len();
        file.set_len(left.saturating_sub(1024)).unwrap();
    }
    assert!(failed > 3 && done > 3, "{failed} failed, {done} done");
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(world.piton(["--store", &store, "save"]).code, Some(0));
    assert_eq!(world.piton(["--store", &store, "check", "--deep"]).code, Some(0));
}

/// Whatever becomes of its outputs, a verb ends: closed, full, or a pipe that has no reader. The control is a program that
/// doesn't end.
#[test]
fn a_failing_write_hangs_no_verb() {
    let world = World::with_run();
    let ends = |line: &str| world.shell(&format!("timeout -s KILL 120 bash -c '{line}'")).status().unwrap().code();
    for verb in ["log", "save", "status --json", "run flow.yml --json", "guard -- true"] {
        for output in ["> /dev/full", "2> /dev/full", ">&- 2>&-", "2>&1 | true"] {
            let code = ends(&format!("piton {verb} {output}"));
            assert!(matches!(code, Some(0..=3)), "{verb} {output}: {code:?}");
        }
    }
    assert_eq!(world.shell("timeout -s KILL 1 sleep 100").status().unwrap().code(), Some(137), "the control");
}
