//! Runs that wait for workers, and the worker that takes them (decision 16 of the design).
//!
//! A run is created and put into the store's queue by [`submit`]. A [worker](work) takes it, drives it through a [`Driver`],
//! and then looks at what the log says: what ended leaves the queue, what failed comes back after a pause or stays as a dead
//! letter, what waits for an answer sleeps until [`answer`](crate::answer) wakes it or its time is up. While it waits it
//! takes no worker.
//!
//! A worker that dies tells no one. What it held is due again when its hold ends, by the store's clock; the process that takes
//! it then claims the run by its fence, as every process does.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use piton_log::RunLog;
use piton_store::{Limit, Place, Queue, StoreError, Waiting, WorkerInfo};
use piton_types::{EntryKind, Holder, RunId, RunState, Timestamp};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::{
    Context, Failure, History, LeaseOptions, LeaseWatch, OpenRun, QuestionRecord, RetryPolicy, Run, RunError, Standing,
};

/// How long a worker that looked after the store leaves it alone.
const HOUSE: Duration = Duration::from_secs(60);

/// How often a run that waits for an answer is looked at without having been woken.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// How a run is to wait for a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Submission {
    /// What a worker must have to take it.
    pub labels: BTreeSet<String>,
    /// The larger, the sooner.
    pub priority: i32,
    /// Not before this.
    pub due: Option<Timestamp>,
    /// Runs of one key that may be driven at once.
    pub limit: Option<Limit>,
}

/// Puts a run that exists into the queue. One that is there already stays as it is, and one that is over isn't put there.
/// When this returns, a worker will drive it, whatever happens to this process.
///
/// # Errors
///
/// `Unsupported` from a store without a queue; `NotFound` if there is no such run.
pub async fn submit(context: &Context, run: &RunId, submission: Submission) -> Result<(), RunError> {
    let queue = queue_of(context)?;
    let summary = context.store.summary(run).await?.ok_or_else(|| StoreError::no_run(run))?;
    if summary.status.is_final() || queue.place(run).await?.is_some() {
        return Ok(());
    }
    let due = match submission.due {
        Some(due) => due,
        None => queue.now().await?,
    };
    let waiting = Waiting {
        run: run.clone(),
        labels: submission.labels.into_iter().collect(),
        priority: submission.priority,
        due: Some(due),
        limit: submission.limit,
        attempts: 0,
        problem: None,
    };
    Ok(queue.enqueue(waiting).await?)
}

/// How a run waits in the queue, if it does.
pub async fn place_in_queue(context: &Context, run: &RunId) -> Result<Option<Place>, RunError> {
    match context.store.queue() {
        Some(queue) => Ok(queue.place(run).await?),
        None => Ok(None),
    }
}

/// Tells the queue that there is something new for a run: it is due now, if it is there. Whether it is.
pub async fn wake(context: &Context, run: &RunId) -> Result<bool, RunError> {
    match context.store.queue() {
        Some(queue) => Ok(queue.wake(run).await?),
        None => Ok(false),
    }
}

fn queue_of(context: &Context) -> Result<&dyn Queue, RunError> {
    context.store.queue().ok_or_else(|| StoreError::Unsupported { store: "this store", what: "queue runs" }.into())
}

/// A run that a worker took.
#[derive(Debug, Clone)]
pub struct Taken {
    /// How it waited.
    pub waiting: Waiting,
    /// The holder that it is to be taken over from ([`OpenRun::overdue`]).
    pub overdue: Option<Holder>,
}

/// Drives the runs that a worker takes.
#[async_trait]
pub trait Driver: Send + Sync {
    /// Opens a run and drives it until it ends, waits or is stopped. What it came to is in its log.
    async fn drive(&self, taken: &Taken) -> Result<(), Undriven>;

    /// Stops the runs that it drives, to go on later; steps that run may take so long to end.
    fn stop(&self, grace: Duration);

