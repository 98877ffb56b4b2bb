//! Damage is found and named, what is whole of a damaged store is kept, and copies are exact.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use piton::upkeep::{check, copy_run, salvage_run};
use piton::workspace::{Record, SnapshotReach, Workspace, WorkspaceOptions};
use piton::{MemoryStore, SqliteOptions, SqliteStore, Store, StoreError, SystemClock, Value};
use piton_store::{Content, Draft, DraftPart, NewRun, RunLog, RunQuery, Span};

use piton_testing::scratch::Scratch;
use piton_testing::{CrashStore, Fault, SeededRandom};
use piton_types::{EntryKind, RunId, Timestamp};

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
    let workspace = Workspace::open(Arc::clone(store), Arc::new(SystemClock::new()), &root, options).unwrap();
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

/// Promise 7: every seeded damage is found, and what is whole is kept by a repair.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_seeded_damage_is_found_and_nothing_whole_is_lost() {
    let rounds = if std::env::var("PITON_TEST").is_ok_and(|level| level == "full") { 1_000 } else { 60 };
    let scratch = Scratch::in_memory();
    let original = scratch.path().join("original.db");
    {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&original, SqliteOptions::default()).unwrap());
        fill(&store, &scratch).await;
        assert!(check(&store, &SnapshotReach, true).await.unwrap().is_whole(), "the negative control");
        store.close().await.unwrap();
    }
    let bytes = fs::read(&original).unwrap();
    let random = SeededRandom::new(7);
    let (mut refused, mut repaired, mut unlisted) = (0, 0, 0);
    for round in 0..rounds {
        let path = scratch.path().join("damaged.db");
        let mut damaged = bytes.clone();
        let at = random.below(damaged.len());
        damaged[at] ^= 1 << random.below(8);
        fs::write(&path, &damaged).unwrap();
        let Ok(store) = open(&path).await else {
            refused += 1;
            continue;
        };
        let report = match check(&store, &SnapshotReach, true).await {
            Ok(report) => report,
            // A check that can't even begin says so too.
            Err(StoreError::Corrupt { .. }) => {
                refused += 1;
                continue;
            }
            Err(other) => panic!("round {round}: {other}"),
        };
        assert!(!report.is_whole(), "round {round}: the flip of byte {at} wasn't found");
        let Ok(runs) = store.list(RunQuery::default()).await else {
            unlisted += 1;
            continue;
        };
        let target: Arc<dyn Store> = Arc::new(MemoryStore::new());
        for run in &runs {
            salvage_run(&store, &target, &run.id, &SnapshotReach).await.unwrap_or_else(|error| {
                panic!("round {round}, byte {at}, run {}: {error}", run.id);
            });
        }
        let kept = check(&target, &SnapshotReach, true).await.unwrap();
        let (before, after): (u64, u64) =
            (report.runs.iter().map(|run| run.whole).sum(), kept.runs.iter().map(|run| run.whole).sum());
        assert!(
            after >= before || kept.runs.len() > report.runs.len(),
            "round {round}: {before} were whole, {after} are left"
        );
        repaired += 1;
    }
    assert!(repaired > rounds / 2, "{repaired} repaired, {refused} refused, {unlisted} without a list of runs");
}

/// A copy has everything, can be cut short at any call and gone on with, and can be repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_cut_short_goes_on() {
    let scratch = Scratch::in_memory();
    let from: Arc<dyn Store> = Arc::new(MemoryStore::new());
    fill(&from, &scratch).await;
    let runs: Vec<RunId> = from.list(RunQuery::default()).await.unwrap().into_iter().map(|run| run.id).collect();
    let copy = async |to: &Arc<dyn Store>| {
        for run in &runs {
            copy_run(&from, to, run, &SnapshotReach).await?;
        }
        Ok::<_, StoreError>(())
    };
    let to: Arc<dyn Store> = Arc::new(MemoryStore::new());
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
        let to: Arc<dyn Store> = Arc::new(MemoryStore::new());
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
    let (a, b): (Arc<dyn Store>, Arc<dyn Store>) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let id: RunId = "same".parse().unwrap();
    for (store, at) in [(&a, 1), (&b, 2)] {
        RunLog::create(Arc::clone(store), NewRun::new(id.clone(), Timestamp::from_millis(at))).await.unwrap();
    }
    let head = b.head(&id).await.unwrap();
    assert!(matches!(copy_run(&a, &b, &id, &SnapshotReach).await, Err(StoreError::Conflict { .. })));
    assert_eq!(b.head(&id).await.unwrap(), head);
}
