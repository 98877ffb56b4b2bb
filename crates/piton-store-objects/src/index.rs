//! Which runs there are, and who drives them.
//!
//! A run's row is that of its newest entry. The lease is an object that is replaced if unchanged and never synced: what
//! a power cut leaves of it may be torn, and then the run has no holder. The fence in the log is what keeps an old
//! holder out.

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::checked::{self, FORMAT};
use piton_store::{Lease, RunIndex, RunQuery, StoreError};
use piton_types::{Durability, Fence, Holder, RunId, RunSummary};
use serde::{Deserialize, Serialize};

use crate::names::{RUNS, run_of};
use crate::objects::{Objects, Part, Version};
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

impl LeaseObject {
    fn seal(&self) -> Result<Bytes, StoreError> {
        Ok(checked::seal(self)?.into())
    }
}

async fn read_lease(
    objects: &dyn Objects,
    run: &Run,
    base: u64,
) -> Result<(Option<LeaseObject>, Option<Version>), StoreError> {
    let Some(object) = objects.get(&run.names.lease(), Part::Whole).await? else { return Ok((None, None)) };
    let lease = checked::open(&object.bytes, String::new).ok();
    let lease = lease.filter(|lease: &LeaseObject| lease.run == run.id && lease.base == base);
    Ok((lease, Some(object.version)))
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
}

#[async_trait]
impl RunIndex for ObjectStore {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        let mut known = run.known.lock().await;
        Ok(run.end(objects, &mut known).await?.end().map(|end| end.row))
    }

    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        let objects = self.objects()?;
        let mut found = Vec::new();
        for id in self.all_runs(objects).await? {
            if !id.as_str().starts_with(&query.id_prefix) {
                continue;
            }
            let run = self.run(&id);
            let row = match run.end(objects, &mut *run.known.lock().await).await {
                Ok(end) => end.end().map(|end| end.row),
                // One damaged run must not hide the others; opening it says what is wrong.
                Err(error @ StoreError::Corrupt { .. }) => match readable::read_state(objects, &run).await {
                    Some(row) => {
                        tracing::warn!(run = %id, %error, "a run is listed as its state.json has it");
                        Some(row)
                    }
                    None => return Err(error),
                },
                Err(error) => return Err(error),
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

    async fn lease(&self, run: &RunId) -> Result<Option<Lease>, StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        let Some(end) = run.end(objects, &mut *run.known.lock().await).await?.end() else { return Ok(None) };
        let (lease, _) = read_lease(objects, &run, end.base).await?;
        Ok(lease.and_then(|lease| Some(Lease { fence: lease.fence, holder: lease.holder?, beat: lease.beat })))
    }

    async fn beat(&self, run: &RunId, fence: Fence, holder: &Holder) -> Result<u64, StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        loop {
            let found = run.end(objects, &mut *run.known.lock().await).await?;
            let end = found.end().ok_or_else(|| StoreError::no_run(&run.id))?;
            let (old, version) = read_lease(objects, &run, end.base).await?;
            let held = old.as_ref().filter(|lease| lease.holder.is_some()).map_or(Fence(0), |lease| lease.fence);
            let current = end.head.fence.max(held);
            if current > fence {
                return Err(StoreError::Fenced { run: run.id.clone(), held: fence, current });
            }
            let beat = old.map_or(0, |lease| lease.beat) + 1;
            let (run_id, base, holder) = (run.id.clone(), end.base, Some(holder.clone()));
            let bytes = LeaseObject { format: FORMAT, run: run_id, base, fence, beat, holder }.seal()?;
            let name = run.names.lease();
            let done = match version {
                None => objects.create(&name, bytes, Durability::Relaxed).await?,
                Some(version) => objects.replace(&name, bytes, &version, Durability::Relaxed).await?,
            };
            if done {
                return Ok(beat);
            }
        }
    }

    async fn release(&self, run: &RunId, fence: Fence) -> Result<(), StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        loop {
            let Some(end) = run.end(objects, &mut *run.known.lock().await).await?.end() else { return Ok(()) };
            let (Some(lease), Some(version)) = read_lease(objects, &run, end.base).await? else { return Ok(()) };
            if lease.fence != fence || lease.holder.is_none() {
                return Ok(());
            }
            let bytes = LeaseObject { holder: None, ..lease }.seal()?;
            if objects.replace(&run.names.lease(), bytes, &version, Durability::Relaxed).await? {
                return Ok(());
            }
        }
    }
}
