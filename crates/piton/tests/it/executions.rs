//! R5 under the names of the specification: checkpoint after each step, resume, retry from a step, roll back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use piton::executions::{
    CheckpointManager, ExecutionRecovery, ExecutionTracker, NamedStep, NewCheckpoint, execute_with_checkpoints,
};
use piton_runtime::{Context, OpenRun, Outcome, RetryPolicy, Run, RunError};
use piton_store::{Store, StoreError};
use piton_store_objects::ObjectStore;
use piton_testing::{CrashStore, Fault};
use piton_types::{RunId, RunStatus, Value};

/// What ran, in order, outside of any run.
type Ran = Arc<Mutex<Vec<&'static str>>>;

fn context() -> Context {
    Context::system(Arc::new(ObjectStore::in_memory()))
}

fn id() -> RunId {
    "flow".parse().unwrap()
}

/// Three steps, each of which adds its letter; `broken` fails.
fn steps(ran: &Ran, broken: Option<&'static str>) -> Vec<NamedStep> {
    let step = |name: &'static str| {
        let ran = Arc::clone(ran);
        NamedStep::new(name, move |state: Value| {
            ran.lock().unwrap().push(name);
            async move {
                if broken == Some(name) {
                    return Err(format!("{name} is broken"));
                }
                Ok(Value::from(format!("{}{name}", state.as_str().unwrap_or_default())))
            }
        })
        .with_retry(RetryPolicy::NONE)
    };
    vec![step("a"), step("b"), step("c")]
}

fn take(ran: &Ran) -> Vec<&'static str> {
    std::mem::take(&mut ran.lock().unwrap())
}

/// S1's first scene: five steps, the third fails; it goes on from the checkpoint of the second.
#[tokio::test]
async fn a_failed_flow_goes_on_from_its_last_checkpoint() {
    let (context, ran) = (context(), Ran::default());
    let failed = execute_with_checkpoints(&context, Some(&id()), "".into(), &steps(&ran, Some("c"))).await.unwrap();
    assert!(matches!(&failed.outcome, Outcome::Failed(failure) if failure.message.contains("c is broken")));
    assert_eq!(take(&ran), ["a", "b", "c"]);
    let checkpoints = CheckpointManager::new(&context);
    let listed = checkpoints.list_checkpoints(&id()).await.unwrap();
    let shown: Vec<_> = listed.iter().map(|c| (c.step_name.as_deref(), c.step_index, c.state.clone())).collect();
    assert_eq!(shown, [(Some("a"), Some(0), "a".into()), (Some("b"), Some(1), "ab".into())]);
    assert_eq!(checkpoints.load_checkpoint(&listed[1].id).await.unwrap(), listed[1]);

    let recovery = ExecutionRecovery::new(&context);
    let done = recovery.resume_from_checkpoint(&listed[1].id, &steps(&ran, None)).await.unwrap();
    assert_eq!((done.outcome, take(&ran)), (Outcome::Completed("abc".into()), vec!["c"]));
    assert_eq!(checkpoints.list_checkpoints(&id()).await.unwrap().len(), 3);

    let history = ExecutionTracker::new(&context).get_execution_history(&id()).await.unwrap();
    assert_eq!((history.status, history.checkpoints.len()), (RunStatus::Completed, 3));
    assert_eq!(history.recovery_attempts, 1, "it was tried again once");
    assert!(history.total_duration.is_some() && history.end_time.is_some());
    assert_eq!(history.last_checkpoint, history.checkpoints.last().cloned());
    // Once more: it is over, and nothing runs.
    let again = execute_with_checkpoints(&context, Some(&id()), "".into(), &steps(&ran, None)).await.unwrap();
    assert_eq!((again.outcome, take(&ran).len()), (Outcome::Completed("abc".into()), 0));
}

/// Dead at any call, also between a step and its checkpoint: each step has one checkpoint in the end.
#[tokio::test]
async fn each_step_has_its_checkpoint_wherever_the_process_died() {
    let run = async |store: Arc<dyn Store>| {
        execute_with_checkpoints(&Context::system(store), Some(&id()), "".into(), &steps(&Ran::default(), None)).await
    };
    let counting = Arc::new(CrashStore::new(Arc::new(ObjectStore::in_memory()), Fault::None));
    run(Arc::clone(&counting) as _).await.unwrap();
    for at in 1..=counting.calls() {
        for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
            let below: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
            let _ = run(Arc::new(CrashStore::new(Arc::clone(&below), fault))).await;
            let done = run(Arc::clone(&below)).await.unwrap();
            assert_eq!(done.outcome, Outcome::Completed("abc".into()), "{fault:?}");
            let listed = CheckpointManager::new(&Context::system(below)).list_checkpoints(&id()).await.unwrap();
            let shown: Vec<_> = listed.iter().filter_map(|checkpoint| checkpoint.step_name.as_deref()).collect();
            assert_eq!(shown, ["a", "b", "c"], "{fault:?}");
        }
    }
}

#[tokio::test]
async fn an_older_checkpoint_does_what_came_after_it_again() {
    let (context, ran) = (context(), Ran::default());
    execute_with_checkpoints(&context, Some(&id()), "".into(), &steps(&ran, Some("c"))).await.unwrap();
    take(&ran);
    let first = CheckpointManager::new(&context).list_checkpoints(&id()).await.unwrap().remove(0);
    let recovery = ExecutionRecovery::new(&context);
    let done = recovery.resume_from_checkpoint(&first.id, &steps(&ran, None)).await.unwrap();
    assert_eq!((done.outcome, take(&ran)), (Outcome::Completed("abc".into()), vec!["b", "c"]));
}

