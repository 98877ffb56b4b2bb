//! Saving in the background: the caller gets a receipt at once and may wait for the acknowledgement.
//!
//! Commits of one run keep their order. Those that queue up while one is being written go in relaxed,
//! and the last of them durable, which makes all of them so: a burst costs one sync. Nothing is
//! acknowledged before that. A full queue makes the next save wait, so a fast producer can't get ahead
//! by more than the queue holds.

use std::sync::Arc;

use piton_types::{Durability, Seq};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::append::submit;
use super::{Draft, RunLog};
use piton_store::{Commit, Head, Store, StoreError};

/// How many saves may be under way.
const QUEUE: usize = 64;

/// A promise of an acknowledgement.
#[derive(Debug)]
pub struct Receipt {
    seq: Seq,
    answer: oneshot::Receiver<Result<Head, StoreError>>,
}

impl Receipt {
    /// The number that the entry will have.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Waits until the entry is as durable as its draft asked.
    pub async fn acknowledged(self) -> Result<Head, StoreError> {
        self.answer.await.unwrap_or_else(|_| Err(lost()))
    }
}

fn lost() -> StoreError {
    StoreError::Unavailable { detail: "the background writer ended before it answered".to_owned() }
}

struct Job {
    commit: Commit,
    answer: oneshot::Sender<Result<Head, StoreError>>,
}

pub(super) struct Background {
    queue: mpsc::Sender<Job>,
    worker: JoinHandle<()>,
}

impl Background {
    fn start(store: Arc<dyn Store>) -> Self {
        let (queue, jobs) = mpsc::channel(QUEUE);
        Self { queue, worker: tokio::spawn(work(store, jobs)) }
    }

    pub(super) fn submit(&self, commit: Commit) -> impl Future<Output = Result<Receipt, StoreError>> + Send + use<> {
        let queue = self.queue.clone();
        async move {
            let (answer, receiver) = oneshot::channel();
            let seq = commit.seq;
            queue.send(Job { commit, answer }).await.map_err(|_| lost())?;
            Ok(Receipt { seq, answer: receiver })
        }
    }

    pub(super) async fn finish(self) -> Result<(), StoreError> {
        drop(self.queue);
        self.worker.await.map_err(|_| lost())
    }
}

async fn work(store: Arc<dyn Store>, mut jobs: mpsc::Receiver<Job>) {
    let mut batch = Vec::with_capacity(QUEUE);
    while jobs.recv_many(&mut batch, QUEUE).await > 0 {
        let durable = batch.iter().any(|job| job.commit.durability == Durability::Durable);
        let last = batch.len() - 1;
        let mut outcomes = Vec::with_capacity(batch.len());
        for (place, job) in batch.iter().enumerate() {
            let mut commit = job.commit.clone();
            commit.durability = if durable && place == last { Durability::Durable } else { Durability::Relaxed };
            outcomes.push(submit(&*store, commit).await);
        }
        // What went in relaxed is only as durable as the commit that was to seal it.
        let seal = outcomes.last().and_then(|outcome| outcome.as_ref().err()).map(ToString::to_string);
        for (job, outcome) in batch.drain(..).zip(outcomes) {
            let outcome = match (&seal, outcome) {
                (Some(detail), Ok(_)) if job.commit.durability == Durability::Durable => {
                    Err(StoreError::Unavailable { detail: detail.clone() })
                }
                (_, outcome) => outcome,
            };
            // The caller may have stopped waiting; the entry is in the log all the same.
            drop(job.answer.send(outcome));
        }
    }
}

impl RunLog {
    /// Appends an entry without waiting for it: the receipt tells when it is durable.
    ///
    /// Entries get there in the order of the calls. If one fails, those behind it fail too, and the log
    /// must be opened again, with the states that were saved in them.
    pub async fn append_in_background(&mut self, mut draft: Draft<'_>) -> Result<Receipt, StoreError> {
        if self.settle().await {
            let head = self.store.head(&self.run).await?;
            if head != Some(self.head) {
                return Err(StoreError::Conflict { run: self.run.clone(), wanted: self.head.seq.next(), head });
            }
        }
        let (commit, accepted) = self.prepare(&mut draft).await?;
        let background = self.background.get_or_insert_with(|| Background::start(Arc::clone(&self.store)));
        let receipt = background.submit(commit).await?;
        self.accept(accepted, &mut draft);
        self.fold_if_due();
        Ok(receipt)
    }
}
