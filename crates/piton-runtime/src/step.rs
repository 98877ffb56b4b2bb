//! Steps: work that runs once. Its result is one entry of the log, written when it ends; a step that
//! the log has finished isn't run again.

use std::fmt::{self, Display};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use piton_log::DraftPart;
use piton_types::{Durability, Event, RunId, Seq, StepPath, Timestamp, TokenUsage, Value, from_value, to_value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attempt::Attempt;
use crate::core::Core;
use crate::deadline::millis;
use crate::fact::Fact;
use crate::scope::{Input, Place, hash};
use crate::{Deadline, FailureKind, RetryPolicy, Run, RunError, Scope, StepRecord};

/// A step that ended, to be recorded.
#[derive(Debug)]
pub struct StepDone {
    /// Its place in the run.
    pub path: StepPath,
    /// What it took in.
    pub input: Value,
    /// Whether the log is to tell if a program that comes to the step again brings another input.
    pub is_compared: bool,
    /// What it gave out, or why it failed.
    pub result: Result<Value, String>,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Duration,
    /// In which way it failed, if it did.
    pub failure: FailureKind,
    /// When it is tried again, if it failed and is.
    pub retry: Option<Duration>,
    /// What it used, with all that is inside it.
    pub usage: TokenUsage,
    /// What the engine has counted for the whole run; null if it doesn't count.
    pub tally: Value,
}

impl StepDone {
    /// A step that ended, and isn't tried again if it failed.
    pub fn new(path: StepPath, input: Value, result: Result<Value, String>) -> Self {
        Self {
            path,
            input,
            is_compared: true,
            result,
            started_at: Timestamp::default(),
            duration: Duration::ZERO,
            failure: FailureKind::Work,
            retry: None,
            usage: TokenUsage::default(),
            tally: Value::Null,
        }
    }
}

/// Where the log has a step that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Its entry.
    pub seq: Seq,
    /// Which attempt it was, from 1.
    pub attempt: u32,
}

/// How a step is run.
///
/// ```
/// # use std::{io, sync::{Arc, atomic::{AtomicU32, Ordering}}, time::Duration};
/// # use piton_runtime::{Context, OpenRun, RetryPolicy, Run, RunError, StepOptions};
/// # use piton_store_objects::ObjectStore;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RunError> {
/// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
/// let mut run = Run::open(&context, OpenRun::default()).await?;
/// let options = StepOptions {
///     retry: Some(RetryPolicy { first: Duration::ZERO, ..RetryPolicy::default() }),
///     timeout: Some(Duration::from_secs(30)),
///     ..StepOptions::default()
/// }
/// .retry_if(|error: &io::Error| error.kind() == io::ErrorKind::TimedOut);
/// let calls = AtomicU32::new(0);
/// let found = run
///     .step_with("fetch", options, "bees", async |topic| {
///         let before = calls.fetch_add(1, Ordering::SeqCst);
///         if before < 2 { Err(io::ErrorKind::TimedOut.into()) } else { Ok(topic.len()) }
///     })
///     .await?;
/// assert_eq!((found, calls.into_inner()), (4, 3));
/// # Ok(())
/// # }
/// ```
pub struct StepOptions<E> {
    /// When it is tried again; the run's policy, if nothing is said.
    pub retry: Option<RetryPolicy>,
    /// Which errors of the work are worth another attempt, besides what the policy says.
    pub condition: Option<ErrorCondition<E>>,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
}

/// Whether an error is worth another attempt.
pub type ErrorCondition<E> = Box<dyn Fn(&E) -> bool + Send + Sync>;

impl<E> StepOptions<E> {
    /// Only errors for which `condition` holds are tried again.
    #[must_use]
    pub fn retry_if(mut self, condition: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.condition = Some(Box::new(condition));
        self
    }
}

impl<E> Default for StepOptions<E> {
    fn default() -> Self {
        Self { retry: None, condition: None, timeout: None }
    }
}

