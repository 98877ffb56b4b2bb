//! Which runs there are, and who drives them.
//!
//! A run's row is that of its newest entry; where every look is a call, `rows` keeps those of runs at rest. The lease is an
//! object that is replaced if unchanged and never synced: what a power cut leaves of it may be torn, and then the run has
//! no holder. The fence in the log is what keeps an old holder out.

use async_trait::async_trait;
use piton_store::checked::FORMAT;
use piton_store::{Lease, Leases, RunIndex, RunQuery, StoreError};
use piton_types::{Durability, Fence, Holder, RunId, RunSummary};
use serde::{Deserialize, Serialize};

use crate::names::{RUNS, run_of};
use crate::objects::{Objects, change, read};
use crate::readable;
use crate::run::Run;
use crate::store::ObjectStore;

/// `lease.json`.
#[derive(Serialize, Deserialize)]
struct LeaseObject {
    format: u32,
    run: RunId,
    /// The base of the run, so that a new run of the same id begins without a lease.
    base: u64,
    fence: Fence,
    beat: u64,
    holder: Option<Holder>,
}

impl ObjectStore {
    /// The ids of all runs that have a folder. What else lies there is no run.
    pub(crate) async fn all_runs(&self, objects: &dyn Objects) -> Result<Vec<RunId>, StoreError> {
        let listed = objects.list(RUNS, None, usize::MAX).await?;
        let folders = listed.iter().filter(|listed| listed.size.is_none());
        let mut runs: Vec<RunId> = folders.filter_map(|listed| run_of(&listed.name)).collect();
        runs.sort();
        Ok(runs)
    }

    /// The run's row: that of its newest entry or, where that is damaged, the one that `state.json` has. One damaged run must
    /// not hide the others; opening it says what is wrong.
    async fn row(&self, objects: &dyn Objects, run: &Run) -> Result<Option<RunSummary>, StoreError> {
        match run.end(objects, &mut *run.known.lock().await).await {
            Ok(end) => Ok(end.end().map(|end| end.row)),
            Err(error @ StoreError::Corrupt { .. }) => match readable::read_state(objects, run).await {
                Some(row) => {
                    tracing::warn!(run = %run.id, %error, "a run is listed as its state.json has it");
                    Ok(Some(row))
                }
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl RunIndex for ObjectStore {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        self.row(objects, &run).await
    }

    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        let objects = self.objects()?;
        let mut found = Vec::new();
        let runs = match objects.is_remote() {
            true => self.rows(objects).await?,
            false => self.all_runs(objects).await?.into_iter().map(|id| (id, None)).collect(),
        };
        for (id, row) in runs {
            if !id.as_str().starts_with(&query.id_prefix) {
                continue;
            }
            let run = self.run(&id);
            let row = match row {
                Some(row) => Some(row),
                None => self.row(objects, &run).await?,
            };
            let Some(row) = row else { continue };
            if query.admits(&row) && query.after.as_ref().is_none_or(|(at, id)| (row.updated_at, &row.id) < (*at, id)) {
                found.push(row);
            }
        }
        found.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
        found.truncate(query.limit.unwrap_or(usize::MAX));
        Ok(found)
    }
}

#[async_trait]
impl Leases for ObjectStore {
    async fn lease(&self, run: &RunId) -> Result<Option<Lease>, StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        let Some(end) = run.end(objects, &mut *run.known.lock().await).await?.end() else { return Ok(None) };
        let lease = read(objects, &run.names.at("lease.json")).await.map(|read| read.map(|(lease, _)| lease));
        let lease = of_run(lease, &run.id, end.base);
        Ok(lease.and_then(|lease| Some(Lease { fence: lease.fence, holder: lease.holder?, beat: lease.beat })))
    }

    async fn beat(&self, run: &RunId, fence: Fence, holder: &Holder) -> Result<u64, StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        let found = run.end(objects, &mut *run.known.lock().await).await?;
        let end = found.end().ok_or_else(|| StoreError::no_run(&run.id))?;
        change(objects, &run.names.at("lease.json"), Durability::Relaxed, |old| {
            let old = of_run(old, &run.id, end.base);
            let held = old.as_ref().filter(|lease| lease.holder.is_some()).map_or(Fence(0), |lease| lease.fence);
            let current = end.head.fence.max(held);
            if current > fence {
                return Err(StoreError::Fenced { run: run.id.clone(), held: fence, current });
            }
            let beat = old.map_or(0, |lease| lease.beat) + 1;
            let (run, base, holder) = (run.id.clone(), end.base, Some(holder.clone()));
            Ok((Some(LeaseObject { format: FORMAT, run, base, fence, beat, holder }), beat))
        })
        .await
    }

    async fn release(&self, run: &RunId, fence: Fence) -> Result<(), StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        let Some(end) = run.end(objects, &mut *run.known.lock().await).await?.end() else { return Ok(()) };
        change(objects, &run.names.at("lease.json"), Durability::Relaxed, |old| {
            let mine = of_run(old, &run.id, end.base).filter(|lease| lease.fence == fence && lease.holder.is_some());
            Ok((mine.map(|lease| LeaseObject { holder: None, ..lease }), ()))
        })
        .await
    }
}

/// The lease, if it is whole and this run's.
fn of_run(lease: Result<Option<LeaseObject>, StoreError>, run: &RunId, base: u64) -> Option<LeaseObject> {
    lease.ok().flatten().filter(|lease| lease.run == *run && lease.base == base)
}
