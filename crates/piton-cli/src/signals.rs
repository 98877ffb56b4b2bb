//! `SIGINT` and `SIGTERM`. Looking at something just ends. While a run is being driven the first stops it in peace,
//! the second ends it at once, and with the third the program waits for nothing.

use std::future::Future;
use std::pin::pin;

use piton_flow::SafeStopSignal;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Exit, Failure};
use crate::output::Output;

/// How long steps that run may take to end.
const GRACE: u64 = 30;

/// How the work ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended<T> {
    /// By itself.
    Finished(T),
    /// By a signal, with the exit code for it: it was dropped where it stood. That is safe at any moment: what is in
    /// a log is whole, and what isn't runs again when the run is resumed.
    Stopped(Exit),
}

/// The two signals.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::fixable("can't listen for signals").because(&error));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
        }
    }
}

/// The first signal that comes from now on.
pub(crate) fn first_signal() -> Result<impl Future<Output = ()>, Failure> {
    let mut signals = Signals::listen()?;
    Ok(async move {
        signals.next().await;
    })
}

/// Does `work` until it ends or a signal comes.
pub(crate) async fn until_stopped<T>(work: impl Future<Output = T>) -> Result<Ended<T>, Failure> {
    let mut signals = Signals::listen()?;
    Ok(tokio::select! {
        biased;
        exit = signals.next() => Ended::Stopped(exit),
        result = work => Ended::Finished(result),
    })
}

/// Does `work` until it ends, and passes signals on to it; if one came, with the exit code for it.
pub(crate) async fn until_ended<T>(
    output: &Output,
    stop: &SafeStopSignal,
    work: impl Future<Output = T>,
) -> Result<(Ended<T>, Option<Exit>), Failure> {
    let mut signals = Signals::listen()?;
    let mut work = pin!(work);
    let mut given: Option<Exit> = None;
    let mut count = 0;
    loop {
        let exit = tokio::select! {
            // Signals first: from a terminal they reach the programs of the run too, and that those end must
            // not be taken for a failure of theirs.
            biased;
            exit = signals.next() => exit,
            result = &mut work => return Ok((Ended::Finished(result), given)),
        };
        given.get_or_insert(exit);
        count += 1;
        match count {
            1 => {
                stop.trigger(GRACE);
                output.note(&format!("stopping: steps that run may take {GRACE} s; the same again ends them at once"));
            }
            2 => stop.abort(),
            _ => return Ok((Ended::Stopped(exit), given)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_ends_by_itself_is_finished() {
        assert_eq!(until_stopped(async { 7 }).await.unwrap(), Ended::Finished(7));
    }
}
