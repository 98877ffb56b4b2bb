//! Giving back the space of packs of which little is still needed: that little is written into a new pack, and the runs
//! that need it rely on that one instead.
//!
//! Nothing is deleted here. A pack on which no run relies any more is found by [`collect`](super::collect), which looks
//! through all snapshots before it condemns anything; so whatever goes wrong here, a crash at any call included, costs
//! space and no data. A new pack on which no run came to rely is a pack that was staged and never committed.
//!
//! A blob may be in several packs. Then it is needed in the newest: packs only ever give way to newer ones, so of several
//! processes that do this at once none takes away what another counts on, and one that goes on after a crash finds what
//! was moved already.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use piton_types::{BlobId, PartName, RunId, RunSummary, Value};

use super::Reach;
use crate::RunLog;
use crate::contents::{LEVEL, PACK};
use crate::framed::{self, FrameBuilder, FramedPack};
use crate::state::IdSet;
use piton_store::{Head, PackId, PackInfo, PackState, Reliance, RunQuery, Span, Store, StoreError};

/// How many ids of blobs are looked for in one call. What is beyond waits for the next.
const MOST_IDS: usize = 1 << 20;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repacked {
    /// Packs that gave way to new ones.
    pub packs: u64,
    /// The packs up to this one were looked at: more are left for a call that begins behind it.
    pub up_to: Option<PackId>,
}

/// The snapshots of a run that weren't removed, and where its log ends. `None` if it never had one.
pub(super) async fn snapshots(log: &RunLog) -> Result<Option<Vec<Value>>, StoreError> {
    let entries = log.entries(Span::ALL).await?;
    let name = PartName::from(PartName::WORKSPACE);
    if !entries.iter().any(|entry| entry.parts.contains_key(&name)) {
        return Ok(None);
    }
    let removed = log.removed_in(&entries).await?.checkpoints;
    let mut snapshots = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in entries.iter().filter(|entry| !removed.contains(&entry.seq)) {
        if let Some(part) = entry.parts.get(&name)
            && seen.insert(part.root)
        {
            snapshots.push(log.load(part).await?);
        }
    }
    Ok(Some(snapshots))
}

/// Which packs have a blob, of some packs.
#[derive(Default)]
pub(super) struct Places(Vec<(BlobId, PackId)>);

