//! All nodes of a run, wherever they are, and which ones each refers to. Everything that is read on the way is verified:
//! checksums of packs and segments, and the ids of nodes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use piton_types::{BlobId, RunId, Seq};

use crate::codec::{each_reference, references};
use crate::framed;
use crate::pack::Pack;
use crate::run_log::GROUP;
use crate::sealed::{self, SealedEntry};
use crate::segment::{SegmentEntries, SegmentNodes};
use crate::state::IdMap;
use crate::{Removed, RunLog};
use piton_store::{Defect, PackId, Section, SegmentInfo, Span, Store, StoreError};

/// Reads that fail one after the other before the end of a log is given up.
const PATIENCE: u32 = 4096;

/// Nodes, and which ones each refers to.
#[derive(Default)]
pub(super) struct Nodes {
    /// The bytes of each, as its values are (stored it may take fewer), and where its references stand.
    known: IdMap<(u32, Range<u32>)>,
    /// What all of them refer to, one after the other.
    refers: Vec<BlobId>,
}

impl Nodes {
    /// Takes a node; gives what it refers to.
    fn insert(&mut self, id: BlobId, bytes: &[u8]) -> Result<&[BlobId], StoreError> {
        let from = self.refers.len();
        each_reference(bytes, |id| self.refers.push(id))?;
        let place = |at| u32::try_from(at).map_err(|_| StoreError::corrupt("the nodes of a run", "there are too many"));
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.known.insert(id, (size, place(from)?..place(self.refers.len())?));
        Ok(&self.refers[from..])
    }

    /// How many bytes a node has, and what it refers to.
    pub(super) fn get(&self, id: &BlobId) -> Option<(u64, &[BlobId])> {
        let (size, places) = self.known.get(id)?;
        Some((u64::from(*size), &self.refers[places.start as usize..places.end as usize]))
    }

    /// The bytes of all of them.
    pub(super) fn size(&self) -> u64 {
        self.known.values().map(|(size, _)| u64::from(*size)).sum()
    }
}

/// What a run consists of.
#[derive(Default)]
pub(super) struct RunGraph {
    /// Its entries, as far as they can be read.
    pub(super) entries: Vec<SealedEntry>,
    pub(super) segments: Vec<SegmentInfo>,
    pub(super) nodes: Nodes,
    /// What nodes of entries that aren't folded refer to.
    pub(super) tail: Vec<BlobId>,
    /// The packs that its entries name and that it still needs.
    pub(super) packs: Vec<PackId>,
    /// Those of them that have file contents.
    pub(super) contents: HashSet<PackId>,
    /// What can't be read.
    pub(super) defects: Vec<Defect>,
}

/// Damage is noted down; any other error is passed on.
pub(super) fn damage(error: StoreError) -> Result<Defect, StoreError> {
    match error {
        StoreError::Corrupt { what, detail } => Ok(Defect { what, detail }),
        StoreError::NotFound { what } => Ok(Defect { what, detail: "it is missing".to_owned() }),
        other => Err(other),
    }
}

/// The staged packs of a store.
#[derive(Default)]
pub(super) struct Packs {
    pub(super) all: Vec<PackId>,
    /// Those that are known to have file contents: they aren't read again to find out.
    pub(super) contents: HashSet<PackId>,
    /// Why there may be more.
    pub(super) defect: Option<Defect>,
}

impl Packs {
    /// Lists them.
    pub(super) async fn list(store: &Arc<dyn Store>) -> Result<Self, StoreError> {
        let mut packs = Self::default();
        loop {
            match store.packs(packs.all.last().copied(), 1000).await {
                Ok(page) if page.is_empty() => return Ok(packs),
                Ok(page) => packs.all.extend(page.iter().map(|pack| pack.id)),
                Err(error) => {
                    packs.defect = Some(damage(error)?);
                    return Ok(packs);
                }
            }
        }
    }
}

