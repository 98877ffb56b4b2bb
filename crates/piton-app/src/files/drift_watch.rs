//! Looking now and then whether the repository moved under a guarded program (D1), and letting the program stand
//! still if that was wanted (D2).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use piton_log::RunLog;
use piton_runtime::History;
use piton_types::{RunId, RunKind, RunStatus, RunSummary, Value};
use piton_workspace::{DriftError, DriftOptions, DriftReport, Workspace, advise};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch::Receiver;

use crate::app::App;
use crate::failure::Failure;
use crate::runs::drive::DriftWatch;

/// The field of a run's input that says that its program is to stand still.
pub(super) const PAUSES: &str = "pause_on_drift";

/// How often a program that stands still is looked after.
const LOOK_AFTER: Duration = Duration::from_secs(2);

/// Looks for as long as it is polled. What goes wrong with it is no concern of the program.
pub async fn watch(
    app: &App,
    workspace: &Workspace,
    run: &RunId,
    DriftWatch { every, pauses }: DriftWatch,
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
            Ok(report) if pauses && is_pause(&report) => stand_still(app, workspace, run, &pid).await,
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
async fn stand_still(app: &App, workspace: &Workspace, run: &RunId, pid: &Receiver<Option<Pid>>) {
    let Some(pid) = *pid.borrow() else { return };
    if kill_process(pid, Signal::STOP).is_err() {
        return;
    }
    app.warn(&format!(
        "the same lines changed upstream, and the program stands still; `piton drift --run {run}` shows them, `piton \
         drift --run {run} --resolve user-handled` lets it go on"
    ));
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
    app.note("the program goes on");
}

/// Whether the program of a run stands still until what changed upstream was seen to.
pub(crate) async fn stands_still(workspace: &Workspace, run: &RunSummary) -> Result<bool, Failure> {
    if run.kind != RunKind::Guard || run.status != RunStatus::InProgress {
        return Ok(false);
    }
    let log = RunLog::open(Arc::clone(workspace.store()), &run.id).await?;
    let pauses =
        matches!(&History::read(&log).await?.input, Value::Map(input) if input.get(PAUSES) == Some(&true.into()));
    Ok(pauses && workspace.drift_tracker(&run.id).await?.pending().is_some())
}
