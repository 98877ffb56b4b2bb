//! Where the engine keeps what finished, so that it needn't be done again. The engine knows nothing of
//! stores; whoever has one brings a journal.

use std::time::Duration;

use async_trait::async_trait;
use piton_types::{CheckpointRef, RunId, StepPath, Timestamp, Value};

use crate::node::Effect;

/// An error of a journal. The engine only passes it on.
pub type JournalError = Box<dyn std::error::Error + Send + Sync>;

/// A node that ended.
#[derive(Debug)]
pub struct NodeDone<'a> {
    /// Which, at its place in the run.
    pub step: &'a StepPath,
    /// What it took in.
    pub inputs: &'a Value,
    /// What it gave out, or why it failed.
    pub result: Result<&'a Value, &'a str>,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Duration,
    /// Whether it touched the world outside.
    pub effect: Effect,
    /// A checkpoint is wanted here, if the node ended well.
    pub checkpoint: bool,
}

/// Where the results of finished nodes are kept.
#[async_trait]
pub trait Journal: Send + Sync {
    /// The run that is journalled.
    fn run(&self) -> &RunId;

    /// Whether it keeps anything. If not, nothing is made for it to keep.
    fn keeps(&self) -> bool {
        true
    }

    /// The result of a node that finished well before, here or in an earlier process. The engine asks
    /// before it runs a node, and doesn't run it if there are any.
    async fn recorded(&self, step: &StepPath) -> Result<Option<Value>, JournalError>;

    /// Keeps the result of a node. When it returns `Ok`, the result is as durable as the journal makes
    /// it; only then does the engine go on with what depends on the node. If it fails, the run stops.
    ///
    /// Returns the checkpoint that it made, if it made one; the engine tells of it.
    async fn record(&self, done: NodeDone<'_>) -> Result<Option<CheckpointRef>, JournalError>;
}

/// Keeps nothing.
#[derive(Debug, Clone)]
pub struct NoJournal {
    run: RunId,
}

impl NoJournal {
    /// For a run of this id, which only events will show.
    pub const fn new(run: RunId) -> Self {
        Self { run }
    }
}

#[async_trait]
impl Journal for NoJournal {
    fn run(&self) -> &RunId {
        &self.run
    }

    fn keeps(&self) -> bool {
        false
    }

    async fn recorded(&self, _step: &StepPath) -> Result<Option<Value>, JournalError> {
        Ok(None)
    }

    async fn record(&self, _done: NodeDone<'_>) -> Result<Option<CheckpointRef>, JournalError> {
        Ok(None)
    }
}
