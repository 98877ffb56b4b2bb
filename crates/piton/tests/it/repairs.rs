//! Damage is found and named, what is whole of a damaged store is kept, and copies are exact.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use piton_log::upkeep::{RunReport, check, copy_run, salvage_run};
use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_runtime::Context;
use piton_store::{RunQuery, Span};
use piton_store::{Store, StoreError};
use piton_store_objects::{FolderOptions, ObjectStore};
use piton_store_sqlite::{DamagedWal, SqliteOptions, SqliteStore, gather};
use piton_types::{RunStatus, Value};
use piton_workspace::{Record, SnapshotReach, Workspace, WorkspaceOptions};

use piton_testing::level::by_level;
use piton_testing::scratch::{Scratch, copy_tree};
use piton_testing::{CrashStore, Fault, SeededRandom};
use piton_types::{EntryKind, RunId, RunSummary, Timestamp, to_value};

/// A store with a folded run, a short one, a large state, and files.
async fn fill(store: &Arc<dyn Store>, scratch: &Scratch) {
    for (id, checkpoints) in [("folded", 60), ("short", 5)] {
        let id: RunId = id.parse().unwrap();
        let mut log = RunLog::create(Arc::clone(store), NewRun::new(id, Timestamp::from_millis(1))).await.unwrap();
        for n in 0..checkpoints {
            let list = (0..=n).map(|n| Value::from(format!("message {n} ").repeat(12))).collect::<Vec<_>>().into();
            save(&mut log, &list, n).await;
        }
        if checkpoints == 5 {
            save(&mut log, &Value::from("x".repeat(400_000)), 9).await;
        }
        log.close().await.unwrap();
    }
    let root = scratch.path().join("root");
    fs::create_dir_all(root.join("sub")).unwrap();
    let root = root.canonicalize().unwrap();
    let options = WorkspaceOptions { state: scratch.path().join("state"), budget: Some(0), ..Default::default() };
    let workspace = Workspace::open(&Context::system(Arc::clone(store)), &root, options).unwrap();
    for n in 0..4 {
        fs::write(root.join(format!("sub/file{n}")), format!("content {n} ").repeat(500)).unwrap();
        workspace.save(Record::manual(""), &Arc::default()).await.unwrap();
    }
}

async fn save(log: &mut RunLog, value: &Value, n: i64) {
    let part = DraftPart { name: "app".into(), schema: "t".into(), version: 1, content: Content::Value(value) };
    let draft = Draft { parts: vec![part], ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(n)) };
    log.append(draft).await.unwrap();
}

async fn open(path: &Path) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(SqliteStore::open(path, SqliteOptions::default().with_create(false))?))
}

async fn whole_checkpoints(store: &Arc<dyn Store>) -> u64 {
    let report = check(store, &SnapshotReach, true).await.unwrap();
    report.runs.iter().map(|run| run.whole).sum()
}

fn rounds() -> usize {
    by_level(20, 60, 1_000)
}

/// What became of damaged stores.
#[derive(Debug, Default)]
struct Tally {
    /// Not even opened: what is wrong is said.
    refused: usize,
    repaired: usize,
    /// The list of runs is lost.
    unlisted: usize,
    /// Found page by page.
    gathered: usize,
    /// Harmless: nothing that counts was hit.
    harmless: usize,
}

