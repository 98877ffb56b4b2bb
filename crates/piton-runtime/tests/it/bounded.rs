//! What opening, resuming and showing a run reads doesn't grow with the number of its finished steps (decision 6).

use std::path::Path;
use std::sync::Arc;

use piton_log::RunLog;
use piton_runtime::{Context, History, LeaseWatch, OpenRun, Pager, Run, WholeHistory};
use piton_store::{Call, MeteredStore, Store};
use piton_store_objects::{FolderObjects, FolderOptions, MemoryObjects, ObjectStore, Objects};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::level::by_level;
use piton_testing::{CrashStore, Fault};
use piton_types::{Durability, EntryKind, RunStatus};

use crate::support::{memory, open, process, run_id};

/// How many calls more the larger run may take: one more level of the index for each of three old steps, and segments
/// that are cut elsewhere.
const MORE_CALLS: usize = 16;

/// How many bytes more: what one segment of the largest size has.
const MORE_BYTES: u64 = 1 << 20;

fn relaxed() -> OpenRun {
    OpenRun { durability: Durability::Relaxed, ..open() }
}

async fn item(run: &mut Run, number: usize) -> u64 {
    let mut branch = run.branch(&format!("item-{number}")).unwrap();
    branch.step("work", number as u64, async |number| Ok::<_, String>(number * 2)).await.unwrap()
}

/// A run with so many finished steps, left by a process that died.
async fn finished(store: &Arc<dyn Store>, count: usize) {
    let mut run = Run::open(&process(store), relaxed()).await.unwrap();
    for number in 0..count {
        item(&mut run, number).await;
    }
    drop(run);
    RunLog::open(Arc::clone(store), &run_id()).await.unwrap().close().await.unwrap();
}

/// The calls that something makes to the store, and the bytes that it reads.
async fn cost(store: &Arc<dyn Store>, what: impl AsyncFnOnce(Context)) -> (usize, u64) {
    let counting = Arc::new(CrashStore::new(Arc::clone(store), Fault::None));
    let metered = MeteredStore::new(Arc::clone(&counting) as Arc<dyn Store>);
    let metrics = metered.metrics();
    what(process(&(Arc::new(metered) as Arc<dyn Store>))).await;
    let bytes = [Call::Read, Call::Section, Call::Pack].map(|call| metrics.of(call).bytes).iter().sum();
    (counting.names().len(), bytes)
}