impl RunGraph {
    pub(super) async fn read(store: &Arc<dyn Store>, run: &RunId, packs: &Packs) -> Result<Self, StoreError> {
        let mut graph = Self::default();
        match store.segments(run).await {
            Ok(segments) => graph.segments = segments,
            Err(error) => graph.defects.push(damage(error)?),
        }
        for info in graph.segments.clone() {
            if let Err(error) = graph.read_segment(store, run, info).await {
                graph.defects.push(damage(error)?);
            }
        }
        graph.read_tail(store, run, true).await?;
        graph.defects.extend(packs.defect.clone());
        graph.name_packs(store, run).await?;
        for pack in graph.packs.clone() {
            if packs.contents.contains(&pack) {
                graph.contents.insert(pack);
            } else if let Err(error) = graph.read_pack(store, pack).await {
                graph.defects.push(damage(error)?);
            }
        }
        graph.check_chain(run);
        Ok(graph)
    }

    /// The entries alone, and which packs they name: what they contain isn't read.
    pub(super) async fn outline(store: &Arc<dyn Store>, run: &RunId) -> Result<Self, StoreError> {
        let mut graph = Self::default();
        match store.segments(run).await {
            Ok(segments) => graph.segments = segments,
            Err(error) => graph.defects.push(damage(error)?),
        }
        for info in graph.segments.clone() {
            if let Err(error) = graph.read_entries(store, run, info).await {
                graph.defects.push(damage(error)?);
            }
        }
        graph.read_tail(store, run, false).await?;
        graph.name_packs(store, run).await?;
        graph.check_chain(run);
        Ok(graph)
    }

    async fn read_entries(&mut self, store: &Arc<dyn Store>, run: &RunId, info: SegmentInfo) -> Result<(), StoreError> {
        let bytes = store.section(run, info, Section::Entries).await?;
        let entries = SegmentEntries::open(store.hashing(), run, info, &bytes)?;
        self.entries.extend(entries.into_iter().map(|(_, entry)| entry));
        Ok(())
    }

    async fn read_segment(&mut self, store: &Arc<dyn Store>, run: &RunId, info: SegmentInfo) -> Result<(), StoreError> {
        let hashing = store.hashing();
        if let Err(error) = self.read_entries(store, run, info).await {
            self.defects.push(damage(error)?);
        }
        crate::segment::SegmentIndex::open(run, info, &store.section(run, info, Section::Index).await?)?;
        let nodes = SegmentNodes::open(run, info, &store.section(run, info, Section::Nodes).await?)?;
        nodes.each(hashing, |id, node| self.nodes.insert(id, node).map(drop))
    }

    /// One by one where they can't be read together, so that as few as possible are lost.
    async fn read_tail(&mut self, store: &Arc<dyn Store>, run: &RunId, packs: bool) -> Result<(), StoreError> {
        let hashing = store.hashing();
        let mut group: HashMap<Seq, Vec<Bytes>> = HashMap::new();
        let mut next = 0_u32;
        let mut failed = 0;
        loop {
            let limit = if failed == 0 { 256 } else { 1 };
            let to = if failed == 0 { Seq(u32::MAX) } else { Seq(next) };
            let span = Span { from: Seq(next), to, packs, limit, ..Span::ALL };
            let records = match store.read(run, span).await {
                Ok(records) => records,
                Err(error) => {
                    let defect = damage(error)?;
                    if failed > 0 {
                        let what = match self.read_without_pack(store, run, Seq(next)).await {
                            true => format!("the pack of entry {next} of run {run}"),
                            false => format!("entry {next} of run {run}"),
                        };
                        self.defects.push(Defect { what, ..defect });
                        next += 1;
                    }
                    failed += 1;
                    if failed > PATIENCE {
                        return Ok(());
                    }
                    continue;
                }
            };
            if records.is_empty() && failed == 0 {
                return Ok(());
            }
            next = records.last().map_or(next, |last| last.seq.0) + 1;
            failed = 0;
            for record in records {
                if record.seq.0.is_multiple_of(GROUP) {
                    group.clear();
                }
                match sealed::open(hashing, run, &record) {
                    Ok(entry) => self.entries.push(entry),
                    Err(error) => self.defects.push(damage(error)?),
                }
                if record.pack.is_empty() {
                    continue;
                }
                let nodes = Pack::open(record.pack.clone())
                    .and_then(|pack| pack.nodes(|base| group.get(&base.seq)?.get(base.place as usize).cloned()));
                match nodes {
                    Ok(nodes) => {
                        for (id, node) in &nodes {
                            // One that isn't what its id says is none, and what it refers to is kept all the same.
                            match hashing.blob(node) == *id {
                                true => self.tail.extend(self.nodes.insert(*id, node)?),
                                false => self.tail.extend(references(node)?),
                            }
                        }
                        group.insert(record.seq, nodes.into_iter().map(|(_, node)| node).collect());
                    }
                    Err(error) => {
                        let what = format!("the pack of entry {} of run {run}", record.seq);
                        self.defects.push(Defect { what, ..damage(error)? });
                    }
                }
            }
        }
    }

