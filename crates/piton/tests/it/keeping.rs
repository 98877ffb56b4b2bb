//! Retention against writers that are in the middle of something, against crashes, and against the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use piton_log::state::State;
use piton_log::upkeep::{check, drop_removed};
use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_runtime::Context;
use piton_runtime::retention::{Bounds, Keeper, Kept};
use piton_store::{EncryptedStore, Key, PackState, RunQuery};
use piton_store::{Store, StoreError};
use piton_store_objects::FolderOptions;
use piton_store_objects::ObjectStore;
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{Retention, RunKind, RunStatus, Seq, Value};
use piton_workspace::{Goal, Record, RestoreOptions, SnapshotReach, Workspace, WorkspaceOptions};

use piton_testing::level::{by_level, sample};
use piton_testing::scratch::Scratch;
use piton_testing::{CrashStore, Fault, SeededRandom};
use piton_types::{CheckpointRef, EntryKind, RunId, Timestamp};

const DAY: i64 = 86_400_000;

pub(crate) struct Folder {
    scratch: Scratch,
    root: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::in_memory();
        let root = scratch.path().join("root");
        fs::create_dir_all(root.join("sub")).unwrap();
        Self { root: root.canonicalize().unwrap(), scratch }
    }

    fn workspace(&self, store: &Arc<dyn Store>) -> Workspace {
        let options =
            WorkspaceOptions { state: self.scratch.path().join("state"), budget: Some(0), ..Default::default() };
        Workspace::open(&Context::system(Arc::clone(store)), &self.root, options).unwrap()
    }

    /// Changes some file, or adds one.
    fn edit(&self, random: &SeededRandom) {
        let name = format!("{}file{}", if random.one_in(2) { "sub/" } else { "" }, random.below(6));
        let content = format!("{} ", random.next_u64()).repeat(1 + random.below(200));
        fs::write(self.root.join(name), content).unwrap();
    }

    /// What is in the files.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for folder in [self.root.clone(), self.root.join("sub")] {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    files.insert(path.clone(), fs::read(path).unwrap());
                }
            }
        }
        files
    }
}

async fn guard_run(store: &Arc<dyn Store>, folder: &Folder, id: &str) -> RunId {
    let id: RunId = id.parse().unwrap();
    let new = NewRun {
        kind: RunKind::Guard,
        folder: Some(folder.root.to_string_lossy().into_owned()),
        ..NewRun::new(id.clone(), Timestamp::from_millis(1))
    };
    RunLog::create(Arc::clone(store), new).await.unwrap();
    id
}

async fn end(store: &Arc<dyn Store>, run: &RunId) {
    let mut log = RunLog::open(Arc::clone(store), run).await.unwrap();
    let mut summary = log.summary().await.unwrap();
    summary.status = RunStatus::Completed;
    let draft = Draft { index: Some(summary), ..Draft::new(EntryKind::StateChanged, Timestamp::from_millis(2)) };
    log.append(draft).await.unwrap();
}

/// Removes everything that any policy could.
pub(crate) async fn keep_nothing(store: &Arc<dyn Store>) -> Result<Kept, StoreError> {
    let context = Context::system(Arc::clone(store));
    let policy = Retention { completed: Duration::ZERO, failed: Duration::ZERO, per_run: 2, per_workspace: 2 };
    let keeper = Keeper { context: &context, policy, grace: Duration::ZERO, reach: &SnapshotReach };
    let mut whole = Kept::default();
    // What is removed now is condemned with the next round, and deleted with the one after it.
    for _ in 0..3 {
        let kept = keeper.carry_out(&keeper.plan().await?, Bounds::NONE).await?;
        whole.runs += kept.runs;
        whole.checkpoints += kept.checkpoints;
        whole.repacked += kept.repacked;
        whole.bytes += kept.bytes;
    }
    Ok(whole)
}

pub(crate) async fn assert_whole(store: &Arc<dyn Store>, seed: u64) {
    let report = check(store, &SnapshotReach, true).await.unwrap();
    let mut wrong = String::new();
    for run in report.runs.iter().filter(|run| !run.is_whole()) {
        write!(wrong, "{run:?}").unwrap();
    }
    assert!(report.is_whole(), "seed {seed}: {:?} {wrong}", report.packs);
}

