//! The files of a workflow: checkpointed in its own log while it is driven, with a look now and then whether the
//! repository moves under it (D1).

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use piton_flow::{Companion, SafeStopSignal};
use piton_types::{RunId, Value};
use piton_workspace::{
    CHECKED_EVERY, DriftError, DriftOptions, Session, SessionOptions, Workspace, WorkspaceError, advise,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long nodes have to finish when drift stops their run.
const TIME_TO_FINISH: u64 = 30;

/// Goes along with a run: a checkpoint of the files before its first node, whenever they have changed and come to
/// rest, and at the end of the drive.
///
/// They lie in the run's own log, and bracket what it does: an undo takes back just that. What goes wrong with them
/// in between doesn't stop the run; [`RunFiles::problem`] says it afterwards.
pub struct RunFiles {
    workspace: Workspace,
    options: SessionOptions,
    drift_every: Duration,
    stop: Option<SafeStopSignal>,
    at_work: Mutex<Option<AtWork>>,
    problem: Mutex<Option<WorkspaceError>>,
}

struct AtWork {
    stop: oneshot::Sender<()>,
    session: JoinHandle<(Session, Option<WorkspaceError>)>,
}

impl RunFiles {
    /// In this folder.
    pub fn new(workspace: Workspace, options: SessionOptions) -> Self {
        let (at_work, problem) = (Mutex::default(), Mutex::default());
        Self { workspace, options, drift_every: CHECKED_EVERY, stop: None, at_work, problem }
    }

    /// How often the repository is looked at; zero for never.
    #[must_use]
    pub fn drift_every(mut self, every: Duration) -> Self {
        self.drift_every = every;
        self
    }

    /// Stops the run, to be resumed, when the same lines changed upstream or history was rewritten (D2).
    #[must_use]
    pub fn stopping(mut self, stop: SafeStopSignal) -> Self {
        self.stop = Some(stop);
        self
    }

    /// What went wrong last, if anything did.
    pub fn problem(&self) -> Option<WorkspaceError> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn remember(&self, problem: Option<WorkspaceError>) {
        if problem.is_some() {
            *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
        }
    }
}

#[async_trait]
impl Companion for RunFiles {
    async fn begin(&self, run: &RunId) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut session = Session::join(&self.workspace, run.clone(), &std::sync::Arc::default()).await?;
        let (stop, stopped) = oneshot::channel();
        let (workspace, run, options) = (self.workspace.clone(), run.clone(), self.options);
        let (every, signal) = (self.drift_every, self.stop.clone());
        let session = tokio::spawn(async move {
            let until_stopped = async {
                tokio::select! {
                    // If the sender is gone, so is the drive.
                    _ = stopped => {}
                    never = watch(&workspace, &run, every, signal.as_ref()) => match never {},
                }
            };
            let ((), coverage) = session.run_with_checkpoints(options, until_stopped).await;
            (session, coverage.problem)
        });
        *self.at_work.lock().unwrap_or_else(PoisonError::into_inner) = Some(AtWork { stop, session });
        Ok(())
    }

    async fn end(&self, run: &RunId) -> Vec<String> {
        let at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(AtWork { stop, session }) = at_work else { return Vec::new() };
        // If it ended by itself no task waits to be told.
        let _ = stop.send(());
        let Ok((session, problem)) = session.await else { return Vec::new() };
        self.remember(problem);
        self.remember(session.end(Ok(Value::Null)).await.err());
        match self.workspace.files_changed_by(run).await {
            Ok(changed) => changed.iter().map(ToString::to_string).collect(),
            Err(problem) => {
                self.remember(Some(problem));
                Vec::new()
            }
        }
    }
}

impl fmt::Debug for RunFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunFiles").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

/// Looks for as long as it is polled. What goes wrong with it is no concern of the run.
async fn watch(
    workspace: &Workspace,
    run: &RunId,
    every: Duration,
    stop: Option<&SafeStopSignal>,
) -> std::convert::Infallible {
    // What the repository knows at the start needs no fetch.
    let mut fetch = false;
    while !every.is_zero() {
        match workspace.look_for_drift(run, DriftOptions { fetch, ..DriftOptions::default() }).await {
            // There is no repository, or no git: there never will be.
            Err(DriftError::NoGit | DriftError::NoRepository { .. }) => break,
            Ok(report) if !report.events.is_empty() => {
                let advice = advise(report.severity, report.is_rewritten(), None, None);
                if let Some(stop) = stop.filter(|_| advice.is_pause()) {
                    stop.trigger(TIME_TO_FINISH);
                }
            }
            _ => {}
        }
        fetch = true;
        tokio::time::sleep(every).await;
    }
    std::future::pending().await
}
