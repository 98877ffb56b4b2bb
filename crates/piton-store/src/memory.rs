//! The store that forgets: everything in this process's memory. For tests, and for runs whose owner
//! wants steps without persistence. It is also the reference model of the conformance suite: each
//! trait method does the obvious thing under one lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{BlobId, Fence, Holder, RunId, RunSummary, Seq, Timestamp};

use crate::{
    Blobs, Capabilities, Commit, Defect, Era, Hashing, Head, Lease, Log, PackId, PackInfo, PackState, Record, Reliance,
    RunIndex, RunQuery, Section, Segment, SegmentInfo, Span, Store, StoreError, Sweep, Swept, Totals, Upkeep, Usage,
};

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    runs: BTreeMap<RunId, Run>,
    packs: BTreeMap<PackId, Staged>,
    /// The number of the newest pack: none is used again.
    newest_pack: u64,
    era: Era,
    notes: HashMap<String, Bytes>,
    closed: bool,
}

#[derive(Debug)]
struct Staged {
    bytes: Bytes,
    ids: BTreeSet<BlobId>,
    state: PackState,
    runs: BTreeSet<RunId>,
}

impl Inner {
    /// The run, if its log ends there.
    fn at_head(&mut self, id: &RunId, head: Head) -> Result<&mut Run, StoreError> {
        let run = self.runs.get_mut(id).ok_or_else(|| StoreError::no_run(id))?;
        match run.head() {
            now if now == head => Ok(run),
            now => Err(StoreError::Conflict { run: id.clone(), wanted: head.seq, head: Some(now) }),
        }
    }

    /// Adds an entry that may be added.
    fn add(&mut self, commit: Commit) {
        let record =
            Record { seq: commit.seq, hash: commit.hash, fence: commit.fence, entry: commit.entry, pack: commit.pack };
        match self.runs.get_mut(&commit.run) {
            Some(run) => {
                if let Some(summary) = commit.index {
                    run.summary = summary;
                }
                run.summary.updated_at = commit.at;
                run.entries.insert(commit.seq, record);
            }
            None => {
                let summary = commit.index.expect("checked: entry 0 has an index row");
                let run = Run {
                    summary,
                    entries: BTreeMap::from([(commit.seq, record)]),
                    segments: BTreeMap::new(),
                    lease: None,
                };
                self.runs.insert(commit.run, run);
            }
        }
    }