impl<E> fmt::Debug for StepOptions<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepOptions")
            .field("retry", &self.retry)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Why a step gave nothing.
///
/// ```
/// # use std::{io, sync::Arc};
/// # use piton_runtime::{Context, OpenRun, RetryPolicy, Run, RunError, StepError};
/// # use piton_store_objects::ObjectStore;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RunError> {
/// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
/// let open = || OpenRun { id: "fetch".parse().ok(), retry: RetryPolicy::NONE, ..OpenRun::default() };
/// let fetch = async |_: &str| Err::<String, _>(io::Error::from(io::ErrorKind::NotFound));
///
/// // While the process lives, the program gets the error of its own work.
/// let mut run = Run::open(&context, open()).await?;
/// let failed = run.step("fetch", "bees", fetch).await;
/// assert!(matches!(failed, Err(StepError::Failed { error, .. }) if error.kind() == io::ErrorKind::NotFound));
/// drop(run);
///
/// // Afterwards it gets what the log has of it, and nothing runs again.
/// let mut run = Run::open(&context, open()).await?;
/// assert!(matches!(run.step("fetch", "bees", fetch).await, Err(StepError::Recorded { attempt: 1, .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum StepError<E> {
    /// The work failed for good in this process, with this error. The log has its words.
    Failed {
        /// The step.
        step: StepPath,
        /// Which attempt it was, from 1.
        attempt: u32,
        /// What the work gave.
        error: E,
    },
    /// The log has the step as failed for good: in an earlier process, or by something other than the work's own error.
    Recorded {
        /// The step.
        step: StepPath,
        /// Which attempt it was, from 1.
        attempt: u32,
        /// In which way it failed.
        kind: FailureKind,
        /// What the log has of it.
        message: String,
    },
    /// The run can't go on here; that says nothing about the work.
    Run(RunError),
}

impl<E: Display> Display for StepError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { step, error, .. } => write!(f, "step {step} failed: {error}"),
            Self::Recorded { step, message, .. } => write!(f, "step {step} failed: {message}"),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl<E: Display + fmt::Debug> std::error::Error for StepError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Run(error) => error.source(),
            _ => None,
        }
    }
}

impl<E> From<RunError> for StepError<E> {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl<E: Display> From<StepError<E>> for RunError {
    fn from(error: StepError<E>) -> Self {
        match error {
            StepError::Failed { step, attempt, error } => {
                Self::Step { step, attempt, kind: FailureKind::Work, message: error.to_string() }
            }
            StepError::Recorded { step, attempt, kind, message } => Self::Step { step, attempt, kind, message },
            StepError::Run(error) => error,
        }
    }
}

/// What one attempt came to.
pub(crate) enum Ending<T> {
    Done(Value, T),
    Failed {
        kind: FailureKind,
        message: String,
        retryable: bool,
    },
    /// It was cut short because the run stops, and runs again when the run goes on.
    Interrupted,
    /// The same, because the run waits or broke.
    Left(RunError),
}

impl Scope {
    /// Runs `work` with `input` and records what it gives; if the log has that already, returns it
    /// without running anything.
    ///
    /// The step's place in the run is `name`; the second use of a name in a scope is `name#2`, and so on:
    /// loops need nothing special. A program must make the same calls in the same order every time it
    /// runs, and is told where it doesn't.
    ///
    /// When it returns `Ok`, the result is as durable as the run. What is returned is always what the
    /// log has: a type that loses something when it is stored shows that the first time, not after a
    /// crash.
    ///
    /// If the work fails or panics, that is recorded, and it is tried again as the run's
    /// [`RetryPolicy`] says; the pause goes on where it was if the process dies in it. What failed for
    /// good stays failed for a process that goes on with the run, so that a program which dealt with it takes
    /// the same way again, until the run itself [failed](Run::fail) of it and is retried. If the process
    /// dies before the result is recorded, the work runs again.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use piton_runtime::{Context, OpenRun, Run, RunError};
    /// # use piton_store_objects::ObjectStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RunError> {
    /// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
    /// let mut run = Run::open(&context, OpenRun::default()).await?;
    /// let mut total = 0;
    /// for topic in ["bees", "wasps"] {
    ///     total += run.step("count", topic, async |topic| Ok::<_, std::io::Error>(topic.len())).await?;
    /// }
    /// assert_eq!(total, 9);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StepError::Failed`] with the work's own error if it fails for good, [`StepError::Recorded`] if it did so in an
    /// earlier process. In [`StepError::Run`]: [`RunError::Changed`] if the log has another call at this place,
    /// [`RunError::Stopped`] if the run was told to stop; after [`RunError::Store`] the run must be opened again. `?`
    /// makes a [`RunError`] of all of them.
    pub async fn step<I, T, E, W>(
        &mut self,
        name: &str,
        input: I,
        work: impl FnMut(I) -> W + Send,
    ) -> Result<T, StepError<E>>
    where
        I: Serialize + Clone + Send + Sync,
        T: Serialize + DeserializeOwned + Send,
        E: Display + Send,
        W: Future<Output = Result<T, E>> + Send,
    {
        self.step_with(name, StepOptions::default(), input, work).await
    }

