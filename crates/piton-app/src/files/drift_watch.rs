//! Looking now and then whether the repository moved under a guarded program (D1), and letting the program stand
//! still if that was wanted (D2).

use std::convert::Infallible;
use std::time::Duration;

use piton_types::RunId;
use piton_workspace::{DriftError, DriftOptions, DriftReport, Workspace, advise};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch::Receiver;

/// How often a program that stands still is looked after.
const LOOK_AFTER: Duration = Duration::from_secs(2);

/// Looks for as long as it is polled. What goes wrong with it is no concern of the program.
pub async fn watch(
    workspace: &Workspace,
    run: &RunId,
    every: Duration,
    pauses: bool,
    pid: Receiver<Option<Pid>>,
) -> Infallible {
    if every.is_zero() {
        return std::future::pending().await;
    }
    // What is known at the start needs no network.
    let mut fetch = false;
    loop {
        match workspace.look_for_drift(run, DriftOptions { fetch, ..DriftOptions::default() }).await {
            // There is no repository, or no git: there never will be.
            Err(DriftError::NoGit | DriftError::NoRepository { .. }) => return std::future::pending().await,
            Ok(report) if pauses && is_pause(&report) => stand_still(workspace, run, &pid).await,
            _ => {}
        }
        fetch = true;
        tokio::time::sleep(every).await;
    }
}

fn is_pause(report: &DriftReport) -> bool {
    !report.events.is_empty() && advise(report.severity, report.is_rewritten(), None, None).is_pause()
}

/// Stops the program until the user says that it was seen to.
async fn stand_still(workspace: &Workspace, run: &RunId, pid: &Receiver<Option<Pid>>) {
    let Some(pid) = *pid.borrow() else { return };
    if kill_process(pid, Signal::STOP).is_err() {
        return;
    }
    loop {
        tokio::time::sleep(LOOK_AFTER).await;
        match workspace.drift_tracker(run).await {
            Ok(tracker) if tracker.pending().is_some() => {}
            // Seen to; or it can't be told any more, and then the user couldn't end it.
            _ => break,
        }
    }
    // If it ended meanwhile there is no process to tell.
    let _ = kill_process(pid, Signal::CONT);
}