impl Places {
    pub(super) fn add(&mut self, pack: PackId, ids: Vec<BlobId>) {
        self.0.extend(ids.into_iter().map(|id| (id, pack)));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// After the last one was added.
    pub(super) fn sort(&mut self) {
        self.0.sort_unstable();
    }

    fn range(&self, id: &BlobId) -> std::ops::Range<usize> {
        let start = self.0.partition_point(|(other, _)| other < id);
        start..start + self.0[start..].iter().take_while(|(other, _)| other == id).count()
    }

    /// The packs that have it, oldest first.
    pub(super) fn of(&self, id: &BlobId) -> impl DoubleEndedIterator<Item = PackId> {
        self.0[self.range(id)].iter().map(|(_, pack)| *pack)
    }
}

/// What is known of a pack.
#[derive(Default)]
struct Use {
    /// How many blobs it has.
    blobs: usize,
    /// Those that some run needs from it.
    needed: IdSet,
    /// Who needs them.
    by: BTreeSet<RunId>,
    /// Who relies on it.
    claimed: Vec<RunId>,
}

/// What is known of a run.
struct Needs {
    /// Where its log ended.
    head: Head,
    /// Packs on which it doesn't rely, and which have what it needs and relies on older ones for.
    newer: BTreeSet<PackId>,
}

/// Writes packs behind `after` anew of which less than half is needed. Ends early when `stop` says so.
pub async fn repack(
    store: &Arc<dyn Store>,
    reach: &dyn Reach,
    after: Option<PackId>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Repacked, StoreError> {
    let (places, mut uses, last) = survey(store, after).await?;
    let mut repacked = Repacked { packs: 0, up_to: last };
    let mut needs: BTreeMap<RunId, Needs> = BTreeMap::new();
    let runs: Vec<RunSummary> = store.list(RunQuery::default()).await?;
    for run in runs {
        match need(store, reach, &run.id, &places, &mut uses).await {
            Ok(found) => drop(needs.insert(run.id, found)),
            // Removed meanwhile.
            Err(StoreError::NotFound { .. }) if store.summary(&run.id).await?.is_none() => {}
            Err(other) => return Err(other),
        }
    }
    let mut batch = Batch::default();
    for (pack, used) in uses {
        if stop() {
            repacked.up_to = batch.packs.keys().next().map_or(Some(pack), |first| Some(*first)).and_then(before);
            return Ok(repacked);
        }
        if used.needed.len() == used.blobs || is_looked_at(&**store, pack, used.needed.len()).await? {
            continue;
        }
        let bytes = match store.pack(pack).await {
            Err(StoreError::NotFound { .. }) => continue,
            other => other?,
        };
        let Some(needed) = take(bytes, &used.needed)? else {
            look_at(&**store, pack, used.needed.len()).await?;
            continue;
        };
        batch.content.join(needed);
        batch.packs.insert(pack, used);
        if batch.content.len() >= PACK {
            repacked.packs += std::mem::take(&mut batch).write(store, &needs).await?;
        }
    }
    repacked.packs += batch.write(store, &needs).await?;
    Ok(repacked)
}

fn before(pack: PackId) -> Option<PackId> {
    pack.0.checked_sub(1).map(PackId)
}

/// The packs that some run relies on, behind `after`, and the last of them if there are more than can be looked at.
async fn survey(
    store: &Arc<dyn Store>,
    mut after: Option<PackId>,
) -> Result<(Places, BTreeMap<PackId, Use>, Option<PackId>), StoreError> {
    let (mut places, mut uses) = (Places::default(), BTreeMap::new());
    loop {
        let page = store.packs(after, 1000).await?;
        let Some(last) = page.last() else { break };
        let last = last.id;
        for PackInfo { id, runs, .. } in
            page.into_iter().filter(|pack| pack.state == PackState::Kept && !pack.runs.is_empty())
        {
            let ids = match store.pack_ids(id).await {
                Err(StoreError::NotFound { .. }) => continue,
                other => other?,
            };
            uses.insert(id, Use { blobs: ids.len(), claimed: runs, ..Use::default() });
            places.add(id, ids);
            if places.len() >= MOST_IDS {
                places.sort();
                return Ok((places, uses, Some(id)));
            }
        }
        after = Some(last);
    }
    places.sort();
    Ok((places, uses, None))
}

/// Notes down what a run needs from which pack.
async fn need(
    store: &Arc<dyn Store>,
    reach: &dyn Reach,
    run: &RunId,
    places: &Places,
    uses: &mut BTreeMap<PackId, Use>,
) -> Result<Needs, StoreError> {
    let log = RunLog::open(Arc::clone(store), run).await?;
    let own: HashSet<PackId> =
        uses.iter().filter(|(_, used)| used.claimed.contains(run)).map(|(pack, _)| *pack).collect();
    let mut needs = Needs { head: log.head(), newer: BTreeSet::new() };
    let Some(snapshots) = snapshots(&log).await? else {
        // What it has its packs for isn't known here: it needs all of them.
        for (id, pack) in places.0.iter().filter(|(_, pack)| own.contains(pack)) {
            if let Some(used) = uses.get_mut(pack) {
                used.needed.insert(*id);
                used.by.insert(run.clone());
            }
        }
        return Ok(needs);
    };
    for id in reach.reach(store, snapshots).await? {
        let Some(newest) = places.of(&id).next_back() else { continue };
        if !own.contains(&newest) && places.of(&id).any(|pack| own.contains(&pack)) {
            needs.newer.insert(newest);
        }
        if let Some(used) = uses.get_mut(&newest) {
            used.needed.insert(id);
            used.by.insert(run.clone());
        }
    }
    Ok(needs)
}

/// The needed blobs of a pack, if they are less than half of its bytes; `None` also for one that has no file contents.
fn take(bytes: Bytes, needed: &IdSet) -> Result<Option<FrameBuilder>, StoreError> {
    if bytes.first() != Some(&framed::FORM) {
        return Ok(None);
    }
    let pack = FramedPack::open(bytes)?;
    let kept: u64 = pack.lengths().filter(|(id, _)| needed.contains(id)).map(|(_, length)| length as u64).sum();
    if kept.saturating_mul(2) >= pack.inflated() {
        return Ok(None);
    }
    let mut content = FrameBuilder::default();
    pack.read(needed, |id, blob| {
        content.add(id, &blob);
        Ok(())
    })?;
    Ok(Some(content))
}

/// Packs that are to give way to one new one.
#[derive(Default)]
struct Batch {
    content: FrameBuilder,
    packs: BTreeMap<PackId, Use>,
}

impl Batch {
    /// Writes what is needed, and lets the runs rely on it; says how many packs gave way.
    async fn write(mut self, store: &Arc<dyn Store>, needs: &BTreeMap<RunId, Needs>) -> Result<u64, StoreError> {
        if self.packs.is_empty() {
            return Ok(0);
        }
        let mut seen = IdSet::default();
        self.content.retain(|id| seen.insert(*id));
        let ids = self.content.ids();
        let new = match ids.is_empty() {
            true => None,
            false => Some(store.stage(self.content.seal(store.hashing(), LEVEL)?, &ids).await?),
        };
        let runs: BTreeSet<&RunId> = self.packs.values().flat_map(|used| used.by.iter().chain(&used.claimed)).collect();
        let mut left = BTreeSet::new();
        for run in runs {
            let no_more: Vec<PackId> =
                self.packs.iter().filter(|(_, used)| used.claimed.contains(run)).map(|(pack, _)| *pack).collect();
            let relied = match needs.get(run) {
                Some(Needs { head, newer }) => {
                    let moved = new.filter(|_| self.packs.values().any(|used| used.by.contains(run)));
                    let newer = newer.iter().copied().filter(|pack| !self.packs.contains_key(pack));
                    let also = newer.chain(moved).collect();
                    store.rely(run, *head, Reliance { also, no_more: no_more.clone() }).await
                }
                None => Err(StoreError::no_run(run)),
            };
            match relied {
                Ok(()) => {}
                // It went on meanwhile, or is gone. It keeps what it has; next time it is seen where it needs less.
                Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => left.extend(no_more),
                Err(other) => return Err(other),
            }
        }
        for pack in self.packs.keys() {
            forget(&**store, *pack).await?;
        }
        Ok((self.packs.len() - left.len()) as u64)
    }
}

/// Where it is written down how many of a pack's blobs runs needed when it was found to be worth keeping: until that
/// changes, it isn't read again.
fn key(pack: PackId) -> String {
    format!("pack/{}", pack.0)
}

async fn is_looked_at(store: &dyn Store, pack: PackId, needed: usize) -> Result<bool, StoreError> {
    Ok(store.note(&key(pack)).await?.is_some_and(|note| note == needed.to_string()))
}

async fn look_at(store: &dyn Store, pack: PackId, needed: usize) -> Result<(), StoreError> {
    store.set_note(&key(pack), Some(Bytes::from(needed.to_string()))).await
}

/// Forgets that a pack was looked at.
pub(super) async fn forget(store: &dyn Store, pack: PackId) -> Result<(), StoreError> {
    match store.note(&key(pack)).await? {
        Some(_) => store.set_note(&key(pack), None).await,
        None => Ok(()),
    }
}
