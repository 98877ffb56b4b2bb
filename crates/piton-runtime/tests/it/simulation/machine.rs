//! A machine's way to the store: slow, sometimes cut off, frozen or dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use piton_store::{
    Blobs, Commit, Depth, Leases, Log, Place, Queue, RunIndex, Store, StoreError, Waiting, WorkerInfo, WorkerStanding,
    forward,
};
use piton_testing::SeededRandom;
use piton_types::{RunId, Timestamp};

use super::queue::SimulatedQueue;
use super::time::Time;

const WORKS: u8 = 0;
const FROZEN: u8 = 1;
const DEAD: u8 = 2;

pub(super) struct Machine {
    pub(super) inner: Arc<dyn Store>,
    pub(super) queue: Arc<SimulatedQueue>,
    pub(super) time: Arc<Time>,
    pub(super) random: SeededRandom,
    state: AtomicU8,
    /// Calls whose answer was lost, for the count of what was tried.
    pub(super) lost: AtomicU64,
    /// The negative control: an append is acknowledged now and then that wasn't carried out.
    pub(super) forgets: bool,
}

impl Machine {
    pub(super) fn new(inner: &Arc<dyn Store>, queue: &Arc<SimulatedQueue>, seed: u64, forgets: bool) -> Self {
        Self {
            inner: Arc::clone(inner),
            queue: Arc::clone(queue),
            time: Arc::clone(&queue.time),
            random: SeededRandom::new(seed),
            state: AtomicU8::new(WORKS),
            lost: AtomicU64::new(0),
            forgets,
        }
    }

    pub(super) fn freeze(&self) {
        self.state.store(FROZEN, Ordering::SeqCst);
    }

    /// One that died while it was frozen stays dead.
    pub(super) fn thaw(&self) {
        let _ = self.state.compare_exchange(FROZEN, WORKS, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// It does nothing more, ever.
    pub(super) fn die(&self) {
        self.state.store(DEAD, Ordering::SeqCst);
    }

    /// Whatever a frozen or dead process does waits, before it is begun and before its answer is heard.
    async fn lives(&self) {
        loop {
            match self.state.load(Ordering::SeqCst) {
                WORKS => return,
                FROZEN => self.time.sleep(Duration::from_millis(500)).await,
                _ => std::future::pending().await,
            }
        }
    }

    async fn pass<T>(
        &self,
        _name: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.time.activity.fetch_add(1, Ordering::Relaxed);
        let away = || Err(StoreError::Unavailable { detail: "the connection was cut".to_owned() });
        self.time.sleep(Duration::from_millis(self.random.below(8) as u64)).await;
        self.lives().await;
        let answer = match self.random.below(120) {
            0 => away(),
            1 => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                drop(call.await);
                away()
            }
            _ => call.await,
        };
        self.lives().await;
        answer
    }
}

#[async_trait]
impl Log for Machine {
    forward! { via pass: head read }

    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        if self.forgets && self.random.one_in(12) && commits.iter().all(|commit| commit.seq.0 > 1) {
            return self.pass("append", async { Ok(()) }).await;
        }
        self.pass("append", self.inner.append(commits)).await
    }
}

#[async_trait]
impl Blobs for Machine {
    forward! { via pass: stage pin locate pack pack_part }
}

#[async_trait]
impl RunIndex for Machine {
    forward! { via pass: summary list }
}

#[async_trait]
impl Leases for Machine {
    forward! { via pass: lease beat release }
}

#[async_trait]
impl Queue for Machine {
    async fn enqueue(&self, waiting: Waiting) -> Result<(), StoreError> {
        self.pass("enqueue", self.queue.enqueue(waiting)).await
    }

    async fn take(&self, worker: &WorkerInfo, hold: Duration) -> Result<Option<Waiting>, StoreError> {
        self.pass("take", self.queue.take(worker, hold)).await
    }

    async fn dequeue(&self, run: &RunId) -> Result<bool, StoreError> {
        self.pass("dequeue", self.queue.dequeue(run)).await
    }

    async fn wake(&self, run: &RunId) -> Result<bool, StoreError> {
        self.pass("wake", self.queue.wake(run)).await
    }

    async fn next_due(&self, labels: &[String]) -> Result<Option<Duration>, StoreError> {
        self.pass("next_due", self.queue.next_due(labels)).await
    }

    async fn place(&self, run: &RunId) -> Result<Option<Place>, StoreError> {
        self.pass("place", self.queue.place(run)).await
    }

    async fn depth(&self) -> Result<Depth, StoreError> {
        self.pass("depth", self.queue.depth()).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.pass("now", self.queue.now()).await
    }

    async fn alive(&self, worker: &WorkerInfo, runs: &[RunId], hold: Duration) -> Result<bool, StoreError> {
        self.pass("alive", self.queue.alive(worker, runs, hold)).await
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        self.pass("leave", self.queue.leave(worker)).await
    }

    async fn drain(&self, worker: &str) -> Result<bool, StoreError> {
        self.pass("drain", self.queue.drain(worker)).await
    }

    async fn keep(&self, worker: &str, hold: Duration) -> Result<bool, StoreError> {
        self.pass("keep", self.queue.keep(worker, hold)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerStanding>, StoreError> {
        self.pass("workers", self.queue.workers()).await
    }
}

#[async_trait]
impl Store for Machine {
    forward! { capabilities hashing redaction syncs url }
    forward! { via pass: usage close }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }
}