/// Looks for damage and repairs it. Everything that a check calls whole must be in the repaired store.
async fn repair(store: &Arc<dyn Store>, tally: &mut Tally, context: &str) {
    let report = match check(store, &SnapshotReach, true).await {
        Ok(report) => report,
        // A check that can't even begin says so too.
        Err(StoreError::Corrupt { .. }) => {
            tally.refused += 1;
            return;
        }
        Err(other) => panic!("{context}: {other}"),
    };
    assert!(!report.is_whole(), "{context}: the damage wasn't found");
    let Ok(runs) = store.run_ids().await else {
        tally.unlisted += 1;
        return;
    };
    let target: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    for run in &runs {
        salvage_run(store, &target, run, &SnapshotReach)
            .await
            .unwrap_or_else(|error| panic!("{context}, run {run}: {error}"));
    }
    let kept = check(&target, &SnapshotReach, true).await.unwrap();
    assert!(kept.is_whole(), "{context}: {kept:?}");
    for before in &report.runs {
        let after = kept.runs.iter().find(|run| run.run == before.run);
        let saved = kept.runs.iter().any(|run| run.run.as_str().starts_with(&format!("{}-saved-", before.run)));
        // Behind an entry that is lost, of what is whole the newest is kept.
        let lost_entries = after.is_none_or(|after| after.entries < before.entries || after.removed > before.removed);
        assert!(
            after.map_or(0, |after| after.whole) >= before.whole
                || (lost_entries
                    && (saved
                        || before.newest_whole.is_none()
                        || after.is_some_and(|after| after.newest_whole >= before.newest_whole))),
            "{context}: {before:?}, then {after:?}"
        );
    }
    tally.repaired += 1;
}

/// Promise 7: every seeded damage of a database is found, and what is whole is kept by a repair.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_seeded_damage_is_found_and_nothing_whole_is_lost() {
    let rounds = rounds();
    let scratch = Scratch::in_memory();
    let original = scratch.path().join("original.db");
    {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&original, SqliteOptions::default()).unwrap());
        fill(&store, &scratch).await;
        assert!(check(&store, &SnapshotReach, true).await.unwrap().is_whole(), "the negative control");
        store.close().await.unwrap();
    }
    let bytes = fs::read(&original).unwrap();
    let wanted = {
        let store = open(&original).await.unwrap();
        check(&store, &SnapshotReach, true).await.unwrap().runs
    };
    let random = SeededRandom::new(7);
    let mut tally = Tally::default();
    for round in 0..rounds {
        let path = scratch.path().join("damaged.db");
        let mut damaged = bytes.clone();
        let at = random.below(damaged.len());
        damaged[at] ^= 1 << random.below(8);
        fs::write(&path, &damaged).unwrap();
        let context = format!("round {round}, byte {at}");
        let opened = match open(&path).await {
            Ok(store) if store.run_ids().await.is_ok() => Ok(store),
            Ok(_) => Err(()),
            Err(StoreError::Corrupt { .. } | StoreError::Invalid { .. }) => Err(()),
            Err(other) => panic!("{context}: {other}"),
        };
        match opened {
            Ok(store) => repair(&store, &mut tally, &context).await,
            // One page is lost, and all that it led to is found.
            Err(()) => {
                let lost = gathered(&path, &wanted).await;
                assert!(lost <= 1, "{context}: {lost} runs have lost something");
                tally.gathered += 1;
            }
        }
    }
    println!("damaged databases: {tally:?} of {rounds}");
    assert_eq!(tally.refused + tally.unlisted, 0, "{tally:?}");
    assert!(tally.repaired > rounds * 3 / 4, "{tally:?}");
}

