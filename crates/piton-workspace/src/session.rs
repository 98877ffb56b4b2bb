//! An agent at work in the folder: a run of its own, whose checkpoints bracket what it does (W7, W8).

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_log::{Draft, NewRun, RunLog};
use piton_types::{
    BlobId, CheckpointKind, CheckpointRef, Completed, Durability, EntryKind, Failed, InProgress, Queued, RunId,
    RunKind, RunState, RunStatus, RunSummary, StepPath, Timestamp, Value, to_value,
};

use crate::record::{Record, Role};
use crate::scan::Progress;
use crate::snapshot::{Saved, Snapshot};
use crate::timeline::Live;
use crate::watch::Watcher;
use crate::{Goal, RestoreOptions, RestoreResult, Workspace, WorkspaceError};

/// When checkpoints are made by themselves.
#[derive(Debug, Clone, Copy)]
pub struct SessionOptions {
    /// This long after the last change.
    pub quiet_for: Duration,
    /// At least this often while something changes, and when changes can't be watched.
    pub at_least: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { quiet_for: Duration::from_secs(2), at_least: Duration::from_secs(300) }
    }
}

/// An agent at work.
#[derive(Debug)]
pub struct Session {
    workspace: Workspace,
    run: RunId,
    /// Of the run, if it was made for the session.
    summary: Option<RunSummary>,
    opened: Saved,
    last: BlobId,
    steps: u32,
    _live: Live,
}

/// How a session went.
#[derive(Debug, Clone)]
pub struct SessionEnd {
    /// The checkpoint at the start.
    pub opened: CheckpointRef,
    /// The files at the start.
    pub before: Snapshot,
    /// The checkpoint at the end.
    pub closed: CheckpointRef,
    /// The files at the end.
    pub after: Snapshot,
}

/// A tool call that is about to begin.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// Its place in the session; unique in it.
    pub step: StepPath,
    /// The tool's name.
    pub tool: String,
    /// What it is given.
    pub input: Value,
}

/// Why a tool failed.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolFailure {
    /// In words.
    pub message: String,
    /// Whether the agent can go on from what the tool left behind.
    pub recoverable: bool,
}

/// How a tool call ended.
#[derive(Debug)]
pub enum ToolOutcome<T> {
    /// Well.
    Done(T),
    /// Badly; what it did is still there, and [`Session::roll_back`] takes it back.
    Failed {
        /// Why.
        failure: ToolFailure,
        /// The entry to roll back.
        step: CheckpointRef,
    },
    /// Badly, and what it did has been taken back; nobody else's edits were touched.
    RolledBack {
        /// Why.
        failure: ToolFailure,
        /// What was done.
        restored: Box<RestoreResult>,
    },
    /// Badly, and what it did could not be taken back without touching somebody else's edits.
    Stuck {
        /// Why it failed.
        failure: ToolFailure,
        /// The entry to roll back.
        step: CheckpointRef,
        /// Why it could not be taken back.
        error: WorkspaceError,
    },
}

/// A tool call that has begun.
#[derive(Debug)]
pub struct PreTool {
    call: ToolCall,
    saved: Saved,
    started: Instant,
}

impl PreTool {
    /// The checkpoint that was made before it.
    pub fn checkpoint(&self) -> &CheckpointRef {
        &self.saved.checkpoint
    }
}

impl Session {
    /// Begins: the run is made, and the files are checkpointed.
    pub async fn begin(
        workspace: &Workspace,
        run: RunId,
        name: impl Into<String>,
        input: Value,
        progress: &Arc<Progress>,
    ) -> Result<Self, WorkspaceError> {
        let summary = create_run(workspace, &run, name.into(), input).await?;
        Ok(Self { summary: Some(summary), ..Self::join(workspace, run, progress).await? })
    }

    /// Goes along with a run that exists and that somebody drives: its log gets the checkpoints of the files, each
    /// with the state that the run has by then, and its state is nobody's but the driver's.
    pub async fn join(workspace: &Workspace, run: RunId, progress: &Arc<Progress>) -> Result<Self, WorkspaceError> {
        let live = workspace.live(&run)?;
        let record = Record { run: Some(run.clone()), ..Record::new(CheckpointKind::Session, Role::Opened, "") };
        let opened = workspace.save(record, progress).await?;
        let last = opened.snapshot.tree;
        Ok(Self { workspace: workspace.clone(), run, summary: None, opened, last, steps: 0, _live: live })
    }

    /// Its run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// The checkpoint at the start.
    pub fn opened(&self) -> &Saved {
        &self.opened
    }

    /// Checkpoints the files if they changed.
    pub async fn checkpoint(&mut self, description: &str) -> Result<Option<Saved>, WorkspaceError> {
        let record =
            Record { run: Some(self.run.clone()), ..Record::new(CheckpointKind::Auto, Role::Saved, description) };
        let saved = self.workspace.save_if_changed(record, self.last, &Arc::default()).await?;
        if let Some(saved) = &saved {
            self.last = saved.snapshot.tree;
        }
        Ok(saved)
    }

