//! How much disk the store may take.
//!
//! Reaching it refuses new checkpoints with a clear message; it never refuses the backup of a restore,
//! because that protects what is there.

use crate::{Workspace, WorkspaceError};

/// The most that the default allows: 20 GB.
const MOST: u64 = 20_000_000_000;

impl Workspace {
    /// The budget in bytes: what the options say, or by default the smaller of 20 GB and a tenth of what is
    /// free, counted as if the store weren't there.
    pub async fn budget(&self) -> Result<u64, WorkspaceError> {
        self.budget_beside(self.store().usage().await?.bytes)
    }

    fn budget_beside(&self, used: u64) -> Result<u64, WorkspaceError> {
        // A caller that only looks may find none yet.
        let state = self.0.options.state.ancestors().find(|folder| folder.exists()).unwrap_or(&self.0.root);
        match self.0.options.budget {
            Some(0) => Ok(u64::MAX),
            Some(budget) => Ok(budget),
            None => {
                let disk = rustix::fs::statvfs(state).map_err(|error| WorkspaceError::file("look at", state, error))?;
                Ok(((disk.f_bavail.saturating_mul(disk.f_frsize) + used) / 10).min(MOST))
            }
        }
    }

    pub(crate) async fn refuse_over_budget(&self) -> Result<(), WorkspaceError> {
        let used = self.store().usage().await?.bytes;
        let budget = self.budget_beside(used)?;
        if used > budget { Err(WorkspaceError::OverBudget { used, budget }) } else { Ok(()) }
    }
}
