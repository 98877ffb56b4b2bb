//! Runs that wait for workers, and the workers that take them.
//!
//! A run stays in the queue while a worker has it: taking it only moves the time at which it is due to when the worker's
//! hold ends. A worker that lives moves that time on for all that it drives, with one call. One that died, was frozen or cut
//! off doesn't, so what it held is due again by itself: no other process has to find out. All times are the store's, so
//! that the clock of a worker doesn't matter.
//!
//! To have taken a run is no right to drive it: that is its fence, in its log.

use std::time::Duration;

use async_trait::async_trait;
use piton_types::{Holder, RunId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// How a run waits for a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The run.
    pub run: RunId,
    /// What a worker has to have to take it. A worker with more may take it too.
    pub labels: Vec<String>,
    /// The larger, the sooner.
    pub priority: i32,
    /// Not before this, by the store's clock; `None` for a run that no worker takes until it is [woken](Queue::wake).
    pub due: Option<Timestamp>,
    /// Runs of one key that may be held at once.
    pub limit: Option<Limit>,
    /// How often it was taken since it was put in or woken.
    pub attempts: u32,
    /// Why the last attempt came to nothing.
    pub problem: Option<String>,
}

/// At most so many runs with this key are held at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The key.
    pub key: String,
    /// How many.
    pub at_once: u32,
}

/// A run of the queue, for a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// How it waits. While it is held, it is due when the hold ends.
    pub waiting: Waiting,
    /// The worker that holds it.
    pub worker: Option<String>,
}

/// A worker as it says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// Its name: no other worker has it.
    pub name: String,
    /// What it has.
    pub labels: Vec<String>,
    /// How many runs it drives at once.
    pub concurrency: u32,
    /// The process that it is, as it stands in the claims of the runs that it drives.
    #[serde(default)]
    pub holder: Option<Holder>,
}

/// A worker as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStanding {
    /// What it says of itself.
    pub info: WorkerInfo,
    /// How many runs it holds.
    pub holds: u32,
    /// How long ago it gave its last sign of life, by the store's clock.
    pub silent_for: Duration,
    /// Whether it was asked to take no more.
    pub draining: bool,
}

/// Runs that wait for workers. A run is in it once or not at all.
#[async_trait]
pub trait Queue: Send + Sync {
    /// Puts a run into the queue, or changes how it waits there; no worker holds it then. `NotFound` if there is no such
    /// run. Durable when it returns.
    async fn enqueue(&self, waiting: Waiting) -> Result<(), StoreError>;

    /// Takes the next run that is due and asks for none but the worker's labels: of those with the highest priority the one
    /// that is due first. The worker holds it for so long; its attempts are counted up. No two callers get the same while the
    /// hold lasts, and no more of one key than its limit allows.
    async fn take(&self, worker: &WorkerInfo, hold: Duration) -> Result<Option<Waiting>, StoreError>;

    /// Takes a run off the queue, if it is there.
    async fn dequeue(&self, run: &RunId) -> Result<bool, StoreError>;

    /// Makes a run of the queue due now, with no attempts and no problem, unless a worker holds it, which then finds what
    /// is new by itself. Whether it is there.
    async fn wake(&self, run: &RunId) -> Result<bool, StoreError>;

    /// How long until the next run is due that asks for none but these labels, so that a worker knows how long to sleep.
    async fn next_due(&self, labels: &[String]) -> Result<Option<Duration>, StoreError>;

    /// How one run waits.
    async fn place(&self, run: &RunId) -> Result<Option<Place>, StoreError>;

    /// How many runs wait: due now, due later or not before they are woken, held.
    async fn depth(&self) -> Result<Depth, StoreError>;

    /// What time it is for the queue.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// A sign of life: of these runs the worker holds those that it holds for so long from now on. They are the ones that it
    /// drives: what it took without hearing of it isn't among them, and is due again. Whether it was asked to take no more.
    async fn alive(&self, worker: &WorkerInfo, runs: &[RunId], hold: Duration) -> Result<bool, StoreError>;

    /// The worker ends: what it still holds is due now.
    async fn leave(&self, worker: &str) -> Result<(), StoreError>;

    /// Asks a worker to take no more and to end. Whether there is such a worker.
    async fn drain(&self, worker: &str) -> Result<bool, StoreError>;

    /// Lets one worker at a time look after the store: gives that to it for so long, by the store's clock, if no other worker has
    /// it. The one that has it may have it for longer. Whether it has it.
    ///
    /// A worker that is slower than it thought goes on when its time is over, beside the next one. That does no harm, but is done
    /// twice.
    async fn keep(&self, worker: &str, hold: Duration) -> Result<bool, StoreError>;

    /// The workers, by name. One that died stays until another worker has seen it silent for a day.
    async fn workers(&self) -> Result<Vec<WorkerStanding>, StoreError>;
}

/// How many runs are in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Depth {
    /// Due, and held by no worker.
    pub due: u64,
    /// Due later, or not before they are woken.
    pub later: u64,
    /// Held by a worker.
    pub held: u64,
}