    /// Ends: a last checkpoint, and the run is completed or failed, unless it is another's.
    pub async fn end(
        self,
        outcome: Result<Value, String>,
        progress: &Arc<Progress>,
    ) -> Result<SessionEnd, WorkspaceError> {
        let since = self.opened.checkpoint.clone();
        let role = Role::Closed { since: since.clone(), before: self.opened.snapshot.tree };
        let record = Record { run: Some(self.run.clone()), ..Record::new(CheckpointKind::Session, role, "") };
        let closed = self.workspace.save(record, progress).await?;
        let (before, after) = (self.opened.snapshot, closed.snapshot);
        let end = SessionEnd { opened: since, before, closed: closed.checkpoint, after };
        let Some(summary) = self.summary else { return Ok(end) };
        end_run(&self.workspace, summary, outcome).await?;
        Ok(end)
    }

    /// Goes on in another folder that took the place of the one that it began in, as after a new clone.
    pub fn move_to(&mut self, workspace: &Workspace) {
        self.workspace = workspace.clone();
    }

    /// Ends without a last checkpoint, because the folder is gone: the run has failed, unless it is another's.
    pub async fn abandon(self, why: impl Into<String>) -> Result<(), WorkspaceError> {
        match self.summary {
            Some(summary) => end_run(&self.workspace, summary, Err(why.into())).await,
            None => Ok(()),
        }
    }

    /// A checkpoint before a tool call.
    pub async fn create_pre_tool_checkpoint(&mut self, call: ToolCall) -> Result<PreTool, WorkspaceError> {
        let record = Record {
            run: Some(self.run.clone()),
            path: Some(call.step.clone()),
            tool: Some(call.tool.clone()),
            ..Record::new(CheckpointKind::PreTool, Role::Opened, "")
        };
        let saved = self.workspace.save(record, &Arc::default()).await?;
        self.last = saved.snapshot.tree;
        Ok(PreTool { call, saved, started: Instant::now() })
    }

    /// Records how a tool call ended, with the files as it left them.
    pub async fn record_tool_execution(
        &mut self,
        pre: PreTool,
        outcome: Result<Value, ToolFailure>,
    ) -> Result<CheckpointRef, WorkspaceError> {
        let role = Role::Closed { since: pre.saved.checkpoint.clone(), before: pre.saved.snapshot.tree };
        let record = Record {
            run: Some(self.run.clone()),
            path: Some(pre.call.step.clone()),
            tool: Some(pre.call.tool.clone()),
            ..Record::new(CheckpointKind::PreTool, role, "")
        };
        let took = pre.started.elapsed();
        let execution = Execution { index: self.steps, input: pre.call.input, outcome, started_at: pre.saved.at, took };
        let fields = execution.body(&record);
        self.steps += 1;
        let saved = self.workspace.save_body(record, fields, EntryKind::StepDone).await?;
        self.last = saved.snapshot.tree;
        Ok(saved.checkpoint)
    }

    /// Takes back what a step did, and nothing else.
    pub async fn roll_back(&mut self, step: &CheckpointRef) -> Result<RestoreResult, WorkspaceError> {
        let goal = Goal::Undo(Some(step.clone()));
        self.workspace.restore(&goal, &RestoreOptions::default(), &Arc::default()).await
    }

    /// Runs a tool between two checkpoints. After a failure that can't be recovered from, what the tool did is
    /// taken back by itself, as far as that touches nobody else's edits.
    pub async fn execute_with_checkpoint<T>(
        &mut self,
        call: ToolCall,
        tool: impl Future<Output = Result<(T, Value), ToolFailure>>,
    ) -> Result<ToolOutcome<T>, WorkspaceError> {
        let pre = self.create_pre_tool_checkpoint(call).await?;
        match tool.await {
            Ok((given, output)) => {
                self.record_tool_execution(pre, Ok(output)).await?;
                Ok(ToolOutcome::Done(given))
            }
            Err(failure) => {
                let step = self.record_tool_execution(pre, Err(failure.clone())).await?;
                if failure.recoverable {
                    return Ok(ToolOutcome::Failed { failure, step });
                }
                Ok(match self.roll_back(&step).await {
                    Ok(restored) => ToolOutcome::RolledBack { failure, restored: Box::new(restored) },
                    Err(error) => ToolOutcome::Stuck { failure, step, error },
                })
            }
        }
    }

    /// Runs an agent, with checkpoints whenever its files have changed and come to rest. What goes wrong with
    /// those doesn't stop the agent; the last such error is given back with what it gave.
    pub async fn run_with_checkpoints<T>(
        &mut self,
        options: SessionOptions,
        agent: impl Future<Output = T>,
    ) -> (T, Option<WorkspaceError>) {
        let mut agent = std::pin::pin!(agent);
        let mut problem = None;
        let mut watcher = match Watcher::new() {
            Some(watcher) => watcher.watch(&self.workspace, self.last).await.ok(),
            None => None,
        };
        loop {
            tokio::select! {
                biased;
                given = &mut agent => return (given, problem),
                () = due(watcher.as_ref(), options) => {}
            }
            // The agent goes on meanwhile: it is only looked at between two awaits of ours.
            let taken = watcher.take();
            let checkpoint = async {
                let saved = self.checkpoint("").await;
                let watching = match (taken, &saved) {
                    (Some(watching), Ok(Some(saved))) => {
                        watching.watch(&self.workspace, saved.snapshot.tree).await.ok()
                    }
                    (watching, _) => watching,
                };
                (saved.err(), watching)
            };
            let mut checkpoint = std::pin::pin!(checkpoint);
            let (given, (error, watching)) = tokio::select! {
                given = &mut agent => (Some(given), checkpoint.await),
                done = &mut checkpoint => (None, done),
            };
            watcher = watching;
            problem = error.or(problem);
            if let Some(given) = given {
                return (given, problem);
            }
        }
    }
}

