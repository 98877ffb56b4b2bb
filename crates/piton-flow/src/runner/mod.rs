//! Running a workflow from its start to its end.

mod attend;
mod builder;
mod commands;
#[cfg(feature = "checkpoint")]
mod conversation;
#[cfg(feature = "checkpoint")]
mod durable;
mod handle;
mod memory;
#[cfg(feature = "checkpoint")]
mod questions;
#[cfg(feature = "checkpoint")]
mod requests;
#[cfg(feature = "checkpoint")]
mod schedule;
mod signal;
mod status;
#[cfg(feature = "checkpoint")]
mod supervise;
mod told;
#[cfg(feature = "checkpoint")]
pub(crate) mod updates;

pub use builder::{WorkflowRunner, WorkflowRunnerBuilder};
pub use handle::{HandleError, WorkflowHandle};

#[cfg(feature = "checkpoint")]
pub use conversation::{Conversation, NextTurn, next_turn};
#[cfg(feature = "checkpoint")]
pub use durable::{
    Companion, FlowOptions, RunOutcome, StartFlow, create_durable, resume_durable, resume_with_document, run_durable,
};
#[cfg(feature = "checkpoint")]
pub use questions::{AnswerError, answer_question, choose, open_questions};
#[cfg(feature = "checkpoint")]
pub use schedule::{Schedule, create_following, schedule_of};
pub use signal::SafeStopSignal;
pub use status::{ExecutionStatus, OpenQuestion, StopReport};
