//! Finding the nodes of a run: in the packs of its newest entries, in its segments, in staged packs, in
//! the run that it was forked from.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{BlobId, RunId, Seq};

use super::append::GROUP;
use crate::pack::Pack;
use crate::sealed::SealedEntry;
use crate::segment::{SegmentEntries, SegmentIndex, SegmentNodes};
use crate::state::NodeSource;
use piton_store::{PackId, Record, Section, SegmentInfo, Span, Store, StoreError};

/// What opened segments and staged packs may take in memory before they are dropped.
const CACHE_BYTES: usize = 64 << 20;

/// Something that holds nodes, opened.
#[derive(Clone)]
pub(super) enum Holding {
    Pack(Arc<Pack>),
    Segment(Arc<SegmentNodes>),
}

impl Holding {
    /// Whether both are the same one.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pack(a), Self::Pack(b)) => Arc::ptr_eq(a, b),
            (Self::Segment(a), Self::Segment(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// Where the nodes of one run are.
pub(super) struct RunBlobs {
    store: Arc<dyn Store>,
    run: RunId,
    /// The newest entry whose pack is read.
    end: Seq,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    /// Packs of entries that aren't folded.
    packs: BTreeMap<Seq, Arc<Pack>>,
    /// How much of the tail has been read, newest first; what was added since came through this handle.
    tail: Tail,
    /// The run's segments in ascending order, with the indexes that were needed so far.
    segments: Option<Vec<(SegmentInfo, Option<Arc<SegmentIndex>>)>>,
    nodes: HashMap<SegmentInfo, Arc<SegmentNodes>>,
    /// The entries of the segments that single entries were asked of last.
    entries: VecDeque<(SegmentInfo, Arc<Vec<SealedEntry>>)>,
    staged: HashMap<PackId, Arc<Pack>>,
}

/// Which entries that aren't folded have been looked at for packs.
#[derive(Clone, Copy, Default)]
enum Tail {
    #[default]
    Unread,
    /// From this one on.
    From(Seq),
    Read,
}

/// How often a node is looked for whose neighbours were folded meanwhile.
const RETRIES: u32 = 3;

/// Of how many segments the entries stay open.
const OPEN_ENTRIES: usize = 4;

/// How many entries are read in one go on the way back through the tail, at most.
const TAIL_STEP: usize = 256;

impl RunBlobs {
    pub(super) fn new(store: Arc<dyn Store>, run: RunId) -> Self {
        Self { store, run, end: Seq(u32::MAX), cache: Mutex::default() }
    }

    /// Of the run up to an entry: what is behind it isn't read.
    pub(super) fn up_to(store: Arc<dyn Store>, run: RunId, seq: Seq) -> Self {
        Self { end: seq, ..Self::new(store, run) }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().expect("no code that holds this lock panics")
    }

    /// Remembers the pack of a new entry.
    pub(super) fn add(&self, seq: Seq, pack: Arc<Pack>) {
        self.cache().packs.insert(seq, pack);
    }

    /// Drops what was remembered of entries that didn't get into the log.
    pub(super) fn forget_from(&self, first: Seq) {
        self.cache().packs.split_off(&first);
    }

    /// Drops what has been folded into a segment.
    pub(super) fn forget_folded(&self, info: SegmentInfo) {
        let mut cache = self.cache();
        cache.packs.retain(|seq, _| !(info.first..=info.last).contains(seq));
        cache.segments = None;
    }

    /// Finds a node, and sees to it that it can be read.
    async fn find_whole(&self, id: BlobId) -> Result<Option<(Holding, u32)>, StoreError> {
        for _ in 0..RETRIES {
            let Some(found) = self.find_here(id).await? else { return Ok(None) };
            match &found {
                (Holding::Pack(pack), place) if !pack.is_whole(*place) => {
                    let Some(gone) = self.complete(pack, *place).await? else { return Ok(Some(found)) };
                    // Its group has been folded since: what is remembered of it is of no use, and a segment has it.
                    let mut cache = self.cache();
                    cache.packs.retain(|seq, _| seq.0 / GROUP != gone.0 / GROUP);
                    cache.tail = Tail::Unread;
                }
                _ => return Ok(Some(found)),
            }
        }
        Err(StoreError::corrupt(format!("blob {id} of run {}", self.run), "what it builds on is missing"))
    }

    /// Puts a node together from its base, and that from its own, and so on within a group of entries. Says
    /// which of those entries isn't there, if one isn't.
    async fn complete(&self, pack: &Arc<Pack>, place: u32) -> Result<Option<Seq>, StoreError> {
        let mut unfinished = vec![(Arc::clone(pack), place)];
        while let Some((pack, place)) = unfinished.last()
            && !pack.is_whole(*place)
        {
            let base = pack.base(*place)?;
            let Some(pack) = self.pack_of(base.seq).await? else { return Ok(Some(base.seq)) };
            if base.place as usize >= pack.len() || unfinished.len() > GROUP as usize {
                let what = format!("the pack of entry {} of run {}", base.seq, self.run);
                return Err(StoreError::corrupt(what, "another one builds on what it doesn't have"));
            }
            unfinished.push((pack, base.place));
        }
        for pair in unfinished.windows(2).rev() {
            let [(pack, place), (base, base_place)] = pair else { continue };
            pack.complete(*place, base.node(*base_place))?;
        }
        Ok(None)
    }

    /// The pack of an entry that isn't folded.
    async fn pack_of(&self, seq: Seq) -> Result<Option<Arc<Pack>>, StoreError> {
        let known = self.cache().packs.get(&seq).cloned();
        if known.is_some() {
            return Ok(known);
        }
        // Those before it are likely to be needed next.
        let from = Seq(seq.0 / GROUP * GROUP);
        let span = Span { from, to: seq, packs: true, ..Span::ALL };
        for record in self.store.read(&self.run, span).await? {
            self.remember(&record)?;
        }
        Ok(self.cache().packs.get(&seq).cloned())
    }

    /// The bytes of a node that can be read.
    fn bytes(&self, (holding, place): &(Holding, u32)) -> Result<Bytes, StoreError> {
        match holding {
            Holding::Pack(pack) => Ok(Bytes::copy_from_slice(pack.node(*place))),
            Holding::Segment(nodes) => nodes.canonical(self.store.hashing(), *place),
        }
    }

    /// Finds a node.
    pub(super) async fn find(&self, id: BlobId) -> Result<(Holding, u32), StoreError> {
        if let Some(found) = self.find_whole(id).await? {
            return Ok(found);
        }
        // A fork's older nodes are in the run it came from, and so on up. Where a run came from isn't covered by a hash,
        // so a damaged store may say that they came from each other.
        let mut seen = HashSet::from([self.run.clone()]);
        let mut run = self.run.clone();
        while let Some(parent) = self.store.summary(&run).await?.and_then(|summary| summary.parent) {
            run = parent.run;
            if !seen.insert(run.clone()) {
                break;
            }
            let parent = Self::new(Arc::clone(&self.store), run.clone());
            if let Some(found) = Box::pin(parent.find_whole(id)).await? {
                return Ok(found);
            }
        }
        Err(StoreError::NotFound { what: format!("blob {id} of run {}", self.run) })
    }

    async fn find_here(&self, id: BlobId) -> Result<Option<(Holding, u32)>, StoreError> {
        if let Some(found) = self.cache().find(&id) {
            return Ok(Some(found));
        }
        for fresh in [false, true] {
            if let Some(found) = self.find_in_tail(&id).await? {
                return Ok(Some(found));
            }
            self.list_segments(fresh).await?;
            if let Some(found) = self.find_indexed(&id).await? {
                return Ok(Some(found));
            }
            if let [Some(pack)] = self.store.locate(&[id]).await?.as_slice() {
                let opened =
                    Arc::new(Pack::open_from(self.store.hashing(), piton_store::pack(&*self.store, *pack).await?)?);
                if let Some(place) = opened.place(&id) {
                    self.cache().keep_pack(*pack, &opened);
                    return Ok(Some((Holding::Pack(opened), place)));
                }
            }
            // Something may have been folded between the two reads: once more, from the start.
            self.cache().tail = Tail::Unread;
        }
        self.find_unindexed(&id).await
    }

    /// The newest entry of the run; its pack is remembered.
    pub(super) async fn read_newest(&self) -> Result<Option<Record>, StoreError> {
        let newest = self.store.read(&self.run, Span { packs: true, ..Span::newest(1) }).await?.pop();
        if let Some(record) = &newest {
            self.remember(record)?;
            self.cache().tail = Tail::From(record.seq);
        }
        Ok(newest)
    }

    /// Goes back through the tail, in growing steps, until the node is found.
    async fn find_in_tail(&self, id: &BlobId) -> Result<Option<(Holding, u32)>, StoreError> {
        let mut step = 4;
        loop {
            let (found, tail) = {
                let cache = self.cache();
                (cache.find(id), cache.tail)
            };
            if found.is_some() {
                return Ok(found);
            }
            let to = match tail {
                Tail::Read | Tail::From(Seq(0)) => return Ok(None),
                Tail::Unread => self.end,
                Tail::From(seq) => Seq(seq.0 - 1),
            };
            let records = match self.store.read(&self.run, Span { to, packs: true, ..Span::newest(step) }).await {
                Err(StoreError::NotFound { .. }) => Vec::new(),
                other => other?,
            };
            for record in &records {
                self.remember(record)?;
            }
            let ended = records.len() < step;
            self.cache().tail = match records.last() {
                Some(oldest) if !ended => Tail::From(oldest.seq),
                _ => Tail::Read,
            };
            step = (step * 4).min(TAIL_STEP);
        }
    }

    fn remember(&self, record: &Record) -> Result<(), StoreError> {
        let known = self.cache().packs.contains_key(&record.seq);
        if record.pack.is_empty() || known {
            return Ok(());
        }
        let pack = Pack::open_from(self.store.hashing(), record.pack.clone()).map_err(|error| {
            StoreError::corrupt(format!("the pack of entry {} of run {}", record.seq, self.run), error.to_string())
        })?;
        self.add(record.seq, Arc::new(pack));
        Ok(())
    }

    /// Makes the list of segments known; `fresh` asks the store even if it is.
    async fn list_segments(&self, fresh: bool) -> Result<(), StoreError> {
        if !fresh && self.cache().segments.is_some() {
            return Ok(());
        }
        let segments = match self.store.segments(&self.run).await {
            Err(StoreError::NotFound { .. }) => Vec::new(),
            other => other?,
        };
        let mut cache = self.cache();
        let mut known: HashMap<_, _> = cache.segments.take().into_iter().flatten().collect();
        cache.segments = Some(segments.into_iter().map(|info| (info, known.remove(&info).flatten())).collect());
        Ok(())
    }

    /// The segment that has an entry, as far as the list is known.
    fn covering(&self, seq: Seq) -> Option<SegmentInfo> {
        let cache = self.cache();
        let segments = cache.segments.as_ref()?;
        let at = segments.partition_point(|(info, _)| info.last < seq);
        segments.get(at).map(|(info, _)| *info).filter(|info| info.first <= seq)
    }

    /// The index of a segment; `None` if it has been merged into a larger one meanwhile, which a fresh look finds.
    async fn index(&self, info: SegmentInfo) -> Result<Option<Arc<SegmentIndex>>, StoreError> {
        let known = |cache: &Cache| cache.segments.iter().flatten().find(|(known, _)| *known == info)?.1.clone();
        let index = known(&self.cache());
        if index.is_some() {
            return Ok(index);
        }
        let index = match self.store.section(&self.run, info, Section::Index).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            bytes => Arc::new(SegmentIndex::open(&self.run, info, &bytes?)?),
        };
        let mut cache = self.cache();
        if let Some((_, known)) = cache.segments.iter_mut().flatten().find(|(known, _)| *known == info) {
            *known = Some(Arc::clone(&index));
        }
        Ok(Some(index))
    }

    /// Looks into the segments, newest first, until one has the node: what is asked for most is in the newest.
    async fn find_indexed(&self, id: &BlobId) -> Result<Option<(Holding, u32)>, StoreError> {
        let segments: Vec<_> = self.cache().segments.iter().flatten().rev().map(|(info, _)| *info).collect();
        for info in segments {
            if let Some(found) = self.find_in_segment(info, id).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Looks a node up in one segment.
    async fn find_in_segment(&self, info: SegmentInfo, id: &BlobId) -> Result<Option<(Holding, u32)>, StoreError> {
        let Some(index) = self.index(info).await? else { return Ok(None) };
        let places: Vec<u32> = index.find(id).collect();
        if places.is_empty() {
            return Ok(None);
        }
        let Some(nodes) = self.segment(info).await? else { return Ok(None) };
        for place in places {
            if place as usize >= nodes.len() {
                return Err(StoreError::corrupt(
                    format!("segment {info} of run {}", self.run),
                    "its index leads nowhere",
                ));
            }
            // The index has eight bytes of the id, which another one may share; the whole id decides.
            if nodes.ids(self.store.hashing())?[place as usize] == *id {
                return Ok(Some((Holding::Segment(nodes), place)));
            }
        }
        Ok(None)
    }

    /// Finds a node of the body of entry `near`, which is most likely stored with that entry: one segment is looked
    /// into, however many there are.
    pub(super) async fn find_near(&self, id: BlobId, near: Seq) -> Result<(Holding, u32), StoreError> {
        let known = self.cache().find(&id);
        if known.is_none() {
            self.list_segments(false).await?;
            if let Some(info) = self.covering(near)
                && let Some(found) = self.find_in_segment(info, &id).await?
            {
                return Ok(found);
            }
        }
        self.find(id).await
    }

    /// An entry that is in a segment; `None` if none of the known segments has it.
    pub(super) async fn folded_entry(&self, seq: Seq) -> Result<Option<SealedEntry>, StoreError> {
        for fresh in [false, true] {
            self.list_segments(fresh).await?;
            let Some(info) = self.covering(seq) else { return Ok(None) };
            let place = (seq.0 - info.first.0) as usize;
            let open = self.cache().entries.iter().find(|(open, _)| *open == info).map(|(_, open)| Arc::clone(open));
            if let Some(open) = open {
                return Ok(open.get(place).cloned());
            }
            let bytes = match self.store.section(&self.run, info, Section::Entries).await {
                // Merged into a larger one meanwhile.
                Err(StoreError::NotFound { .. }) => continue,
                bytes => bytes?,
            };
            let opened = SegmentEntries::open(self.store.hashing(), &self.run, info, &bytes)?;
            let opened = Arc::new(opened.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>());
            let mut cache = self.cache();
            cache.entries.truncate(OPEN_ENTRIES - 1);
            cache.entries.push_front((info, Arc::clone(&opened)));
            return Ok(opened.get(place).cloned());
        }
        Ok(None)
    }

    /// The slow way: every id of every segment is computed. Only for a node that no entry's state had at
    /// the end of its segment, asked for by a state that was opened in the middle of it.
    async fn find_unindexed(&self, id: &BlobId) -> Result<Option<(Holding, u32)>, StoreError> {
        let segments: Vec<_> = self.cache().segments.iter().flatten().map(|(info, _)| *info).collect();
        for info in segments.into_iter().rev() {
            let Some(nodes) = self.segment(info).await? else { continue };
            if let Some(place) = nodes.ids(self.store.hashing())?.iter().position(|found| found == id) {
                let place = u32::try_from(place).expect("a segment has far fewer nodes");
                return Ok(Some((Holding::Segment(nodes), place)));
            }
        }
        Ok(None)
    }

    /// An opened segment, or `None` if it has been merged meanwhile.
    async fn segment(&self, info: SegmentInfo) -> Result<Option<Arc<SegmentNodes>>, StoreError> {
        if let Some(nodes) = self.cache().nodes.get(&info) {
            return Ok(Some(Arc::clone(nodes)));
        }
        let nodes = match self.store.section(&self.run, info, Section::Nodes).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            bytes => Arc::new(SegmentNodes::open(&self.run, info, &bytes?)?),
        };
        self.cache().keep_segment(info, &nodes);
        Ok(Some(nodes))
    }
}

impl Cache {
    fn find(&self, id: &BlobId) -> Option<(Holding, u32)> {
        self.packs
            .values()
            .rev()
            .chain(self.staged.values())
            .find_map(|pack| pack.place(id).map(|place| (Holding::Pack(Arc::clone(pack)), place)))
    }

    fn keep_pack(&mut self, id: PackId, pack: &Arc<Pack>) {
        self.make_room(pack.size());
        self.staged.insert(id, Arc::clone(pack));
    }

    fn keep_segment(&mut self, info: SegmentInfo, nodes: &Arc<SegmentNodes>) {
        self.make_room(nodes.size());
        self.nodes.insert(info, Arc::clone(nodes));
    }

    /// Drops everything when full: what is needed again is read again, and a long-lived handle stays small.
    fn make_room(&mut self, size: usize) {
        let used: usize = self.staged.values().map(|pack| pack.size()).sum::<usize>()
            + self.nodes.values().map(|nodes| nodes.size()).sum::<usize>();
        if used + size > CACHE_BYTES {
            self.staged.clear();
            self.nodes.clear();
        }
    }
}

#[async_trait]
impl NodeSource for RunBlobs {
    async fn fetch(&self, id: BlobId) -> Result<Bytes, StoreError> {
        let found = self.find(id).await?;
        self.bytes(&found)
    }
}
