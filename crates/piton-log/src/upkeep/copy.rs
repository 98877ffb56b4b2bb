//! Copying runs from one store into another, entry by entry, with all that they refer to. What is there already is left
//! out, so a copy that was cut short goes on where it ended; and every byte is verified on the way.
//!
//! Between stores that name blobs alike records are taken over as they are; otherwise see `transcribe`.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use piton_types::{BlobId, Durability, PartName, RunId, RunSummary, Seq};

use super::collect::reach_if_there;
use super::transcribe::transcribe_log;
use super::{Reach, Transcript};
use crate::RunLog;
use crate::pack::Pack;
use crate::sealed;
use crate::segment::{SegmentEntries, SegmentIndex, SegmentNodes};
use crate::state::Fresh;
use piton_store::{Commit, Head, PackId, Pin, Record, Section, Segment, SegmentInfo, Span, Store, StoreError};

/// What was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Entries that weren't there.
    pub entries: u64,
    /// Packs that weren't there.
    pub packs: u64,
    /// Bytes of both.
    pub bytes: u64,
}

/// Copies runs from one store into another.
pub struct Copier<'a> {
    from: &'a Arc<dyn Store>,
    to: &'a Arc<dyn Store>,
    reach: &'a dyn Reach,
    transcript: Transcript,
}

impl<'a> Copier<'a> {
    /// From the first into the second.
    pub fn new(from: &'a Arc<dyn Store>, to: &'a Arc<dyn Store>, reach: &'a dyn Reach) -> Self {
        Self { from, to, reach, transcript: Transcript::default() }
    }

    /// Copies a run. If the target has the beginning of it, the rest is added; `Conflict` if it has another run of
    /// that id.
    pub async fn run(&mut self, run: &RunId) -> Result<Copied, StoreError> {
        let log = RunLog::open(Arc::clone(self.from), run).await?;
        // Both name blobs alike: then entries keep their hashes and segments their bytes.
        if self.from.hashing() == self.to.hashing() {
            let summary = log.summary().await?;
            return copy_log([self.from, self.to], &log, summary, self.reach, Care::Everything).await;
        }
        transcribe_log(self.to, &log, self.reach, &mut self.transcript).await
    }
}

impl std::fmt::Debug for Copier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copier").field("from", &self.from.url()).field("to", &self.to.url()).finish_non_exhaustive()
    }
}

/// Copies one run; see [`Copier::run`].
pub async fn copy_run(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    run: &RunId,
    reach: &dyn Reach,
) -> Result<Copied, StoreError> {
    Copier::new(from, to, reach).run(run).await
}

/// What to do about damage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// It is an error.
    Everything,
    /// What is damaged is left out; the entries themselves are whole.
    WhatIsWhole,
}

/// Copies a run up to where `log` ends.
pub(super) async fn copy_log(
    [from, to]: [&Arc<dyn Store>; 2],
    log: &RunLog,
    summary: RunSummary,
    reach: &dyn Reach,
    care: Care,
) -> Result<Copied, StoreError> {
    let (run, end) = (log.run(), log.head());
    let head = to.head(run).await?;
    let mut copy = Copy {
        from,
        to,
        summary,
        staged: Vec::new(),
        pin: Pin::new(),
        head,
        unfolded: None,
        copied: Copied::default(),
        care,
    };
    if let Some(head) = copy.head {
        // The source may be behind: then it has nothing to add.
        let same = head.seq <= end.seq && log.entry(head.seq).await?.hash == head.hash;
        if !same {
            return Err(StoreError::Conflict { run: run.clone(), wanted: head.seq.next(), head: Some(head) });
        }
    }
    copy.stage_packs(log, reach).await?;
    let segments = copy.unless_damaged(from.segments(run).await)?.unwrap_or_default();
    for info in segments.into_iter().filter(|info| info.last <= end.seq) {
        copy.segment(info, end.seq).await?;
    }
    // In a segment that is damaged further on there may be some.
    let rest = copy.head.map_or(Seq(0), |head| head.seq.next());
    let span = Span { from: rest, to: end.seq, packs: true, ..Span::ALL };
    match copy.unless_damaged(from.read(run, span).await)? {
        Some(records) => {
            for record in records {
                copy.entry(record, end.seq).await?;
            }
        }
        // One by one, and without the packs that can't be read.
        None => {
            for seq in (rest.0..=end.seq.0).map(Seq) {
                // Not one more: a look at what follows may meet the damage.
                let one = Span { from: seq, to: seq, limit: 1, ..span };
                let record = match copy.unless_damaged(from.read(run, one).await)? {
                    Some(mut records) => records.pop(),
                    None => from.read(run, Span { packs: false, ..one }).await?.pop(),
                };
                if let Some(record) = record {
                    copy.entry(record, end.seq).await?;
                }
            }
        }
    }
    let head = to.head(run).await?;
    if head != Some(end) {
        return Err(StoreError::Conflict { run: run.clone(), wanted: end.seq, head });
    }
    Ok(copy.copied)
}

