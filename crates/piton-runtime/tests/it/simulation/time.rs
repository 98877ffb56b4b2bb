//! Time that passes only when nothing else can happen.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use piton_types::{Clock, Sleep, Timestamp};
use tokio::sync::oneshot;

/// How often all tasks get their turn without any of them doing something, before time passes.
const IDLE_TURNS: u32 = 12;

/// The time that all machines of a simulation live in.
#[derive(Default)]
pub(super) struct Time {
    now: Mutex<Duration>,
    sleepers: Mutex<Vec<(Duration, oneshot::Sender<()>)>>,
    /// Goes up whenever a task does something.
    pub(super) activity: AtomicU64,
}

impl Time {
    pub(super) fn now(&self) -> Duration {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn sleep(&self, duration: Duration) {
        self.activity.fetch_add(1, Ordering::Relaxed);
        let (wake, woken) = oneshot::channel();
        let end = self.now() + duration;
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner).push((end, wake));
        let _ = woken.await;
        self.activity.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets all tasks run until each waits for time, then moves to the next moment at which one wakes.
    pub(super) async fn step(&self) {
        let (mut idle, mut seen) = (0, self.activity.load(Ordering::Relaxed));
        while idle < IDLE_TURNS {
            tokio::task::yield_now().await;
            let activity = self.activity.load(Ordering::Relaxed);
            idle = if activity == seen { idle + 1 } else { 0 };
            seen = activity;
        }
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.retain(|(_, wake)| !wake.is_closed());
        let Some(next) = sleepers.iter().map(|(end, _)| *end).min() else { return };
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = next;
        for (end, wake) in std::mem::take(&mut *sleepers) {
            if end <= next {
                let _ = wake.send(());
            } else {
                sleepers.push((end, wake));
            }
        }
    }
}

/// The clock of one machine, whose wall clock may be wrong.
pub(super) struct MachineClock {
    pub(super) time: Arc<Time>,
    pub(super) wrong_by: i64,
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + self.wrong_by + self.time.now().as_millis() as i64)
    }

    fn monotonic(&self) -> Duration {
        self.time.now()
    }

    fn sleep(&self, duration: Duration) -> Sleep<'_> {
        Box::pin(self.time.sleep(duration))
    }
}
