//! Flows of named steps under the names that the specification gives them: an *execution* is a run whose program is
//! a list of steps, each of which takes the state and gives the next, with a checkpoint after each.
//!
//! It is a thin layer: everything here is a [`Run`] underneath, and every verb of the command line works on it.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
//! use piton::executions::{
//!     CheckpointManager, ExecutionRecovery, ExecutionTracker, NamedStep, execute_with_checkpoints,
//! };
//! use piton::run::{Outcome, RetryPolicy, Value};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = piton::open("memory:").await?;
//! let (fetched, works) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
//! let steps = {
//!     let (fetched, works) = (Arc::clone(&fetched), Arc::clone(&works));
//!     vec![
//!         NamedStep::new("fetch", move |topic: Value| {
//!             fetched.fetch_add(1, Relaxed);
//!             async move { Ok::<_, std::io::Error>(Value::from(format!("facts on {}", topic.as_str().unwrap_or("?")))) }
//!         }),
//!         NamedStep::new("send", move |facts: Value| {
//!             let works = works.load(Relaxed);
//!             async move { if works { Ok(facts) } else { Err(std::io::Error::other("no network")) } }
//!         })
//!         .with_retry(RetryPolicy::NONE),
//!     ]
//! };
//!
//! // The second step fails: the run is failed, and the first is kept.
//! let id = "report".parse()?;
//! let execution = execute_with_checkpoints(&context, Some(&id), "bees".into(), &steps).await?;
//! assert!(matches!(execution.outcome, Outcome::Failed(_)));
//! let checkpoints = CheckpointManager::new(&context);
//! let last = checkpoints.list_checkpoints(&id).await?.pop().unwrap();
//! assert_eq!((last.step_name.as_deref(), last.state), (Some("fetch"), "facts on bees".into()));
//!
//! // Later, in any process, it goes on from there.
//! works.store(true, Relaxed);
//! let recovery = ExecutionRecovery::new(&context);
//! let execution = recovery.resume_from_checkpoint(&last.id, &steps).await?;
//! assert_eq!(execution.outcome, Outcome::Completed("facts on bees".into()));
//! assert_eq!(fetched.load(Relaxed), 1, "what is done isn't done again");
//! let history = ExecutionTracker::new(&context).get_execution_history(&id).await?;
//! assert_eq!(history.steps.iter().map(|past| past.step.path.as_str()).collect::<Vec<_>>(), ["fetch", "send", "send"]);
//! assert_eq!(history.recovery_attempts, 1);
//! # Ok(())
//! # }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use piton_log::{Content, DraftPart, RunLog, SealedEntry};
use piton_runtime::{
    Context, History, OpenRun, Outcome, Pager, PastEntry, PastStep, RetryPolicy, RolledBack, Run, RunError, StartAt,
    StepDone, StepOptions, WholeHistory, roll_back,
};
use piton_store::StoreError;
use piton_types::{
    CheckpointKind, CheckpointRecord, CheckpointRef, EntryKind, Outcome as CheckpointStatus, PartName, RunId,
    RunStatus, Seq, StepPath, StepRef, Timestamp, TokenUsage, Trigger, Value, from_value,
};

type Work = dyn Fn(Value) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send>> + Send + Sync;

/// A step of a flow: takes the state, gives the next.
#[derive(Clone)]
pub struct NamedStep {
    name: String,
    work: Arc<Work>,
    retry: Option<RetryPolicy>,
}