struct Copy<'a> {
    from: &'a Arc<dyn Store>,
    to: &'a Arc<dyn Store>,
    summary: RunSummary,
    /// Packs of the target that the next commit is to name.
    staged: Vec<PackId>,
    pin: Pin,
    head: Option<Head>,
    /// A segment whose entries are there already.
    unfolded: Option<Segment>,
    copied: Copied,
    care: Care,
}

impl Copy<'_> {
    /// Stages the packs that the run relies on, said or not.
    async fn stage_packs(&mut self, log: &RunLog, reach: &dyn Reach) -> Result<(), StoreError> {
        let mut packs: BTreeSet<PackId> = BTreeSet::new();
        let entries = match self.unless_damaged(log.entries(Span::ALL).await)? {
            Some(entries) => entries,
            None => {
                let mut whole = Vec::new();
                for seq in (0..=log.head().seq.0).map(Seq) {
                    whole.extend(self.unless_damaged(log.entry(seq).await)?);
                }
                whole
            }
        };
        let removed = self.unless_damaged(log.removed_in(&entries).await)?.unwrap_or_default();
        let named: BTreeSet<PackId> = entries.iter().flat_map(|entry| entry.packs.iter().copied()).collect();
        let named: BTreeSet<PackId> = named.difference(&removed.packs).copied().collect();
        let removed = removed.checkpoints;
        packs.extend(&named);
        let name = PartName::from(PartName::WORKSPACE);
        let (mut snapshots, mut announced) = (Vec::new(), HashSet::new());
        for entry in entries.iter().filter(|entry| !removed.contains(&entry.seq)) {
            if let Some(part) = entry.parts.get(&name)
                && let Some(snapshot) = self.unless_damaged(log.load(part).await)?
            {
                snapshots.push(snapshot);
                let body = self.unless_damaged(log.body(entry).await)?;
                if let Some(snapshot) = body.and_then(|body| reach.announced(&body)) {
                    announced.extend(
                        self.unless_damaged(reach_if_there(self.from, reach, snapshot).await)?.unwrap_or_default(),
                    );
                }
            }
        }
        // One by one if damage is to be passed over.
        let rounds = if self.care == Care::Everything {
            vec![snapshots]
        } else {
            snapshots.into_iter().map(|one| vec![one]).collect()
        };
        for snapshots in rounds.into_iter().filter(|snapshots| !snapshots.is_empty()) {
            let Some(mut blobs) = self.unless_damaged(reach.reach(self.from, snapshots).await)? else { continue };
            blobs.extend(announced.drain());
            let blobs: Vec<BlobId> = blobs.into_iter().collect();
            for some in blobs.chunks(10_000) {
                let Some(places) = self.unless_damaged(self.from.locate(some).await)? else { continue };
                for (id, place) in some.iter().zip(places) {
                    let place = place.ok_or_else(|| StoreError::NotFound { what: format!("blob {id}") });
                    packs.extend(self.unless_damaged(place)?);
                }
            }
        }
        let mut known = HashSet::new();
        for pack in packs {
            let Some(ids) = self.unless_damaged(self.from.pack_ids(pack).await)? else { continue };
            // What an entry names has to be there by that name; of contents it is enough that they are somewhere.
            let places: Option<HashSet<PackId>> = match named.contains(&pack) {
                true => Some(HashSet::from([pack])),
                false => self.to.locate(&ids).await?.into_iter().collect(),
            };
            if let Some(places) = places.filter(|places| !places.is_empty()) {
                let there: Vec<PackId> = places.into_iter().collect();
                match self.to.pin(&there, self.pin).await {
                    Ok(()) => {
                        known.extend(there);
                        continue;
                    }
                    Err(StoreError::PackGone { .. }) => {}
                    Err(other) => return Err(other),
                }
            }
            let Some(bytes) = self.unless_damaged(self.read_pack(pack).await)? else { continue };
            self.copied.packs += 1;
            self.copied.bytes += bytes.len() as u64;
            known.insert(piton_store::stage(&**self.to, bytes, &ids, self.pin).await?);
        }
        self.staged = known.into_iter().collect();
        self.staged.sort_unstable();
        Ok(())
    }

    /// What was read, or nothing if it is damaged and that is to be passed over.
    fn unless_damaged<T>(&self, read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match read {
            Err(StoreError::Corrupt { .. } | StoreError::NotFound { .. }) if self.care == Care::WhatIsWhole => Ok(None),
            other => other.map(Some),
        }
    }

    /// A pack, verified before the target relies on it.
    async fn read_pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        let bytes = piton_store::pack(&**self.from, pack).await?;
        let opened = Pack::open(bytes.clone())?;
        if opened.nodes(|_| None)?.iter().any(|(id, node)| self.to.hashing().blob(node) != *id) {
            return Err(StoreError::corrupt(format!("staged pack {pack}"), "a blob doesn't have its hash"));
        }
        Ok(bytes)
    }

    /// The entries of a segment, the nodes with the first of them, and then the segment in their place.
    async fn segment(&mut self, info: SegmentInfo, end: Seq) -> Result<(), StoreError> {
        let run = self.summary.id.clone();
        if self.to.segments(&run).await.is_ok_and(|there| there.contains(&info)) {
            return Ok(());
        }
        if self.head.is_some_and(|head| head.seq > info.last)
            && self.to.read(&run, Span { from: info.first, to: info.last, limit: 1, ..Span::ALL }).await?.is_empty()
        {
            // Folded there in another way.
            return Ok(());
        }
        let hashing = self.from.hashing();
        let entries = self.from.section(&run, info, Section::Entries).await?;
        let sections = self.unless_damaged(self.nodes(info).await)?;
        let mut fresh = Vec::new();
        if let Some((_, nodes)) = &sections {
            let opened = SegmentNodes::open(&run, info, nodes)?;
            for (place, id) in (0..).zip(opened.ids(hashing)?) {
                fresh.push(Fresh::whole(*id, opened.canonical(hashing, place)?));
            }
        }
        let mut pack = match fresh.is_empty() {
            true => Bytes::new(),
            false => Pack::build(hashing, &fresh)?.1,
        };
        for (mut record, _) in SegmentEntries::open(hashing, &run, info, &entries)? {
            if self.head.is_none_or(|head| head.seq < record.seq) {
                // If the copy was cut short in this segment, its nodes come with the first entry that is missing.
                record.pack = std::mem::take(&mut pack);
                self.entry(record, end).await?;
            }
        }
        self.unfolded = sections.map(|(index, nodes)| Segment { info, entries, index, nodes });
        Ok(())
    }

    /// The index and the nodes of a segment, both found to be whole.
    async fn nodes(&self, info: SegmentInfo) -> Result<(Bytes, Bytes), StoreError> {
        let (run, hashing) = (&self.summary.id, self.from.hashing());
        let index = self.from.section(run, info, Section::Index).await?;
        SegmentIndex::open(run, info, &index)?;
        let nodes = self.from.section(run, info, Section::Nodes).await?;
        SegmentNodes::open(run, info, &nodes)?.ids(hashing)?;
        Ok((index, nodes))
    }

    /// Puts a segment in the place of its entries, once another entry is behind them.
    async fn fold(&mut self) -> Result<(), StoreError> {
        let Some(segment) = self.unfolded.take() else { return Ok(()) };
        match self.to.fold(&self.summary.id, segment).await {
            // It is larger than it could be, and that is all.
            Err(StoreError::Conflict { .. } | StoreError::Unsupported { .. }) => Ok(()),
            other => other,
        }
    }

    async fn entry(&mut self, record: Record, end: Seq) -> Result<(), StoreError> {
        if self.head.is_some_and(|head| head.seq >= record.seq) {
            return Ok(());
        }
        let run = self.summary.id.clone();
        let opened = sealed::open(self.from.hashing(), &run, &record)?;
        let is_last = record.seq == end;
        let index = (record.seq == Seq(0) || is_last).then(|| self.summary.clone());
        self.copied.entries += 1;
        self.copied.bytes += (record.entry.len() + record.pack.len()) as u64;
        let commit = Commit {
            run,
            seq: record.seq,
            parent: opened.parent,
            hash: record.hash,
            fence: record.fence,
            at: opened.at,
            entry: record.entry,
            pack: record.pack,
            staged: std::mem::take(&mut self.staged),
            owner: self.pin.owner,
            index,
            durability: if is_last { Durability::Durable } else { Durability::Relaxed },
        };
        self.head = Some(Head { seq: commit.seq, hash: commit.hash, fence: commit.fence });
        self.to.append(vec![commit]).await?;
        self.fold().await
    }
}
