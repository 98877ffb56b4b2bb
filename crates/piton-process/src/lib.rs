//! Programs that Piton starts.
//!
//! - [`Process`] is a program and what it starts in turn: it dies when it is dropped, and when this
//!   process dies, however it dies.
//! - [`run`] runs a [`Job`] to its end within its [`Limits`].
//! - A job with a [`Sandbox`] reads nothing but what it is given, has no network, and can't outlive its
//!   limits (promise 24). Where the system has no means for that, [`run`] refuses; it never runs a job
//!   with less than was asked for.
//!
//! This is the only crate with code between fork and exec.

mod job;
mod platform;
mod process;
mod sandbox;

pub use job::{Ended, Job, Limits, ProcessError, run};
pub use platform::exit_code;
pub use process::Process;
pub use sandbox::{Means, Sandbox, Unavailable};
