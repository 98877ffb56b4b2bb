//! The process dies at every call that it makes to the store, before it and after it, and another one
//! goes on: the outcome is the same, and nothing that was recorded ran again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use piton_runtime::{Context, OpenRun, Run, RunError};
use piton_store::{Store, StoreError};
use piton_testing::{CrashStore, Fault};
use piton_types::{PartName, RunStatus, Value};

use crate::support::{entries, history, memory, open, process, run_id};

const STEPS: u32 = 4;

/// How often the work of each step ran, outside of any process.
type Counter = Mutex<BTreeMap<u32, u32>>;

/// An index after every second entry, and none.
const INDEXES: [Option<u32>; 2] = [Some(2), None];

/// A run of a few steps with a checkpoint in the middle.
async fn work(context: &Context, counter: &Counter, index_every: Option<u32>) -> Result<Value, RunError> {
    let mut run = Run::open(context, OpenRun { index_every, ..open() }).await?;
    if let Some(output) = run.outcome() {
        return Ok(output);
    }
    let mut sum = 0;
    for n in 1..=STEPS {
        sum += run
            .step("add", n, async |n| {
                *counter.lock().unwrap().entry(n).or_insert(0) += 1;
                Ok::<_, String>(n * 10)
            })
            .await?;
        if n == 2 && run.part(PartName::APP).await?.is_none() {
            run.save(PartName::APP, &Value::from(sum)).await?;
        }
    }
    assert_eq!(run.part(PartName::APP).await?, Some(Value::from(30)));
    run.complete(sum).await?;
    Ok(Value::from(sum))
}

/// Resumes until it is done, then holds the log against what really ran.
async fn finish_and_check(store: &Arc<dyn Store>, counter: &Counter, fault: Fault, index_every: Option<u32>) {
    assert_eq!(work(&process(store), counter, index_every).await.unwrap(), Value::from(100), "{fault:?}");
    let history = history(store).await;
    assert_eq!(history.state.status(), RunStatus::Completed);
    assert_eq!(store.summary(&run_id()).await.unwrap().unwrap().status, RunStatus::Completed);
    let counted = counter.lock().unwrap().clone();
    let mut ran_twice = 0;
    for n in 1..=STEPS {
        let recorded = history.steps.iter().filter(|step| step.input == Value::from(n)).count();
        assert_eq!(recorded, 1, "{fault:?}: step {n} is recorded once");
        // Only the one step that was in flight at the crash may have run without being recorded.
        ran_twice += counted[&n] - 1;
    }
    assert!(ran_twice <= 1, "{fault:?}: {counted:?}");
}

async fn calls(index_every: Option<u32>) -> u64 {
    let counting = Arc::new(CrashStore::new(memory(), Fault::None));
    let store: Arc<dyn Store> = Arc::clone(&counting) as _;
    let counter = Counter::default();
    work(&process(&store), &counter, index_every).await.unwrap();
    let calls = counting.calls();
    finish_and_check(&store, &counter, Fault::None, index_every).await;
    assert!(counter.lock().unwrap().values().all(|&ran| ran == 1));
    let indexes = if index_every.is_some() { 3 } else { 0 };
    let names = counting.names();
    assert_eq!(entries(&store).await, STEPS + 3 + 1 + indexes, "created, claimed, completed and a checkpoint");
    let made = |wanted: &str| names.iter().filter(|name| **name == wanted).count();
    assert_eq!((made("append"), made("append_relaxed")), (8, indexes as usize), "{names:?}");
    calls
}

#[tokio::test]
async fn a_crash_at_any_call_changes_nothing() {
    for index_every in INDEXES {
        let calls = calls(index_every).await;
        let mut crashed = 0;
        for at in 1..=calls {
            for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
                let below = memory();
                let counter = Counter::default();
                let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), fault));
                match work(&process(&crashing), &counter, index_every).await {
                    Ok(_) => {}
                    Err(RunError::Store(StoreError::Unavailable { .. })) => crashed += 1,
                    Err(other) => panic!("{fault:?}: {other}"),
                }
                finish_and_check(&below, &counter, fault, index_every).await;
            }
        }
        assert!(crashed >= 16, "only {crashed} of {calls} calls were fatal");
    }
}

/// Recovery can be killed and repeated: two crashes, the second in the resumed process.
#[tokio::test]
async fn a_crash_in_the_recovery_changes_nothing() {
    for index_every in INDEXES {
        let calls = calls(index_every).await;
        for first in 1..=calls {
            for second in (1..=calls).step_by(3) {
                let below = memory();
                for fault in [Fault::CrashAfter(first), Fault::CrashBefore(second)] {
                    let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), fault));
                    drop(work(&process(&crashing), &Counter::default(), index_every).await);
                }
                let done = work(&process(&below), &Counter::default(), index_every).await;
                assert_eq!(done.unwrap(), Value::from(100), "{first} {second}");
                let recorded = history(&below).await.steps.len();
                assert_eq!(recorded, STEPS as usize, "{first} {second}");
            }
        }
    }
}

/// Promise 13: the store goes away for a while; the same process opens the run again and goes on.
#[tokio::test]
async fn a_store_that_comes_back_strands_nothing() {
    for index_every in INDEXES {
        let calls = calls(index_every).await;
        for from in 1..=calls {
            for performed in [false, true] {
                let fault = Fault::Away { from, calls: 3, performed };
                let below = memory();
                let context = process(&(Arc::new(CrashStore::new(Arc::clone(&below), fault)) as _));
                let counter = Counter::default();
                let mut tries = 0;
                while let Err(error) = work(&context, &counter, index_every).await {
                    assert!(error.is_retryable(), "{fault:?}: {error}");
                    tries += 1;
                    assert!(tries <= 3, "{fault:?}: {error}");
                }
                finish_and_check(&below, &counter, fault, index_every).await;
            }
        }
    }
}
