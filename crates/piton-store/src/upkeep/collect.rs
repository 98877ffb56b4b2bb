//! Finding packs that nobody needs.
//!
//! A run says which packs it relies on when it commits. Packs of file contents may be needed by other runs as well,
//! which share trees without saying so; so before one is condemned on which no run says that it relies, every
//! snapshot of every run is looked through, and a run that is found to need a pack is noted down.
//!
//! The order makes it safe: first a new era begins, which makes commits fail that found what they share before it.
//! Whatever commits later shares only what some snapshot has that is there now, and that is what is looked through.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use piton_types::{BlobId, PartName, RunSummary, Timestamp, Value};

use super::{Transcribed, Transcript};
use crate::framed;
use crate::{PackId, PackState, Reliance, RunLog, RunQuery, Span, Store, StoreError};

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

/// Condemns the packs that nobody needs.
pub async fn collect(store: &Arc<dyn Store>, reach: &dyn Reach, now: Timestamp) -> Result<Collected, StoreError> {
    let mut unclaimed: BTreeSet<PackId> = BTreeSet::new();
    let mut wanted: HashMap<BlobId, PackId> = HashMap::new();
    let mut after = None;
    let mut contents = false;
    loop {
        let page = store.packs(after, 1000).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        for pack in page.iter().filter(|pack| pack.state == PackState::Kept && pack.runs.is_empty()) {
            if wanted.len() >= MOST_IDS {
                break;
            }
            // State that went ahead of its commit is never shared between runs.
            if store.pack(pack.id).await?.first() == Some(&framed::FORM) {
                contents = true;
                wanted.extend(store.pack_ids(pack.id).await?.into_iter().map(|id| (id, pack.id)));
            }
            unclaimed.insert(pack.id);
        }
    }
    let mut collected = Collected::default();
    if unclaimed.is_empty() {
        return Ok(collected);
    }
    if contents {
        store.next_era().await?;
        let mut page: Vec<RunSummary> = store.list(RunQuery::default()).await?;
        for run in page.drain(..) {
            let adopted = match adopt(store, reach, &run, &wanted).await {
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
    Ok(collected)
}

/// Which of the packs a run needs; it is noted down that it does.
async fn adopt(
    store: &Arc<dyn Store>,
    reach: &dyn Reach,
    run: &RunSummary,
    wanted: &HashMap<BlobId, PackId>,
) -> Result<BTreeSet<PackId>, StoreError> {
    let log = RunLog::open(Arc::clone(store), &run.id).await?;
    let entries = log.entries(Span::ALL).await?;
    let name = PartName::from(PartName::WORKSPACE);
    if !entries.iter().any(|entry| entry.parts.contains_key(&name)) {
        return Ok(BTreeSet::new());
    }
    let removed = log.removed_in(&entries).await?.checkpoints;
    let mut snapshots = Vec::new();
    for entry in entries.iter().filter(|entry| !removed.contains(&entry.seq)) {
        if let Some(part) = entry.parts.get(&name) {
            snapshots.push(log.load(part.root).await?);
        }
    }
    let needed: BTreeSet<PackId> =
        reach.reach(store, snapshots).await?.iter().filter_map(|id| wanted.get(id).copied()).collect();
    if !needed.is_empty() {
        let reliance = Reliance { also: needed.iter().copied().collect(), no_more: Vec::new() };
        match store.rely(&run.id, log.head(), reliance).await {
            // It went on meanwhile. It needs them all the same, and next time it is noted down.
            Err(StoreError::Conflict { .. }) => {}
            other => other?,
        }
    }
    Ok(needed)
}
