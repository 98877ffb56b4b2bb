//! A clock that stands still until the test moves it, or lets sleepers move it.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use piton_types::{Clock, Sleep, Timestamp};
use tokio::sync::Notify;

/// A clock set and advanced by hand. The wall clock can jump either way without the monotonic one.
#[derive(Debug)]
pub struct ManualClock {
    times: Mutex<Times>,
    moved: Notify,
    /// A sleep moves the clock.
    flowing: bool,
    /// Its monotonic time is that of the host.
    booted: bool,
}

#[derive(Debug)]
struct Times {
    now: Timestamp,
    monotonic: Duration,
}

impl ManualClock {
    /// A clock that stands at `now`, its monotonic time at zero.
    pub fn new(now: Timestamp) -> Self {
        let times = Mutex::new(Times { now, monotonic: Duration::ZERO });
        Self { times, moved: Notify::new(), flowing: false, booted: false }
    }

    /// The same, but a sleep moves the clock by its length and ends at once: for one task at a time.
    #[must_use]
    pub fn flowing(mut self) -> Self {
        self.flowing = true;
        self
    }

    /// The same, and all who share it are processes of one host that booted when it stood at zero.
    #[must_use]
    pub fn booted(mut self) -> Self {
        self.booted = true;
        self
    }

    /// Time passes: both clocks move.
    pub fn advance(&self, by: Duration) {
        let mut times = self.times();
        times.now = times.now.after(by);
        times.monotonic += by;
        self.moved.notify_waiters();
    }

    /// The wall clock is set, as by an administrator or NTP. The monotonic one doesn't notice.
    pub fn set_wall(&self, now: Timestamp) {
        self.times().now = now;
    }

    /// Time passes that the wall clock doesn't show, as when it is being slewed back.
    pub fn advance_monotonic(&self, by: Duration) {
        self.times().monotonic += by;
        self.moved.notify_waiters();
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().expect("no holder of this lock can panic")
    }
}

impl Default for ManualClock {
    /// Stands at 2023-11-14T22:13:20Z, a round number of milliseconds.
    fn default() -> Self {
        Self::new(Timestamp::from_millis(1_700_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.times().now
    }

    fn monotonic(&self) -> Duration {
        self.times().monotonic
    }

    fn since_boot(&self) -> Option<Duration> {
        self.booted.then(|| self.monotonic())
    }

    fn sleep(&self, duration: Duration) -> Sleep<'_> {
        let end = self.monotonic() + duration;
        Box::pin(async move {
            if self.flowing {
                self.advance(duration);
                return;
            }
            loop {
                let moved = self.moved.notified();
                if self.monotonic() >= end {
                    return;
                }
                moved.await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_jumps_alone() {
        let clock = ManualClock::default();
        let start = clock.now();
        clock.advance(Duration::from_secs(5));
        assert_eq!((clock.now().since(start), clock.monotonic()), (Duration::from_secs(5), Duration::from_secs(5)));
        clock.set_wall(Timestamp::from_millis(0));
        assert_eq!((clock.now(), clock.monotonic()), (Timestamp::from_millis(0), Duration::from_secs(5)));
        clock.advance_monotonic(Duration::from_secs(1));
        assert_eq!((clock.now(), clock.monotonic()), (Timestamp::from_millis(0), Duration::from_secs(6)));
    }
}