    /// An entry whose pack can't be read; says whether it can itself.
    async fn read_without_pack(&mut self, store: &Arc<dyn Store>, run: &RunId, seq: Seq) -> bool {
        let span = Span { from: seq, to: seq, ..Span::ALL };
        let Ok(records) = store.read(run, span).await else { return false };
        let opened = records.first().and_then(|record| sealed::open(store.hashing(), run, record).ok());
        let found = opened.is_some();
        self.entries.extend(opened);
        found
    }

    async fn name_packs(&mut self, store: &Arc<dyn Store>, run: &RunId) -> Result<(), StoreError> {
        let named: BTreeSet<PackId> = self.entries.iter().flat_map(|entry| entry.packs.iter().copied()).collect();
        if named.is_empty() {
            return Ok(());
        }
        let removed = match RunLog::open(Arc::clone(store), run).await {
            Ok(log) => log.removed_in(&self.entries).await,
            Err(error) => Err(error),
        };
        let removed = match removed {
            Ok(removed) => removed,
            Err(error) => {
                self.defects.push(damage(error)?);
                Removed::default()
            }
        };
        self.packs.extend(named.difference(&removed.packs));
        Ok(())
    }

    async fn read_pack(&mut self, store: &Arc<dyn Store>, pack: PackId) -> Result<(), StoreError> {
        let named = |error| match error {
            StoreError::Corrupt { detail, .. } => StoreError::corrupt(format!("staged pack {pack}"), detail),
            other => other,
        };
        if framed::is_content(&**store, pack).await? {
            self.contents.insert(pack);
            return Ok(());
        }
        let nodes = Pack::open(piton_store::pack(&**store, pack).await?)
            .and_then(|pack| pack.nodes(|_| None))
            .map_err(named)?;
        for (id, node) in nodes {
            self.nodes.insert(id, &node)?;
        }
        Ok(())
    }

    fn check_chain(&mut self, run: &RunId) {
        self.entries.sort_by_key(|entry| entry.seq);
        for pair in self.entries.windows(2) {
            if pair[0].seq.next() != pair[1].seq {
                let what = format!("entries {} to {} of run {run}", pair[0].seq.next(), pair[1].seq.0 - 1);
                self.defects.push(Defect { what, detail: "they are missing".to_owned() });
            } else if pair[1].parent != pair[0].hash {
                let detail = format!("it doesn't follow entry {}", pair[0].seq);
                self.defects.push(Defect { what: format!("entry {} of run {run}", pair[1].seq), detail });
            }
        }
        if self.entries.first().is_none_or(|first| first.seq != Seq(0)) {
            let what = format!("entry 0 of run {run}");
            self.defects.push(Defect { what, detail: "it is missing".to_owned() });
        }
    }
}
