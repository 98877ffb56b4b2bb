//! Runs that are in progress and driven by nobody (R1): found, and offered.

use std::sync::Arc;

use piton_store::{RunLog, RunQuery, StoreError};
use piton_types::{Holder, RunKind, RunStatus, RunSummary};

use crate::{Context, History, Liveness, liveness};

/// A run that is in progress though whoever drove it is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stalled {
    /// The run.
    pub run: RunSummary,
    /// Who drove it.
    pub holder: Holder,
}

/// The stalled runs of a store, those that were active last first. Looks only at runs in progress.
///
/// Who is on another host isn't declared dead from here: whether he is shows only when somebody tries to take
/// the run.
pub async fn stalled(context: &Context) -> Result<Vec<Stalled>, StoreError> {
    let query = RunQuery { status: vec![RunStatus::InProgress], ..RunQuery::default() };
    let mut found = Vec::new();
    for run in context.store.list(query).await? {
        // The log of a folder, or of a program that was guarded: nobody drives them, and nobody can go on with them.
        if matches!(run.kind, RunKind::Workspace | RunKind::Guard) {
            continue;
        }
        let holder = match context.store.lease(&run.id).await? {
            Some(lease) => Some(lease.holder),
            // The lease is only a hint; the log knows.
            None => {
                let log = RunLog::open(Arc::clone(&context.store), &run.id).await?;
                History::read(&log).await?.claim.map(|(_, claim)| claim.holder)
            }
        };
        if let Some(holder) = holder.filter(|holder| liveness(holder, &context.holder) == Liveness::Dead) {
            found.push(Stalled { run, holder });
        }
    }
    Ok(found)
}
