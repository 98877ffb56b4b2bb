//! Finding packs that no run needs.
//!
//! A run says which packs it relies on when it commits. Packs of file contents may be needed by other runs as well,
//! which share trees without saying so; so before one is condemned on which no run says that it relies, every
//! snapshot of every run is looked through, and a run that is found to need a pack is noted down.
//!
//! The order makes it safe: first a new era begins, which makes commits fail that found what they share before it.
//! Whatever commits later shares only what some snapshot has that is there now, and that is what is looked through.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use piton_types::{BlobId, RunSummary, Timestamp, Value};

use super::repack::{self, Places};
use super::{Transcribed, Transcript};
use crate::RunLog;
use crate::framed;
use piton_store::{PackId, PackState, Reliance, RunQuery, Store, StoreError};

/// How many ids of blobs are looked for in one call. What is beyond waits for the next.
const MOST_IDS: usize = 1 << 20;

/// Knows what snapshots consist of.
#[async_trait]
pub trait Reach: Send + Sync {
    /// The blobs that these values of the part `workspace` lead to.
    async fn reach(&self, store: &Arc<dyn Store>, snapshots: Vec<Value>) -> Result<HashSet<BlobId>, StoreError>;

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Packs that are condemned now and weren't before.
    pub condemned: u64,
    /// Packs on which a run relies though it hadn't said so.
    pub adopted: u64,
}

/// Condemns the packs that no run needs.
pub async fn collect(store: &Arc<dyn Store>, reach: &dyn Reach, now: Timestamp) -> Result<Collected, StoreError> {
    let mut unclaimed: BTreeSet<PackId> = BTreeSet::new();
    let mut wanted = Places::default();
    let mut after = None;
    loop {
        let page = store.packs(after, 1000).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        for pack in page.iter().filter(|pack| pack.state == PackState::Kept && pack.runs.is_empty()) {
            if wanted.len() >= MOST_IDS {
                break;
            }
            // State that went ahead of its commit is never shared between runs.
            if framed::is_content(&**store, pack.id).await? {
                wanted.add(pack.id, store.pack_ids(pack.id).await?);
            }
            unclaimed.insert(pack.id);
        }
    }
    let mut collected = Collected::default();
    if unclaimed.is_empty() {
        return Ok(collected);
    }
    if wanted.len() > 0 {
        wanted.sort();
        store.next_era().await?;
        for run in store.list(RunQuery::default()).await? {
            let adopted = match adopt(store, reach, &run, &wanted, &unclaimed).await {
                // Removed meanwhile.
                Err(StoreError::NotFound { .. }) if store.summary(&run.id).await?.is_none() => continue,
                other => other?,
            };
            unclaimed.retain(|pack| !adopted.contains(pack));
            collected.adopted += adopted.len() as u64;
        }
    }
    let condemned: Vec<PackId> = unclaimed.into_iter().collect();
    collected.condemned = store.condemn(&condemned, now).await?;
    for pack in condemned {
        repack::forget(&**store, pack).await?;
    }
    Ok(collected)
}

/// Which of the packs have to stay because of a run. It is noted down that it relies on them, or on others that have
/// the same blobs.
async fn adopt(
    store: &Arc<dyn Store>,
    reach: &dyn Reach,
    run: &RunSummary,
    wanted: &Places,
    unclaimed: &BTreeSet<PackId>,
) -> Result<BTreeSet<PackId>, StoreError> {
    let log = RunLog::open(Arc::clone(store), &run.id).await?;
    let Some(snapshots) = repack::snapshots(&log).await? else { return Ok(BTreeSet::new()) };
    let mut needed = reach.reach(store, snapshots).await?;
    needed.retain(|id| wanted.of(id).next().is_some());
    if needed.is_empty() {
        return Ok(BTreeSet::new());
    }
    // What a pack has that it relies on anyway it needs from no other. Should it let go of that pack, then for a newer
    // one that has the same.
    let mut after = None;
    while !needed.is_empty() {
        let page = store.packs(after, 1000).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        for pack in page.iter().filter(|pack| pack.runs.contains(&run.id) && !unclaimed.contains(&pack.id)) {
            match store.pack_ids(pack.id).await {
                Ok(ids) => needed.retain(|id| ids.binary_search(id).is_err()),
                Err(StoreError::NotFound { .. }) => {}
                Err(other) => return Err(other),
            }
        }
    }
    let needed: Vec<BlobId> = needed.into_iter().collect();
    let all = || needed.iter().flat_map(|id| wanted.of(id)).collect();
    let found: Option<BTreeSet<PackId>> = store.locate(&needed).await?.into_iter().collect();
    let Some(found) = found else { return Ok(all()) };
    if found.is_empty() {
        return Ok(found);
    }
    let reliance = Reliance { also: found.iter().copied().collect(), no_more: Vec::new() };
    match store.rely(&run.id, log.head(), reliance).await {
        Ok(()) => Ok(found.intersection(unclaimed).copied().collect()),
        // It went on meanwhile, or one of them is just going. It needs them all the same, and next time it is noted down.
        Err(StoreError::Conflict { .. }) => Ok(all()),
        Err(StoreError::NotFound { .. }) if store.summary(&run.id).await?.is_some() => Ok(all()),
        Err(other) => Err(other),
    }
}
