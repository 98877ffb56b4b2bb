//! An agent at work in the folder: a run that this process drives, whose checkpoints bracket what the agent does (W7, W8).
//! Or a companion of a run that another part of the program drives: then only the checkpoints of the files are its own.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_runtime::{Ending, Failure, OpenRun, Order, RequestRecord, Run};
use piton_types::{
    BlobId, CheckpointKind, CheckpointRef, EntryKind, RunId, RunKind, StepPath, Timestamp, Value, Verification,
};
use tokio::sync::watch::Receiver;

use crate::record::{Record, Role};
use crate::scan::Progress;
use crate::snapshot::{Collapsed, NewMoment, Saved, Snapshot};
use crate::watch::Watcher;
use crate::{Goal, RestoreOptions, RestoreResult, Side, Workspace, WorkspaceError};

/// When checkpoints are made by themselves.
#[derive(Debug, Clone, Copy)]
pub struct SessionOptions {
    /// This long after the last change.
    pub quiet_for: Duration,
    /// At least this often while something changes, and when changes can't be watched. What checkpoints cost comes
    /// first: they never take more than a tenth of the time, except at a move of git's.
    pub at_least: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { quiet_for: Duration::from_secs(2), at_least: Duration::from_secs(10) }
    }
}

/// After a checkpoint there is none for this many times what it took.
const REST: u32 = 9;

/// How closely checkpoints followed what an agent did.
#[derive(Debug, Default)]
pub struct Coverage {
    /// How many were made while it worked.
    pub checkpoints: u32,
    /// The longest time that a change waited for one. What came and went within that time may be in none.
    pub longest_gap: Duration,
    /// Why the last one that failed could not be made.
    pub problem: Option<WorkspaceError>,
}

impl Coverage {
    /// A checkpoint was made, or the agent ended, and a change had waited since `first`.
    fn waited_since(&mut self, first: Option<Instant>) {
        self.longest_gap = self.longest_gap.max(first.map_or(Duration::ZERO, |first| first.elapsed()));
    }
}

/// An agent at work.
#[derive(Debug)]
pub struct Session {
    workspace: Workspace,
    run: RunId,
    /// The handle that drives the run, if the run was made for the session. It renews the lease.
    driven: Option<Run>,
    opened: Saved,
    last: BlobId,
    steps: u32,
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
    /// Most of the files that were captured at the start are gone.
    pub collapsed: Option<Collapsed>,
    /// What its run was asked to do and now has done: it is stopped or cancelled, whatever came of the work.
    pub obeyed: Option<Order>,
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
    /// Badly, and what it did has been taken back; edits of other writers were not touched.
    RolledBack {
        /// Why.
        failure: ToolFailure,
        /// What was done.
        restored: Box<RestoreResult>,
    },
    /// Badly, and what it did could not be taken back without touching another writer's edits.
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
    /// Begins: a run with an id of its own is created and claimed, and the files are checkpointed.
    pub async fn begin(workspace: &Workspace, name: &str) -> Result<Self, WorkspaceError> {
        let context = workspace.context();
        let run = RunId::generate(context.clock.now(), &*context.random);
        Self::begin_as(workspace, run, name, Value::Null, &Arc::default()).await
    }

    /// [Begins](Self::begin) under an id that the caller chose, and tells of its progress. A session of that id that was
    /// killed begins again.
    pub async fn begin_as(
        workspace: &Workspace,
        run: RunId,
        name: impl Into<String>,
        input: Value,
        progress: &Arc<Progress>,
    ) -> Result<Self, WorkspaceError> {
        let open = OpenRun {
            id: Some(run.clone()),
            name: name.into(),
            kind: RunKind::Guard,
            folder: Some(workspace.folder_text()),
            body: input,
            ..OpenRun::default()
        };
        let driven = Run::open(workspace.context(), open).await?;
        let moment = NewMoment { fence: Some(driven.fence()), ..opening(&run) };
        match workspace.save_moment(moment, progress).await {
            Ok(opened) => Ok(Self::with(workspace, run, Some(driven), opened)),
            Err(error) => {
                driven.fail(failure("the files could not be checkpointed".to_owned())).await?;
                Err(error)
            }
        }
    }

    /// Goes along with a run that exists and that another handle drives: its log gets the checkpoints of the files, each
    /// with the state that the run has by then. The run's state is the driver's alone.
    pub async fn join(workspace: &Workspace, run: RunId, progress: &Arc<Progress>) -> Result<Self, WorkspaceError> {
        let opened = workspace.save_moment(opening(&run), progress).await?;
        Ok(Self::with(workspace, run, None, opened))
    }

    fn with(workspace: &Workspace, run: RunId, driven: Option<Run>, opened: Saved) -> Self {
        let last = opened.snapshot.tree;
        Self { workspace: workspace.clone(), run, driven, opened, last, steps: 0 }
    }