    /// [`step`](Self::step), with options.
    pub async fn step_with<I, T, E, W>(
        &mut self,
        name: &str,
        options: StepOptions<E>,
        input: I,
        mut work: impl FnMut(I) -> W + Send,
    ) -> Result<T, StepError<E>>
    where
        I: Serialize + Clone + Send + Sync,
        T: Serialize + DeserializeOwned + Send,
        E: Display + Send,
        W: Future<Output = Result<T, E>> + Send,
    {
        let place = self.place(name)?;
        let stored = Input::new(&place.path, &input)?;
        let core = &*self.core;
        let (options, path) = (&options, &place.path);
        // The error of the newest attempt, as the work gave it: the log has only its words.
        let own = Mutex::new(None);
        let attempt = || {
            let (work, own) = (work(input.clone()), &own);
            async move {
                let ended = core.attempt(work, options.timeout).await;
                let (ending, error) =
                    ending(path, ended, |error| options.condition.as_ref().is_none_or(|condition| condition(error)));
                *own.lock().expect("no code that holds this lock panics") = error;
                ending
            }
        };
        let ended = core.run_step(&place, stored, options.retry.as_ref(), None, attempt).await;
        let own = own.into_inner().expect("no code that holds this lock panics");
        ended.map_err(|error| match (error, own) {
            (RunError::Step { step, attempt, .. }, Some(error)) => StepError::Failed { step, attempt, error },
            (RunError::Step { step, attempt, kind, message }, None) => {
                StepError::Recorded { step, attempt, kind, message }
            }
            (error, _) => StepError::Run(error),
        })
    }
}

impl Core {
    /// Brings a step to its end: finds it recorded, or runs `attempt` as often as the policy says.
    pub(crate) async fn run_step<T: DeserializeOwned, W: Future<Output = Ending<T>>>(
        &self,
        place: &Place,
        input: Input,
        policy: Option<&RetryPolicy>,
        child: Option<RunId>,
        mut attempt: impl FnMut() -> W,
    ) -> Result<T, RunError> {
        let (run, step) = (self.id.clone(), place.path.clone());
        let policy = policy.unwrap_or(&self.retry);
        let mut last = self.find(place, &input).await?;
        loop {
            let base = self.known().line.reopened.get(&step).copied();
            let attempts = last.as_ref().map_or(0, |record| record.attempt);
            match last {
                Some(record) if record.is_finished() => {
                    let output = decode(&step, record.output)?;
                    self.events.tell(|| Event::StepSkipped { run, step });
                    return Ok(output);
                }
                Some(record) => match (&record.retry, base) {
                    (Some(due), _) => {
                        self.check_ready()?;
                        self.pause(due.left(&self.context)).await;
                    }
                    (None, Some(base)) if record.attempt == base => {}
                    (None, _) => return Err(failed(record)),
                },
                None => {}
            }
            self.check_alone(&step)?;
            let busy = self.begin().await?;
            self.events.tell(|| Event::StepStarted { run: run.clone(), step: step.clone(), title: None });
            let (started_at, started) = (self.context.clock.now(), self.context.clock.monotonic());
            let ended = attempt().await;
            let mut record = self.blank(place, input.clone(), attempts);
            record.started_at = started_at;
            record.duration_ms = millis(self.context.clock.monotonic().saturating_sub(started));
            record.child.clone_from(&child);
            let done = match ended {
                Ending::Interrupted => {
                    self.end(busy).await?;
                    return Err(self.stopped());
                }
                Ending::Left(error) => {
                    drop(busy);
                    return Err(error);
                }
                Ending::Done(output, value) => {
                    record.output = output;
                    Some(value)
                }
                Ending::Failed { kind, message, retryable } => {
                    let spent = record.attempt - base.unwrap_or(0);
                    if retryable && policy.allows(spent, kind, &message) {
                        record.retry = Some(Deadline::after(&self.context, policy.pause(spent, &*self.context.random)));
                    }
                    record.failure = Some(kind);
                    record.error = Some(message);
                    None
                }
            };
            let duration = Duration::from_millis(record.duration_ms);
            // What failed is looked at again; what is done goes into the log as it is.
            last = done.is_none().then(|| record.clone());
            self.put_down(record, Vec::new(), self.durability).await?;
            if self.alone.is_some() {
                self.known().ran_alone = Some(step.clone());
            }
            if let Some(value) = done {
                let usage = TokenUsage::default();
                self.events.tell(|| Event::StepFinished { run, step, duration, usage });
                self.end(busy).await?;
                return Ok(value);
            }
            if let Some(StepRecord { attempt, error, retry, .. }) = &last {
                self.events.tell(|| {
                    let (run, step, error) = (run.clone(), step.clone(), error.clone().unwrap_or_default());
                    match retry {
                        Some(_) => Event::StepRetried { run, step, attempt: *attempt, error },
                        None => Event::StepFailed { run, step, error },
                    }
                });
            }
            self.end(busy).await?;
        }
    }