/// One history: saves of several runs, one of which is stopped in the middle while everything is removed that can be.
/// Gives whether the store is whole at the end, and whether the writer was stopped at all.
async fn stopped_writer(seed: u64, forgetting: bool) -> (bool, bool) {
    let random = SeededRandom::new(seed);
    let folder = Folder::new();
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let workspace = folder.workspace(&store);
    let runs = [guard_run(&store, &folder, "one").await, guard_run(&store, &folder, "two").await];
    for _ in 0..2 + random.below(6) {
        folder.edit(&random);
        let run = runs.get(random.below(3)).cloned();
        workspace.save(Record { run, ..Record::manual("") }, &Arc::default()).await.unwrap();
    }
    // What the writer is to share may be in a run that goes.
    let shared = runs.get(random.below(3)).cloned();
    folder.edit(&random);
    // What changed in the same tick as a save is read again by the next, and shares nothing.
    tokio::time::sleep(Duration::from_millis(25)).await;
    workspace.save(Record { run: shared, ..Record::manual("") }, &Arc::default()).await.unwrap();
    for run in &runs {
        end(&store, run).await;
    }
    folder.edit(&random);

    let fault = Fault::StopBefore(1 + random.below(16) as u64);
    let stopping = CrashStore::new(Arc::clone(&store), fault);
    let stopping = Arc::new(if forgetting { stopping.forgetting_pins() } else { stopping });
    let writer = folder.workspace(&(Arc::clone(&stopping) as Arc<dyn Store>));
    let saving = tokio::spawn(async move { writer.save(Record::manual(""), &Arc::default()).await });
    while !stopping.is_stopped() && !saving.is_finished() {
        tokio::task::yield_now().await;
    }
    let was_stopped = stopping.is_stopped();
    keep_nothing(&store).await.unwrap();
    stopping.let_go_on();
    let saved = saving.await.unwrap();
    let mut whole = check(&store, &SnapshotReach, true).await.unwrap().is_whole();
    if let Ok(saved) = saved {
        // It can be restored, not only read.
        let before = folder.files();
        for path in before.keys() {
            fs::write(path, "overwritten").unwrap();
        }
        let options = RestoreOptions { exact: true, ..RestoreOptions::default() };
        let restored = workspace.restore_to(&Goal::Checkpoint(saved.checkpoint), &options, &Arc::default()).await;
        whole &= restored.is_ok() && folder.files() == before;
    }
    (whole, was_stopped)
}

fn seeds() -> u64 {
    by_level(60, 200, 2_000)
}

/// Promise 19: a writer that is stopped in the middle of a save loses nothing that it needs, wherever it is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_stopped_in_the_middle_of_a_save_keeps_all_that_it_needs() {
    let mut stopped = 0;
    for seed in 0..seeds() {
        let (whole, was_stopped) = stopped_writer(seed, false).await;
        assert!(whole, "seed {seed}");
        stopped += u64::from(was_stopped);
    }
    assert!(stopped > seeds() / 2, "only {stopped} writers were stopped");
}

/// The negative control of the test above: if writers pin nothing, the same histories lose data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_pins_a_stopped_writer_loses_data() {
    for seed in 0..seeds() {
        if !stopped_writer(seed, true).await.0 {
            return;
        }
    }
    panic!("no history lost anything, so the test above proves nothing");
}

pub(crate) async fn history(store: &Arc<dyn Store>, folder: &Folder, seed: u64) {
    let random = SeededRandom::new(seed);
    let workspace = folder.workspace(store);
    let guard = guard_run(store, folder, "guard").await;
    mostly_gone(folder, &workspace, &guard, &random, 12).await;
    for n in 0..6 {
        folder.edit(&random);
        let run = (n % 2 == 0).then(|| guard.clone());
        workspace.save(Record { run, ..Record::manual("") }, &Arc::default()).await.unwrap();
    }
    end(store, &guard).await;
    conversation(store, "steps", 40).await;
}