    /// A checkpoint of this session, fenced if the session drives its run.
    fn moment(&self, record: Record) -> NewMoment {
        let record = Record { run: Some(self.run.clone()), ..record };
        NewMoment { fence: self.driven.as_ref().map(Run::fence), ..NewMoment::new(record) }
    }

    /// Its run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// What others ask its run to do, if the run was made for the session: when the session ends, that is done.
    pub fn orders(&self) -> Option<Receiver<Option<RequestRecord>>> {
        self.driven.as_ref().map(Run::orders)
    }

    /// The checkpoint at the start.
    pub fn opened(&self) -> &Saved {
        &self.opened
    }

    /// Checkpoints the files if they changed.
    pub async fn checkpoint(&mut self, description: &str) -> Result<Option<Saved>, WorkspaceError> {
        let moment = self.moment(Record::new(CheckpointKind::Auto, Role::Saved, description));
        let saved = self.workspace.save_unless(Some(self.last), moment, &Arc::default()).await?;
        if let Some(saved) = &saved {
            self.last = saved.snapshot.tree;
        }
        Ok(saved)
    }

    /// Ends: a last checkpoint, and the run is completed or failed, unless it is another's.
    pub async fn end(self, outcome: Result<Value, String>) -> Result<SessionEnd, WorkspaceError> {
        self.end_with(outcome, &Arc::default()).await
    }

    /// [Ends](Self::end), and tells of its progress.
    pub async fn end_with(
        self,
        outcome: Result<Value, String>,
        progress: &Arc<Progress>,
    ) -> Result<SessionEnd, WorkspaceError> {
        let since = self.opened.checkpoint.clone();
        let role = Role::Closed { since: since.clone(), before: self.opened.snapshot.tree };
        let moment = self.moment(Record::new(CheckpointKind::Session, role, ""));
        let closed = match self.workspace.save_moment(moment, progress).await {
            Ok(closed) => closed,
            Err(error) => {
                // If the store is to blame, that can't be written either.
                let _ = self.abandon("the last checkpoint of the files could not be made").await;
                return Err(error);
            }
        };
        let (before, after) = (self.opened.snapshot, closed.snapshot);
        let request = self.driven.as_ref().and_then(|run| run.orders().borrow().clone());
        let obeyed = request.map(|request| request.order);
        let collapsed = Collapsed::between(&before, &after, 0);
        let end = SessionEnd { opened: since, before, closed: closed.checkpoint, after, collapsed, obeyed };
        match (self.driven, outcome) {
            (Some(run), _) if obeyed.is_some() => run.obey().await?,
            (Some(run), Ok(output)) => {
                let changes =
                    self.workspace.detect_changes(before, Side::Stored(after), &Arc::default()).await?.changes;
                let files_modified = changes.iter().map(|change| change.path.to_string()).collect();
                run.complete_as(output, Ending { files_modified, ..Ending::default() }).await?;
            }
            (Some(run), Err(message)) => run.fail(failure(message)).await?,
            (None, _) => {}
        }
        Ok(end)
    }

    /// Goes on in another folder that took the place of the one that it began in, as after a new clone.
    pub fn move_to(&mut self, workspace: &Workspace) {
        self.workspace = workspace.clone();
    }

    /// Records what came of a check of the session's work.
    pub async fn verified(&self, check: Verification) -> Result<(), WorkspaceError> {
        match &self.driven {
            Some(run) => Ok(run.verified(check).await?),
            None => Ok(()),
        }
    }

    /// Ends without a last checkpoint, because the folder is gone: the run has failed, unless it is another's.
    pub async fn abandon(self, why: impl Into<String>) -> Result<(), WorkspaceError> {
        match self.driven {
            Some(run) => Ok(run.fail(failure(why.into())).await?),
            None => Ok(()),
        }
    }

