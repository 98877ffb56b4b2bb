//! Which runs there are, and who drives them.
//!
//! A run's row is that of its newest entry. Leases are in `lease.json`, which is written in place under a lock
//! and never synced: what a crash leaves of it may be torn, and then nobody holds the run. The fence in the
//! log is what keeps an old holder out.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use async_trait::async_trait;
use piton_types::{Fence, Holder, RunId, RunSummary};
use serde::{Deserialize, Serialize};

use super::names::unescape;
use super::readable::StateFile;
use super::{FileStore, disk};
use crate::checked::{self, FORMAT};
use crate::{Lease, RunIndex, RunQuery, StoreError};

#[derive(Serialize, Deserialize)]
struct LeaseFile {
    format: u32,
    run: RunId,
    fence: Fence,
    beat: u64,
    holder: Option<Holder>,
}

impl LeaseFile {
    fn read(file: &mut File, run: &RunId, path: &Path) -> Result<Option<Self>, StoreError> {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| StoreError::from_io(&error, path))?;
        let lease = checked::open(&bytes, || path.display().to_string());
        Ok(lease.ok().filter(|lease: &Self| lease.run == *run))
    }

    fn write(&self, file: &mut File, path: &Path) -> Result<(), StoreError> {
        let bytes = checked::seal(self)?;
        let written = file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).and_then(|_| file.write_all(&bytes));
        written.map_err(|error| StoreError::from_io(&error, path))
    }
}

impl FileStore {
    /// The ids of all runs that have a folder. What else lies there is nobody's run.
    pub(crate) fn run_ids(&self) -> Result<Vec<RunId>, StoreError> {
        let names = disk::folders(&self.runs())?.unwrap_or_default();
        Ok(names.iter().filter_map(|name| unescape(name)?.parse().ok()).collect())
    }

    fn with_lease<T>(
        &self,
        run: &RunId,
        change: impl FnOnce(Option<LeaseFile>) -> Result<(T, Option<LeaseFile>), StoreError>,
    ) -> Result<T, StoreError> {
        let path = self.run(run).folder.join("lease.json");
        let mut file = disk::private()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| StoreError::from_io(&error, &path))?;
        disk::lock(&file, false, &path)?;
        let before = LeaseFile::read(&mut file, run, &path)?;
        let (answer, after) = change(before)?;
        if let Some(after) = after {
            after.write(&mut file, &path)?;
        }
        Ok(answer)
    }
}

#[async_trait]
impl RunIndex for FileStore {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        self.open_for_reading()?;
        let files = self.run(run);
        let mut known = files.turn();
        Ok(files.end(&mut known.end)?.map(|end| end.row))
    }

    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        self.open_for_reading()?;
        let mut found = Vec::new();
        for run in self.run_ids()? {
            if !run.as_str().starts_with(&query.id_prefix) {
                continue;
            }
            let files = self.run(&run);
            let end = files.end(&mut files.turn().end);
            let row = match end {
                Ok(None) => continue,
                Ok(Some(end)) => end.row,
                // One damaged run must not hide the others; opening it says what is wrong.
                Err(error @ StoreError::Corrupt { .. }) => match StateFile::read(&files) {
                    Some(row) => {
                        tracing::warn!(%run, %error, "a run is listed as its state.json has it");
                        row
                    }
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            };
            if query.admits(&row) && query.after.as_ref().is_none_or(|(at, id)| (row.updated_at, &row.id) < (*at, id)) {
                found.push(row);
            }
        }
        found.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
        found.truncate(query.limit.unwrap_or(usize::MAX));
        Ok(found)
    }

    async fn lease(&self, run: &RunId) -> Result<Option<Lease>, StoreError> {
        self.open_for_reading()?;
        let path = self.run(run).folder.join("lease.json");
        let Some(mut file) = disk::open(&path)? else { return Ok(None) };
        disk::lock(&file, true, &path)?;
        let lease = LeaseFile::read(&mut file, run, &path)?;
        Ok(lease.and_then(|lease| Some(Lease { fence: lease.fence, holder: lease.holder?, beat: lease.beat })))
    }

    async fn beat(&self, run: &RunId, fence: Fence, holder: &Holder) -> Result<u64, StoreError> {
        self.writable()?;
        let files = self.run(run);
        let head = files.end(&mut files.turn().end)?.ok_or_else(|| StoreError::no_run(run))?.head;
        self.with_lease(run, |lease| {
            let held = lease.as_ref().filter(|lease| lease.holder.is_some()).map_or(Fence(0), |lease| lease.fence);
            let current = head.fence.max(held);
            if current > fence {
                return Err(StoreError::Fenced { run: run.clone(), held: fence, current });
            }
            let beat = lease.map_or(0, |lease| lease.beat) + 1;
            let run = run.clone();
            Ok((beat, Some(LeaseFile { format: FORMAT, run, fence, beat, holder: Some(holder.clone()) })))
        })
    }

    async fn release(&self, run: &RunId, fence: Fence) -> Result<(), StoreError> {
        self.writable()?;
        if !super::log::exists(&self.run(run).folder.join("lease.json")) {
            return Ok(());
        }
        self.with_lease(run, |lease| {
            let mine = lease.filter(|lease| lease.fence == fence && lease.holder.is_some());
            Ok(((), mine.map(|lease| LeaseFile { holder: None, ..lease })))
        })
    }
}
