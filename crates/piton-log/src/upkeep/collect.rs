//! Finding packs that no run needs, and those of which little is needed.
//!
//! Who needs a pack is said by the logs: entries name packs of state, and snapshots lead to the file contents that they
//! consist of, whichever pack has them. Nothing else is written down, so all logs are read; but only if something was
//! removed since, or a writer left something behind.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{BlobId, EntryKind, PartName, RunId, Timestamp, Value};

use super::sharing::shared;
use super::{Transcribed, Transcript};
use crate::RunLog;
use crate::contents::{LEVEL, PACK};
use crate::framed::{self, FrameBuilder, FramedPack};
use crate::state::IdSet;
use piton_store::{Head, Owner, PackId, PackInfo, PackState, Pin, RunQuery, Span, Store, StoreError};

/// Set while something was removed and the packs weren't looked through since.
const PENDING: &str = "retention/look";

/// How many blobs are looked up in one call.
const BATCH: usize = 10_000;

/// Knows what snapshots consist of.
#[async_trait]
pub trait Reach: Send + Sync {
    /// The blobs that these values of the part `workspace` lead to.
    async fn reach(&self, store: &Arc<dyn Store>, snapshots: Vec<Value>) -> Result<HashSet<BlobId>, StoreError>;

    /// A snapshot that the body of an entry with one announces: what a restore is to lead to, before it has.
    fn announced(&self, body: &Value) -> Option<Value>;

    /// How many bytes of files a snapshot stands for.
    fn size(&self, snapshot: &Value) -> u64;

    /// The files of a snapshot that can't be read because some of these blobs, or a folder on the way, can't. At most
    /// some; for people.
    async fn affected(
        &self,
        store: &Arc<dyn Store>,
        snapshot: Value,
        damaged: &HashSet<BlobId>,
    ) -> Result<Vec<String>, StoreError>;

    /// Writes what a snapshot consists of from the first store into the second, which names it differently, and
    /// gives what the entry says there. Of a removed snapshot that isn't whole any more only names are made, alike
    /// where the old ones are.
    async fn transcribe(
        &self,
        stores: [&Arc<dyn Store>; 2],
        transcript: &mut Transcript,
        snapshot: Value,
        body: Value,
        is_removed: bool,
    ) -> Result<Transcribed, StoreError>;
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Packs that are condemned now and weren't before.
    pub condemned: u64,
    /// Those of them whose needed blobs were written anew.
    pub repacked: u64,
    /// Packs that have been condemned for long enough, since then, and that no run has come to need.
    pub due: Vec<(PackId, Timestamp)>,
    /// Something is left for the next call.
    pub more: bool,
}

/// Says, before something is removed, that packs have to be looked through again.
pub async fn expect_removal(store: &dyn Store) -> Result<(), StoreError> {
    store.set_note(PENDING, Some(Bytes::from(Owner::new().0.to_string()))).await
}