    /// Lets a run rely on packs: what is needed is neither pinned nor condemned.
    fn rely(&mut self, run: &RunId, packs: &[PackId]) -> Result<(), StoreError> {
        if let Some(gone) = packs.iter().find(|pack| !self.packs.contains_key(pack)) {
            return Err(StoreError::NotFound { what: format!("staged pack {}", gone.0) });
        }
        for pack in packs {
            let pack = self.packs.get_mut(pack).expect("looked for just now");
            pack.state = PackState::Kept;
            pack.runs.insert(run.clone());
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Run {
    summary: RunSummary,
    entries: BTreeMap<Seq, Record>,
    segments: BTreeMap<Seq, Segment>,
    lease: Option<Lease>,
}

impl Run {
    fn head(&self) -> Head {
        let (seq, record) = self.entries.last_key_value().expect("the newest entry is never folded");
        Head { seq: *seq, hash: record.hash, fence: record.fence }
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> Result<MutexGuard<'_, Inner>, StoreError> {
        let inner = self.inner.lock().expect("no code that holds this lock panics");
        if inner.closed {
            return Err(StoreError::Unavailable { detail: "the store was closed".to_owned() });
        }
        Ok(inner)
    }
}

#[async_trait]
impl Log for MemoryStore {
    async fn append(&self, commit: Commit) -> Result<(), StoreError> {
        let mut inner = self.lock()?;
        let head = inner.runs.get(&commit.run).map(Run::head);
        commit.check(head)?;
        if commit.era.is_some_and(|era| era < inner.era) {
            return Err(StoreError::EraEnded { run: commit.run, wanted: commit.seq });
        }
        inner.rely(&commit.run, &commit.staged)?;
        inner.add(commit);
        Ok(())
    }

    async fn append_chain(&self, chain: Vec<Commit>) -> Result<(), StoreError> {
        Commit::check_chain(&chain)?;
        let mut inner = self.lock()?;
        if let Some(first) = chain.first() {
            first.check(inner.runs.get(&first.run).map(Run::head))?;
        }
        chain.into_iter().for_each(|commit| inner.add(commit));
        Ok(())
    }

    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError> {
        Ok(self.lock()?.runs.get(run).map(Run::head))
    }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        let inner = self.lock()?;
        let Some(run) = inner.runs.get(run) else { return Err(StoreError::no_run(run)) };
        if span.from > span.to {
            return Ok(Vec::new());
        }
        let found = run.entries.range(span.from..=span.to).map(|(_, record)| Record {
            pack: if span.packs { record.pack.clone() } else { Bytes::new() },
            ..record.clone()
        });
        Ok(if span.newest_first { found.rev().take(span.limit).collect() } else { found.take(span.limit).collect() })
    }

    async fn segments(&self, run: &RunId) -> Result<Vec<SegmentInfo>, StoreError> {
        let inner = self.lock()?;
        let run = inner.runs.get(run).ok_or_else(|| StoreError::no_run(run))?;
        Ok(run.segments.values().map(|segment| segment.info).collect())
    }

    async fn section(&self, run: &RunId, segment: SegmentInfo, section: Section) -> Result<Bytes, StoreError> {
        let inner = self.lock()?;
        let found = inner.runs.get(run).and_then(|run| run.segments.get(&segment.first));
        let Some(found) = found.filter(|found| found.info == segment) else {
            return Err(StoreError::NotFound { what: format!("segment {segment} of run {run}") });
        };
        Ok(match section {
            Section::Entries => found.entries.clone(),
            Section::Index => found.index.clone(),
            Section::Nodes => found.nodes.clone(),
        })
    }

    async fn fold(&self, run: &RunId, segment: Segment) -> Result<(), StoreError> {
        let mut inner = self.lock()?;
        let id = run;
        let run = inner.runs.get_mut(id).ok_or_else(|| StoreError::no_run(id))?;
        let SegmentInfo { first, last } = segment.info;
        let head = run.head();
        let entries: Vec<Seq> = run.entries.range(first..=last).map(|(seq, _)| *seq).collect();
        let segments: Vec<SegmentInfo> = run.segments.range(first..=last).map(|(_, segment)| segment.info).collect();
        let covered = entries.len() as u64 + segments.iter().map(SegmentInfo::len).sum::<u64>();
        if last >= head.seq || covered != segment.info.len() || segments.iter().any(|inner| inner.last > last) {
            return Err(StoreError::Conflict { run: id.clone(), wanted: last, head: Some(head) });
        }
        run.entries.retain(|seq, _| !(first..=last).contains(seq));
        run.segments.retain(|seq, _| !(first..=last).contains(seq));
        run.segments.insert(first, segment);
        Ok(())
    }
}

#[async_trait]
impl Blobs for MemoryStore {
    async fn stage(&self, pack: Bytes, ids: &[BlobId]) -> Result<PackId, StoreError> {
        let mut inner = self.lock()?;
        inner.newest_pack += 1;
        let id = PackId(inner.newest_pack);
        let ids = ids.iter().copied().collect();
        let staged = Staged { bytes: pack, ids, state: PackState::Pinned, runs: BTreeSet::new() };
        inner.packs.insert(id, staged);
        Ok(id)
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        let inner = self.lock()?;
        let find = |id| inner.packs.iter().rfind(|(_, pack)| pack.ids.contains(id)).map(|(number, _)| *number);
        Ok(ids.iter().map(find).collect())
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        let inner = self.lock()?;
        let found = inner.packs.get(&pack).map(|pack| pack.bytes.clone());
        found.ok_or_else(|| StoreError::NotFound { what: format!("staged pack {}", pack.0) })
    }

    async fn pack_part(&self, pack: PackId, from: u64, length: usize) -> Result<Option<Bytes>, StoreError> {
        let whole = self.pack(pack).await?;
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(whole.len());
        Ok(Some(whole.slice(from..from + length.min(whole.len() - from))))
    }

    async fn era(&self) -> Result<Era, StoreError> {
        Ok(self.lock()?.era)
    }
}

#[async_trait]
impl Upkeep for MemoryStore {
    async fn remove(&self, run: &RunId, head: Head) -> Result<(), StoreError> {
        let mut inner = self.lock()?;
        inner.at_head(run, head)?;
        inner.runs.remove(run);
        for pack in inner.packs.values_mut() {
            pack.runs.remove(run);
        }
        Ok(())
    }

    async fn packs(&self, after: Option<PackId>, limit: usize) -> Result<Vec<PackInfo>, StoreError> {
        let inner = self.lock()?;
        let behind = inner.packs.iter().filter(|(id, _)| after.is_none_or(|after| **id > after));
        let info = |(id, pack): (&PackId, &Staged)| PackInfo {
            id: *id,
            state: pack.state,
            size: pack.bytes.len() as u64,
            runs: pack.runs.iter().cloned().collect(),
        };
        Ok(behind.take(limit).map(info).collect())
    }

    async fn pack_ids(&self, pack: PackId) -> Result<Vec<BlobId>, StoreError> {
        let inner = self.lock()?;
        let found = inner.packs.get(&pack).map(|pack| pack.ids.iter().copied().collect());
        found.ok_or_else(|| StoreError::NotFound { what: format!("staged pack {}", pack.0) })
    }

    async fn rely(&self, run: &RunId, head: Head, reliance: Reliance) -> Result<(), StoreError> {
        let mut inner = self.lock()?;
        inner.at_head(run, head)?;
        inner.rely(run, &reliance.also)?;
        for pack in reliance.no_more {
            if let Some(pack) = inner.packs.get_mut(&pack) {
                pack.runs.remove(run);
            }
        }
        Ok(())
    }

    async fn next_era(&self) -> Result<Era, StoreError> {
        let mut inner = self.lock()?;
        inner.era.0 += 1;
        Ok(inner.era)
    }

    async fn condemn(&self, packs: &[PackId], at: Timestamp) -> Result<u64, StoreError> {
        let mut inner = self.lock()?;
        let mut condemned = 0;
        for id in packs {
            if let Some(pack) = inner.packs.get_mut(id)
                && pack.state == PackState::Kept
                && pack.runs.is_empty()
            {
                pack.state = PackState::Condemned(at);
                condemned += 1;
            }
        }
        Ok(condemned)
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        let mut inner = self.lock()?;
        let due: Vec<PackId> = inner.packs.iter().filter(|(_, pack)| pack.is_due(sweep)).map(|(id, _)| *id).collect();
        let mut swept = Swept::default();
        for id in due {
            if swept.bytes >= sweep.bytes {
                swept.more = true;
                break;
            }
            let pack = inner.packs.remove(&id).expect("listed just now");
            swept.packs += 1;
            swept.bytes += pack.bytes.len() as u64;
        }
        Ok(swept)
    }

    async fn note(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        Ok(self.lock()?.notes.get(key).cloned())
    }

    async fn set_note(&self, key: &str, note: Option<Bytes>) -> Result<(), StoreError> {
        let mut inner = self.lock()?;
        match note {
            Some(note) => drop(inner.notes.insert(key.to_owned(), note)),
            None => drop(inner.notes.remove(key)),
        }
        Ok(())
    }

    async fn run_ids(&self) -> Result<Vec<RunId>, StoreError> {
        let mut runs: Vec<RunId> = self.lock()?.runs.keys().cloned().collect();
        runs.sort();
        Ok(runs)
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        let inner = self.lock()?;
        let mut totals = Totals::default();
        for run in inner.runs.values() {
            totals.entries += run.entries.len() as u64;
            totals.entry_bytes += run.entries.values().map(|r| (r.entry.len() + r.pack.len()) as u64).sum::<u64>();
            totals.segments += run.segments.len() as u64;
            let sizes = run.segments.values().map(|s| (s.entries.len() + s.index.len() + s.nodes.len()) as u64);
            totals.segment_bytes += sizes.sum::<u64>();
        }
        totals.packs = inner.packs.len() as u64;
        totals.pack_bytes = inner.packs.values().map(|pack| pack.bytes.len() as u64).sum();
        Ok(totals)
    }

    async fn inspect(&self) -> Result<Vec<Defect>, StoreError> {
        self.lock().map(|_| Vec::new())
    }
}

impl Staged {
    fn is_due(&self, sweep: Sweep) -> bool {
        matches!(self.state, PackState::Condemned(at) if at < sweep.before) && self.runs.is_empty()
    }
}

#[async_trait]
impl RunIndex for MemoryStore {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        Ok(self.lock()?.runs.get(run).map(|run| run.summary.clone()))
    }

    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        let inner = self.lock()?;
        let mut found: Vec<_> = inner
            .runs
            .values()
            .map(|run| &run.summary)
            .filter(|run| query.admits(run))
            .filter(|run| query.after.as_ref().is_none_or(|(at, id)| (run.updated_at, &run.id) < (*at, id)))
            .collect();
        found.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
        Ok(found.into_iter().take(query.limit.unwrap_or(usize::MAX)).cloned().collect())
    }