    /// A record of the next attempt at a step after so many, without what came of it.
    pub(crate) fn blank(&self, place: &Place, input: Input, attempts: u32) -> StepRecord {
        let mut known = self.known();
        let index = known.begun;
        known.begun += 1;
        StepRecord {
            index,
            place: Some(place.number),
            input_hash: Some(input.hash),
            input: input.value,
            output: Value::Null,
            error: None,
            failure: None,
            retry: None,
            started_at: self.context.clock.now(),
            duration_ms: 0,
            attempt: attempts + 1,
            path: place.path.clone(),
            child: None,
            usage: TokenUsage::default(),
            log: Vec::new(),
            tally: Value::Null,
        }
    }

    /// Records an attempt, with the lines that were written meanwhile.
    pub(crate) async fn put_down(
        &self,
        mut record: StepRecord,
        parts: Vec<DraftPart<'_>>,
        durability: Durability,
    ) -> Result<Seq, RunError> {
        let mut writer = self.writer().await?;
        record.log = self.open_lines();
        self.commit_parts(&mut writer, Fact::Step(Arc::new(record)), parts, durability).await
    }

    /// The record of a step that an engine ran.
    pub(crate) fn record_of(&self, done: StepDone) -> Result<StepRecord, RunError> {
        let input_hash = if done.is_compared { Some(hash(&done.input)?) } else { None };
        let (index, attempts) = {
            let mut known = self.known();
            known.begun += 1;
            // One that ended well and is recorded anew isn't another attempt.
            let last = known.line.steps.get(&done.path).filter(|last| !last.is_finished());
            (known.begun - 1, last.map_or(0, |last| last.attempt))
        };
        let (output, error) = match done.result {
            Ok(output) => (output, None),
            Err(message) => (Value::Null, Some(message)),
        };
        let (failure, retry) = match &error {
            Some(_) => (Some(done.failure), done.retry.map(|pause| Deadline::after(&self.context, pause))),
            None => (None, None),
        };
        Ok(StepRecord {
            path: done.path,
            index,
            place: None,
            input_hash,
            input: done.input,
            output,
            error,
            failure,
            retry,
            started_at: done.started_at,
            duration_ms: millis(done.duration),
            attempt: attempts + 1,
            child: None,
            usage: done.usage,
            log: Vec::new(),
            tally: done.tally,
        })
    }

