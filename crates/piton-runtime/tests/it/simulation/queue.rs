//! The queue of the simulated store: the rules of the trait, in memory, by the store's own time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use piton_store::{Depth, Place, Queue, StoreError, Waiting, WorkerInfo, WorkerStanding};
use piton_types::{RunId, Timestamp};

use super::time::Time;

#[derive(Default)]
struct Rows {
    waiting: BTreeMap<RunId, Place>,
    workers: BTreeMap<String, (WorkerInfo, i64, bool)>,
}

pub(super) struct SimulatedQueue {
    pub(super) time: Arc<Time>,
    rows: Mutex<Rows>,
    /// The negative control: what a worker held when it died never comes back.
    pub(super) forgets: bool,
}

impl SimulatedQueue {
    pub(super) fn new(time: &Arc<Time>, forgets: bool) -> Self {
        Self { time: Arc::clone(time), rows: Mutex::default(), forgets }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn millis(&self) -> i64 {
        1_700_000_000_000 + self.time.now().as_millis() as i64
    }

    fn after(&self, hold: Duration) -> Option<Timestamp> {
        Some(Timestamp::from_millis(self.millis() + hold.as_millis() as i64))
    }

    /// How many runs are left in it.
    pub(super) fn len(&self) -> usize {
        self.rows().waiting.len()
    }
}

#[async_trait]
impl Queue for SimulatedQueue {
    async fn enqueue(&self, waiting: Waiting) -> Result<(), StoreError> {
        self.rows().waiting.insert(waiting.run.clone(), Place { waiting, worker: None });
        Ok(())
    }

    async fn take(&self, worker: &WorkerInfo, hold: Duration) -> Result<Option<Waiting>, StoreError> {
        let (now, until) = (self.millis(), self.after(hold));
        let mut rows = self.rows();
        let due = |place: &&mut Place| {
            place.waiting.due.is_some_and(|due| due.as_millis() <= now) && !(self.forgets && place.worker.is_some())
        };
        let first =
            rows.waiting.values_mut().filter(due).min_by_key(|place| place.waiting.due.map(Timestamp::as_millis));
        Ok(first.map(|place| {
            place.worker = Some(worker.name.clone());
            place.waiting.attempts += 1;
            place.waiting.due = until;
            place.waiting.clone()
        }))
    }

    async fn dequeue(&self, run: &RunId) -> Result<bool, StoreError> {
        Ok(self.rows().waiting.remove(run).is_some())
    }

    async fn wake(&self, run: &RunId) -> Result<bool, StoreError> {
        Ok(self.rows().waiting.contains_key(run))
    }

    async fn next_due(&self, _: &[String]) -> Result<Option<Duration>, StoreError> {
        let now = self.millis();
        let rows = self.rows();
        let due = rows.waiting.values().filter_map(|place| place.waiting.due).map(Timestamp::as_millis).min();
        Ok(due.map(|due| Duration::from_millis((due - now).max(0).cast_unsigned())))
    }

    async fn place(&self, run: &RunId) -> Result<Option<Place>, StoreError> {
        Ok(self.rows().waiting.get(run).cloned())
    }

    async fn depth(&self) -> Result<Depth, StoreError> {
        Ok(Depth { due: self.len() as u64, ..Depth::default() })
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(Timestamp::from_millis(self.millis()))
    }

    async fn alive(&self, worker: &WorkerInfo, runs: &[RunId], hold: Duration) -> Result<bool, StoreError> {
        let (now, until) = (self.millis(), self.after(hold));
        let mut rows = self.rows();
        for place in rows.waiting.values_mut().filter(|place| runs.contains(&place.waiting.run)) {
            let holds = place.worker.as_ref() == Some(&worker.name);
            if holds && place.waiting.due.is_some_and(|due| due.as_millis() > now) {
                place.waiting.due = until;
            }
        }
        let (info, seen, draining) = rows.workers.entry(worker.name.clone()).or_insert((worker.clone(), now, false));
        (*info, *seen) = (worker.clone(), now);
        Ok(*draining)
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        let now = self.after(Duration::ZERO);
        let mut rows = self.rows();
        for place in rows.waiting.values_mut().filter(|place| place.worker.as_deref() == Some(worker)) {
            (place.worker, place.waiting.due) = (None, now);
        }
        rows.workers.remove(worker);
        Ok(())
    }

    async fn drain(&self, worker: &str) -> Result<bool, StoreError> {
        Ok(self.rows().workers.get_mut(worker).map(|(_, _, draining)| *draining = true).is_some())
    }

    /// No house is kept here.
    async fn keep(&self, _: &str, _: Duration) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn workers(&self) -> Result<Vec<WorkerStanding>, StoreError> {
        let now = self.millis();
        let standing = |(info, seen, draining): &(WorkerInfo, i64, bool)| WorkerStanding {
            info: info.clone(),
            holds: 0,
            silent_for: Duration::from_millis((now - seen).max(0).cast_unsigned()),
            draining: *draining,
        };
        Ok(self.rows().workers.values().map(standing).collect())
    }
}