    /// Looks after the store, if that is due: what needn't be kept is removed. One worker at a time is asked to, now and then, and
    /// goes on taking runs meanwhile. If the worker ends, this is dropped at any await.
    async fn keep_house(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Why a run couldn't be driven; its log says nothing of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undriven {
    /// Another process drives it.
    Held,
    /// Anything else.
    Problem(String),
}

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Its name, what it has, and how many runs it drives at once.
    pub info: WorkerInfo,
    /// For how long it holds a run without a sign of life. It gives one three times as often.
    pub hold: Duration,
    /// How often it looks for work when there is none. A little chance is added.
    pub poll: Duration,
    /// When a run that failed is tried again.
    pub retry: RetryPolicy,
    /// How often a run may take its workers down with it before it is left alone.
    pub deaths: u32,
    /// How long steps may take to end when the worker ends.
    pub grace: Duration,
    /// It ends when nothing is due, or will be soon.
    pub until_empty: bool,
}

impl WorkerOptions {
    /// A worker of this name that drives one run at a time.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            info: WorkerInfo { name: name.into(), labels: Vec::new(), concurrency: 1, holder: None },
            hold: LeaseOptions::default().ttl,
            poll: Duration::from_millis(250),
            retry: RetryPolicy::default(),
            deaths: 20,
            grace: Duration::from_secs(30),
            until_empty: false,
        }
    }
}

/// Works until `drain` is true, another process asks the worker to drain, or, if it was told so, the queue is empty. A store
/// that can't be reached for a while is waited for. Says how many runs it drove.
///
/// On draining, no run is taken any more, those that are being driven are stopped in peace, and what isn't over goes to
/// other workers.
///
/// # Errors
///
/// `Unsupported` from a store without a queue; whatever the store says that trying again can't mend.
pub async fn work(
    context: &Context,
    options: &WorkerOptions,
    driver: Arc<dyn Driver>,
    mut drain: watch::Receiver<bool>,
) -> Result<u64, RunError> {
    let queue = queue_of(context)?;
    let (mut drives, mut count, mut draining) = (JoinSet::new(), 0, false);
    // What is driven, by its task: the hold of nothing else is kept.
    let mut driven = HashMap::new();
    let stopping = Arc::new(AtomicBool::new(false));
    let watch: Arc<Mutex<LeaseWatch>> = Arc::default();
    let options = &WorkerOptions {
        info: WorkerInfo { holder: Some(context.holder.clone()), ..options.info.clone() },
        ..options.clone()
    };
    let (every, mut next_beat) = (options.hold / 3, Duration::ZERO);
    let (mut keeping, mut next_look) = (JoinSet::new(), Duration::ZERO);
    loop {
        if context.clock.monotonic() >= next_beat {
            let runs: Vec<RunId> = driven.values().cloned().collect();
            let asked = patient(queue.alive(&options.info, &runs, options.hold).await)?.unwrap_or(false);
            next_beat = context.clock.monotonic().saturating_add(every);
            if (asked || *drain.borrow()) && !draining {
                draining = true;
                stopping.store(true, Ordering::Relaxed);
                driver.stop(options.grace);
            }
            while keeping.try_join_next().is_some() {}
            let (is_keeping, now) = (!keeping.is_empty(), context.clock.monotonic());
            let looks = !draining && (is_keeping || now >= next_look);
            let keeps = looks && patient(queue.keep(&options.info.name, options.hold).await)? == Some(true);
            if keeps && !is_keeping {
                next_look = now.saturating_add(HOUSE);
                keeping.spawn(keep_house(Arc::clone(&driver)));
            }
        }
        let concurrency = usize::try_from(options.info.concurrency.max(1)).unwrap_or(usize::MAX);
        let mut pause = options.poll.mul_f64(1.0 + 0.25 * chance(context));
        while !draining && drives.len() < concurrency {
            let Some(due) = patient(queue.next_due(&options.info.labels).await)? else { break };
            // What is tried again is due within the longest pause; what is due later waits for a person or a date.
            let nothing_soon = due.is_none_or(|due| due > options.retry.longest);
            if nothing_soon && options.until_empty && drives.is_empty() {
                draining = true;
                break;
            }
            pause = pause.min(due.unwrap_or(pause));
            if !due.is_some_and(|due| due.is_zero()) {
                break;
            }
            // What is due may be beyond its limit, or another worker's by now.
            let Some(taken) = patient(queue.take(&options.info, options.hold).await)?.flatten() else {
                pause = options.poll;
                break;
            };
            count += 1;
            let (context, options) = (context.clone(), options.clone());
            let (driver, stopping, watch) = (Arc::clone(&driver), Arc::clone(&stopping), Arc::clone(&watch));
            let run = taken.run.clone();
            let drive = async move { drive_one(&context, &options, &*driver, taken, &stopping, &watch).await };
            driven.insert(drives.spawn(drive).id(), run);
        }
        if draining && drives.is_empty() {
            break;
        }
        let until_beat = next_beat.saturating_sub(context.clock.monotonic());
        tokio::select! {
            Some(ended) = drives.join_next_with_id() => {
                let task = ended.map_or_else(|error| error.id(), |(task, ())| task);
                driven.remove(&task);
            }
            _ = drain.changed(), if !draining => next_beat = Duration::ZERO,
            () = context.clock.sleep(pause.min(until_beat)) => {}
        }
    }
    queue.leave(&options.info.name).await?;
    Ok(count)
}

