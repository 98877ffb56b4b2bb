//! Choices that a user makes once and that hold for a whole run or store.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// A power cut.
    #[default]
    Durable,
    /// The death of the process, but not a power cut: then the newest writes may be missing, always
    /// from the end, never from the middle.
    Relaxed,
}

/// What kind of work a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// A program made of durable steps.
    #[default]
    Steps,
    /// A workflow document.
    Workflow,
    /// A guarded agent session.
    Guard,
    /// The log behind an embedder's own checkpoint store.
    Embedded,
    /// The files of a folder: checkpoints that belong to no other run.
    Workspace,
}

/// How long things are kept (C5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// A completed run.
    pub completed: Duration,
    /// A failed run.
    pub failed: Duration,
    /// Checkpoints of one run of steps.
    pub per_run: u32,
    /// Checkpoints of one workspace.
    pub per_workspace: u32,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self { completed: 7 * DAY, failed: 30 * DAY, per_run: 20, per_workspace: 50 }
    }
}
