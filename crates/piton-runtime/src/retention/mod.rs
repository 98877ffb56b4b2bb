//! What is kept and for how long (C5): a plan first, then what it says, bounded in time, to be gone on with later.
//!
//! - A run that ended long enough ago is removed as a whole. A run that hasn't ended is kept for ever.
//! - Of one run so many checkpoints are kept, evenly spread over its life; the others are removed.
//! - What then no run needs is condemned, and deleted once the grace period is over.
//!
//! Nothing that is asked here depends on the clock for its safety: at worst it is removed too early or too late by
//! the user's own rules, and a clock that jumped isn't believed before it has stood for a day.

mod carry_out;
mod clock;
mod plan;
mod rules;
mod spread;

use std::sync::Arc;
use std::time::Duration;

use piton_log::upkeep::Reach;
use piton_store::{Bytes, Store, StoreError};
use piton_types::{Retention, RunId, Timestamp};

use crate::Context;

pub use carry_out::{Bounds, Kept};
pub use clock::{by_the_store, is_due, is_past};
pub use plan::{Plan, Removal, Thinning, Why};
pub use rules::{rules, set_rules};

/// How long something condemned stays, so that a process that is reading it can finish.
pub const GRACE: Duration = Duration::from_secs(60 * 60);

/// Keeps a store to a policy.
pub struct Keeper<'a> {
    /// The store and the clock.
    pub context: &'a Context,
    /// How long things are kept.
    pub policy: Retention,
    /// How long condemned things stay.
    pub grace: Duration,
    /// Knows what snapshots of files consist of.
    pub reach: &'a dyn Reach,
}

impl std::fmt::Debug for Keeper<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("policy", &self.policy).field("grace", &self.grace).finish_non_exhaustive()
    }
}

impl Keeper<'_> {
    fn store(&self) -> &Arc<dyn Store> {
        &self.context.store
    }

    fn now(&self) -> Timestamp {
        self.context.clock.now()
    }
}

/// What is remembered of a run between two calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RunNote {
    /// Where the log ended when its checkpoints were last counted.
    head: u32,
    /// Since when it has removed checkpoints whose state is still stored.
    pending: Option<Timestamp>,
}

impl RunNote {
    fn key(run: &RunId) -> String {
        format!("run/{run}")
    }

    async fn read(store: &dyn Store, run: &RunId) -> Result<Option<Self>, StoreError> {
        Ok(store.note(&Self::key(run)).await?.and_then(|note| Self::parse(&note)))
    }

    fn parse(note: &[u8]) -> Option<Self> {
        let (head, pending) = std::str::from_utf8(note).ok()?.split_once(' ')?;
        let pending = if pending.is_empty() { None } else { Some(Timestamp::from_millis(pending.parse().ok()?)) };
        Some(Self { head: head.parse().ok()?, pending })
    }

    async fn write(self, store: &dyn Store, run: &RunId) -> Result<(), StoreError> {
        let pending = self.pending.map(|at| at.as_millis().to_string()).unwrap_or_default();
        store.set_note(&Self::key(run), Some(Bytes::from(format!("{} {pending}", self.head)))).await
    }
}