    async fn lease(&self, run: &RunId) -> Result<Option<Lease>, StoreError> {
        Ok(self.lock()?.runs.get(run).and_then(|run| run.lease.clone()))
    }

    async fn beat(&self, run: &RunId, fence: Fence, holder: &Holder) -> Result<u64, StoreError> {
        let mut inner = self.lock()?;
        let found = inner.runs.get_mut(run).ok_or_else(|| StoreError::no_run(run))?;
        let current = found.lease.as_ref().map_or(found.head().fence, |lease| lease.fence.max(found.head().fence));
        if current > fence {
            return Err(StoreError::Fenced { run: run.clone(), held: fence, current });
        }
        let beat = found.lease.as_ref().map_or(0, |lease| lease.beat) + 1;
        found.lease = Some(Lease { fence, holder: holder.clone(), beat });
        Ok(beat)
    }

    async fn release(&self, run: &RunId, fence: Fence) -> Result<(), StoreError> {
        let mut inner = self.lock()?;
        if let Some(run) = inner.runs.get_mut(run)
            && run.lease.as_ref().is_some_and(|lease| lease.fence == fence)
        {
            run.lease = None;
        }
        Ok(())
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { persistent: false, shared: false, sync: false, ..Capabilities::ALL }
    }

    fn hashing(&self) -> &Hashing {
        &Hashing::PLAIN
    }

    fn url(&self) -> String {
        "memory:".to_owned()
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        let Totals { entry_bytes, segment_bytes, pack_bytes, .. } = self.totals().await?;
        Ok(Usage { runs: self.lock()?.runs.len() as u64, bytes: entry_bytes + segment_bytes + pack_bytes })
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.lock()?.closed = true;
        Ok(())
    }
}