    /// A step was recorded, which may be the one that is tried out.
    pub(crate) fn ran(&self, path: &StepPath) {
        if self.alone.as_ref().is_some_and(|alone| alone.step.as_ref().is_none_or(|step| step == path)) {
            self.known().ran_alone = Some(path.clone());
        }
    }
}

/// What an attempt came to, with its output as the log will have it, and the error that the work itself gave.
fn ending<T, E>(
    step: &StepPath,
    attempt: Attempt<Result<T, E>>,
    retryable: impl FnOnce(&E) -> bool,
) -> (Ending<T>, Option<E>)
where
    T: Serialize + DeserializeOwned,
    E: Display,
{
    let failed = |kind, message: String| Ending::Failed { kind, message, retryable: true };
    let ending = match attempt {
        Attempt::Ended(Ok(output)) => match store_output(step, &output) {
            Ok((stored, output)) => Ending::Done(stored, output),
            Err(message) => failed(FailureKind::Output, message),
        },
        Attempt::Ended(Err(error)) => {
            let retryable = retryable(&error);
            let ending = Ending::Failed { kind: FailureKind::Work, message: error.to_string(), retryable };
            return (ending, Some(error));
        }
        Attempt::Panicked(said) => failed(FailureKind::Panic, format!("it panicked: {said}")),
        Attempt::TimedOut(limit) => failed(FailureKind::Timeout, format!("it took longer than {limit:?}")),
        Attempt::Interrupted => Ending::Interrupted,
    };
    (ending, None)
}

/// An output as the log will have it, and as it comes back from there.
pub(crate) fn store_output<T: Serialize + DeserializeOwned>(step: &StepPath, output: &T) -> Result<(Value, T), String> {
    let stored = to_value(output).map_err(|error| format!("its output can't be stored: {error}"))?;
    crate::size::check(&stored, || format!("the output of step {step}")).map_err(|error| error.to_string())?;
    let output = from_value(stored.clone()).map_err(|error| format!("its output doesn't come back: {error}"))?;
    Ok((stored, output))
}

fn failed(record: StepRecord) -> RunError {
    RunError::Step {
        step: record.path,
        attempt: record.attempt,
        kind: record.failure.unwrap_or(FailureKind::Work),
        message: record.error.unwrap_or_default(),
    }
}

pub(crate) fn decode<T: DeserializeOwned>(step: &StepPath, output: Value) -> Result<T, RunError> {
    from_value(output).map_err(RunError::value(format!("the output of step {step}")))
}

impl Run {
    /// Records a step that ended. It tells no listener: an engine has its own events, and tells them
    /// when this has returned.
    ///
    /// With any `parts` the entry is a checkpoint too, in the same commit; see
    /// [`checkpoint`](Self::checkpoint). Without, it carries no state.
    pub async fn record(&self, done: StepDone, parts: Vec<DraftPart<'_>>) -> Result<Recorded, RunError> {
        let core = self.core();
        core.recall(&done.path).await?;
        let record = core.record_of(done)?;
        let (attempt, path) = (record.attempt, record.path.clone());
        let seq = core.put_down(record, parts, core.durability).await?;
        core.ran(&path);
        Ok(Recorded { seq, attempt })
    }
}
