//! Processes that aren't: each has an id that no process can have, so to the others it is dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use piton_log::RunLog;
use piton_runtime::{Context, OpenRun, RetryPolicy, WholeHistory, this_process};
use piton_store::Store;
use piton_store_objects::ObjectStore;
use piton_testing::{ManualClock, SeededRandom};
use piton_types::{Holder, RunId, Value};

/// Above the largest process id of Linux.
static NEXT_PID: AtomicU32 = AtomicU32::new(5_000_000);

/// A process of this host and boot that doesn't run.
pub(crate) fn dead_process() -> Holder {
    Holder { pid: NEXT_PID.fetch_add(1, Ordering::Relaxed), started: 1, ..this_process() }
}

/// A new process, which all other processes take for dead.
pub(crate) fn process(store: &Arc<dyn Store>) -> Context {
    let holder = dead_process();
    let random = Arc::new(SeededRandom::new(holder.pid.into()));
    Context { store: Arc::clone(store), clock: Arc::new(ManualClock::default()), random, holder }
}

/// A new process with this clock.
pub(crate) fn process_at(store: &Arc<dyn Store>, clock: &Arc<ManualClock>) -> Context {
    Context { clock: Arc::clone(clock) as _, ..process(store) }
}

/// A clock that sleepers move, shared by all processes of one host.
pub(crate) fn flowing() -> Arc<ManualClock> {
    Arc::new(ManualClock::default().flowing().booted())
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(ObjectStore::in_memory())
}

pub(crate) fn run_id() -> RunId {
    "a-run".parse().unwrap()
}

pub(crate) fn open() -> OpenRun {
    OpenRun {
        id: Some(run_id()),
        name: "a run".into(),
        body: Value::from("the input"),
        retry: RetryPolicy::NONE,
        ..OpenRun::default()
    }
}

pub(crate) async fn history(store: &Arc<dyn Store>) -> WholeHistory {
    WholeHistory::read(&RunLog::open(Arc::clone(store), &run_id()).await.unwrap()).await.unwrap()
}

/// How many entries the log has.
pub(crate) async fn entries(store: &Arc<dyn Store>) -> u32 {
    store.head(&run_id()).await.unwrap().map_or(0, |head| head.seq.0 + 1)
}