/// Makes the run of a session.
pub(crate) async fn create_run(
    workspace: &Workspace,
    run: &RunId,
    name: String,
    input: Value,
) -> Result<RunSummary, WorkspaceError> {
    let at = workspace.now();
    let created = RunState::Queued(Queued { created_at: at, priority: 0, estimated_complexity: None, input });
    let body = to_value(&created).expect("a state is a value");
    let folder = Some(workspace.folder_text());
    let new = NewRun {
        name: name.clone(),
        kind: RunKind::Guard,
        folder: folder.clone(),
        body,
        durability: Durability::Relaxed,
        ..NewRun::new(run.clone(), at)
    };
    let status = new.status;
    let mut log = RunLog::create(Arc::clone(workspace.store()), new).await?;
    let progressing = RunState::InProgress(InProgress {
        current: None,
        step: None,
        iteration: 0,
        started_at: at,
        last_activity_at: at,
        context: Value::Null,
        last_progress: None,
    });
    let body = to_value(&progressing).expect("a state is a value");
    let draft = Draft { body, durability: Durability::Relaxed, ..Draft::new(EntryKind::StateChanged, workspace.now()) };
    log.append(draft).await?;
    log.close().await?;
    Ok(RunSummary {
        id: run.clone(),
        name,
        kind: RunKind::Guard,
        status,
        created_at: at,
        updated_at: at,
        parent: None,
        folder,
    })
}

/// Ends the run of a session.
pub(crate) async fn end_run(
    workspace: &Workspace,
    summary: RunSummary,
    outcome: Result<Value, String>,
) -> Result<(), WorkspaceError> {
    let at = workspace.now();
    let (status, state) = match outcome {
        Ok(output) => {
            let done = Completed::new(at, output);
            (RunStatus::Completed, RunState::Completed(done))
        }
        Err(message) => {
            let error_type = "command".to_owned();
            let failed =
                Failed { at, error_type, message, trace: None, recoverable: false, retry_count: 0, step: None };
            (RunStatus::Failed, RunState::Failed(failed))
        }
    };
    let mut log = workspace.log(&summary.id).await?;
    let index = Some(RunSummary { status, updated_at: at, ..summary });
    let body = to_value(&state).expect("a state is a value");
    log.append(Draft { body, index, ..Draft::new(EntryKind::StateChanged, at) }).await?;
    log.close().await?;
    Ok(())
}

/// A tool call, or another piece of an agent's work, that has ended.
pub(crate) struct Execution {
    pub(crate) index: u32,
    pub(crate) input: Value,
    pub(crate) outcome: Result<Value, ToolFailure>,
    pub(crate) started_at: Timestamp,
    pub(crate) took: Duration,
}

impl Execution {
    /// The body of its entry: the record, and what makes it read as a step of the run.
    pub(crate) fn body(self, record: &Record) -> Value {
        let mut body = record.to_value();
        if let Value::Map(fields) = &mut body {
            let hash = blake3::hash(format!("{:?}", self.input).as_bytes()).to_hex().to_string();
            let (output, error) = match self.outcome {
                Ok(output) => (output, Value::Null),
                Err(failure) => (Value::Null, Value::from(failure.message)),
            };
            let took = i64::try_from(self.took.as_millis()).unwrap_or(i64::MAX);
            fields.extend([
                ("index".to_owned(), Value::from(i64::from(self.index))),
                ("input_hash".to_owned(), Value::from(hash)),
                ("input".to_owned(), self.input),
                ("output".to_owned(), output),
                ("error".to_owned(), error),
                ("started_at".to_owned(), Value::from(self.started_at.as_millis())),
                ("duration_ms".to_owned(), Value::from(took)),
                ("attempt".to_owned(), Value::from(1)),
            ]);
        }
        body
    }
}

/// Returns when a checkpoint is due.
async fn due(watcher: Option<&Watcher>, options: SessionOptions) {
    let Some(watcher) = watcher.filter(|watcher| !watcher.exhausted) else {
        return tokio::time::sleep(options.at_least).await;
    };
    while !watcher.wait(Duration::from_millis(500)).await {}
    let first = Instant::now();
    // Until nothing has changed for a while, or it has gone on for long enough.
    while first.elapsed() < options.at_least && watcher.wait(options.quiet_for).await {
        // Many events of one burst are one change.
        tokio::time::sleep(options.quiet_for.min(Duration::from_millis(50))).await;
    }
}
