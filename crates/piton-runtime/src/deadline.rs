//! Moments that outlive the process: when a sleep ends, when a retry is due, when a wait is over.
//!
//! The wall clock may jump, so it is asked last. Processes of one boot share a clock that doesn't jump;
//! in another boot or on another host the wall clock is all there is, and then the moment is at most as
//! far off as it was in the beginning.

use std::time::Duration;

use piton_types::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Context;

/// A moment in the future, as the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// By the wall clock of the process that set it.
    pub at: Timestamp,
    /// How far off it was then.
    pub after_ms: u64,
    /// The boot of the host that it was set on.
    pub boot: String,
    /// The same moment in milliseconds since that boot, if the system tells.
    pub boot_ms: Option<u64>,
}

impl Deadline {
    /// So long after now.
    pub fn after(context: &Context, duration: Duration) -> Self {
        Self {
            at: context.clock.now().after(duration),
            after_ms: millis(duration),
            boot: context.holder.boot.clone(),
            boot_ms: context.clock.since_boot().map(|now| millis(now.saturating_add(duration))),
        }
    }

    /// How long it is until then; zero if it has passed.
    pub fn left(&self, context: &Context) -> Duration {
        let whole = Duration::from_millis(self.after_ms);
        let same_boot = !self.boot.is_empty() && self.boot == context.holder.boot;
        let left = match (self.boot_ms, context.clock.since_boot()) {
            (Some(then), Some(now)) if same_boot => Duration::from_millis(then).saturating_sub(now),
            _ => self.at.since(context.clock.now()),
        };
        left.min(whole)
    }
}

/// Whole milliseconds, as many as fit.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
