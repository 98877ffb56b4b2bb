//! Telling the outside when a run ends, fails or waits (R6): a program, a web address, or whatever implements
//! [`Notify`].
//!
//! A hook never fails a run and never holds it up: what is to be told waits in a short queue, each hook has a
//! time limit, and one that fails is only counted and logged.

mod command;
mod notifier;
mod webhook;

pub use command::CommandHook;
pub use notifier::{Delivered, Notifier, NotifyOn};
pub use webhook::Webhook;

use std::time::Duration;

use async_trait::async_trait;
use piton_types::{RunId, Timestamp, Value};
use serde::Serialize;

/// What is told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Notice {
    /// The run.
    pub run: RunId,
    /// What happened: `failed`, `waiting`, `completed`.
    pub event: &'static str,
    /// In words: the error, the question, the reason.
    pub message: String,
    /// What a completed run gave.
    pub outputs: Value,
    /// When.
    pub at: Timestamp,
}

/// Why a notice couldn't be delivered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// It took too long.
    #[error("it took longer than {} s", .0.as_secs())]
    Timeout(Duration),
    /// The program can't be run or isn't content.
    #[error("the program {program:?} {detail}")]
    Command {
        /// The program.
        program: String,
        /// What it did.
        detail: String,
    },
    /// The address makes no sense here.
    #[error("the address {url:?} can't be used: {detail}")]
    Address {
        /// The address.
        url: String,
        /// Why.
        detail: &'static str,
    },
    /// The server isn't content.
    #[error("the server answered {0}")]
    Answer(String),
    /// The system or the network failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Whatever else a hook of the application's own has to say.
    #[error("{0}")]
    Other(String),
}

/// Delivers notices to one place outside.
#[async_trait]
pub trait Notify: Send + Sync {
    /// What it is, for the log.
    fn name(&self) -> String;

    /// Tells it. The same notice may come twice after a crash.
    async fn notify(&self, notice: &Notice) -> Result<(), NotifyError>;
}