/// Condemns the packs that no run needs, and those of which less than half is needed, when that was written anew. Says
/// which of those that were condemned before may be deleted: all that count were condemned before this call reads the
/// first log. Writes no more packs anew once `stop` says so.
pub async fn collect(
    store: &Arc<dyn Store>,
    reach: &dyn Reach,
    now: Timestamp,
    grace: Duration,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Collected, StoreError> {
    let mut packs: Vec<PackInfo> = Vec::new();
    loop {
        let page = store.packs(packs.last().map(|last| last.id), 1000).await?;
        if page.is_empty() {
            break;
        }
        packs.extend(page);
    }
    let pending = store.note(PENDING).await?;
    let is_settled = |pack: &PackInfo| matches!(pack.state, PackState::Kept | PackState::Pinned);
    if packs.is_empty() || pending.is_none() && packs.iter().all(is_settled) {
        return Ok(Collected::default());
    }
    let look = Look::take(store, reach).await?;
    let (mut collected, mut idle, mut needed, mut partly) = (Collected::default(), Vec::new(), Vec::new(), Vec::new());
    for PackInfo { id, state, .. } in packs {
        let used = look.blobs.get(&id);
        match state {
            PackState::Pinned => {}
            PackState::Condemned(since) if used.is_none() && !look.named.contains(&id) => {
                // A clock that went back doesn't put it off for ever.
                if now < since || now.since(since) >= grace {
                    collected.due.push((id, since));
                }
            }
            PackState::Condemned(_) => needed.push(id),
            _ if look.named.contains(&id) => needed.extend((state == PackState::Abandoned).then_some(id)),
            _ => match used {
                None => idle.push(id),
                Some(used) => {
                    needed.extend((state == PackState::Abandoned).then_some(id));
                    partly.push((id, used));
                }
            },
        }
    }
    store.pardon(&needed).await?;
    let mut batch = Batch::default();
    for (pack, used) in partly {
        if stop() {
            collected.more = true;
            break;
        }
        let ids = match store.pack_ids(pack).await {
            Err(StoreError::NotFound { .. }) => continue,
            other => other?,
        };
        if used.len() < ids.len()
            && let Some(content) = needed_of(store, pack, used).await?
        {
            batch.content.join(content);
            batch.packs.push(pack);
            collected.repacked += 1;
            if batch.content.len() >= PACK {
                idle.extend(std::mem::take(&mut batch).write(store).await?);
            }
        }
    }
    idle.extend(batch.write(store).await?);
    collected.condemned = store.condemn(&idle, now).await?;
    // A removal that began meanwhile is another look's.
    if !collected.more && pending.is_some() && store.note(PENDING).await? == pending {
        store.set_note(PENDING, None).await?;
    }
    Ok(collected)
}

/// What runs and writers need.
#[derive(Default)]
struct Look {
    /// Packs that entries name.
    named: HashSet<PackId>,
    /// Blobs of file contents, by the packs that have them.
    blobs: HashMap<PackId, IdSet>,
}

/// How far a run was looked through.
type Seen = HashMap<RunId, (Head, usize)>;

impl Look {
    async fn take(store: &Arc<dyn Store>, reach: &dyn Reach) -> Result<Self, StoreError> {
        let (mut look, mut seen, mut wanted) = (Self::default(), Seen::new(), IdSet::default());
        let mut again = true;
        while again {
            look.read_logs(store, reach, &mut seen, &mut wanted).await?;
            wanted.extend(shared(store, reach).await?);
            // A writer that committed meanwhile had a note, or has an entry now. If something was removed meanwhile, a
            // writer that found it may have written its note since.
            again = look.read_logs(store, reach, &mut seen, &mut wanted).await?;
        }
        let wanted: Vec<BlobId> = wanted.into_iter().collect();
        for some in wanted.chunks(BATCH) {
            for (id, place) in some.iter().zip(store.locate(some).await?) {
                if let Some(pack) = place {
                    look.blobs.entry(pack).or_default().insert(*id);
                }
            }
        }
        Ok(look)
    }

    /// Reads the logs that have changed; says whether something was removed from those that were read before.
    async fn read_logs(
        &mut self,
        store: &Arc<dyn Store>,
        reach: &dyn Reach,
        seen: &mut Seen,
        wanted: &mut IdSet,
    ) -> Result<bool, StoreError> {
        let runs: BTreeSet<RunId> = store.list(RunQuery::default()).await?.into_iter().map(|run| run.id).collect();
        let known = seen.len();
        seen.retain(|run, _| runs.contains(run));
        let mut removed = seen.len() < known;
        for run in runs {
            let Some(head) = store.head(&run).await? else { continue };
            let before = seen.get(&run).copied();
            if before.is_some_and(|(before, _)| before == head) {
                continue;
            }
            match self.read_log(store, reach, &run, wanted).await {
                Ok(now) => {
                    removed |= before.is_some_and(|(_, removals)| now.1 != removals);
                    seen.insert(run, now);
                }
                // Removed meanwhile.
                Err(StoreError::NotFound { .. }) if store.summary(&run).await?.is_none() => removed = true,
                Err(other) => return Err(other),
            }
        }
        Ok(removed)
    }

    async fn read_log(
        &mut self,
        store: &Arc<dyn Store>,
        reach: &dyn Reach,
        run: &RunId,
        wanted: &mut IdSet,
    ) -> Result<(Head, usize), StoreError> {
        let log = RunLog::open(Arc::clone(store), run).await?;
        let entries = log.entries(Span { to: log.head().seq, ..Span::ALL }).await?;
        let removed = log.removed_in(&entries).await?;
        let named = entries.iter().flat_map(|entry| &entry.packs);
        self.named.extend(named.filter(|pack| !removed.packs.contains(pack)));
        let (mut snapshots, mut roots) = (Vec::new(), BTreeSet::new());
        let name = PartName::from(PartName::WORKSPACE);
        for entry in entries.iter().filter(|entry| !removed.checkpoints.contains(&entry.seq)) {
            if let Some(part) = entry.parts.get(&name)
                && roots.insert(part.root)
            {
                snapshots.push(log.load(part).await?);
                if let Some(announced) = reach.announced(&log.body(entry).await?) {
                    wanted.extend(reach_if_there(store, reach, announced).await?);
                }
            }
        }
        if !snapshots.is_empty() {
            wanted.extend(reach.reach(store, snapshots).await?);
        }
        let removals = entries.iter().filter(|entry| entry.kind == EntryKind::Removed).count();
        Ok((log.head(), removals))
    }
}

/// What a snapshot leads to that need not be there: nothing, if it isn't.
pub(super) async fn reach_if_there(
    store: &Arc<dyn Store>,
    reach: &dyn Reach,
    snapshot: Value,
) -> Result<HashSet<BlobId>, StoreError> {
    match reach.reach(store, vec![snapshot]).await {
        Err(StoreError::NotFound { .. }) => Ok(HashSet::new()),
        other => other,
    }
}

/// The needed blobs of a pack, if they are less than half of its bytes; `None` also for one that has no file contents.
async fn needed_of(store: &Arc<dyn Store>, pack: PackId, needed: &IdSet) -> Result<Option<FrameBuilder>, StoreError> {
    let bytes = match piton_store::pack(&**store, pack).await {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        other => other?,
    };
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
    packs: Vec<PackId>,
}

impl Batch {
    /// Writes what is needed of them; gives the packs that it takes the place of.
    async fn write(self, store: &Arc<dyn Store>) -> Result<Vec<PackId>, StoreError> {
        let ids = self.content.ids();
        if !ids.is_empty() {
            let bytes = self.content.seal(store.hashing(), LEVEL)?;
            piton_store::stage(&**store, bytes, &ids, Pin::new()).await?;
        }
        Ok(self.packs)
    }
}
