//! Appending, reading and folding.

use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{Durability, RunId, Seq};

use super::entry::EntryFile;
use super::readable::{self, StateFile};
use super::run::{End, RunFiles};
use super::{FileStore, disk, segment};
use crate::{Commit, Head, Log, Record, Section, Segment, SegmentInfo, Span, StoreError};

#[async_trait]
impl Log for FileStore {
    async fn append(&self, commit: Commit) -> Result<(), StoreError> {
        self.writable()?;
        let files = self.run(&commit.run);
        let durable = commit.durability == Durability::Durable;
        let mut known = files.turn();
        // Refused before anything is made: a run that can't begin leaves no folder.
        if files.end(&mut known.end)?.is_none() {
            commit.check(None)?;
            self.make_run(&files, durable)?;
        }
        let lock = files.lock(&mut known, true)?;
        let lock = lock.ok_or_else(|| StoreError::no_run(&commit.run))?;
        // Nothing can be folded from here on, so a number that is free now was never used.
        let end = files.end(lock.end)?;
        commit.check(end.as_ref().map(|end| end.head))?;
        // What it relies on stays until it is committed.
        let _upkeep = match commit.era.is_some() || !commit.staged.is_empty() {
            true => Some(self.upkeep_lock(true)?),
            false => None,
        };
        if let Some(era) = commit.era
            && era < self.current_era()?
        {
            return Err(StoreError::EraEnded { run: commit.run, wanted: commit.seq });
        }
        if !commit.staged.is_empty() {
            self.let_rely(&files, &commit.staged)?;
        }
        if durable {
            self.sync_all()?;
        }
        let changed = commit.index.is_some();
        let (run, seq) = (commit.run.clone(), commit.seq);
        let mut row = commit.index.clone().or(end.map(|end| end.row)).expect("checked: entry 0 has an index row");
        row.updated_at = commit.at;
        let entry = EntryFile::new(commit, row);
        let bytes = entry.encode()?;
        let folder = if durable { self.scratch() } else { self.unsynced() };
        let prefix = files.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut temporary = self.disk.temporary(&folder, prefix, &[&bytes])?;
        if durable {
            self.disk.sync(temporary.file(), &temporary.path)?;
        }
        if !temporary.link(&files.entry(seq))? {
            *lock.end = None;
            let head = files.end(lock.end)?.map(|end| end.head);
            return Err(StoreError::Conflict { run, wanted: seq, head });
        }
        if durable {
            self.disk.sync_folder(&files.checkpoints())?;
        }
        // A relaxed one keeps its second name until somebody has synced it.
        temporary.keep = !durable;
        *lock.end = Some(End { head: entry.head(), row: entry.row.clone() });
        // From here on it is committed, and what is only for people can't make it fail.
        self.show(&files, lock.told, &entry, changed, durable);
        Ok(())
    }

    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError> {
        self.open_for_reading()?;
        let files = self.run(run);
        let mut known = files.turn();
        Ok(files.end(&mut known.end)?.map(|end| end.head))
    }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        self.open_for_reading()?;
        let files = self.run(run);
        'again: for _ in 0..100 {
            let shape = files.shape()?;
            let wanted = shape.entries.iter().copied().filter(|seq| (span.from..=span.to).contains(seq));
            let wanted: Vec<_> = match span.newest_first {
                true => wanted.rev().take(span.limit).collect(),
                false => wanted.take(span.limit).collect(),
            };
            // As far as was read, nothing may be missing.
            let last = wanted.last().copied().filter(|_| wanted.len() == span.limit);
            match (last, span.newest_first) {
                (Some(last), true) => shape.whole(run, last, span.to)?,
                (Some(last), false) => shape.whole(run, span.from, last)?,
                (None, _) => shape.whole(run, span.from, span.to)?,
            }
            let mut records = Vec::with_capacity(wanted.len());
            for seq in wanted {
                // Folded since: then it is in a segment, and no longer ours to give.
                let Some(bytes) = disk::read(&files.entry(seq))? else { continue 'again };
                records.push(EntryFile::decode(&bytes, run, seq)?.record(span.packs));
            }
            return Ok(records);
        }
        Err(StoreError::Unavailable { detail: format!("run {run} is folded faster than it can be read") })
    }

    async fn segments(&self, run: &RunId) -> Result<Vec<SegmentInfo>, StoreError> {
        self.open_for_reading()?;
        Ok(self.run(run).shape()?.segments)
    }

    async fn section(&self, run: &RunId, info: SegmentInfo, section: Section) -> Result<Bytes, StoreError> {
        self.open_for_reading()?;
        let files = self.run(run);
        // A crash may have left one that a larger one stands for.
        let missing = || StoreError::NotFound { what: format!("segment {info} of run {run}") };
        let shape = files.shape().map_err(|error| match error {
            StoreError::NotFound { .. } => missing(),
            other => other,
        })?;
        match shape.segments.contains(&info) {
            true => segment::read(&files.segment(info), run, info, section),
            false => Err(missing()),
        }
    }

    async fn fold(&self, run: &RunId, segment: Segment) -> Result<(), StoreError> {
        self.writable()?;
        let files = self.run(run);
        let mut known = files.turn();
        let lock = files.lock(&mut known, false)?.ok_or_else(|| StoreError::no_run(run))?;
        let shape = files.try_shape()?;
        let SegmentInfo { first, last } = segment.info;
        shape.whole(run, first, last)?;
        let covered = |seq: &Seq| (first..=last).contains(seq);
        let entries: Vec<_> = shape.entries.iter().copied().filter(covered).collect();
        let inner: Vec<_> = shape.segments.iter().copied().filter(|info| covered(&info.first)).collect();
        let count = entries.len() as u64 + inner.iter().map(SegmentInfo::len).sum::<u64>();
        let newest = *shape.entries.last().expect("a shape has at least one entry");
        if last >= newest || count != segment.info.len() || inner.iter().any(|info| info.last > last) {
            let head = files.end(lock.end)?.map(|end| end.head);
            return Err(StoreError::Conflict { run: run.clone(), wanted: last, head });
        }
        let header = segment::header(run, &segment)?;
        let parts: [&[u8]; 4] = [&header, &segment.entries, &segment.index, &segment.nodes];
        // What it stands for goes only when it is there to stay.
        self.disk.replace(&self.scratch(), &files.segment(segment.info), &parts, true)?;
        let old = inner.into_iter().filter(|info| *info != segment.info).map(|info| files.segment(info));
        let old = old.chain(entries.into_iter().map(|seq| files.entry(seq))).chain(shape.leftovers);
        old.into_iter().try_for_each(|path| disk::remove(&path))
    }
}

impl FileStore {
    /// The folders of a new run.
    fn make_run(&self, files: &RunFiles, durable: bool) -> Result<(), StoreError> {
        disk::make_folder(&files.folder)?;
        disk::make_folder(&files.checkpoints())?;
        disk::make_folder(&files.blobs())?;
        if durable {
            self.disk.sync_folder(&files.folder)?;
            self.disk.sync_folder(&self.runs())?;
        }
        Ok(())
    }

    /// Brings the readable files up to date.
    fn show(&self, files: &RunFiles, told: &mut bool, entry: &EntryFile, changed: bool, durable: bool) {
        let told = readable::tell(files, told, entry).map_err(|error| StoreError::from_io(&error, &files.folder));
        let written = match changed {
            false => Ok(()),
            true => StateFile::encode(entry.seq, entry.row.clone()).and_then(|bytes| {
                self.disk.replace(&self.scratch(), &files.folder.join("state.json"), &[&bytes], durable)
            }),
        };
        if let Err(error) = told.and(written) {
            tracing::warn!(run = %files.run, %error, "the readable files of a run are behind its log");
        }
    }
}

/// Whether a path is there, whatever it is.
pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
