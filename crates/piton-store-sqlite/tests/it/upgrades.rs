//! Promise 8: a store of an older format is brought up to date by the process that opens it, wholly or not at all.
//!
//! There is one format so far. So format 1 plays the old one here, and two steps lead on from it to a format that only
//! these tests know.

use std::path::{Path, PathBuf};

use piton_store::{Log as _, RunIndex as _, RunQuery, Store as _, StoreError, Upkeep as _};
use piton_store_sqlite::{Formats, SqliteOptions, SqliteStore, Step};
use piton_testing::scratch::{Scratch, tiny_tmpfs};
use piton_testing::strace::{self, CHANGING, FailAt, KillAt, When};

use crate::child::command;
use crate::faults::{by_level, sample};
use crate::support::block_on;

/// As if the third format were the newest.
const THIRD: Formats = Formats {
    newest: 3,
    steps: &[
        Step {
            from: 1,
            // Rows are written anew, and enough of them to take many pages.
            change: |conn| {
                conn.execute_batch(
                    "CREATE TABLE copy AS SELECT key, entry, pack FROM entry; UPDATE run SET name = name || ' (2)'",
                )
            },
        },
        Step {
            from: 2,
            change: |conn| {
                conn.execute_batch("CREATE INDEX copy_key ON copy(key); UPDATE run SET name = name || ' (3)'")
            },
        },
    ],
};

fn options(formats: Formats) -> SqliteOptions {
    let mut options = SqliteOptions::default().with_create(false);
    options.formats = formats;
    options
}

/// Opens a store as a program would that knows the third format.
pub(crate) fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, options(THIRD))
}

fn ours(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, options(Formats::OURS))
}

/// The golden store of format 1, in a folder of its own.
fn golden(scratch: &Scratch) -> PathBuf {
    let folder = scratch.join("store");
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("store.db");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/1/store.db"), &path).unwrap();
    path
}

/// What a store says of its runs, with what the steps do to names taken off.
fn told(store: &SqliteStore) -> Vec<String> {
    block_on(async {
        assert_eq!(store.inspect().await.unwrap(), []);
        let mut runs = store.list(RunQuery::default()).await.unwrap();
        for run in &mut runs {
            run.name = run.name.replace(" (2)", "").replace(" (3)", "");
        }
        let mut told = Vec::new();
        for run in runs {
            told.push(format!("{run:?} {:?}", store.head(&run.id).await.unwrap()));
        }
        told
    })
}

fn names(store: &SqliteStore) -> Vec<String> {
    block_on(store.list(RunQuery::default())).unwrap().into_iter().map(|run| run.name).collect()
}

fn is_upgraded(path: &Path) -> bool {
    match ours(path) {
        Ok(_) => false,
        Err(StoreError::TooNew { found: 3, known: 1, .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn an_older_store_is_upgraded_step_by_step_and_a_newer_one_refused() {
    let scratch = Scratch::in_memory();
    let path = golden(&scratch);
    let before = told(&ours(&path).unwrap());
    let store = open(&path).unwrap();
    assert_eq!(told(&store), before);
    assert!(names(&store).iter().all(|name| name.ends_with(" (2) (3)")), "each step was taken once, in order");
    block_on(store.close()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(is_upgraded(&path));
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "what is too new isn't touched");
    assert!(names(&open(&path).unwrap())[0].ends_with(" (2) (3)"), "and not once more");
}

#[test]
fn an_upgrade_waits_until_nobody_else_has_the_store() {
    let scratch = Scratch::in_memory();
    let path = golden(&scratch);
    let old = ours(&path).unwrap();
    let impatient = options(THIRD).with_patience(std::time::Duration::from_millis(50));
    let refused = SqliteStore::open(&path, impatient).unwrap_err();
    assert!(
        matches!(&refused, StoreError::Unavailable { detail } if detail.contains("upgraded to format 3")),
        "{refused}"
    );
    assert_eq!(told(&old).len(), 4);
    block_on(old.close()).unwrap();
    open(&path).unwrap();
}

#[test]
fn a_format_without_a_step_is_too_old() {
    let scratch = Scratch::in_memory();
    let path = golden(&scratch);
    let formats = Formats { newest: 3, steps: &THIRD.steps[1..] };
    let refused = SqliteStore::open(&path, options(formats)).unwrap_err();
    assert!(matches!(&refused, StoreError::Invalid { detail, .. } if detail.contains("too old")), "{refused}");
    assert!(!is_upgraded(&path));
}

/// Promise 1, for upgrades: killed at any call, the store is the old one or the new one, and the next upgrade ends it.
#[test]
fn an_upgrade_can_be_killed_at_every_changing_system_call() {
    let scratch = Scratch::in_memory();
    let path = golden(&scratch);
    let before = told(&ours(&path).unwrap());
    let path = golden(&scratch);
    let trace = strace::trace(&command("upgrade", &path), CHANGING, 32);
    assert!(trace.finished.success() && is_upgraded(&path), "{:?}", trace.finished);
    let found = trace.kill_points(path.parent().unwrap());
    let chosen: Vec<KillAt> = sample(&found.points, by_level(20, 80, usize::MAX));
    let (mut killed, mut old) = (0, 0);
    for point in &chosen {
        let path = golden(&scratch);
        let finished = strace::run(&command("upgrade", &path), point.clone());
        killed += usize::from(finished.killed());
        if !is_upgraded(&path) {
            old += 1;
            assert_eq!(told(&ours(&path).unwrap()), before, "{point:?}");
        }
        let store = open(&path).unwrap();
        assert_eq!(told(&store), before, "{point:?}");
        assert!(names(&store).iter().all(|name| name.ends_with(" (2) (3)")), "{point:?}");
    }
    println!(
        "upgrade: {} of {} kill points, {killed} killed, {old} left the old format",
        chosen.len(),
        found.points.len()
    );
    assert!(killed * 10 >= chosen.len() * 8 && old > 0 && old < chosen.len(), "{killed} killed, {old} old");
}

/// Promise 4, for upgrades: without space the store stays what it was, the error says so, and with space it goes on.
#[test]
fn an_upgrade_without_space_leaves_the_old_store() {
    let scratch = Scratch::in_memory();
    let path = golden(&scratch);
    let before = told(&ours(&path).unwrap());
    let mut failed = 0;
    for at in (1..40).step_by(by_level(6, 3, 1)) {
        let path = golden(&scratch);
        let fault = FailAt::new("pwrite64", "ENOSPC", When::From(u32::try_from(at).unwrap()));
        let finished = strace::run(&command("upgrade", &path), fault);
        let said = finished.lines().join("\n");
        if said.contains("Full") {
            failed += 1;
            assert_eq!(told(&ours(&path).unwrap()), before, "{at}");
        }
        assert_eq!(told(&open(&path).unwrap()), before, "{at}");
    }
    assert!(failed > 1, "{failed}");

    let disk = tiny_tmpfs(std::fs::metadata(&path).unwrap().len() + (48 << 10));
    let small = disk.path().join("store.db");
    std::fs::copy(golden(&scratch), &small).unwrap();
    let refused = open(&small).unwrap_err();
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    disk.resize(16 << 20);
    assert_eq!(told(&open(&small).unwrap()), before);
}
