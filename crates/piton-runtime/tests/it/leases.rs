//! Signs of life from other hosts (decision 2), by the watcher's monotonic clock alone.

use std::sync::Arc;
use std::time::Duration;

use piton_runtime::recovery::stalled;
use piton_runtime::{Context, LeaseOptions, LeaseWatch, OpenRun, Run, RunError, Standing};
use piton_store::Store;
use piton_testing::ManualClock;
use piton_types::{Clock, Fence, Holder, Timestamp};

use crate::support::{dead_process, entries, flowing, memory, open, process_at, run_id};

const TTL: Duration = Duration::from_secs(30);

fn elsewhere(store: &Arc<dyn Store>, clock: &Arc<ManualClock>) -> Context {
    Context { holder: Holder { host: "elsewhere".into(), ..dead_process() }, ..process_at(store, clock) }
}

/// A run that a process on another host holds, and a process here that looks at it.
struct Taken {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    theirs: Context,
    stale: Run,
    fence: Fence,
    me: Context,
}

impl Taken {
    async fn elsewhere() -> Self {
        let (store, clock) = (memory(), Arc::new(ManualClock::default()));
        let theirs = elsewhere(&store, &clock);
        let stale = Run::open(&theirs, open()).await.unwrap();
        let fence = store.lease(&run_id()).await.unwrap().unwrap().fence;
        let me = process_at(&store, &clock);
        Self { store, clock, theirs, stale, fence, me }
    }
}

#[tokio::test]
async fn a_silent_holder_elsewhere_is_given_up_after_its_time() {
    let Taken { store, clock, theirs, mut stale, fence, me } = Taken::elsewhere().await;
    let mut watch = LeaseWatch::default();
    let mut look = async || watch.look(&me, &run_id(), TTL).await.unwrap();
    assert_eq!(look().await, Standing::Held);
    clock.advance(TTL - Duration::from_millis(1));
    assert_eq!(look().await, Standing::Held);
    // A sign of life just in time.
    store.beat(&run_id(), fence, &theirs.holder).await.unwrap();
    assert_eq!(look().await, Standing::Held);
    clock.advance(TTL - Duration::from_millis(1));
    assert_eq!(look().await, Standing::Held);
    // A write is a sign of life too.
    stale.step("a", (), async |()| Ok::<_, String>(())).await.unwrap();
    assert_eq!(look().await, Standing::Held);
    // Promise 14: the wall clock jumps both ways; nothing expires early or comes back.
    for jump in [3_600_000, -7_200_000] {
        clock.set_wall(Timestamp::from_millis(clock.now().as_millis() + jump));
        assert_eq!(look().await, Standing::Held);
    }
    clock.advance_monotonic(TTL);
    assert_eq!(look().await, Standing::Stalled);
}

/// Waiting is an option; without it the answer says who has the run and since when.
#[tokio::test]
async fn waiting_for_a_holder_elsewhere() {
    let (store, clock) = (memory(), flowing());
    let mut stale = Run::open(&elsewhere(&store, &clock), open()).await.unwrap();
    let since = clock.now();
    let before = entries(&store).await;
    let with = |wait| OpenRun { lease: LeaseOptions { ttl: TTL, wait }, ..open() };
    for wait in [None, Some(TTL / 2)] {
        let error = Run::open(&process_at(&store, &clock), with(wait)).await.unwrap_err();
        let RunError::Held { holder, since: told, .. } = &error else { panic!("{error}") };
        assert_eq!((holder.host.as_str(), *told), ("elsewhere", Some(since)));
    }
    assert_eq!(entries(&store).await, before, "nothing was changed");
    let start = clock.monotonic();
    let mut mine = Run::open(&process_at(&store, &clock), with(Some(2 * TTL))).await.unwrap();
    let waited = clock.monotonic() - start;
    assert!(waited >= TTL && waited < TTL + Duration::from_secs(2), "{waited:?}");
    // The frozen holder comes back: it can't write.
    let fenced = RunError::from(stale.step("a", (), async |()| Ok::<_, String>(1)).await.unwrap_err());
    assert!(fenced.is_fenced(), "{fenced}");
    assert_eq!(mine.step("a", (), async |()| Ok::<_, String>(2)).await.unwrap(), 2);
}

/// A driven run on a store that others can use gives signs of life by itself, and stops with its handle.
#[tokio::test]
async fn a_driven_run_beats() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store: Arc<dyn Store> =
        Arc::new(piton_store_sqlite::SqliteStore::open(&path, piton_store_sqlite::SqliteOptions::default()).unwrap());
    let lease = LeaseOptions { ttl: Duration::from_millis(30), wait: None };
    let run = Run::open(&Context::system(Arc::clone(&store)), OpenRun { lease, ..open() }).await.unwrap();
    let beat = async || store.lease(&run_id()).await.unwrap().unwrap().beat;
    let first = beat().await;
    let limit = std::time::Instant::now() + Duration::from_secs(20);
    while beat().await < first + 3 {
        assert!(std::time::Instant::now() < limit, "no sign of life");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(run);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let last = beat().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(beat().await, last, "nobody drives it any more");
}

/// R1, decision 2: a holder on another host that gives no sign of life for its time is found, and not before; the
/// process that takes the run then fences that holder.
#[tokio::test]
async fn a_run_whose_holder_elsewhere_fell_silent_is_found_stalled() {
    let Taken { store, clock, theirs, mut stale, fence, me } = Taken::elsewhere().await;
    let mut watch = LeaseWatch::default();
    let mut look = async || {
        let runs = stalled(&me, &mut watch, TTL).await.unwrap();
        (runs.found.into_iter().map(|run| run.id).collect::<Vec<_>>(), runs.watched)
    };
    let (nobody, silent) = ((Vec::new(), 1), (vec![run_id()], 0));
    assert_eq!(look().await, nobody);
    clock.advance(TTL - Duration::from_millis(1));
    store.beat(&run_id(), fence, &theirs.holder).await.unwrap();
    assert_eq!(look().await, nobody, "a sign of life just in time");
    clock.set_wall(Timestamp::from_millis(clock.now().as_millis() + 3_600_000));
    assert_eq!(look().await, nobody, "the wall clock says nothing");
    clock.advance_monotonic(TTL);
    assert_eq!(look().await, silent);
    let wait = OpenRun { lease: LeaseOptions { ttl: TTL, wait: Some(TTL * 2) }, ..open() };
    let flowing = flowing();
    let mut taken = Run::open(&process_at(&store, &flowing), wait).await.unwrap();
    let fenced = RunError::from(stale.step("late", (), async |()| Ok::<_, String>(())).await.unwrap_err());
    assert!(fenced.is_fenced(), "{fenced}");
    taken.step("a", (), async |()| Ok::<_, String>(())).await.unwrap();
}