/// Opening with an old and a new step, showing, and asking for the state.
async fn costs(store: &Arc<dyn Store>, count: usize) -> [(&'static str, (usize, u64)); 4] {
    [
        (
            "show",
            cost(store, async |context| {
                let history = History::of(&context, &run_id()).await.unwrap();
                assert_eq!(history.totals.finished, count as u64);
                assert_eq!(history.state.status(), RunStatus::InProgress);
            })
            .await,
        ),
        (
            "status",
            cost(store, async |context| {
                LeaseWatch::default().look(&context, &run_id(), std::time::Duration::from_secs(1)).await.unwrap();
            })
            .await,
        ),
        (
            "steps",
            cost(store, async |context| {
                let log = RunLog::open(Arc::clone(&context.store), &run_id()).await.unwrap();
                let steps = Pager::new(&log).steps(20).await.unwrap();
                assert_eq!(steps[0].step.path.as_str(), format!("item-{}/work", count - 1));
                assert_eq!(steps.len(), 20);
            })
            .await,
        ),
        (
            "resume",
            cost(store, async |context| {
                let mut run = Run::open(&context, OpenRun { existing: true, ..relaxed() }).await.unwrap();
                for number in [0, count / 2, count - 1] {
                    let mut branch = run.branch(&format!("item-{number}")).unwrap();
                    let work = async |_| -> Result<u64, String> { panic!("it ran again") };
                    assert_eq!(branch.step("work", number as u64, work).await.unwrap(), number as u64 * 2);
                }
                assert_eq!(item(&mut run, count).await, count as u64 * 2);
            })
            .await,
        ),
    ]
}

async fn compare(make: impl AsyncFn(&Path) -> Arc<dyn Store>, few: usize, many: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for count in [few, many] {
        let store = make(&folder.path().join(count.to_string())).await;
        finished(&store, count).await;
        seen.push(costs(&store, count).await);
    }
    for (few, many) in seen[0].iter().zip(&seen[1]) {
        let ((what, (few_calls, few_bytes)), (_, (many_calls, many_bytes))) = (few, many);
        assert!(*many_calls <= few_calls + MORE_CALLS, "{what}: {few_calls} and {many_calls} calls");
        assert!(*many_bytes <= few_bytes + MORE_BYTES, "{what}: {few_bytes} and {many_bytes} bytes");
    }
}

fn many() -> usize {
    by_level(10_000, 20_000, 100_000)
}

async fn over(objects: impl Objects + 'static) -> Arc<dyn Store> {
    Arc::new(ObjectStore::open(Arc::new(objects), true).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_resume_reads_is_bounded_in_sqlite() {
    let options = SqliteOptions::default();
    let make = async |path: &Path| {
        Arc::new(SqliteStore::open(path.with_extension("db"), options.clone()).unwrap()) as Arc<dyn Store>
    };
    compare(make, 1_000, many()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_resume_reads_is_bounded_in_memory() {
    compare(async |_| over(MemoryObjects::new()).await, 1_000, many()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_resume_reads_is_bounded_in_a_folder() {
    let make = async |path: &Path| over(FolderObjects::open(path, &FolderOptions::default()).unwrap()).await;
    compare(make, 1_000, by_level(2_000, 5_000, 100_000)).await;
}

/// Without indexes what is read grows, and the comparison shows it.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_index_it_grows() {
    let mut seen = Vec::new();
    for count in [200, 4_000] {
        let store = memory();
        let mut run = Run::open(&process(&store), OpenRun { index_every: Some(u32::MAX), ..relaxed() }).await.unwrap();
        for number in 0..count {
            item(&mut run, number).await;
        }
        drop(run);
        seen.push(cost(&store, async |context| drop(History::of(&context, &run_id()).await.unwrap())).await);
    }
    assert!(seen[1].1 > seen[0].1 * 4, "{seen:?}");
}

/// A page of the log says what the whole log says, from wherever the last one ended.
#[tokio::test]
async fn pages_tell_what_the_whole_log_tells() {
    let store = memory();
    let mut run = Run::open(&process(&store), OpenRun { index_every: Some(7), ..relaxed() }).await.unwrap();
    for number in 0..40 {
        item(&mut run, number).await;
        run.lines().write(format!("line {number}"));
        if number % 10 == 0 {
            run.save("app", &(number as u64).into()).await.unwrap();
        }
    }
    drop(run);
    let back = OpenRun { at: piton_runtime::StartAt::Step("item-30".parse().unwrap()), ..relaxed() };
    let mut run = Run::open(&process(&store), back).await.unwrap();
    item(&mut run, 30).await;
    drop(run);
    let log = RunLog::open(Arc::clone(&store), &run_id()).await.unwrap();
    let whole = WholeHistory::read(&log).await.unwrap();
    assert!(whole.step_entries.iter().any(|seq| whole.is_undone(*seq)));
    let (mut pager, mut steps) = (Pager::new(&log), Vec::new());
    while let Some(cursor) = pager.cursor() {
        // As another process would.
        pager = Pager::from(&log, cursor);
        steps.extend(pager.steps(3).await.unwrap());
    }
    steps.reverse();
    assert_eq!(steps.iter().map(|past| (*past.step).clone()).collect::<Vec<_>>(), whole.steps);
    assert!(steps.iter().all(|past| past.undone == whole.is_undone(past.seq)));
    let mut checkpoints = Pager::new(&log).checkpoints(usize::MAX).await.unwrap();
    checkpoints.reverse();
    assert_eq!(checkpoints, whole.checkpoints);
    let mut lines = Pager::new(&log).lines(usize::MAX).await.unwrap();
    lines.reverse();
    assert_eq!(lines, whole.log);
    let totals = History::read(&log).await.unwrap().totals;
    assert_eq!(totals, whole.totals);
    assert_eq!(totals.attempts, whole.steps.len() as u64);
    assert_eq!((totals.checkpoints, totals.lines), (whole.checkpoints.len() as u64, whole.log.len() as u64));
    let entries = Pager::new(&log).entries(usize::MAX).await.unwrap();
    assert!(entries.iter().any(|past| past.entry.kind == EntryKind::Indexed));
}
