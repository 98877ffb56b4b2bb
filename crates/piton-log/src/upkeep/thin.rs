//! Dropping what only removed checkpoints had: segments, and packs of state of which less than half is needed, are
//! written anew without the nodes that nothing refers to any more, and an entry names the packs that the run doesn't need.
//! Packs of file contents, which other runs may need too, are looked at by [`collect`](super::collect()).
//!
//! A crash in between leaves some segments as they were; the next call does the rest. Nothing is dropped that an
//! entry's body or a checkpoint refers to which wasn't removed, or that the newest entries, which aren't folded,
//! refer to. A writer can't come to rely on what is dropped: see [`RunLog::remove_checkpoints`].

use std::sync::Arc;

use bytes::Bytes;
use piton_types::{BlobId, PartName, RunId};

use super::graph::{Packs, RunGraph};
use crate::RunLog;
use crate::codec::references;
use crate::pack::Pack;
use crate::run_log::level_of;
use crate::segment::{self, SegmentEntries, SegmentNodes, Source};
use crate::state::{Fresh, IdSet};
use piton_store::{Defect, PackId, Pin, Section, SegmentInfo, Store, StoreError};

/// What was dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Thinned {
    /// Nodes in segments.
    pub nodes: u64,
    /// Packs that the run doesn't need any more.
    pub packs: u64,
}

/// Drops what only the removed checkpoints of a run had.
///
/// `Conflict` if another process wrote to the run meanwhile: nothing is wrong then, and the next call goes on.
pub async fn drop_removed(store: &Arc<dyn Store>, run: &RunId) -> Result<Thinned, StoreError> {
    // What isn't folded can't be dropped, so as much as possible is.
    RunLog::open(Arc::clone(store), run).await?.close().await?;
    let mut log = RunLog::open(Arc::clone(store), run).await?;
    let mut graph = RunGraph::read(store, run, &Packs::list(store).await?).await?;
    // Damage may hide what something needs: then nothing is dropped.
    if let Some(Defect { what, detail }) = graph.defects.pop() {
        return Err(StoreError::corrupt(what, detail));
    }
    let removed = log.removed_in(&graph.entries).await?.checkpoints;
    // The newest entries are left as they are, so all that they have counts.
    let mut open: Vec<BlobId> = std::mem::take(&mut graph.tail);
    for entry in &graph.entries {
        open.extend(references(&entry.body)?);
        for (name, part) in &entry.parts {
            let is_snapshot = name.0 == PartName::WORKSPACE;
            // Which tree it was is remembered even of a removed one: a few bytes that say who changed what.
            if is_snapshot || !removed.contains(&entry.seq) {
                open.push(part.root);
            }
        }
    }
    let mut live = IdSet::default();
    while let Some(id) = open.pop() {
        if live.insert(id)
            && let Some((_, refers)) = graph.nodes.get(&id)
        {
            open.extend(refers);
        }
    }
    let RunGraph { segments, packs, contents, .. } = graph;

    let mut thinned = Thinned::default();
    for info in segments {
        thinned.nodes += rebuild(store, run, info, &live).await?;
    }
    let pin = Pin::new();
    let (mut dropped, mut new) = (Vec::new(), Vec::new());
    for pack in packs.into_iter().filter(|pack| !contents.contains(pack)) {
        let ids = store.pack_ids(pack).await?;
        let needed = ids.iter().filter(|id| live.contains(id)).count();
        if needed == 0 {
            dropped.push(pack);
        } else if needed < ids.len()
            && let Some(smaller) = rewrite(store, pack, &live, pin).await?
        {
            new.push(smaller);
            dropped.push(pack);
        }
    }
    if !dropped.is_empty() {
        thinned.packs = dropped.len() as u64;
        log.replace_packs(&dropped, new, pin).await?;
    }
    Ok(thinned)
}

/// Writes a pack of state anew with what is live of it, if that is less than half.
async fn rewrite(store: &Arc<dyn Store>, pack: PackId, live: &IdSet, pin: Pin) -> Result<Option<PackId>, StoreError> {
    let nodes = Pack::open(piton_store::pack(&**store, pack).await?)?.nodes(|_| None)?;
    let size = |nodes: &[(BlobId, Bytes)]| nodes.iter().map(|(_, node)| node.len()).sum::<usize>();
    let whole = size(&nodes);
    let kept: Vec<_> = nodes.into_iter().filter(|(id, _)| live.contains(id)).collect();
    if size(&kept) * 2 >= whole {
        return Ok(None);
    }
    let ids: Vec<BlobId> = kept.iter().map(|(id, _)| *id).collect();
    let kept: Vec<Fresh> = kept.into_iter().map(|(id, node)| Fresh::whole(id, node)).collect();
    let (_, bytes) = Pack::build(store.hashing(), &kept)?;
    piton_store::stage(&**store, bytes, &ids, pin).await.map(Some)
}

/// Writes a segment anew with what is live of it; gives how many nodes are gone.
async fn rebuild(store: &Arc<dyn Store>, run: &RunId, info: SegmentInfo, live: &IdSet) -> Result<u64, StoreError> {
    let hashing = store.hashing();
    let opened = async || {
        let entries = store.section(run, info, Section::Entries).await?;
        Ok((entries, store.section(run, info, Section::Nodes).await?))
    };
    let (entries, nodes) = match opened().await {
        // Merged into a larger one meanwhile: the next call sees that.
        Err(StoreError::NotFound { .. }) => return Ok(0),
        other => other?,
    };
    let nodes = SegmentNodes::open(run, info, &nodes)?;
    let ids = nodes.ids(hashing)?;
    let dead = ids.iter().filter(|id| !live.contains(id)).count() as u64;
    if dead == 0 {
        return Ok(0);
    }
    let mut source =
        Source { run, info, entries: SegmentEntries::open(hashing, run, info, &entries)?, nodes: Vec::new() };
    for (place, id) in (0..).zip(ids).filter(|(_, id)| live.contains(id)) {
        source.nodes.push((*id, nodes.canonical(hashing, place)?));
    }
    let segment = segment::build(hashing, &source, level_of(info))?;
    match store.fold(run, segment).await {
        Err(StoreError::Conflict { .. }) => Ok(0),
        other => other.map(|()| dead),
    }
}
