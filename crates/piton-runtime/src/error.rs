//! What can go wrong with a run. Each variant says what it means for the run.

use std::fmt;

use piton_store::StoreError;
use piton_types::{Holder, IllegalMove, InvalidId, RunId, StepPath, Timestamp, Value, ValueError};

use crate::record::{EffectStatus, FailureKind};

/// An error of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Another process drives the run, or may: nothing was changed.
    #[error("run {run} is being driven by process {} on {}{}", holder.pid, holder.host, since.map_or_else(String::new, |since| format!(" since {since}")))]
    Held {
        /// The run.
        run: RunId,
        /// Who has it.
        holder: Holder,
        /// Since when.
        since: Option<Timestamp>,
    },

    /// The function that was asked for [admission](crate::Admission) refused it. Nothing was changed.
    #[error("run {run} may not go on")]
    Refused {
        /// The run.
        run: RunId,
        /// Why.
        #[source]
        cause: crate::Refusal,
    },

    /// The run's state doesn't allow it. Nothing was changed.
    #[error("run {run} is {}", cause.from)]
    Illegal {
        /// The run.
        run: RunId,
        /// The move that was asked for.
        #[source]
        cause: IllegalMove,
    },

    /// At this place the log has another call than the program makes: the program isn't the one that began
    /// the run, or what it works on changed. Nothing was run.
    #[error("{}", crate::difference::describe(run, expected, got))]
    Changed {
        /// The run.
        run: RunId,
        /// The call that the log has.
        expected: Box<Call>,
        /// The call that the program makes.
        got: Box<Call>,
    },

    /// The step's work failed for good. That is in the log.
    #[error("step {step} failed: {message}")]
    Step {
        /// The step.
        step: StepPath,
        /// Which attempt it was, from 1.
        attempt: u32,
        /// In which way it failed.
        kind: FailureKind,
        /// What the work said.
        message: String,
    },

    /// An effect didn't take place, or may have, and that couldn't be found out. That is in the log.
    #[error("effect {step} {}: {message}", match status { EffectStatus::Uncertain => "may have taken place", _ => "didn't take place" })]
    Effect {
        /// The effect.
        step: StepPath,
        /// How it stands.
        status: EffectStatus,
        /// What is known.
        message: String,
    },

    /// The run was told to stop, or was given up. It is paused or cancelled, or will be when the last of
    /// its steps that still run has ended.
    #[error("run {run} was stopped: {reason}")]
    Stopped {
        /// The run.
        run: RunId,
        /// Why.
        reason: String,
    },

    /// The run waits for an answer, and no process needs to drive it meanwhile. Open it again when there is
    /// one.
    #[error("run {run} waits for an answer to {step}: {prompt}")]
    Waiting {
        /// The run.
        run: RunId,
        /// The question.
        step: StepPath,
        /// What to show.
        prompt: String,
    },

    /// No answer came in time.
    #[error("no answer to {step} came in time")]
    Unanswered {
        /// The question.
        step: StepPath,
    },

    /// The run doesn't ask that, or not any more. Nothing was changed.
    #[error("run {run} waits for no answer{}", step.as_ref().map_or_else(String::new, |step| format!(" to {step}")))]
    NotAsked {
        /// The run.
        run: RunId,
        /// The question that was to be answered, if it was named.
        step: Option<StepPath>,
    },

    /// The run asks several questions; say which one is answered. Nothing was changed.
    #[error("run {run} waits for several answers: {}", steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    WhichQuestion {
        /// The run.
        run: RunId,
        /// The questions.
        steps: Vec<StepPath>,
    },

    /// The log of the run has no such step. Nothing was changed.
    #[error("run {run} has no step {step}")]
    NoSuchStep {
        /// The run.
        run: RunId,
        /// The step.
        step: StepPath,
    },

    /// The run was opened to try one step; this is another one, or an effect. Nothing was run.
    #[error("{step} doesn't run: only {} is tried out here", only.as_ref().map_or("the next step", |only| only.as_str()))]
    Alone {
        /// What was to run.
        step: StepPath,
        /// What may.
        only: Option<StepPath>,
    },

    /// The program says so itself.
    #[error("{message}")]
    Program {
        /// What.
        message: String,
    },

    /// A value can't be stored, or what is stored isn't of the type that is wanted.
    #[error("{what} doesn't fit")]
    Value {
        /// Which value.
        what: String,
        /// Why.
        #[source]
        cause: ValueError,
    },

    /// A name isn't one.
    #[error(transparent)]
    Name(#[from] InvalidId),

    /// An earlier write failed, so it isn't known what the log has, and nothing more is run. Open the
    /// run again to go on.
    #[error("run {run} can't go on with this handle after a failed write: {cause}")]
    Broken {
        /// The run.
        run: RunId,
        /// The failure.
        cause: String,
    },

    /// The store failed. What the log has is intact; open the run again to go on.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A call of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Which step.
    pub step: StepPath,
    /// With what, if that is known.
    pub input: Option<Value>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}", self.step)?;
        match &self.input {
            Some(input) => write!(f, " with {}", crate::difference::short(input)),
            None => Ok(()),
        }
    }
}

impl RunError {
    /// What a program has to say for itself.
    pub fn program(message: impl fmt::Display) -> Self {
        Self::Program { message: message.to_string() }
    }

    pub(crate) fn value(what: impl Into<String>) -> impl FnOnce(ValueError) -> Self {
        |cause| Self::Value { what: what.into(), cause }
    }

    /// Whether opening the run again may succeed without a person changing anything.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Held { .. } | Self::Broken { .. } => true,
            _ => false,
        }
    }

    /// Whether another holder took the run over.
    pub const fn is_fenced(&self) -> bool {
        matches!(self, Self::Store(StoreError::Fenced { .. }))
    }

    /// Whether the run isn't over: it stops or waits, is held by another process, or its store failed. Such
    /// an error says nothing about the work, and a program passes it on.
    pub const fn leaves_the_run(&self) -> bool {
        matches!(
            self,
            Self::Held { .. } | Self::Stopped { .. } | Self::Waiting { .. } | Self::Broken { .. } | Self::Store(_)
        )
    }
}
