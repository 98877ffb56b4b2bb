//! What a run tells whoever listens (F9).

use serde::{Deserialize, Serialize};

use crate::{CheckpointRef, RunId, StepPath, Value};

/// Something that happened to a run. Events are told after the log has it, never before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A run began, or went on in this process.
    RunStarted {
        /// The run.
        run: RunId,
        /// Whether it went on from a checkpoint.
        resumed: bool,
    },
    /// A step began.
    StepStarted {
        /// The run.
        run: RunId,
        /// The step.
        step: StepPath,
    },
    /// A step was found finished in the log and didn't run again.
    StepSkipped {
        /// The run.
        run: RunId,
        /// The step.
        step: StepPath,
    },
    /// A step ended well, and its result is in the log.
    StepFinished {
        /// The run.
        run: RunId,
        /// The step.
        step: StepPath,
    },
    /// A step failed.
    StepFailed {
        /// The run.
        run: RunId,
        /// The step.
        step: StepPath,
        /// Why.
        error: String,
    },
    /// A checkpoint is durable.
    CheckpointSaved {
        /// Its name.
        checkpoint: CheckpointRef,
    },
    /// The run ended well.
    RunSucceeded {
        /// The run.
        run: RunId,
        /// What it gave.
        outputs: Value,
    },
    /// The run failed.
    RunFailed {
        /// The run.
        run: RunId,
        /// Why.
        error: String,
    },
}