/// Promise 7: what one damaged page costs is what stands in it. Each page in turn, of a store whose checkpoints have nothing
/// in common: one of them is lost at most, unless the page leads to others, of which there are few; and files can be saved
/// as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_damaged_page_costs_what_stands_in_it() {
    const SAVES: u64 = 12;
    let scratch = Scratch::in_memory();
    let original = scratch.path().join("original.db");
    let root = scratch.path().join("root");
    fs::create_dir(&root).unwrap();
    let root = root.canonicalize().unwrap();
    let workspace = |store: &Arc<dyn Store>| {
        let options = WorkspaceOptions { state: scratch.path().join("state"), budget: Some(0), ..Default::default() };
        Workspace::open(&Context::system(Arc::clone(store)), &root, options).unwrap()
    };
    let write = |round: u64| {
        for file in 0..250 {
            fs::write(root.join(format!("{file}")), format!("{round} of {file}")).unwrap();
        }
    };
    {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&original, SqliteOptions::default()).unwrap());
        let workspace = workspace(&store);
        for round in 0..SAVES {
            write(round);
            workspace.save(Record::manual(""), &Arc::default()).await.unwrap();
        }
        assert_eq!(whole_checkpoints(&store).await, SAVES, "the negative control");
        store.close().await.unwrap();
    }
    write(SAVES);
    let bytes = fs::read(&original).unwrap();
    let pages = bytes.len() / 4096;
    let path = scratch.path().join("damaged.db");
    let (mut costly, mut unsaved) = (Vec::new(), Vec::new());
    for page in 0..pages {
        let mut damaged = bytes.clone();
        damaged[page * 4096 + 2000] ^= 4;
        fs::write(&path, &damaged).unwrap();
        // What leads to everything is gathered: see above.
        let Ok(store) = open(&path).await else { continue };
        if check(&store, &SnapshotReach, false).await.map_or(0, |found| found.runs.iter().map(|run| run.whole).sum())
            < SAVES - 1
        {
            costly.push(page + 1);
        }
        fs::remove_dir_all(scratch.path().join("state")).ok();
        if workspace(&store).save(Record::manual(""), &Arc::default()).await.is_err() {
            unsaved.push(page + 1);
        }
        store.close().await.unwrap();
    }
    println!("{pages} pages, {costly:?} cost more than a checkpoint, {unsaved:?} keep files from being saved");
    assert!(pages >= 90, "{pages}");
    assert!(costly.len() <= 15 && unsaved.len() <= 20, "{costly:?}, {unsaved:?} of {pages}");
}

/// Gathers what is left of a database; gives how many runs have less than they had.
async fn gathered(path: &Path, wanted: &[RunReport]) -> usize {
    let into = path.with_file_name("gathered.db");
    for suffix in ["", "-lock"] {
        let mut name = into.as_os_str().to_owned();
        name.push(suffix);
        drop(fs::remove_file(name));
    }
    gather(path, &into).unwrap();
    let store = open(&into).await.unwrap();
    let found = check(&store, &SnapshotReach, true).await.unwrap().runs;
    wanted.iter().filter(|run| !found.contains(run)).count()
}

/// Promise 7: the first page of a database leads to everything; without it everything is found all the same, also what
/// only the log of a crash has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_first_page_loses_nothing() {
    let scratch = Scratch::in_memory();
    let original = scratch.path().join("original.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&original, SqliteOptions::default()).unwrap());
    fill(&store, &scratch).await;
    let wanted = check(&store, &SnapshotReach, true).await.unwrap().runs;
    assert!(wanted.len() > 2, "{wanted:?}");
    for is_closed in [false, true] {
        if is_closed {
            store.close().await.unwrap();
        }
        let folder = scratch.path().join(format!("closed-{is_closed}"));
        fs::create_dir(&folder).unwrap();
        for suffix in ["", "-wal"] {
            let from = scratch.path().join(format!("original.db{suffix}"));
            if from.exists() {
                fs::copy(from, folder.join(format!("damaged.db{suffix}"))).unwrap();
            }
        }
        assert_eq!(folder.join("damaged.db-wal").exists(), !is_closed);
        let path = folder.join("damaged.db");
        let mut damaged = fs::read(&path).unwrap();
        damaged[..4096].fill(0xff);
        fs::write(&path, &damaged).unwrap();
        assert!(open(&path).await.is_err());
        assert_eq!(gathered(&path, &wanted).await, 0, "closed: {is_closed}");
        assert_eq!(fs::read(&path).unwrap(), damaged, "the damaged one isn't changed");
    }
}