#[tokio::test]
async fn a_flow_is_tried_again_from_a_step() {
    let (context, ran) = (context(), Ran::default());
    execute_with_checkpoints(&context, Some(&id()), "".into(), &steps(&ran, Some("c"))).await.unwrap();
    take(&ran);
    let recovery = ExecutionRecovery::new(&context);
    let again = recovery.retry_from_step(&id(), 1, &steps(&ran, None)).await.unwrap();
    assert_eq!((again.outcome, take(&ran)), (Outcome::Completed("abc".into()), vec!["b", "c"]));
    let over = recovery.retry_from_step(&id(), 0, &steps(&ran, None)).await;
    assert!(matches!(over, Err(RunError::Illegal { .. })), "what is completed stays so: {over:?}");
    let missing = recovery.retry_from_step(&id(), 7, &steps(&ran, None)).await;
    assert!(matches!(missing, Err(RunError::NoSuchStep { .. })), "{missing:?}");
    assert_eq!(take(&ran).len(), 0);
}

/// R4, R5: what a rollback undid is marked, and gets no place among what counts.
#[tokio::test]
async fn rolling_back_leaves_the_flow_paused_at_the_checkpoint() {
    let (context, ran) = (context(), Ran::default());
    execute_with_checkpoints(&context, Some(&id()), "".into(), &steps(&ran, Some("c"))).await.unwrap();
    take(&ran);
    let first = CheckpointManager::new(&context).list_checkpoints(&id()).await.unwrap().remove(0);
    let back = ExecutionRecovery::new(&context).rollback_to_checkpoint(&first.id).await.unwrap();
    assert_eq!((back.to, back.left.len()), (first.id, 0));
    let tracker = ExecutionTracker::new(&context);
    assert_eq!(tracker.get_execution_history(&id()).await.unwrap().status, RunStatus::Paused);
    // What was undone is marked, and isn't among what counts.
    let history = tracker.get_execution_history(&id()).await.unwrap();
    let tried: Vec<_> = history.steps.iter().map(|past| (past.step.path.as_str(), past.undone)).collect();
    assert_eq!(tried, [("a", false), ("b", true), ("c", true)]);
    let listed = CheckpointManager::new(&context).list_checkpoints(&id()).await.unwrap();
    let marks: Vec<_> = listed.iter().map(|listed| (listed.step_name.as_deref(), listed.undone)).collect();
    assert_eq!(marks, [(Some("a"), false), (Some("b"), true), (None, false)]);
    assert_eq!(history.checkpoints, [listed[0].id.clone(), listed[2].id.clone()]);
    assert_eq!(CheckpointManager::new(&context).load_checkpoint(&listed[1].id).await.unwrap(), listed[1]);
    let run = Run::open(&context, OpenRun { id: Some(id()), ..OpenRun::default() }).await.unwrap();
    assert_eq!(run.part("app").await.unwrap(), Some("a".into()));
    drop(run);
    let done = execute_with_checkpoints(&context, Some(&id()), "".into(), &steps(&ran, None)).await.unwrap();
    assert_eq!((done.outcome, take(&ran)), (Outcome::Completed("abc".into()), vec!["b", "c"]));
}

#[tokio::test]
async fn a_deleted_checkpoint_is_neither_listed_nor_loaded() {
    let (context, ran) = (context(), Ran::default());
    execute_with_checkpoints(&context, Some(&id()), "".into(), &steps(&ran, None)).await.unwrap();
    let checkpoints = CheckpointManager::new(&context);
    let listed = checkpoints.list_checkpoints(&id()).await.unwrap();
    for _ in 0..2 {
        checkpoints.delete_checkpoint(&listed[0].id).await.unwrap();
    }
    assert_eq!(checkpoints.list_checkpoints(&id()).await.unwrap(), listed[1..]);
    let gone = checkpoints.load_checkpoint(&listed[0].id).await;
    assert!(matches!(gone, Err(RunError::Store(StoreError::NotFound { .. }))), "{gone:?}");
    let none = checkpoints.load_checkpoint(&"flow@0".parse().unwrap()).await;
    assert!(matches!(none, Err(RunError::Store(StoreError::NotFound { .. }))), "an entry without state: {none:?}");
    assert!(checkpoints.list_checkpoints(&"none".parse().unwrap()).await.is_err());
}

#[tokio::test]
async fn steps_that_something_else_runs_are_tracked() {
    let context = context();
    let run = Run::open(&context, OpenRun { id: Some(id()), ..OpenRun::default() }).await.unwrap();
    let tracker = ExecutionTracker::new(&context);
    tracker.track_step(&run, "fetch", "bees".into(), 7.into(), Duration::from_millis(1200)).await.unwrap();
    tracker.track_error(&run, "send", 7.into(), &"no network").await.unwrap();
    let new = NewCheckpoint {
        variables: Value::map([("topic", "bees".into())]),
        context: "what was said".into(),
        metadata: [("ticket".to_owned(), 3.into())].into(),
        ..NewCheckpoint::after("fetch", 0).unwrap()
    };
    let made = CheckpointManager::new(&context).create_checkpoint(&run, new).await.unwrap();
    let loaded = CheckpointManager::new(&context).load_checkpoint(&made).await.unwrap();
    assert_eq!((loaded.context, loaded.variables.field("topic")), ("what was said".into(), Some(&"bees".into())));
    assert_eq!(loaded.metadata["ticket"], 3.into());
    let steps = tracker.get_execution_history(&id()).await.unwrap().steps;
    assert_eq!((steps[0].step.duration_ms, &steps[0].step.output), (1200, &7.into()));
    assert_eq!(steps[1].step.error.as_deref(), Some("no network"));
    assert!(NewCheckpoint::after("", 0).is_err());
}
