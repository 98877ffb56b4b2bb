//! What can go wrong with a run. Each variant says what it means for the run.

use piton_store::StoreError;
use piton_types::{BlobId, Holder, IllegalMove, InvalidId, RunId, StepPath, ValueError};

/// An error of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Somebody else drives the run, or may: nothing was changed.
    #[error("run {run} is being driven by process {} on {}", holder.pid, holder.host)]
    Held {
        /// The run.
        run: RunId,
        /// Who has it.
        holder: Holder,
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

    /// A step that the log has was called with another input: the program isn't the one that began the
    /// run, or what it works on changed. Nothing was run.
    #[error(
        "step {step} is recorded with another input than it has now ({:.12} then, {:.12} now): \
         the program or its inputs changed since the run began", recorded.to_string(), now.to_string()
    )]
    Changed {
        /// The step.
        step: StepPath,
        /// The hash of the recorded input.
        recorded: BlobId,
        /// The hash of the input now.
        now: BlobId,
    },

    /// The step's work failed. That is in the log; it runs again when the run is resumed.
    #[error("step {step} failed: {message}")]
    Step {
        /// The step.
        step: StepPath,
        /// Which attempt it was, from 1.
        attempt: u32,
        /// What the work said.
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

impl RunError {
    pub(crate) fn value(what: impl Into<String>) -> impl FnOnce(ValueError) -> Self {
        |cause| Self::Value { what: what.into(), cause }
    }

    /// Whether opening the run again may succeed without anybody changing anything.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Held { .. } | Self::Broken { .. } => true,
            _ => false,
        }
    }

    /// Whether somebody else took the run over.
    pub const fn is_fenced(&self) -> bool {
        matches!(self, Self::Store(StoreError::Fenced { .. }))
    }
}