/// The same for a database whose newest commits are in the log that a crash left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_seeded_damage_of_a_log_is_found_or_ends_it() {
    let rounds = rounds();
    let scratch = Scratch::in_memory();
    let original = scratch.path().join("original.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&original, SqliteOptions::default()).unwrap());
    let id: RunId = "logged".parse().unwrap();
    let mut log = RunLog::create(Arc::clone(&store), NewRun::new(id.clone(), Timestamp::from_millis(1))).await.unwrap();
    for n in 0..20 {
        save(&mut log, &Value::from(format!("message {n} ").repeat(12)), n).await;
    }
    // As a crash leaves it: with a log that nobody has moved into the database.
    let (bytes, wal) = (fs::read(&original).unwrap(), fs::read(scratch.path().join("original.db-wal")).unwrap());
    assert!(wal.len() > 50_000, "{}", wal.len());
    let random = SeededRandom::new(8);
    let mut tally = Tally::default();
    for round in 0..rounds {
        let folder = scratch.path().join(format!("{round}"));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("damaged.db");
        let mut damaged = wal.clone();
        let at = random.below(damaged.len());
        damaged[at] ^= 1 << random.below(8);
        fs::write(&path, &bytes).unwrap();
        fs::write(folder.join("damaged.db-wal"), &damaged).unwrap();
        let context = format!("round {round}, byte {at} of the log");
        match open(&path).await {
            // Nothing but the last commit may be taken for one that never was.
            Ok(store) => {
                let head = store.head(&id).await.unwrap().unwrap();
                assert!(head.seq.0 >= 19, "{context}: entries behind {} are gone, and nobody said so", head.seq);
                tally.harmless += 1;
            }
            Err(StoreError::DamagedWal { .. }) => {
                let options = SqliteOptions::default().with_create(false).with_damaged_wal(DamagedWal::KeepPrefix);
                let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, options).unwrap());
                assert!(check(&store, &SnapshotReach, true).await.unwrap().is_whole(), "{context}");
                let kept: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                assert!(kept.iter().any(|name| name.to_string_lossy().contains("wal.damaged-")), "{context}: {kept:?}");
                tally.repaired += 1;
            }
            Err(other) => panic!("{context}: {other}"),
        }
        fs::remove_dir_all(&folder).unwrap();
    }
    println!("damaged logs: {tally:?} of {rounds}");
    assert!(tally.repaired > rounds / 3, "{tally:?}");
}

/// The same for a store of files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_seeded_damage_of_files_is_found_and_nothing_whole_is_lost() {
    let rounds = rounds();
    let scratch = Scratch::in_memory();
    let original = scratch.path().join("original");
    {
        let store: Arc<dyn Store> = Arc::new(ObjectStore::in_folder(&original, &FolderOptions::default()).unwrap());
        fill(&store, &scratch).await;
        assert!(check(&store, &SnapshotReach, true).await.unwrap().is_whole(), "the negative control");
        store.close().await.unwrap();
    }
    let mut files = Vec::new();
    let mut folders = vec![original.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let size = path.metadata().unwrap().len();
            match path.is_dir() {
                true => folders.push(path),
                // Not what is made anew when it is missing.
                false if size > 0 && !["state.json", "history.jsonl"].iter().any(|name| path.ends_with(name)) => {
                    files.push((path.strip_prefix(&original).unwrap().to_owned(), size));
                }
                false => {}
            }
        }
    }
    files.sort();
    let random = SeededRandom::new(9);
    let mut tally = Tally::default();
    for round in 0..rounds {
        let folder = scratch.path().join("damaged");
        drop(fs::remove_dir_all(&folder));
        fs::create_dir(&folder).unwrap();
        copy_tree(&original, &folder).unwrap();
        let (name, size) = &files[random.below(files.len())];
        let at = random.below(usize::try_from(*size).unwrap());
        let mut damaged = fs::read(folder.join(name)).unwrap();
        damaged[at] ^= 1 << random.below(8);
        fs::write(folder.join(name), damaged).unwrap();
        let options = FolderOptions::default().with_create(false).with_salvage(true);
        match ObjectStore::in_folder(&folder, &options) {
            Ok(store) => {
                // The one file that a salvage does without.
                if name.as_os_str() == "store.json" {
                    tally.harmless += 1;
                    continue;
                }
                let store: Arc<dyn Store> = Arc::new(store);
                repair(&store, &mut tally, &format!("round {round}, byte {at} of {}", name.display())).await;
            }
            Err(_) => tally.refused += 1,
        }
    }
    println!("damaged stores of files: {tally:?} of {rounds}");
    assert!(tally.repaired > rounds * 3 / 4, "{tally:?}");
}

