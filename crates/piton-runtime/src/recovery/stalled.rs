//! Runs that are in progress and that no process drives (R1): found, and offered.

use std::time::Duration;

use piton_store::RunQuery;
use piton_types::{RunKind, RunStatus, RunSummary};

use crate::{Context, LeaseWatch, Liveness, RunError, Standing, liveness};

/// What a look at the runs in progress gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StalledRuns {
    /// Those that are in progress though the process that drove them is dead, the one that was active last first.
    pub found: Vec<RunSummary>,
    /// How many are driven from other hosts, as far as can be told yet.
    pub watched: usize,
}

/// The stalled runs of a store. Looks only at runs in progress.
///
/// The system knows whether a process of this host lives. A holder on another host is dead when its signs of life have
/// stood still for the `ttl`, by our own clock (decision 2 of the design): that takes two looks with the same `watch`,
/// so long apart.
pub async fn stalled(context: &Context, watch: &mut LeaseWatch, ttl: Duration) -> Result<StalledRuns, RunError> {
    let query = RunQuery { status: vec![RunStatus::InProgress], ..RunQuery::default() };
    let mut runs = StalledRuns::default();
    for run in context.store.list(query).await? {
        // The log of a folder: no process ever drives it.
        if run.kind == RunKind::Workspace {
            continue;
        }
        match watch.look(context, &run.id, ttl).await? {
            Standing::Stalled => runs.found.push(run),
            Standing::Held => {
                let lease = context.store.lease(&run.id).await?;
                let is_here = |lease: piton_store::Lease| liveness(&lease.holder, &context.holder) == Liveness::Alive;
                runs.watched += usize::from(!lease.is_none_or(is_here));
            }
            Standing::Free => {}
        }
    }
    Ok(runs)
}
