//! How a workflow stands, as the holder of its handle sees it.

use std::collections::BTreeMap;

use piton_types::{Event, RunId, StepPath, Value};

use crate::engine::Outputs;
use crate::inbox::Form;

/// How a workflow stands.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ExecutionStatus {
    /// Something is being done, or about to.
    Running,
    /// It ended well, and gave this.
    Completed(Outputs),
    /// It failed.
    Failed(String),
    /// It failed, and its error handler made something of it.
    FailedWithRecovery {
        /// The failure.
        original_error: String,
        /// What the handler gave.
        recovered_outputs: Outputs,
    },
    /// It waits: for a person, or for the holder that paused it.
    Paused {
        /// The node that asks, at its place in the run; nothing if the run was paused.
        node_id: Option<StepPath>,
        /// What people call the node.
        node_title: String,
        /// What it asks; or why the run was paused.
        prompt: String,
    },
    /// It was stopped, and can go on if the checkpoint is saved.
    SafeStopped {
        /// The node that ended last.
        last_completed_node: Option<StepPath>,
        /// The nodes that were cut short. They run again when the run goes on.
        interrupted_nodes: Vec<StepPath>,
        /// Whether everything up to here is kept.
        checkpoint_saved: bool,
    },
    /// It was given up, from another process.
    Cancelled(String),
}

impl ExecutionStatus {
    /// Whether nothing more will happen on this handle.
    pub const fn is_over(&self) -> bool {
        !matches!(self, Self::Running | Self::Paused { .. })
    }
}

/// A question that a workflow waits for the answer to.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenQuestion {
    /// Its place in the run, by which it is answered.
    pub step: StepPath,
    /// What only who was told of it knows. Empty where there is no store.
    pub token: String,
    /// What is asked.
    pub prompt: String,
    /// What the answer should look like; `None` if it isn't a node's question.
    pub form: Option<Form>,
    /// When it stops waiting.
    pub timeout_at: Option<piton_types::Timestamp>,
}

impl OpenQuestion {
    /// The variables of an answer, as the question wants them.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self, answer: &Value) -> Result<Value, String> {
        match &self.form {
            Some(form) => form.check(answer).map(Value::Map),
            None => Ok(answer.clone()),
        }
    }

    pub(crate) fn paused(&self) -> ExecutionStatus {
        let node_title = self.form.as_ref().map(|form| form.title.clone()).unwrap_or_default();
        ExecutionStatus::Paused { node_id: Some(self.step.clone()), node_title, prompt: self.prompt.clone() }
    }
}

/// What a stop came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StopReport {
    /// The node that ended last.
    pub last_completed: Option<StepPath>,
    /// The nodes that were cut short.
    pub interrupted: Vec<StepPath>,
    /// The nodes that failed meanwhile, and why. They are tried again when the run goes on.
    pub failed: BTreeMap<StepPath, String>,
    /// Whether everything up to here is kept.
    pub checkpoint_saved: bool,
}

impl StopReport {
    /// What a listener is told of it.
    pub(crate) fn event(&self, run: &RunId) -> Event {
        Event::WorkflowSafeStopped {
            run: run.clone(),
            interrupted_nodes: self.interrupted.clone(),
            checkpoint_saved: self.checkpoint_saved,
        }
    }
}

impl From<StopReport> for ExecutionStatus {
    fn from(report: StopReport) -> Self {
        Self::SafeStopped {
            last_completed_node: report.last_completed,
            interrupted_nodes: report.interrupted,
            checkpoint_saved: report.checkpoint_saved,
        }
    }
}