/// A run whose end is lost shows the state that it had where it ends now, and one whose row is lost is found by its log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repaired_run_shows_its_true_status() {
    let scratch = Scratch::in_memory();
    let path = scratch.path().join("store");
    let id: RunId = "cut".parse().unwrap();
    {
        let store: Arc<dyn Store> = Arc::new(ObjectStore::in_folder(&path, &FolderOptions::default()).unwrap());
        let new = NewRun { name: "a name".to_owned(), ..NewRun::new(id.clone(), Timestamp::from_millis(1)) };
        let mut log = RunLog::create(Arc::clone(&store), new).await.unwrap();
        for (n, status) in (2..).zip([RunStatus::InProgress, RunStatus::Waiting, RunStatus::Completed]) {
            let summary = RunSummary { status, ..log.summary().await.unwrap() };
            let body = Value::map([("status", to_value(&status).unwrap())]);
            let draft = Draft::new(EntryKind::StateChanged, Timestamp::from_millis(n));
            log.append(Draft { body, index: Some(summary), ..draft }).await.unwrap();
        }
        store.close().await.unwrap();
    }
    // The last entry and the index are lost.
    fs::write(path.join("runs/cut/entries/0000000003.json"), "{}").unwrap();
    fs::remove_file(path.join("runs/cut/state.json")).unwrap();
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_folder(&path, &FolderOptions::default()).unwrap());
    let target: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let salvaged = salvage_run(&store, &target, &id, &SnapshotReach).await.unwrap();
    assert_eq!(salvaged.entries_to, Some(piton_types::Seq(2)));
    let row = target.summary(&id).await.unwrap().unwrap();
    assert_eq!((row.status, row.name.as_str()), (RunStatus::Waiting, "a name"));
    assert_eq!((row.created_at, row.updated_at), (Timestamp::from_millis(1), Timestamp::from_millis(3)));
}