/// A check finds no damage that isn't there, wherever it is while everything is removed that can be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_beside_retention_finds_no_damage() {
    let store = async || {
        let (folder, store) = (Folder::new(), Arc::new(ObjectStore::in_memory()) as Arc<dyn Store>);
        history(&store, &folder, 7).await;
        store
    };
    let counted = Arc::new(CrashStore::new(store().await, Fault::None));
    let report = check(&(Arc::clone(&counted) as Arc<dyn Store>), &SnapshotReach, true).await.unwrap();
    assert!(report.is_whole() && counted.calls() > 20, "{} calls", counted.calls());
    let mut stopped = 0;
    let calls: Vec<u64> = (1..=counted.calls()).collect();
    for n in sample(&calls, by_level(12, 40, 1_000), 20_261_118) {
        let store = store().await;
        let stopping = Arc::new(CrashStore::new(Arc::clone(&store), Fault::StopBefore(n)));
        let beside = Arc::clone(&stopping) as Arc<dyn Store>;
        let checking = tokio::spawn(async move { check(&beside, &SnapshotReach, true).await });
        while !stopping.is_stopped() && !checking.is_finished() {
            tokio::task::yield_now().await;
        }
        stopped += u64::from(stopping.is_stopped());
        let kept = keep_nothing(&store).await.unwrap();
        assert!(kept.runs > 0 && kept.bytes > 0, "nothing was removed: {kept:?}");
        stopping.let_go_on();
        let report = checking.await.unwrap().unwrap_or_else(|error| panic!("call {n}: {error}"));
        assert!(report.is_whole(), "call {n}: {:?} {:?} {:?}", report.defects, report.packs, report.runs);
    }
    assert!(stopped > 8, "only {stopped} checks were stopped");
}

/// So many files of 20,000 random bytes, saved for `run`, of which all but two are gone with the next save, which is of
/// no run. Gives what is left.
async fn mostly_gone(
    folder: &Folder,
    workspace: &Workspace,
    run: &RunId,
    random: &SeededRandom,
    files: usize,
) -> BTreeMap<PathBuf, Vec<u8>> {
    for n in 0..files {
        let content: Vec<u8> = (0..2500).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        fs::write(folder.root.join(format!("large{n}")), content).unwrap();
    }
    // What changed in the same tick as a save is read again by the next, and named by it.
    tokio::time::sleep(Duration::from_millis(25)).await;
    workspace.save(Record { run: Some(run.clone()), ..Record::manual("") }, &Arc::default()).await.unwrap();
    for n in 2..files {
        fs::remove_file(folder.root.join(format!("large{n}"))).unwrap();
    }
    workspace.save(Record::manual(""), &Arc::default()).await.unwrap();
    folder.files()
}

/// C5: the space of a pack of which little is needed is given back, whoever made it, and the little stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pack_of_which_little_is_needed_gives_its_space_back() {
    let scratch = Scratch::in_memory();
    let sqlite = SqliteStore::open(scratch.path().join("store.db"), SqliteOptions::default()).unwrap();
    let files = ObjectStore::in_folder(scratch.path().join("store"), &FolderOptions::default()).unwrap();
    let random = Arc::new(SeededRandom::new(3));
    let key = Key::generate(&*random);
    let encrypted = EncryptedStore::create(Arc::new(ObjectStore::in_memory()), &key, random).await.unwrap();
    let stores: [Arc<dyn Store>; 4] =
        [Arc::new(ObjectStore::in_memory()), Arc::new(sqlite), Arc::new(files), Arc::new(encrypted)];
    for store in &stores {
        let (folder, random) = (Folder::new(), SeededRandom::new(4));
        let workspace = folder.workspace(store);
        let run = guard_run(store, &folder, "guard").await;
        let left = mostly_gone(&folder, &workspace, &run, &random, 40).await;
        end(store, &run).await;
        let bytes = async || store.totals().await.unwrap().pack_bytes;
        let before = bytes().await;
        assert!(before > 800_000, "{}: {before}", store.url());
        let kept = keep_nothing(store).await.unwrap();
        assert_eq!((kept.runs, kept.repacked > 0), (1, true), "{}", store.url());
        let after = bytes().await;
        assert!((40_000..60_000).contains(&after), "{}: {before} bytes before, {after} after", store.url());
        assert_whole(store, 0).await;
        for path in left.keys() {
            fs::write(path, "overwritten").unwrap();
        }
        let newest = workspace.newest().await.unwrap().unwrap();
        let options = RestoreOptions { exact: true, ..RestoreOptions::default() };
        workspace.restore_to(&Goal::Checkpoint(newest.checkpoint), &options, &Arc::default()).await.unwrap();
        assert_eq!(folder.files(), left, "{}", store.url());
        // Nothing is left to be done, and nothing is read to find that out.
        assert_eq!(keep_nothing(store).await.unwrap().repacked, 0);
        store.close().await.unwrap();
    }
}