    /// A checkpoint before a tool call.
    pub async fn create_pre_tool_checkpoint(&mut self, call: ToolCall) -> Result<PreTool, WorkspaceError> {
        let moment = self.moment(Record {
            path: Some(call.step.clone()),
            tool: Some(call.tool.clone()),
            ..Record::new(CheckpointKind::PreTool, Role::Opened, "")
        });
        let saved = self.workspace.save_moment(moment, &Arc::default()).await?;
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
            path: Some(pre.call.step.clone()),
            tool: Some(pre.call.tool.clone()),
            ..Record::new(CheckpointKind::PreTool, role, "")
        };
        let NewMoment { record, fence, .. } = self.moment(record);
        let took = pre.started.elapsed();
        let execution = Execution { index: self.steps, input: pre.call.input, outcome, started_at: pre.saved.at, took };
        self.steps += 1;
        let moment = NewMoment { fence, ..execution.into_moment(record) };
        let saved = self.workspace.save_moment(moment, &Arc::default()).await?;
        self.last = saved.snapshot.tree;
        Ok(saved.checkpoint)
    }

    /// Takes back what a step did, and nothing else.
    pub async fn roll_back(&mut self, step: &CheckpointRef) -> Result<RestoreResult, WorkspaceError> {
        let goal = Goal::Undo(Some(step.clone()));
        self.workspace.restore_to(&goal, &RestoreOptions::default(), &Arc::default()).await
    }

    /// Runs a tool between two checkpoints. After a failure that can't be recovered from, what the tool did is
    /// taken back by itself, as far as that touches no other writer's edits.
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

    /// Runs an agent, with checkpoints whenever its files have changed and come to rest, at least every
    /// [`at_least`](SessionOptions::at_least) while they change, and at once when git moves HEAD, its index or a ref.
    /// What goes wrong with those doesn't stop the agent; the last such error is given back with what it gave.
    pub async fn run_with_checkpoints<T>(
        &mut self,
        options: SessionOptions,
        agent: impl Future<Output = T>,
    ) -> (T, Coverage) {
        let mut agent = std::pin::pin!(agent);
        let mut coverage = Coverage::default();
        let mut watcher = match Watcher::new() {
            Some(watcher) => watcher.watch(&self.workspace, self.last).await.ok(),
            None => None,
        };
        let mut rested = Instant::now();
        loop {
            // When the first change was noticed that no checkpoint has.
            let mut first = None;
            tokio::select! {
                biased;
                given = &mut agent => {
                    coverage.waited_since(first);
                    return (given, coverage);
                }
                () = due(watcher.as_ref(), options, rested, &mut first) => {}
            }
            // The agent goes on meanwhile: it is only looked at between two awaits of ours.
            let taken = watcher.take();
            let started = Instant::now();
            let checkpoint = async {
                let saved = self.checkpoint("").await;
                let took = started.elapsed();
                let watching = match (taken, &saved) {
                    (Some(watching), Ok(Some(saved))) => {
                        watching.watch(&self.workspace, saved.snapshot.tree).await.ok()
                    }
                    (watching, _) => watching,
                };
                (saved, watching, took)
            };
            let mut checkpoint = std::pin::pin!(checkpoint);
            let (given, (saved, watching, took)) = tokio::select! {
                given = &mut agent => (Some(given), checkpoint.await),
                done = &mut checkpoint => (None, done),
            };
            (watcher, rested) = (watching, Instant::now() + took * REST);
            match saved {
                Ok(Some(_)) => {
                    coverage.checkpoints += 1;
                    coverage.waited_since(first);
                }
                Ok(None) => {}
                Err(problem) => {
                    coverage.waited_since(first);
                    coverage.problem = Some(problem);
                }
            }
            if let Some(given) = given {
                return (given, coverage);
            }
        }
    }
}

/// The checkpoint that begins a session.
fn opening(run: &RunId) -> NewMoment {
    NewMoment::new(Record { run: Some(run.clone()), ..Record::new(CheckpointKind::Session, Role::Opened, "") })
}

fn failure(message: String) -> Failure {
    Failure { recoverable: false, ..Failure::new("command", message) }
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
    /// The checkpoint that ends it: the record, and what makes it read as a step of the run.
    pub(crate) fn into_moment(self, record: Record) -> NewMoment {
        let hash = blake3::hash(format!("{:?}", self.input).as_bytes()).to_hex().to_string();
        let (output, error) = match self.outcome {
            Ok(output) => (output, Value::Null),
            Err(failure) => (Value::Null, Value::from(failure.message)),
        };
        let took = i64::try_from(self.took.as_millis()).unwrap_or(i64::MAX);
        NewMoment { kind: EntryKind::StepDone, ..NewMoment::new(record) }
            .with("index", Value::from(i64::from(self.index)))
            .with("input_hash", Value::from(hash))
            .with("input", self.input)
            .with("output", output)
            .with("error", error)
            .with("started_at", Value::from(self.started_at.as_millis()))
            .with("duration_ms", Value::from(took))
            .with("attempt", Value::from(1))
    }
}

/// Returns when a checkpoint is due, not before `rested`; a move of git's waits for nothing. `first` becomes when the
/// first change was noticed.
async fn due(watcher: Option<&Watcher>, options: SessionOptions, rested: Instant, first: &mut Option<Instant>) {
    let rest = async || tokio::time::sleep_until(rested.into()).await;
    let Some(watcher) = watcher.filter(|watcher| !watcher.exhausted) else {
        *first = Some(Instant::now());
        tokio::time::sleep(options.at_least).await;
        return rest().await;
    };
    let changed = async {
        watcher.changed().await;
        let noticed = *first.insert(Instant::now());
        // Until nothing has changed for a while, or it has gone on for long enough.
        while let Some(left) = options.at_least.checked_sub(noticed.elapsed()) {
            if !watcher.wait(options.quiet_for.min(left)).await {
                break;
            }
            // Many events of one burst are one change.
            tokio::time::sleep(options.quiet_for.min(left).min(Duration::from_millis(50))).await;
        }
        rest().await;
    };
    tokio::select! {
        () = changed => {}
        () = watcher.git_moved() => {}
    }
}
