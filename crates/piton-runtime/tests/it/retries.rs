//! Failed steps are tried again, and the pending retry outlives the process (R6).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use piton_runtime::{Context, FailureKind, OpenRun, RetryPolicy, Run, RunError, StepError, StepOptions};
use piton_store::Store;
use piton_types::{Clock, RunState, Timestamp};

use crate::support::{flowing, history, memory, open, process_at};

fn policy() -> RetryPolicy {
    RetryPolicy { jitter: 0.0, ..RetryPolicy::default() }
}

fn with(retry: RetryPolicy) -> OpenRun {
    OpenRun { retry, ..open() }
}

/// R6: three retries by default, which are four attempts, after one, two and four seconds; then the run is
/// failed, with the data of R2.
#[tokio::test]
async fn four_attempts_and_then_the_run_fails() {
    let (store, clock) = (memory(), flowing());
    let mut run = Run::open(&process_at(&store, &clock), with(policy())).await.unwrap();
    let moments = Mutex::new(Vec::new());
    let work = async |()| {
        moments.lock().unwrap().push(clock.monotonic().as_secs());
        Err::<(), _>("no")
    };
    let error = run.step("flaky", (), work).await.unwrap_err();
    assert_eq!(*moments.lock().unwrap(), [0, 1, 3, 7]);
    assert!(matches!(&error, StepError::Failed { attempt: 4, error: "no", .. }), "{error}");
    run.fail(&error).await.unwrap();
    let RunState::Failed(failed) = run.state() else { panic!("{:?}", run.state()) };
    assert_eq!((failed.error_type.as_str(), failed.step.as_deref()), ("step", Some("flaky")));
    assert_eq!((failed.message.as_str(), failed.recoverable), ("step flaky failed: no", true));
    let history = history(&store).await;
    let due: Vec<_> = history.steps.iter().map(|step| (step.attempt, step.retry.is_some())).collect();
    assert_eq!(due, [(1, true), (2, true), (3, true), (4, false)]);
    assert_eq!(history.recovery_attempts(), 3);
}

#[tokio::test]
async fn only_errors_that_are_worth_it_are_tried_again() {
    let (store, clock) = (memory(), flowing());
    let mut run = Run::open(&process_at(&store, &clock), with(policy())).await.unwrap();
    let calls = AtomicU32::new(0);
    let options = StepOptions::default().retry_if(|error: &u32| *error < 2);
    let failed =
        run.step_with("typed", options, (), async |()| Err::<(), _>(calls.fetch_add(1, Ordering::SeqCst))).await;
    assert!(matches!(failed, Err(StepError::Failed { attempt: 3, error: 2, .. })));
    let options = StepOptions { retry: Some(policy().only_if(|_, said| said == "busy")), ..StepOptions::default() };
    let said = Mutex::new(["gone", "busy", "busy"].to_vec());
    let failed = run
        .step_with("said", options, (), async |()| Err::<(), _>(said.lock().unwrap().pop().unwrap()))
        .await
        .unwrap_err();
    assert_eq!(failed.to_string(), "step said failed: gone");
}

/// A step that always fails, and counts.
async fn always_failing(context: &Context, calls: &AtomicU32) -> RunError {
    let mut run = Run::open(context, with(policy())).await.unwrap();
    run.step("flaky", (), async |()| {
        calls.fetch_add(1, Ordering::SeqCst);
        Err::<(), _>("no")
    })
    .await
    .unwrap_err()
    .into()
}

/// The process dies in each of the pauses: none is lost and none doubled, the attempts count on, and the rest
/// of the pause is what is waited for.
#[tokio::test]
async fn a_crash_in_a_pause_neither_loses_nor_doubles_the_retry() {
    for pauses in 1..=3_u32 {
        let (store, clock) = (memory(), Arc::new(piton_testing::ManualClock::default().booted()));
        let calls = AtomicU32::new(0);
        {
            // By hand, so that the process can be dropped in the middle of a pause.
            let context = process_at(&store, &clock);
            let mut dying = Box::pin(always_failing(&context, &calls));
            for done in 0..pauses {
                assert!(futures_poll(dying.as_mut()).await.is_none());
                clock.advance(Duration::from_secs(if done + 1 < pauses { 1 << done } else { 0 }));
            }
            assert!(futures_poll(dying.as_mut()).await.is_none());
        }
        assert_eq!(calls.load(Ordering::SeqCst), pauses);
        // Half of the pause passes while no process is alive.
        let whole = 1_000 * (1 << (pauses - 1));
        clock.advance(Duration::from_millis(whole / 2));
        let left = history(&store).await.steps.last().unwrap().retry.clone().unwrap();
        assert_eq!(left.left(&process_at(&store, &clock)).as_millis() as u64, whole / 2);
        let context = process_at(&store, &clock);
        let mut going_on = Box::pin(always_failing(&context, &calls));
        let error = loop {
            if let Some(error) = futures_poll(going_on.as_mut()).await {
                break error;
            }
            clock.advance(Duration::from_millis(500));
        };
        assert!(matches!(error, RunError::Step { attempt: 4, .. }), "{error}");
        assert_eq!(calls.load(Ordering::SeqCst), 4, "four attempts in all");
    }
}

