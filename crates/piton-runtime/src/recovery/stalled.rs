//! Runs that are in progress and have no driver (R1): found, and offered.

use std::sync::Arc;
use std::time::Duration;

use piton_log::RunLog;
use piton_store::{RunQuery, StoreError};
use piton_types::{Holder, RunKind, RunStatus, RunSummary};

use crate::{Context, History, LeaseWatch, Liveness, Standing, liveness};

/// A run that is in progress though its driver is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stalled {
    /// The run.
    pub run: RunSummary,
    /// Who drove it.
    pub holder: Holder,
}

/// What a look at the runs in progress gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StalledRuns {
    /// Those without a driver, the one that was active last first.
    pub found: Vec<Stalled>,
    /// How many are driven from other hosts, as far as can be told yet.
    pub watched: usize,
}

/// The stalled runs of a store. Looks only at runs in progress.
///
/// Of holders on this host the system knows whether they live. Who is on another host is dead when his signs of life
/// have stood still for the `ttl`, by our own clock (decision 2 of the design): that takes two looks with the same
/// `watch`, so long apart.
pub async fn stalled(context: &Context, watch: &mut LeaseWatch, ttl: Duration) -> Result<StalledRuns, StoreError> {
    let query = RunQuery { status: vec![RunStatus::InProgress], ..RunQuery::default() };
    let mut runs = StalledRuns::default();
    for run in context.store.list(query).await? {
        // The log of a folder, or of a program that was guarded: they have no driver, and no process can go on with them.
        if matches!(run.kind, RunKind::Workspace | RunKind::Guard) {
            continue;
        }
        let held = match context.store.lease(&run.id).await? {
            Some(lease) => Some((lease.fence, lease.holder)),
            // The lease is only a hint; the log knows.
            None => {
                let log = RunLog::open(Arc::clone(&context.store), &run.id).await?;
                History::read(&log).await?.claim.map(|(fence, claim)| (fence, claim.holder))
            }
        };
        let Some((fence, holder)) = held else { continue };
        let is_dead = match liveness(&holder, &context.holder) {
            Liveness::Alive => false,
            Liveness::Dead => true,
            Liveness::Unknown => {
                let is_dead = watch.watch(context, &run.id, fence, ttl).await? == Standing::Stalled;
                runs.watched += usize::from(!is_dead);
                is_dead
            }
        };
        if is_dead {
            runs.found.push(Stalled { run, holder });
        }
    }
    Ok(runs)
}