impl NamedStep {
    /// A step. Its name is its place in the run, so names are unique within a flow.
    pub fn new<W, E>(name: impl Into<String>, work: impl Fn(Value) -> W + Send + Sync + 'static) -> Self
    where
        W: Future<Output = Result<Value, E>> + Send + 'static,
        E: fmt::Display,
    {
        let work = move |state: Value| -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send>> {
            let done = work(state);
            Box::pin(async move { done.await.map_err(|error| error.to_string()) })
        };
        Self { name: name.into(), work: Arc::new(work), retry: None }
    }

    /// Tried again as this says, and not as the run does.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for NamedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedStep").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How an execution stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution {
    /// Its run.
    pub id: RunId,
    /// The state that the last step gave, or why it isn't there yet.
    pub outcome: Outcome<Value>,
}

/// Runs steps one after the other, with a checkpoint after each. If there is a run of that id it goes on: steps that
/// are done are skipped.
///
/// # Errors
///
/// As [`Run::drive`]: a step that fails is an outcome, not an error.
pub async fn execute_with_checkpoints(
    context: &Context,
    id: Option<&RunId>,
    input: Value,
    steps: &[NamedStep],
) -> Result<Execution, RunError> {
    let id = id.cloned().unwrap_or_else(|| RunId::generate(context.clock.now(), &*context.random));
    let open = OpenRun { id: Some(id.clone()), name: id.to_string(), body: input, ..OpenRun::default() };
    execute(context, id, open, steps).await
}

async fn execute(context: &Context, id: RunId, open: OpenRun, steps: &[NamedStep]) -> Result<Execution, RunError> {
    let outcome = Run::drive(context, open, async |mut run| {
        let before = Before::of(&run).await?;
        let mut state = run.input().clone();
        for (index, step) in steps.iter().enumerate() {
            let options = StepOptions { retry: step.retry.clone(), ..StepOptions::default() };
            state = run.step_with(&step.name, options, state, async |state| (step.work)(state).await).await?;
            if !before.has_checkpoint(&step.name).await? {
                let new = NewCheckpoint { state: state.clone(), ..NewCheckpoint::after(&step.name, index)? };
                CheckpointManager::new(run.context()).create_checkpoint(&run, new).await?;
            }
        }
        Ok(state)
    })
    .await?;
    Ok(Execution { id, outcome })
}

/// What earlier processes have done.
struct Before {
    history: History,
    /// A crash between a step and its checkpoint leaves the checkpoint to be made.
    unsaved: Option<StepPath>,
}

impl Before {
    async fn of(run: &Run) -> Result<Self, RunError> {
        let log = RunLog::open(Arc::clone(&run.context().store), run.id()).await?;
        let history = History::read(&log).await?;
        let mut unsaved = history.last_finished.clone();
        if let Some(step) = &history.last_finished {
            let ended = history.step_entry(step).await?;
            let mut pager = Pager::new(&log);
            // Behind the step's entry there is its checkpoint, and little else.
            while unsaved.is_some() && pager.cursor().is_some_and(|cursor| Some(cursor.next) > ended) {
                let is_its_own = |past: &PastEntry| {
                    !past.undone && !past.entry.parts.is_empty() && past.entry.label == step.as_str()
                };
                if pager.entries(PAGE).await?.iter().any(is_its_own) {
                    unsaved = None;
                }
            }
        }
        Ok(Self { history, unsaved })
    }

    async fn has_checkpoint(&self, step: &str) -> Result<bool, RunError> {
        let step: StepPath = step.parse()?;
        let is_finished = self.history.step(&step).await?.is_some_and(|record| record.is_finished());
        Ok(is_finished && self.unsaved != Some(step))
    }
}

/// A checkpoint to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCheckpoint {
    /// The step that it follows.
    pub step: Option<StepRef>,
    /// The user's own value.
    pub state: Value,
    /// What the step knew.
    pub context: Value,
    /// Variables.
    pub variables: Value,
    /// Whatever else is to be found again.
    pub metadata: BTreeMap<String, Value>,
}

impl NewCheckpoint {
    /// After a step, with nothing in it yet.
    pub fn after(step_name: &str, step_index: usize) -> Result<Self, RunError> {
        let step = StepRef { path: step_name.parse()?, index: u32::try_from(step_index).unwrap_or(u32::MAX) };
        Ok(Self {
            step: Some(step),
            state: Value::Null,
            context: Value::Null,
            variables: Value::Null,
            metadata: BTreeMap::new(),
        })
    }
}

/// A checkpoint with its content.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Its name: the run and the number of its entry.
    pub id: CheckpointRef,
    /// The run.
    pub execution_id: RunId,
    /// The step that it follows.
    pub step_name: Option<String>,
    /// Which of the flow's steps that is, from 0.
    pub step_index: Option<u32>,
    /// When it was made.
    pub timestamp: Timestamp,
    /// The user's own value.
    pub state: Value,
    /// What the step knew.
    pub context: Value,
    /// Variables.
    pub variables: Value,
    /// How what led to it ended.
    pub status: CheckpointStatus,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// Whatever else was to be found again.
    pub metadata: BTreeMap<String, Value>,
    /// Whether the run was put back to before it, so that it counts no more.
    pub undone: bool,
}