/// Promise 14: the wall clock jumps back an hour in a pause, or ahead. The pause is as long as it was.
#[tokio::test]
async fn a_jump_of_the_wall_clock_changes_no_pause() {
    for jump in [-3_600_000, 3_600_000] {
        let (store, clock) = (memory(), Arc::new(piton_testing::ManualClock::default().booted()));
        let calls = AtomicU32::new(0);
        let context = process_at(&store, &clock);
        let mut run = Box::pin(always_failing(&context, &calls));
        assert!(futures_poll(run.as_mut()).await.is_none());
        clock.set_wall(Timestamp::from_millis(clock.now().as_millis() + jump));
        clock.advance(Duration::from_millis(999));
        assert!(futures_poll(run.as_mut()).await.is_none());
        assert_eq!(calls.load(Ordering::SeqCst), 1, "not early");
        clock.advance(Duration::from_millis(1));
        assert!(futures_poll(run.as_mut()).await.is_none());
        assert_eq!(calls.load(Ordering::SeqCst), 2, "not late");
        // The same for another process of the same boot.
        drop(run);
        let due = history(&store).await.steps.last().unwrap().retry.clone().unwrap();
        assert_eq!(due.left(&process_at(&store, &clock)), Duration::from_secs(2));
        // And on another host never more than it was.
        let mut elsewhere = process_at(&store, &clock);
        elsewhere.holder.boot = "another".to_owned();
        assert!(due.left(&elsewhere) <= Duration::from_secs(2));
    }
}

/// Lets a future run until it waits for something.
async fn futures_poll<T>(mut future: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    for _ in 0..50 {
        let ready = std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx))).await;
        if let std::task::Poll::Ready(value) = ready {
            return Some(value);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// A failure that the program dealt with stays one when the run goes on: it takes the same way again.
#[tokio::test]
async fn a_failure_that_was_dealt_with_is_replayed() {
    async fn program(store: &Arc<dyn Store>, first_works: bool) -> u32 {
        let mut run = Run::open(&process_at(store, &flowing()), open()).await.unwrap();
        match run.step("first", (), async |()| if first_works { Ok(1) } else { Err("no") }).await {
            Ok(n) => n,
            Err(_) => run.step("second", (), async |()| Ok::<_, String>(2)).await.unwrap(),
        }
    }
    let store = memory();
    assert_eq!(program(&store, false).await, 2);
    assert_eq!(program(&store, true).await, 2, "the resumed run continues the original");
}

/// Bad work: it panics, never ends, gives what can't be stored, is cancelled in mid-await.
#[tokio::test]
async fn whatever_a_step_does_the_run_goes_on() {
    let (store, clock) = (memory(), flowing());
    let mut run = Run::open(&process_at(&store, &clock), open()).await.unwrap();
    let panicked = run.step("panics", (), async |()| -> Result<(), String> { panic!("on purpose") }).await;
    let error = panicked.unwrap_err();
    assert!(matches!(&error, StepError::Recorded { kind: FailureKind::Panic, .. }));
    assert_eq!(error.to_string(), "step panics failed: it panicked: on purpose");

    let options = StepOptions { timeout: Some(Duration::from_secs(5)), ..StepOptions::default() };
    let late = run.step_with("never", options, (), async |()| std::future::pending::<Result<(), String>>().await).await;
    let error = late.unwrap_err();
    assert!(matches!(&error, StepError::Recorded { kind: FailureKind::Timeout, .. }), "{error}");

    let odd = std::collections::BTreeMap::from([(vec![1, 2], 3)]);
    let unstorable = run.step("odd", (), async |()| Ok::<_, String>(odd.clone())).await.unwrap_err();
    assert!(matches!(&unstorable, StepError::Recorded { kind: FailureKind::Output, .. }), "{unstorable}");

    {
        let mut cancelled =
            Box::pin(run.step("cut", (), async |()| std::future::pending::<Result<u8, String>>().await));
        assert!(futures_poll(cancelled.as_mut()).await.is_none());
    }
    assert_eq!(run.step("next", (), async |()| Ok::<_, String>(7)).await.unwrap(), 7);
    run.complete(()).await.unwrap();
    let kinds: Vec<_> = history(&store).await.steps.iter().map(|step| step.failure).collect();
    let expected = [FailureKind::Panic, FailureKind::Timeout, FailureKind::Output].map(Some);
    assert_eq!(kinds, [&expected[..], &[None]].concat(), "what was cut short is in no entry");
}

/// More than belongs into a log is refused before it is copied any further.
#[tokio::test]
async fn a_gigabyte_of_input_is_refused() {
    let store = memory();
    let mut run = Run::open(&process_at(&store, &flowing()), open()).await.unwrap();
    // A gigabyte takes its time; just over the limit is refused by the same rule.
    let size = if std::env::var("PITON_TEST").as_deref() == Ok("full") { 1 << 30 } else { (256 << 20) + 1 };
    let huge = "x".repeat(size);
    let error =
        run.step("huge", huge.as_str(), async |_| -> Result<(), String> { panic!("it ran") }).await.unwrap_err();
    assert_eq!(error.to_string(), format!("the input of step huge has {size} bytes; at most 268435456 are allowed"));
    drop(huge);
    run.step("small", "x", async |_| Ok::<_, String>(())).await.unwrap();
}
