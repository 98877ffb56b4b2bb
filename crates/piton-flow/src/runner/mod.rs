//! Whoever runs a workflow from its start to its end.

#[cfg(feature = "checkpoint")]
mod durable;

#[cfg(feature = "checkpoint")]
pub use durable::{RunOutcome, StartFlow, resume_durable, resume_durable_as, run_durable};
