//! Time and randomness as the caller supplies them, so that every test is repeatable.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment of wall-clock time, in milliseconds since 1970 UTC.
///
/// For people and for retention only: order comes from sequence numbers, and leases expire by
/// [`Clock::monotonic`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment so many milliseconds after 1970.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The moment `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How much later this is than `earlier`; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::str::FromStr for Timestamp {
    type Err = String;

    /// A moment with its offset, as in `2026-11-18T03:00:00Z`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let moment: jiff::Timestamp = text.parse().map_err(|error: jiff::Error| error.to_string())?;
        Ok(Self(moment.as_millisecond()))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds, as everywhere in Piton's output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync {
    /// The wall clock. It may jump either way.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment of this process. It never goes back.
    fn monotonic(&self) -> Duration;

    /// Time since the host booted, sleep of the host included: the same for all of its processes, and it
    /// never goes back. `None` where the system doesn't tell.
    fn since_boot(&self) -> Option<Duration> {
        None
    }

    /// Ends when `duration` has passed on the monotonic clock.
    fn sleep(&self, duration: Duration) -> Sleep<'_>;
}

/// The end of a pause.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Where random bytes come from.
pub trait Random: Send + Sync {
    /// Fills `bytes` with random ones.
    fn fill(&self, bytes: &mut [u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_rfc_3339() {
        assert_eq!(Timestamp::from_millis(1_700_000_000_123).to_string(), "2023-11-14T22:13:20.123Z");
        assert_eq!(Timestamp::from_millis(i64::MAX).to_string(), format!("{} ms", i64::MAX));
    }

    #[test]
    fn differences_do_not_wrap() {
        let (early, late) = (Timestamp::from_millis(i64::MIN), Timestamp::from_millis(i64::MAX));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late.after(Duration::from_secs(1)), late);
    }
}
