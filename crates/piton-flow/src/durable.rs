//! The journal of a durable run: every node that ends is one entry of the run's log. The entry of a node
//! that is marked `checkpoint: true` carries the variables too.
//!
//! The entry that completes the run carries none: checkpoints are made where the document says so. For
//! the variables of a finished run, mark its end node.

use async_trait::async_trait;
use piton_runtime::{Run, StepDone, StepRecord};
use piton_types::{CheckpointRef, RunId, StepPath, Value};
use tokio::sync::Mutex;

use crate::journal::{Journal, JournalError, NodeDone};
use crate::record;
use crate::variables::Variables;

/// A journal over a run: each node that ends is one entry of its log, as durable as the run.
///
/// The entry of a node at which a checkpoint is wanted carries the part `variables`: a map of what every
/// node that finished so far gave, by its id. It costs what changed since the last one. Other entries
/// carry no state.
#[derive(Debug)]
pub struct RunJournal<'a> {
    run: &'a Run,
    variables: Mutex<Variables>,
}

impl<'a> RunJournal<'a> {
    /// The journal of `run`.
    pub fn new(run: &'a Run) -> Self {
        Self { run, variables: Mutex::new(Variables::new(run)) }
    }
}

#[async_trait]
impl Journal for RunJournal<'_> {
    fn run(&self) -> &RunId {
        self.run.id()
    }

    async fn recorded(&self, step: &StepPath) -> Result<Option<Value>, JournalError> {
        let recorded = self.run.recorded(step).filter(StepRecord::is_finished).map(|record| record.output);
        if recorded.is_none() {
            // It is about to run, unless somebody asked the run to stop.
            self.run.ready().await?;
        }
        Ok(recorded)
    }

    async fn record(&self, done: NodeDone<'_>) -> Result<Option<CheckpointRef>, JournalError> {
        let step = StepDone {
            path: done.step.clone(),
            input: done.inputs.clone(),
            result: done.result.cloned().map_err(str::to_owned),
            started_at: done.started_at,
            duration: done.duration,
        };
        let mut variables = self.variables.lock().await;
        let parts = match done.result {
            Ok(record) if done.checkpoint => {
                vec![variables.with(self.run, done.step, &record::variables(record)).await?]
            }
            _ => Vec::new(),
        };
        let is_checkpoint = !parts.is_empty();
        let recorded = self.run.record(step, parts).await?;
        if done.result.is_ok() && !is_checkpoint {
            variables.finished(done.step.clone());
        }
        Ok(is_checkpoint.then(|| CheckpointRef { run: self.run.id().clone(), seq: recorded.seq }))
    }
}
