//! `SIGINT` and `SIGTERM` while a run is being driven.
//!
//! The work is dropped where it stands. That is safe at any moment: what is in the log is whole, and
//! what isn't runs again when the run is resumed.

use std::future::Future;
use std::pin::pin;

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Exit, Failure};

/// How the work ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended<T> {
    /// By itself.
    Finished(T),
    /// By a signal, with the exit code for it.
    Stopped(Exit),
}

/// Does `work` until it ends or a signal comes.
pub(crate) async fn until_stopped<T>(work: impl Future<Output = T>) -> Result<Ended<T>, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::fixable("can't listen for signals").because(&error));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let work = pin!(work);
    Ok(tokio::select! {
        // Signals first: from a terminal they reach the programs of the run too, and that those end must
        // not be taken for a failure of theirs.
        biased;
        _ = interrupt.recv() => Ended::Stopped(Exit::Interrupted),
        _ = terminate.recv() => Ended::Stopped(Exit::Terminated),
        result = work => Ended::Finished(result),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_ends_by_itself_is_finished() {
        assert_eq!(until_stopped(async { 7 }).await.unwrap(), Ended::Finished(7));
    }
}
