//! A WAL beside a database that isn't its own: SQLite would move it into that without a word.

use std::fs;
use std::path::{Path, PathBuf};

use piton_store::{Log as _, StoreError};
use piton_store_sqlite::{SqliteOptions, SqliteStore, gather};
use piton_testing::id;
use piton_testing::scratch::Scratch;
use piton_types::Seq;

use crate::child::Process;
use crate::support::{Line, block_on};

/// A closed store of so many runs with so many entries each; gives its path.
fn store(folder: PathBuf, name: &str, runs: usize, entries: usize) -> PathBuf {
    fs::create_dir(&folder).unwrap();
    let path = folder.join("store.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    for run in 0..runs {
        block_on(Line::relaxed(&format!("{name}-{run}")).grow(&store, entries));
    }
    path
}

/// Lets a process append to it and be killed.
fn kill(path: &Path) {
    let mut process = Process::start("small", path);
    assert_eq!(process.hear().as_deref(), Some("ready"));
    process.kill();
}

fn log(path: &Path) -> PathBuf {
    path.with_file_name("store.db-wal")
}

/// Puts the WAL of one store beside another one, and looks whether that is refused with nothing changed.
fn assert_refused(of: &Path, beside: &Path, what: &str) {
    let before = fs::read(beside).unwrap();
    fs::copy(log(of), log(beside)).unwrap();
    let log_before = fs::read(log(of)).unwrap();
    for _ in 0..2 {
        let refused = SqliteStore::open(beside, SqliteOptions::default()).map(drop);
        let Err(error @ StoreError::ForeignWal { .. }) = refused else { panic!("{what}: {refused:?}") };
        assert!(error.to_string().contains("Nothing was changed"), "{error}");
        assert!(fs::read(beside).unwrap() == before && fs::read(log(beside)).unwrap() == log_before, "{what}");
    }
    let gathered = gather(beside, &beside.with_file_name("gathered.db"));
    assert!(matches!(gathered, Err(StoreError::ForeignWal { .. })), "{what}: {gathered:?}");
    // What to do is what the error says.
    fs::remove_file(log(beside)).unwrap();
    SqliteStore::open(beside, SqliteOptions::default()).unwrap();
}

#[test]
fn the_log_of_another_store_is_refused() {
    let scratch = Scratch::in_memory();
    // As much in both, more in one, more in the other, and nothing yet.
    let sizes = [((1, 3), (1, 3)), ((3, 4), (40, 20)), ((40, 20), (3, 4)), ((2, 200), (1, 5)), ((1, 1), (0, 0))];
    for (number, ((runs, entries), (others, theirs))) in sizes.into_iter().enumerate() {
        let own = store(scratch.join(format!("own-{number}")), "own", runs, entries);
        let other = store(scratch.join(format!("other-{number}")), "other", others, theirs);
        kill(&other);
        assert_refused(&other, &own, &format!("{runs} runs with {entries} entries, log of {others} with {theirs}"));
        // Where it belongs it is taken.
        let found = SqliteStore::open(&other, SqliteOptions::default()).unwrap();
        assert_eq!(block_on(found.head(&id("second"))).unwrap().unwrap().seq, Seq(3));
    }
}

/// A copy of a store that went on by itself has the same id, and yet another WAL.
#[test]
fn the_log_of_a_copy_that_went_on_is_refused() {
    let scratch = Scratch::in_memory();
    let own = store(scratch.join("own"), "own", 2, 5);
    let copy = scratch.join("copy").join("store.db");
    fs::create_dir(copy.parent().unwrap()).unwrap();
    fs::copy(&own, &copy).unwrap();
    let grow = |path: &Path, run: &str| {
        block_on(Line::relaxed(run).grow(&SqliteStore::open(path, SqliteOptions::default()).unwrap(), 30));
    };
    grow(&own, "here");
    grow(&copy, "there");
    kill(&copy);
    assert_refused(&copy, &own, "a copy");
}

/// Nor is an older database taken for the one that a WAL belongs to, or a newer one.
#[test]
fn a_log_is_refused_beside_its_own_database_of_another_time() {
    let scratch = Scratch::in_memory();
    let path = store(scratch.join("own"), "own", 2, 5);
    let old = fs::read(&path).unwrap();
    let run = |name: &str| {
        block_on(Line::relaxed(name).grow(&SqliteStore::open(&path, SqliteOptions::default()).unwrap(), 300));
    };
    run("later");
    run("later-still");
    kill(&path);
    let (database, newer) = (fs::read(&path).unwrap(), fs::read(log(&path)).unwrap());
    fs::write(&path, &old).unwrap();
    let opened = SqliteStore::open(&path, SqliteOptions::default()).map(drop);
    assert!(matches!(opened, Err(StoreError::ForeignWal { .. })), "{opened:?}");
    assert_eq!(fs::read(&path).unwrap(), old, "nothing was changed");
    fs::write(&path, &database).unwrap();
    assert_eq!(fs::read(log(&path)).unwrap(), newer, "nothing was changed");
    let found = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    assert_eq!(block_on(found.head(&id("second"))).unwrap().unwrap().seq, Seq(3));
}

/// Whatever a WAL has when its process is killed, and whatever of it has been moved, it is taken for this store's: by
/// the process that goes on with it, and by the next.
#[test]
fn a_stores_own_log_is_taken_whenever_its_process_is_killed() {
    let scratch = Scratch::in_memory();
    let path = store(scratch.join("own"), "own", 3, 40);
    for round in 0..8_u32 {
        let mut last = String::new();
        for many in [round * 5, 40 + round * 190] {
            let mut process = Process::start("append", &path);
            last = (0..=many).map(|_| process.hear().unwrap()).last().unwrap();
            process.kill();
        }
        let found = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        let head = block_on(found.head(&id("killed"))).unwrap().unwrap();
        assert!(head.seq >= Seq(last.parse().unwrap()), "{round}");
    }
}
