//! Sleeps that outlive the process, and clocks that jump.

use std::sync::Arc;
use std::time::Duration;

use piton_runtime::{Context, OpenRun, Run, RunError};
use piton_testing::ManualClock;
use piton_types::{Clock, Durability, Timestamp};

use crate::support::{entries, memory, open, process_at};

const HOUR: Duration = Duration::from_secs(3600);

/// Sleeps an hour; says whether it woke up.
async fn woke(context: &Context) -> bool {
    let mut run = Run::open(context, open()).await.unwrap();
    let mut sleep = Box::pin(run.sleep(HOUR));
    for _ in 0..50 {
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(sleep.as_mut().poll(cx))).await;
        if polled.is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn a_resumed_sleep_sleeps_only_the_rest() {
    let (store, clock) = (memory(), Arc::new(ManualClock::default().booted()));
    assert!(!woke(&process_at(&store, &clock)).await);
    clock.advance(HOUR / 2);
    assert!(!woke(&process_at(&store, &clock)).await);
    clock.advance(HOUR / 2);
    assert!(woke(&process_at(&store, &clock)).await);
    assert_eq!(entries(&store).await, 1 + 3 + 1, "one entry for the sleep");
}

/// Promise 14, with the process dead meanwhile: on the same boot a jump changes nothing; elsewhere a jump back
/// doesn't make a sleep longer than it was.
#[tokio::test]
async fn a_jump_while_nobody_is_alive() {
    let (store, clock) = (memory(), Arc::new(ManualClock::default().booted()));
    assert!(!woke(&process_at(&store, &clock)).await);
    clock.set_wall(Timestamp::from_millis(clock.now().as_millis() + 10_000_000));
    assert!(!woke(&process_at(&store, &clock)).await, "not early");
    clock.set_wall(Timestamp::from_millis(0));
    clock.advance(HOUR);
    assert!(woke(&process_at(&store, &clock)).await, "not late");

    let store = memory();
    assert!(!woke(&process_at(&store, &clock)).await);
    clock.set_wall(Timestamp::from_millis(-3_600_000));
    let mut elsewhere = process_at(&store, &clock);
    elsewhere.holder.boot = "another".to_owned();
    elsewhere.holder.host.push_str(" rebooted");
    let open = OpenRun { lease: piton_runtime::LeaseOptions { ttl: Duration::ZERO, wait: Some(HOUR) }, ..open() };
    // A holder on another host that gives no sign of life is given up after its time, here at once.
    let mut run = Run::open(&elsewhere, open).await.unwrap();
    let mut sleep = Box::pin(run.sleep(HOUR));
    clock.advance(HOUR);
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(sleep.as_mut().poll(cx))).await.is_pending());
    clock.advance(HOUR);
    assert!(tokio::time::timeout(Duration::from_secs(5), sleep).await.is_ok(), "at most what it was");
}

#[tokio::test]
async fn a_stopped_sleep_ends_at_once() {
    let (store, clock) = (memory(), Arc::new(ManualClock::default()));
    let context = process_at(&store, &clock);
    let mut run = Run::open(&context, open()).await.unwrap();
    let stopper = run.stopper();
    let (slept, ()) = tokio::join!(run.sleep(HOUR), async {
        tokio::task::yield_now().await;
        stopper.stop("enough", None);
    });
    assert!(matches!(slept, Err(RunError::Stopped { reason, .. }) if reason == "enough"));
    drop(run);
    let run = Run::resume(&context, &crate::support::run_id(), Durability::Durable, Default::default()).await.unwrap();
    run.complete(()).await.unwrap();
}