/// The same for large states: what only removed checkpoints had is gone from the pack that has the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pack_of_state_of_which_little_is_needed_is_written_anew() {
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let (id, random): (RunId, _) = ("large".parse().unwrap(), SeededRandom::new(5));
    let mut log = RunLog::create(Arc::clone(&store), NewRun::new(id.clone(), Timestamp::from_millis(1))).await.unwrap();
    let text = |_| Value::from((0..2_000).map(|_| format!("{:016x}", random.next_u64())).collect::<String>());
    let large: Vec<Value> = (0..30).map(text).collect();
    // The second has a tenth of the first.
    for (n, list) in (1..).zip([large.clone(), large[..3].to_vec()]) {
        let value = Value::List(list);
        let part = DraftPart { name: "app".into(), schema: "t".into(), version: 1, content: Content::Value(&value) };
        let draft = Draft { parts: vec![part], ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(n)) };
        log.append(draft).await.unwrap();
    }
    let before = store.totals().await.unwrap().pack_bytes;
    assert!(before > 900_000, "{before}");
    log.remove_checkpoints(&[Seq(1)].into(), "test").await.unwrap();
    log.close().await.unwrap();
    let thinned = drop_removed(&store, &id).await.unwrap();
    assert!(thinned.packs > 0, "{thinned:?}");
    keep_nothing(&store).await.unwrap();
    let after = store.totals().await.unwrap().pack_bytes;
    assert!(after < before / 5, "{before} bytes before, {after} after");
    assert_whole(&store, 0).await;
    let log = RunLog::open(Arc::clone(&store), &id).await.unwrap();
    let entry = log.entry(Seq(2)).await.unwrap();
    assert_eq!(log.load(&entry.parts[&"app".into()]).await.unwrap(), Value::List(large[..3].to_vec()));
}

/// A run with so many checkpoints of a growing list.
async fn conversation(store: &Arc<dyn Store>, id: &str, checkpoints: i64) {
    let id: RunId = id.parse().unwrap();
    let mut log = RunLog::create(Arc::clone(store), NewRun::new(id, Timestamp::from_millis(1))).await.unwrap();
    let mut state = State::new(store.hashing(), &Value::List(Vec::new())).unwrap();
    for n in 0..checkpoints {
        state.push(&"".parse().unwrap(), Value::from(format!("message {n} ").repeat(20))).await.unwrap();
        let part =
            DraftPart { name: "app".into(), schema: "t".into(), version: 1, content: Content::State(&mut state) };
        let draft = Draft { parts: vec![part], ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(n * DAY)) };
        log.append(draft).await.unwrap();
    }
    log.close().await.unwrap();
}

/// Promises 1 and 19: retention that is killed at any call of the store leaves a whole store, and the next one ends
/// what it began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_can_be_killed_at_every_call() {
    let calls = {
        let (store, folder): (Arc<dyn Store>, _) = (Arc::new(ObjectStore::in_memory()), Folder::new());
        history(&store, &folder, 1).await;
        let counting = Arc::new(CrashStore::new(Arc::clone(&store), Fault::None));
        let kept = keep_nothing(&(Arc::clone(&counting) as Arc<dyn Store>)).await.unwrap();
        assert!(kept.runs == 1 && kept.checkpoints > 30 && kept.bytes > 0 && kept.repacked > 0, "{kept:?}");
        assert_whole(&store, 0).await;
        counting.calls()
    };
    assert!(calls > 60, "{calls}");
    let (mut killed, mut runs, mut sizes) = (0, BTreeSet::new(), Vec::new());
    let all: Vec<u64> = (1..=calls).collect();
    for call in sample(&all, by_level(10, 40, usize::MAX), 1) {
        for fault in [Fault::CrashBefore(call), Fault::CrashAfter(call)] {
            let (store, folder): (Arc<dyn Store>, _) = (Arc::new(ObjectStore::in_memory()), Folder::new());
            history(&store, &folder, 1).await;
            let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&store), fault));
            // What was saved in the same tick as it was changed is read again, so some histories need fewer calls.
            killed += u64::from(keep_nothing(&crashing).await.is_err());
            assert_whole(&store, call).await;
            keep_nothing(&store).await.unwrap();
            assert_whole(&store, call).await;
            runs.insert(store.list(RunQuery::default()).await.unwrap().len());
            // What was staged by whoever was killed is removed when the store is next opened alone.
            let packs = store.packs(None, 100).await.unwrap().into_iter();
            sizes.push(packs.filter(|pack| pack.state != PackState::Pinned).map(|pack| pack.size).sum::<u64>());
        }
    }
    assert!(killed * 10 > sizes.len() as u64 * 9, "{killed} of {} were killed", sizes.len());
    assert_eq!(runs.len(), 1, "whenever it was killed, the end is the same: {runs:?}");
    let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(most * 10 <= least * 12, "whenever it was killed, as much is left: {least} to {most} bytes");
}