/// A missing entry file takes nothing with it: what is before it stays where it is, the whole checkpoints behind it are in
/// a run of their own, and no number comes to mean something else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_behind_a_missing_entry_is_kept_and_counted() {
    let scratch = Scratch::in_memory();
    let path = scratch.path().join("store");
    let id: RunId = "gap".parse().unwrap();
    let value = |n: i64| Value::from(format!("message {n} ").repeat(12));
    {
        let store: Arc<dyn Store> = Arc::new(ObjectStore::in_folder(&path, &FolderOptions::default()).unwrap());
        let new = NewRun::new(id.clone(), Timestamp::from_millis(1));
        let mut log = RunLog::create(Arc::clone(&store), new).await.unwrap();
        for n in 1..8 {
            save(&mut log, &value(n), n).await;
        }
        store.close().await.unwrap();
    }
    // In groups of entries the first stands alone, and others may be told by their difference from it.
    fs::remove_file(path.join("runs/gap/entries/0000000004.json")).unwrap();
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_folder(&path, &FolderOptions::default()).unwrap());
    let report = check(&store, &SnapshotReach, true).await.unwrap();
    let before = &report.runs[0];
    assert!(!report.is_whole() && before.entries == 7, "{report:?}");
    let target: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let salvaged = salvage_run(&store, &target, &id, &SnapshotReach).await.unwrap();
    assert_eq!((salvaged.entries_to, salvaged.unread), (Some(piton_types::Seq(3)), 1));
    let (behind, saved) = salvaged.saved.unwrap_or_else(|| panic!("{before:?}"));
    assert_eq!(behind.len() + salvaged.lost.len(), 3, "each checkpoint behind it is whole or lost");
    assert_eq!(behind.last(), before.newest_whole.as_ref());
    let kept = check(&target, &SnapshotReach, true).await.unwrap();
    assert!(kept.is_whole(), "{kept:?}");
    let log = RunLog::open(Arc::clone(&target), &saved).await.unwrap();
    let entries = log.entries(Span { from: piton_types::Seq(1), ..Span::ALL }).await.unwrap();
    assert_eq!(entries.len(), behind.len());
    for (entry, seq) in entries.iter().zip(&behind) {
        let part = entry.parts.values().next().unwrap();
        assert_eq!(log.load(part).await.unwrap(), value(seq.0.into()));
    }
    let mut log = RunLog::open(Arc::clone(&target), &id).await.unwrap();
    assert_eq!(log.head().seq, piton_types::Seq(7), "no number is used again");
    assert_eq!(log.removed().await.unwrap().checkpoints, (4..8).map(piton_types::Seq).collect());
    save(&mut log, &value(8), 8).await;
    assert_eq!(log.head().seq, piton_types::Seq(8));
}

/// A copy has everything, can be cut short at any call and gone on with, and can be repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_cut_short_goes_on() {
    let scratch = Scratch::in_memory();
    let from: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    fill(&from, &scratch).await;
    let runs: Vec<RunId> = from.list(RunQuery::default()).await.unwrap().into_iter().map(|run| run.id).collect();
    let copy = async |to: &Arc<dyn Store>| {
        for run in &runs {
            copy_run(&from, to, run, &SnapshotReach).await?;
        }
        Ok::<_, StoreError>(())
    };
    let to: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let counting = Arc::new(CrashStore::new(Arc::clone(&to), Fault::None));
    copy(&(Arc::clone(&counting) as Arc<dyn Store>)).await.unwrap();
    let wanted = whole_checkpoints(&from).await;
    assert_eq!(whole_checkpoints(&to).await, wanted);
    for run in &runs {
        assert_eq!(copy_run(&from, &to, run, &SnapshotReach).await.unwrap(), Default::default(), "nothing is left");
        let read = async |store: &Arc<dyn Store>| {
            RunLog::open(Arc::clone(store), run).await.unwrap().entries(Span::ALL).await.unwrap()
        };
        assert_eq!(read(&from).await, read(&to).await);
        assert_eq!(from.summary(run).await.unwrap(), to.summary(run).await.unwrap());
    }
    for call in 1..=counting.calls() {
        let to: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
        let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&to), Fault::CrashAfter(call)));
        copy(&crashing).await.unwrap_err();
        assert!(check(&to, &SnapshotReach, false).await.unwrap().is_whole(), "what is there is whole, call {call}");
        copy(&to).await.unwrap();
        assert_eq!(whole_checkpoints(&to).await, wanted, "call {call}");
    }
}

/// Two stores with different runs of the same id are told apart, and neither is changed.
#[tokio::test]
async fn another_run_of_the_same_id_is_refused() {
    let (a, b): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(ObjectStore::in_memory()), Arc::new(ObjectStore::in_memory()));
    let id: RunId = "same".parse().unwrap();
    for (store, at) in [(&a, 1), (&b, 2)] {
        RunLog::create(Arc::clone(store), NewRun::new(id.clone(), Timestamp::from_millis(at))).await.unwrap();
    }
    let head = b.head(&id).await.unwrap();
    assert!(matches!(copy_run(&a, &b, &id, &SnapshotReach).await, Err(StoreError::Conflict { .. })));
    assert_eq!(b.head(&id).await.unwrap(), head);
}
