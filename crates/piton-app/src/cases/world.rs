//! The world of a case: time that stands still, ids from a counter, people who answer as they were told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use piton_flow::{Answered, Ids, Inbox, JournalError, Question, Waiting};
use piton_store::async_trait;
use piton_types::{Clock, Sleep, Timestamp, Value};

/// A clock that shows one moment for ever, if it was given one. Durations are real: limits of time must hold.
pub(crate) struct CaseClock {
    fixed: Option<Timestamp>,
    system: piton_runtime::SystemClock,
}

impl CaseClock {
    pub(crate) fn new(fixed_seconds: Option<i64>) -> Self {
        let fixed = fixed_seconds.map(|seconds| Timestamp::from_millis(seconds.saturating_mul(1_000)));
        Self { fixed, system: piton_runtime::SystemClock::default() }
    }
}

impl Clock for CaseClock {
    fn now(&self) -> Timestamp {
        self.fixed.unwrap_or_else(|| self.system.now())
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }

    fn sleep(&self, time: Duration) -> Sleep<'_> {
        self.system.sleep(time)
    }
}

/// Ids with a number, the same in every run of a case.
pub(crate) struct CountedIds {
    prefix: String,
    next: AtomicU64,
}

impl CountedIds {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), next: AtomicU64::new(0) }
    }
}

impl Ids for CountedIds {
    fn next(&self) -> String {
        format!("{}-{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// The answers of a case, by node. A question without one is withdrawn.
pub(crate) struct CaseInbox(pub(crate) BTreeMap<String, Value>);

#[async_trait]
impl Inbox for CaseInbox {
    async fn ask(&self, question: Question, _waiting: &Waiting<'_>) -> Result<Answered, JournalError> {
        // Asked again, the same answer would be wrong again.
        if question.form.problem.is_some() {
            return Ok(Answered::Withdrawn);
        }
        let node = question.step.as_str().rsplit('/').next().unwrap_or_default();
        Ok(match (self.0.get(node), question.timeout) {
            (Some(answer), _) => Answered::Given(answer.clone()),
            // There is no answer, and so nothing to wait for.
            (None, Some(_)) => Answered::Late,
            (None, None) => Answered::Withdrawn,
        })
    }
}
