//! What a run tells its listener (F9).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{CheckpointRef, RunId, StepPath, TokenUsage, Value};

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
        /// What people call it, if that isn't the step's own name.
        title: Option<String>,
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
        /// How long it took.
        duration: Duration,
        /// What it used.
        usage: TokenUsage,
    },
    /// A step failed, and is tried again.
    StepRetried {
        /// The run.
        run: RunId,
        /// The step.
        step: StepPath,
        /// Which attempt failed, from 1.
        attempt: u32,
        /// Why.
        error: String,
    },
    /// A step made a piece of text.
    StepText {
        /// The run.
        run: RunId,
        /// The step.
        step: StepPath,
        /// The piece.
        text: String,
    },
    /// A piece of the run's answer. The pieces come in the order of the answer.
    Answer {
        /// The run.
        run: RunId,
        /// The step whose answer it is.
        step: StepPath,
        /// The piece.
        text: String,
    },
    /// The run waits for an answer, or until it is resumed after it was paused.
    RunPaused {
        /// The run.
        run: RunId,
        /// The step that waits, if one does.
        step: Option<StepPath>,
        /// What is asked, or why it waits.
        prompt: String,
    },
    /// The run goes on after a pause.
    RunResumed {
        /// The run.
        run: RunId,
        /// The step that waited, if one did.
        step: Option<StepPath>,
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
    /// The run was given up.
    RunCancelled {
        /// The run.
        run: RunId,
        /// Why.
        reason: String,
    },
    /// The run goes on although something changed since it was begun.
    ResumeWarning {
        /// The run.
        run: RunId,
        /// A line for each change.
        report: String,
    },
    /// The user is asked what is to become of a file that others changed too.
    ConflictAsked {
        /// The run that has the checkpoints of the folder.
        run: RunId,
        /// The file.
        path: String,
        /// Why it can't be decided.
        reason: String,
    },
    /// A checkpoint is durable.
    CheckpointSaved {
        /// Its name.
        checkpoint: CheckpointRef,
        /// The step after which it was made. Others may have begun and ended since, and a checkpoint that was made by
        /// other means told of before.
        step: Option<StepPath>,
    },
    /// A run that exists goes on from its newest checkpoint that counts.
    CheckpointResumed {
        /// Its name.
        checkpoint: CheckpointRef,
        /// The step after which it was made, if it was made after one.
        step: Option<StepPath>,
    },
    /// A workflow was stopped in peace, and can go on if everything up to there is kept.
    WorkflowSafeStopped {
        /// The run.
        run: RunId,
        /// The nodes that were cut short, and run again when it goes on.
        interrupted_nodes: Vec<StepPath>,
        /// Whether everything up to there is kept.
        checkpoint_saved: bool,
    },
    /// The run ended well.
    RunSucceeded {
        /// The run.
        run: RunId,
        /// What it gave.
        outputs: Value,
    },
    /// The run ended well although some steps failed.
    RunPartial {
        /// The run.
        run: RunId,
        /// What it gave.
        outputs: Value,
        /// How many steps failed.
        exceptions: u32,
    },
    /// The run failed, and its error handler made something of it.
    RunRecovered {
        /// The run.
        run: RunId,
        /// What the handler gave.
        outputs: Value,
        /// The failure.
        error: String,
    },
    /// The run failed.
    RunFailed {
        /// The run.
        run: RunId,
        /// Why.
        error: String,
    },
}