/// The part that a checkpoint's `context` is.
const CONTEXT: &str = "context";
/// How many entries are read at a time.
const PAGE: usize = 256;
/// How often a lost race for the next entry is run again.
const RACES: usize = 16;

/// Makes, loads, lists and deletes checkpoints.
#[derive(Debug, Clone)]
pub struct CheckpointManager {
    context: Context,
}

impl CheckpointManager {
    /// For the runs of this context.
    pub fn new(context: &Context) -> Self {
        Self { context: context.clone() }
    }

    /// Makes a checkpoint of a run that this process drives. It is durable when this returns.
    pub async fn create_checkpoint(&self, run: &Run, new: NewCheckpoint) -> Result<CheckpointRef, RunError> {
        let mut record = CheckpointRecord::new(Trigger::StepCompleted, CheckpointKind::Auto);
        record.description = new.step.as_ref().map(|step| step.path.to_string()).unwrap_or_default();
        record.step = new.step;
        record.metadata = new.metadata;
        let values = [(PartName::APP, &new.state), (CONTEXT, &new.context), (PartName::VARIABLES, &new.variables)];
        let parts = values.into_iter().filter(|(name, value)| *name == PartName::APP || **value != Value::Null);
        let parts = parts.map(|(name, value)| DraftPart {
            name: name.into(),
            schema: format!("piton.{name}"),
            version: 1,
            content: Content::Value(value),
        });
        run.save_checkpoint(&record, parts.collect(), None).await
    }

    /// A checkpoint with its content.
    ///
    /// # Errors
    ///
    /// `NotFound` from the store if there is no such checkpoint, or it was deleted.
    pub async fn load_checkpoint(&self, id: &CheckpointRef) -> Result<Checkpoint, RunError> {
        let log = RunLog::open(Arc::clone(&self.context.store), &id.run).await?;
        let missing = || StoreError::NotFound { what: format!("checkpoint {id}") };
        if id.seq > log.head().seq || is_removed(&log, id.seq).await? {
            return Err(missing().into());
        }
        if log.entry(id.seq).await?.parts.is_empty() {
            return Err(missing().into());
        }
        let mut pager = Pager::new(&log);
        while pager.cursor().is_some_and(|cursor| cursor.next >= id.seq) {
            if let Some(past) = pager.entries(PAGE).await?.iter().find(|past| past.entry.seq == id.seq) {
                return load(&log, &past.entry, past.undone).await;
            }
        }
        Err(missing().into())
    }

    /// The checkpoints of a run, oldest first, without those that were deleted. Those that were undone are marked.
    pub async fn list_checkpoints(&self, execution_id: &RunId) -> Result<Vec<Checkpoint>, RunError> {
        let log = RunLog::open(Arc::clone(&self.context.store), execution_id).await?;
        let (mut pager, mut checkpoints, mut removed) = (Pager::new(&log), Vec::new(), BTreeSet::new());
        while pager.cursor().is_some() {
            let page = pager.entries(PAGE).await?;
            let (page, undone): (Vec<_>, Vec<_>) = page.into_iter().map(|past| (past.entry, past.undone)).unzip();
            removed.extend(log.removed_in(&page).await?.checkpoints);
            let kept = |entry: &SealedEntry| !entry.parts.is_empty() && !removed.contains(&entry.seq);
            for (entry, undone) in page.iter().zip(undone).filter(|(entry, _)| kept(entry)) {
                checkpoints.push(load(&log, entry, undone).await?);
            }
        }
        checkpoints.reverse();
        Ok(checkpoints)
    }