/// C5: what stays can be read, what goes is gone, and the store is smaller; a handle that was open all the while goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thinned_run_keeps_what_is_left_of_it() {
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    conversation(&store, "long", 300).await;
    let id: RunId = "long".parse().unwrap();
    let mut open = RunLog::open(Arc::clone(&store), &id).await.unwrap();
    let old = open.entry(Seq(100)).await.unwrap();
    let mut state = open.state(&old.parts[&"app".into()]);
    state.push(&"".parse().unwrap(), Value::from("added to what is about to be removed")).await.unwrap();
    let before = store.usage().await.unwrap().bytes;

    let mut log = RunLog::open(Arc::clone(&store), &id).await.unwrap();
    let gone = (1..300).map(Seq).filter(|seq| seq.0 % 25 != 0).collect();
    log.remove_checkpoints(&gone, "test").await.unwrap();
    let thinned = drop_removed(&store, &id).await.unwrap();
    assert!(thinned.nodes > 100, "{thinned:?}");
    assert!(store.usage().await.unwrap().bytes < before);
    assert_whole(&store, 0).await;
    let log = RunLog::open(Arc::clone(&store), &id).await.unwrap();
    for seq in (25..300).step_by(25) {
        let entry = log.entry(Seq(seq)).await.unwrap();
        let value = log.load(&entry.parts[&"app".into()]).await.unwrap();
        assert_eq!(value.as_list().map(<[Value]>::len), Some(seq as usize));
    }
    let entry = log.entry(Seq(30)).await.unwrap();
    assert!(log.load(&entry.parts[&"app".into()]).await.is_err(), "its state is gone");

    // The handle from before can't write behind the removal without having seen it, and then stores all of its state.
    let part =
        || DraftPart { name: "app".into(), schema: "t".into(), version: 1, content: Content::Value(&Value::Null) };
    let draft = Draft { parts: vec![part()], ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(9)) };
    assert!(matches!(open.append(draft).await, Err(StoreError::Conflict { .. })));
    open.refresh().await.unwrap();
    let part = DraftPart { content: Content::State(&mut state), ..part() };
    let draft = Draft { parts: vec![part], ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(9)) };
    open.append(draft).await.unwrap();
    assert_whole(&store, 0).await;
}

/// C5: completed 7 days, failed 30, unfinished for ever.
#[tokio::test]
async fn runs_go_by_their_age() {
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let now = 1000 * DAY;
    for (id, status, age) in [
        ("done-new", RunStatus::Completed, 6),
        ("done-old", RunStatus::Completed, 8),
        ("failed-new", RunStatus::Failed, 29),
        ("failed-old", RunStatus::Failed, 31),
        ("cancelled", RunStatus::Cancelled, 8),
        ("unfinished", RunStatus::InProgress, 900),
        ("waiting", RunStatus::Waiting, 900),
    ] {
        let at = Timestamp::from_millis(now - age * DAY);
        let new = NewRun { status, ..NewRun::new(id.parse().unwrap(), at) };
        RunLog::create(Arc::clone(&store), new).await.unwrap();
    }
    let clock = Arc::new(piton_testing::ManualClock::new(Timestamp::from_millis(now - DAY)));
    let context = Context { clock: clock.clone(), ..Context::system(Arc::clone(&store)) };
    let keeper =
        Keeper { context: &context, policy: Retention::default(), grace: Duration::ZERO, reach: &SnapshotReach };
    let plan = keeper.plan().await.unwrap();
    assert!(plan.clock_doubted && plan.removals.is_empty(), "it is the first look: {plan:?}");
    clock.set_wall(Timestamp::from_millis(now));
    let plan = keeper.plan().await.unwrap();
    assert!(!plan.clock_doubted);
    let mut planned: Vec<_> = plan.removals.iter().map(|removal| removal.run.id.to_string()).collect();
    planned.sort();
    assert_eq!(planned, ["cancelled", "done-old", "failed-old"]);
    let kept = keeper.carry_out(&plan, Bounds::NONE).await.unwrap();
    assert_eq!((kept.runs, kept.more), (3, false));
    assert_eq!(store.list(RunQuery::default()).await.unwrap().len(), 4);
}

