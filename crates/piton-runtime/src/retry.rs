//! When a failed step is tried again (R6).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use piton_types::Random;

use crate::FailureKind;

/// How often and when a failed step is tried again.
///
/// The pause before retry n is `first * factor^(n-1)`, at most `longest`, of which the share `jitter`
/// is left to chance, so that those who failed together don't come back together.
///
/// ```
/// use std::time::Duration;
/// use piton_runtime::{FailureKind, RetryPolicy};
///
/// let patient = RetryPolicy { retries: 5, first: Duration::from_secs(2), ..RetryPolicy::default() }
///     .only_if(|kind, message| kind == FailureKind::Work && message.contains("rate limit"));
/// assert!(patient.allows(1, FailureKind::Work, "rate limit reached"));
/// assert!(!patient.allows(1, FailureKind::Work, "no such model"));
/// assert!(!patient.allows(6, FailureKind::Work, "rate limit reached"), "five retries are six attempts");
/// assert_eq!(RetryPolicy::default().retries, 3);
/// ```
#[derive(Clone)]
pub struct RetryPolicy {
    /// How often it is tried again: one less than the attempts.
    pub retries: u32,
    /// The pause before the first retry.
    pub first: Duration,
    /// By how much each pause is longer than the one before.
    pub factor: f64,
    /// The longest pause.
    pub longest: Duration,
    /// The share of a pause that is left to chance, from 0 to 1.
    pub jitter: f64,
    /// Which failures are worth another attempt; all but outputs that can't be stored, if nothing is said.
    pub condition: Option<Condition>,
}

/// Whether a failure is worth another attempt.
pub type Condition = Arc<dyn Fn(FailureKind, &str) -> bool + Send + Sync>;

impl RetryPolicy {
    /// One attempt, and no more.
    pub const NONE: Self =
        Self { retries: 0, first: Duration::ZERO, factor: 1.0, longest: Duration::ZERO, jitter: 0.0, condition: None };

    /// Only failures for which `condition` holds are tried again.
    #[must_use]
    pub fn only_if(mut self, condition: impl Fn(FailureKind, &str) -> bool + Send + Sync + 'static) -> Self {
        self.condition = Some(Arc::new(condition));
        self
    }

    /// Whether a step whose attempt number `attempt` failed so is tried again.
    pub fn allows(&self, attempt: u32, kind: FailureKind, message: &str) -> bool {
        attempt <= self.retries
            && match &self.condition {
                Some(condition) => condition(kind, message),
                None => kind != FailureKind::Output,
            }
    }

    /// The pause after attempt number `attempt`.
    pub fn pause(&self, attempt: u32, random: &dyn Random) -> Duration {
        let power = self.factor.max(1.0).powi(i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX));
        let longest = self.longest.as_secs_f64();
        // Not a number and infinity end here too.
        let whole = (self.first.as_secs_f64() * power).min(longest);
        let mut bytes = [0; 4];
        random.fill(&mut bytes);
        let chance = f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX);
        let jitter = self.jitter.clamp(0.0, 1.0);
        Duration::try_from_secs_f64(whole * (1.0 - jitter * chance)).unwrap_or(self.longest)
    }
}

impl Default for RetryPolicy {
    /// Three retries, after about one, two and four seconds.
    fn default() -> Self {
        Self {
            retries: 3,
            first: Duration::from_secs(1),
            factor: 2.0,
            longest: Duration::from_secs(60),
            jitter: 0.5,
            condition: None,
        }
    }
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("retries", &self.retries)
            .field("first", &self.first)
            .field("factor", &self.factor)
            .field("longest", &self.longest)
            .field("jitter", &self.jitter)
            .field("conditional", &self.condition.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u8);

    impl Random for Fixed {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    /// R6: exponential, bounded, and what chance takes away is at most its share.
    #[test]
    fn pauses_double_up_to_the_longest() {
        let policy = RetryPolicy::default();
        let pauses = |chance| [1, 2, 3, 7, u32::MAX].map(|n| policy.pause(n, &Fixed(chance)).as_millis());
        assert_eq!(pauses(0), [1_000, 2_000, 4_000, 60_000, 60_000]);
        assert_eq!(pauses(255), [500, 1_000, 2_000, 30_000, 30_000]);
        let odd = RetryPolicy { factor: f64::NAN, jitter: 7.0, ..policy };
        assert_eq!(odd.pause(3, &Fixed(255)), Duration::ZERO);
    }
}