    /// Deletes a checkpoint: it is neither listed nor loaded here any more. To delete it twice does no harm.
    ///
    /// A log is only ever appended to, so this is an entry that says so; retention gives the space back.
    pub async fn delete_checkpoint(&self, id: &CheckpointRef) -> Result<(), RunError> {
        let mut log = RunLog::open(Arc::clone(&self.context.store), &id.run).await?;
        for _ in 0..RACES {
            if id.seq > log.head().seq || is_removed(&log, id.seq).await? {
                return Ok(());
            }
            match log.remove_checkpoints(&[id.seq].into(), "deleted").await {
                Ok(_) => return Ok(()),
                // Another process drives the run; this one writes behind it.
                Err(StoreError::Conflict { .. } | StoreError::Fenced { .. }) => drop(log.refresh().await?),
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Unavailable { detail: "others write to the run all the time".to_owned() }.into())
    }
}

/// Whether an entry behind a checkpoint removes it.
async fn is_removed(log: &RunLog, checkpoint: Seq) -> Result<bool, StoreError> {
    let mut pager = Pager::new(log);
    while pager.cursor().is_some_and(|cursor| cursor.next > checkpoint) {
        let page: Vec<_> = pager.entries(PAGE).await?.into_iter().map(|past| past.entry).collect();
        if log.removed_in(&page).await?.checkpoints.contains(&checkpoint) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn load(log: &RunLog, entry: &SealedEntry, undone: bool) -> Result<Checkpoint, RunError> {
    let part = async |name: &str| match entry.parts.get(&PartName::from(name)) {
        Some(part) => log.load(part).await,
        None => Ok(Value::Null),
    };
    let record = match entry.kind {
        EntryKind::Checkpoint => from_value(log.body(entry).await?).map_err(|error| {
            StoreError::corrupt(format!("the record of checkpoint {}@{}", log.run(), entry.seq), error.to_string())
        })?,
        // A step's entry that carries state.
        _ => CheckpointRecord::new(Trigger::StepCompleted, CheckpointKind::Node),
    };
    let step_name = match (&record.step, entry.kind) {
        (Some(step), _) => Some(step.path.to_string()),
        (None, EntryKind::StepDone) => Some(entry.label.clone()),
        (None, _) => None,
    };
    Ok(Checkpoint {
        id: CheckpointRef { run: log.run().clone(), seq: entry.seq },
        execution_id: log.run().clone(),
        step_name,
        step_index: record.step.as_ref().map(|step| step.index),
        timestamp: entry.at,
        state: part(PartName::APP).await?,
        context: part(CONTEXT).await?,
        variables: part(PartName::VARIABLES).await?,
        status: record.outcome,
        error: record.error,
        metadata: record.metadata,
        undone,
    })
}

/// Goes on with executions that were interrupted or failed, or puts them back.
#[derive(Debug, Clone)]
pub struct ExecutionRecovery {
    context: Context,
}

impl ExecutionRecovery {
    /// For the runs of this context.
    pub fn new(context: &Context) -> Self {
        Self { context: context.clone() }
    }

    /// Goes on from a checkpoint with the steps of the flow; those that were done by then are skipped. If it isn't
    /// the newest, what came after it is done again.
    pub async fn resume_from_checkpoint(
        &self,
        checkpoint: &CheckpointRef,
        steps: &[NamedStep],
    ) -> Result<Execution, RunError> {
        let history = History::of(&self.context, &checkpoint.run).await?;
        let newest = history.checkpoint.as_ref().is_some_and(|(seq, _)| *seq == checkpoint.seq);
        let at = if newest { StartAt::End } else { StartAt::Entry(checkpoint.seq) };
        self.go_on(&checkpoint.run, at, steps).await
    }

    /// Does a step of the flow, counted from 0, and everything after it again, on the state that the steps before it
    /// gave.
    ///
    /// # Errors
    ///
    /// [`RunError::NoSuchStep`] if the flow or the run has no such step.
    pub async fn retry_from_step(
        &self,
        execution_id: &RunId,
        step_index: usize,
        steps: &[NamedStep],
    ) -> Result<Execution, RunError> {
        let step: StepPath = match steps.get(step_index) {
            Some(step) => step.name.parse()?,
            None => {
                let step = format!("number-{step_index}").parse()?;
                return Err(RunError::NoSuchStep { run: execution_id.clone(), step });
            }
        };
        self.go_on(execution_id, StartAt::Step(step), steps).await
    }

    async fn go_on(&self, run: &RunId, at: StartAt, steps: &[NamedStep]) -> Result<Execution, RunError> {
        let open = OpenRun { id: Some(run.clone()), existing: true, at, ..OpenRun::default() };
        execute(&self.context, run.clone(), open, steps).await
    }

    /// Puts a run back to a checkpoint and leaves it paused there. What was done in the world meanwhile stays done;
    /// the answer lists it. For effects that can be taken back see [`roll_back`].
    pub async fn rollback_to_checkpoint(&self, checkpoint: &CheckpointRef) -> Result<RolledBack, RunError> {
        let at = StartAt::Entry(checkpoint.seq);
        roll_back(&self.context, &checkpoint.run, at, async |_, _| {
            Err("this call takes no effect back; use `roll_back` with a function that does".to_owned())
        })
        .await
    }
}

/// What happened in an execution.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionHistory {
    /// Its run.
    pub execution_id: RunId,
    /// When a process first drove it.
    pub start_time: Option<Timestamp>,
    /// When it ended, if it did.
    pub end_time: Option<Timestamp>,
    /// Every attempt at every step, oldest first. Those that were undone are marked.
    pub steps: Vec<PastStep>,
    /// What it used, of what counts.
    pub usage: TokenUsage,
    /// Its checkpoints that count, oldest first.
    pub checkpoints: Vec<CheckpointRef>,
    /// How long it took, or has taken so far.
    pub total_duration: Option<Duration>,
    /// How it stands.
    pub status: RunStatus,
    /// How often it went on after something went wrong, each counted once.
    pub recovery_attempts: u32,
    /// Its newest checkpoint.
    pub last_checkpoint: Option<CheckpointRef>,
}

/// Records steps that something else runs, and tells what happened.
#[derive(Debug, Clone)]
pub struct ExecutionTracker {
    context: Context,
}

impl ExecutionTracker {
    /// For the runs of this context.
    pub fn new(context: &Context) -> Self {
        Self { context: context.clone() }
    }

    /// Records a step that ended well.
    pub async fn track_step(
        &self,
        run: &Run,
        step_name: &str,
        input: Value,
        result: Value,
        duration: Duration,
    ) -> Result<Seq, RunError> {
        self.track(run, step_name, input, Ok(result), duration).await
    }

    /// Records a step that failed.
    pub async fn track_error(
        &self,
        run: &Run,
        step_name: &str,
        input: Value,
        error: &dyn fmt::Display,
    ) -> Result<Seq, RunError> {
        self.track(run, step_name, input, Err(error.to_string()), Duration::ZERO).await
    }

    async fn track(
        &self,
        run: &Run,
        step_name: &str,
        input: Value,
        result: Result<Value, String>,
        duration: Duration,
    ) -> Result<Seq, RunError> {
        let now = self.context.clock.now();
        let started_at =
            Timestamp::from_millis(now.as_millis().saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(0)));
        let done = StepDone { started_at, duration, ..StepDone::new(step_name.parse()?, input, result) };
        Ok(run.record(done, Vec::new()).await?.seq)
    }

    /// What happened, whether or not the process that did it still exists: all of it, so it takes as much memory as the
    /// log has. [`History`] is bounded.
    pub async fn get_execution_history(&self, execution_id: &RunId) -> Result<ExecutionHistory, RunError> {
        let log = RunLog::open(Arc::clone(&self.context.store), execution_id).await?;
        let history = WholeHistory::read(&log).await?;
        let checkpoints = history.checkpoints.iter().filter(|checkpoint| !checkpoint.undone);
        let named = |seq| CheckpointRef { run: execution_id.clone(), seq };
        let steps = history.steps.iter().zip(&history.step_entries).map(|(step, seq)| PastStep {
            seq: *seq,
            undone: history.is_undone(*seq),
            step: Arc::new(step.clone()),
        });
        Ok(ExecutionHistory {
            execution_id: execution_id.clone(),
            start_time: history.started_at,
            end_time: history.ended_at,
            usage: history.usage(&log).await?.unwrap_or_default(),
            checkpoints: checkpoints.map(|checkpoint| named(checkpoint.seq)).collect(),
            total_duration: history.duration(&*self.context.clock),
            status: history.state.status(),
            recovery_attempts: history.recovery_attempts(),
            last_checkpoint: history.last_checkpoint(execution_id),
            steps: steps.collect(),
        })
    }
}
