//! What the handle of a run tells the task that drives it.

use std::time::Duration;

use piton_types::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::status::OpenQuestion;
use crate::selector::Selector;

/// Something that a handle wants.
#[derive(Debug)]
pub(crate) enum Command {
    Pause { reason: String },
    Resume,
    Stop { grace: Option<Duration> },
    Abort { reason: String },
    Update { values: Vec<(Selector, Value)>, done: oneshot::Sender<Result<(), String>> },
}

/// The other end of a handle, if there is one.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) queue: Option<mpsc::Receiver<Command>>,
    /// Is told which questions are open.
    pub(crate) questions: Option<watch::Sender<Vec<OpenQuestion>>>,
}

impl Commands {
    /// There is no handle.
    #[cfg(feature = "checkpoint")]
    pub(crate) const fn none() -> Self {
        Self { queue: None, questions: None }
    }

    /// The next command. Never, if there is no handle any more: the run goes on without it.
    pub(crate) async fn next(&mut self) -> Command {
        if let Some(queue) = &mut self.queue
            && let Some(command) = queue.recv().await
        {
            return command;
        }
        self.queue = None;
        std::future::pending().await
    }
}