async fn keep_house(driver: Arc<dyn Driver>) {
    if let Err(error) = driver.keep_house().await {
        tracing::warn!(%error, "the store could not be looked after");
    }
}

/// Nothing for a store that can't be reached now: a worker outlives that.
fn patient<T>(answer: Result<T, StoreError>) -> Result<Option<T>, RunError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_retryable() => {
            tracing::warn!(%error, "the store can't be reached; the worker goes on trying");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn chance(context: &Context) -> f64 {
    let mut bytes = [0; 4];
    context.random.fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

/// Drives a run that was taken, and puts it where it belongs afterwards. If the store can't be reached then, the worker's hold
/// ends by itself and the run is taken again.
async fn drive_one(
    context: &Context,
    options: &WorkerOptions,
    driver: &dyn Driver,
    taken: Waiting,
    stopping: &AtomicBool,
    watch: &Mutex<LeaseWatch>,
) {
    let run = taken.run.clone();
    let overdue = overdue(context, options, &run, watch).await.unwrap_or_else(|error| {
        tracing::warn!(%run, %error, "it can't be told whether the holder of a run lives");
        None
    });
    let taken = Taken { waiting: taken, overdue };
    let attempts = taken.waiting.attempts;
    let driven = if attempts > options.deaths {
        Err(Undriven::Problem(format!("{} workers that took it came to an end before it did", attempts - 1)))
    } else if nothing_new(context, &run).await.unwrap_or(false) {
        Ok(())
    } else {
        driver.drive(&taken).await
    };
    if let Err(error) = settle(context, options, taken, driven, stopping).await {
        tracing::warn!(%run, %error, "a run could not be put back into the queue; it is due again when the hold ends");
    }
}

/// The holder that a run is taken over from: a worker that gave the store no sign of life for a hold, by the clock of the store,
/// or a process elsewhere whose signs of life this worker saw stand still for as long. What a run's own log says of its holder is
/// not enough: a frozen process lives, and of another host nothing is known.
async fn overdue(
    context: &Context,
    options: &WorkerOptions,
    run: &RunId,
    watch: &Mutex<LeaseWatch>,
) -> Result<Option<Holder>, RunError> {
    // A process that is no worker gives its signs of life by the lease of the run, and not more often than that asks for.
    let ttl = options.hold.max(LeaseOptions::default().ttl);
    let standing = watch.lock().await.look(context, run, ttl).await?;
    if standing == Standing::Free {
        return Ok(None);
    }
    let history = History::of(context, run).await?;
    let Some(holder) = history.claim.map(|(_, claim)| claim.holder).filter(|holder| *holder != context.holder) else {
        return Ok(None);
    };
    let workers = queue_of(context)?.workers().await?;
    let is_silent =
        workers.iter().any(|worker| worker.info.holder.as_ref() == Some(&holder) && worker.silent_for >= options.hold);
    Ok((is_silent || standing == Standing::Stalled).then_some(holder))
}

/// Puts a run where it belongs after it was driven. A worker whose hold ended meanwhile leaves that to the one that has the run now.
async fn settle(
    context: &Context,
    options: &WorkerOptions,
    taken: Taken,
    driven: Result<(), Undriven>,
    stopping: &AtomicBool,
) -> Result<(), RunError> {
    let queue = queue_of(context)?;
    let Taken { waiting: taken, overdue } = taken;
    let history = History::of(context, &taken.run).await?;
    let is_over = history.state.status().is_final();
    let place = queue.place(&taken.run).await?;
    let is_held =
        |place: Place| place.worker.as_ref() == Some(&options.info.name) && place.waiting.attempts == taken.attempts;
    if !is_over && !place.is_some_and(is_held) {
        return Ok(());
    }
    let before = taken.attempts.saturating_sub(1);
    let later = async |taken: Waiting, pause: Duration| -> Result<(), RunError> {
        let due = queue.now().await?.after(pause);
        Ok(queue.enqueue(Waiting { due: Some(due), ..taken }).await?)
    };
    match (&history.state, driven) {
        (RunState::Completed(_) | RunState::Cancelled { .. }, _) => Ok(queue.dequeue(&taken.run).await.map(drop)?),
        (_, Err(Undriven::Held)) => later(Waiting { attempts: before, ..taken }, options.hold / 4).await,
        (RunState::Failed(failed), _) => {
            let again = failed.recoverable && taken.attempts <= options.retry.retries;
            let pause = again.then(|| options.retry.pause(taken.attempts, &*context.random));
            problem(queue, taken, failed.message.clone(), pause).await
        }
        (_, Err(Undriven::Problem(detail))) => {
            let again = taken.attempts <= options.retry.retries;
            let pause = again.then(|| options.retry.pause(taken.attempts, &*context.random));
            if pause.is_none() {
                give_up(context, &taken.run, &detail, overdue).await?;
            }
            problem(queue, taken, detail, pause).await
        }
        (RunState::Waiting(_), Ok(())) => sleep(context, queue, taken, &history).await,
        // It was stopped: by the end of this worker, or by a person, who then says when it goes on.
        (RunState::Paused(_), Ok(())) if !stopping.load(Ordering::Relaxed) => {
            Ok(queue.dequeue(&taken.run).await.map(drop)?)
        }
        (_, Ok(())) => later(Waiting { attempts: before, ..taken }, Duration::ZERO).await,
    }
}

async fn problem(queue: &dyn Queue, taken: Waiting, detail: String, pause: Option<Duration>) -> Result<(), RunError> {
    let due = match pause {
        Some(pause) => Some(queue.now().await?.after(pause)),
        None => None,
    };
    Ok(queue.enqueue(Waiting { due, problem: Some(detail), ..taken }).await?)
}

/// A run that no worker can drive fails, so that a person finds it among those that failed and can try it again.
async fn give_up(context: &Context, run: &RunId, detail: &str, overdue: Option<Holder>) -> Result<(), RunError> {
    let open = OpenRun { id: Some(run.clone()), existing: true, overdue, ..OpenRun::default() };
    Run::open(context, open).await?.fail(Failure::new("undriven", detail)).await
}

/// Whether a run waits for answers and none came: its newest entry is the question, whose time isn't up.
async fn nothing_new(context: &Context, run: &RunId) -> Result<bool, RunError> {
    let log = RunLog::open(Arc::clone(&context.store), run).await?;
    let history = History::read(&log).await?;
    let is_late =
        |question: &QuestionRecord| question.deadline.as_ref().is_some_and(|deadline| deadline.left(context).is_zero());
    Ok(matches!(history.state, RunState::Waiting(_))
        && !history.questions.iter().any(is_late)
        && log.entry(history.head).await?.kind == EntryKind::Asked)
}

/// A run that waits for answers sleeps until one comes or its time is up. It is looked at now and then all the same: a process
/// that answers may die before it wakes the run.
async fn sleep(context: &Context, queue: &dyn Queue, taken: Waiting, history: &History) -> Result<(), RunError> {
    let run = taken.run.clone();
    let deadlines = history.questions.iter().filter_map(|question| question.deadline.as_ref());
    let left = deadlines.map(|deadline| deadline.left(context)).min().unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN);
    let due = Some(queue.now().await?.after(left));
    queue.enqueue(Waiting { due, attempts: 0, problem: None, ..taken }).await?;
    // An answer that came before this is in the log, one that comes later wakes the run.
    if context.store.head(&run).await?.is_some_and(|head| head.seq != history.head) {
        queue.wake(&run).await?;
    }
    Ok(())
}