/// C5, 14: one command whose clock is 40 days ahead, which also writes with that clock, removes nothing that ended seconds
/// before; a clock that stays there is believed a day later.
#[tokio::test]
async fn a_command_with_a_clock_that_jumped_removes_nothing() {
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let now = 1000 * DAY;
    let clock = Arc::new(piton_testing::ManualClock::new(Timestamp::from_millis(now)).booted());
    let context = Context { clock: clock.clone(), ..Context::system(Arc::clone(&store)) };
    let policy = Retention::default();
    let keeper = Keeper { context: &context, policy, grace: Duration::from_secs(1), reach: &SnapshotReach };
    let ended = async |id: &str| {
        let new = NewRun {
            status: RunStatus::Completed,
            ..NewRun::new(id.parse().unwrap(), piton_types::Clock::now(&*context.clock))
        };
        RunLog::create(Arc::clone(&store), new).await.unwrap();
    };
    let look = async || {
        let plan = keeper.plan().await.unwrap();
        (plan.clock_doubted, keeper.carry_out(&plan, Bounds::NONE).await.unwrap().runs)
    };
    ended("first").await;
    look().await;
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(look().await, (false, 0));
    ended("seconds-before").await;
    clock.set_wall(Timestamp::from_millis(now + 40 * DAY));
    ended("of-the-command").await;
    assert_eq!(look().await, (true, 0));
    clock.set_wall(Timestamp::from_millis(now + DAY + 5000));
    assert_eq!(look().await, (false, 0), "the clock is right again");
    clock.set_wall(Timestamp::from_millis(now + 40 * DAY));
    assert_eq!(look().await, (true, 0));
    clock.set_wall(Timestamp::from_millis(now + 41 * DAY + DAY / 2));
    assert_eq!(look().await, (true, 0), "it jumped again, and no day has passed");
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(look().await, (false, 2), "it stayed");
}

/// C5: a checkpoint that was removed can't be restored, what is left can, and undo works across the gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thinned_folder_can_still_be_restored() {
    let (store, folder): (Arc<dyn Store>, _) = (Arc::new(ObjectStore::in_memory()), Folder::new());
    let workspace = folder.workspace(&store);
    let mut saved: Vec<(CheckpointRef, BTreeMap<PathBuf, Vec<u8>>)> = Vec::new();
    for n in 0..60 {
        let random = SeededRandom::new(n);
        let content: String = (0..500).map(|_| format!("{:016x}", random.next_u64())).collect();
        fs::write(folder.root.join("a"), content).unwrap();
        let checkpoint = workspace.save(Record::manual(""), &Arc::default()).await.unwrap().checkpoint;
        saved.push((checkpoint, folder.files()));
    }
    let context = Context::system(Arc::clone(&store));
    let policy = Retention { per_workspace: 10, ..Retention::default() };
    let keeper = Keeper { context: &context, policy, grace: Duration::ZERO, reach: &SnapshotReach };
    let before = store.usage().await.unwrap().bytes;
    for _ in 0..3 {
        keeper.carry_out(&keeper.plan().await.unwrap(), Bounds::NONE).await.unwrap();
    }
    assert!(store.usage().await.unwrap().bytes < before / 2);
    assert_whole(&store, 0).await;
    let options = RestoreOptions { exact: true, ..RestoreOptions::default() };
    let mut whole = 0;
    for (checkpoint, files) in &saved {
        if workspace.restore_to(&Goal::Checkpoint(checkpoint.clone()), &options, &Arc::default()).await.is_ok() {
            assert_eq!(folder.files(), *files, "{checkpoint}");
            whole += 1;
        }
    }
    assert_eq!(whole, 10);
    assert_whole(&store, 0).await;
}
