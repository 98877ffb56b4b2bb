//! The real clock and the real randomness. Everything else gets them through [`Clock`] and [`Random`],
//! so that tests can put their own in the place.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use piton_types::{Clock, Random, Sleep, Timestamp};

use crate::platform;

/// The system's clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => millis(since),
            Err(before) => -millis(before.duration()),
        })
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn since_boot(&self) -> Option<Duration> {
        platform::since_boot()
    }

    /// Needs a tokio runtime with time.
    fn sleep(&self, duration: Duration) -> Sleep<'_> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// The system's source of randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    ///
    /// If the system has no randomness to give, which no supported system does once it has booted. Ids
    /// that aren't random would be worse.
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("a booted system has randomness");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_and_chance_varies() {
        let clock = SystemClock::new();
        assert!(clock.now() > Timestamp::from_millis(1_600_000_000_000));
        let (first, second) = (clock.monotonic(), clock.monotonic());
        assert!(first <= second);
        let draw = || {
            let mut bytes = [0; 16];
            SystemRandom.fill(&mut bytes);
            bytes
        };
        assert_ne!(draw(), draw());
    }
}
