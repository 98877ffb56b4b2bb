//! What a snapshot consists of: every blob that it leads to, for the code that gives space back or copies it.

use std::collections::HashSet;
use std::sync::Arc;

use piton_log::ContentReader;
use piton_log::upkeep::{Reach, Transcribed, Transcript};
use piton_store::{Store, StoreError, async_trait};
use piton_types::{BlobId, Value, from_value};
use tokio::runtime::Handle;

use crate::content::{self, Piece};
use crate::record::{Record, Role};
use crate::snapshot::Snapshot;
use crate::transcribe::transcribe;
use crate::tree::{
    Content, Entry, MAX_DEPTH, Nodes, Parsed, ParsedTimes, StoredNodes, TimedEntry, folder, parse_leaves, parse_times,
};
use crate::{RelPath, TreeError, WorkspaceError};

/// Knows what snapshots of files consist of.
#[derive(Debug, Clone, Copy, Default)]
pub struct SnapshotReach;

#[async_trait]
impl Reach for SnapshotReach {
    async fn reach(&self, store: &Arc<dyn Store>, snapshots: Vec<Value>) -> Result<HashSet<BlobId>, StoreError> {
        let reader = ContentReader::new(Arc::clone(store), Handle::current());
        let work = move || {
            let mut found = HashSet::new();
            let nodes = StoredNodes::new(reader, Arc::default());
            for value in snapshots {
                let snapshot: Snapshot =
                    from_value(value).map_err(|error| StoreError::corrupt("a snapshot", error.to_string()))?;
                let mut walk = Walk { nodes: &nodes, found: &mut found };
                walk.folder(snapshot.tree, snapshot.times, 0)?;
            }
            Ok(found)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done.map_err(|error: WorkspaceError| match error {
                WorkspaceError::Store(error) => error,
                other => StoreError::corrupt("a snapshot", other.to_string()),
            }),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    async fn transcribe(
        &self,
        stores: [&Arc<dyn Store>; 2],
        transcript: &mut Transcript,
        snapshot: Value,
        body: Value,
        is_removed: bool,
    ) -> Result<Transcribed, StoreError> {
        transcribe(stores, transcript, snapshot, body, is_removed).await
    }

    fn announced(&self, body: &Value) -> Option<Value> {
        let Role::Backup { result, .. } = from_value::<Record>(body.clone()).ok()?.role else { return None };
        Some(Snapshot { tree: result, times: None, files: 0, bytes: 0, excluded: 0 }.to_value())
    }

    fn size(&self, snapshot: &Value) -> u64 {
        from_value::<Snapshot>(snapshot.clone()).map_or(0, |snapshot| snapshot.bytes)
    }

    async fn affected(
        &self,
        store: &Arc<dyn Store>,
        snapshot: Value,
        damaged: &HashSet<BlobId>,
    ) -> Result<Vec<String>, StoreError> {
        let snapshot: Snapshot = match from_value(snapshot) {
            Ok(snapshot) => snapshot,
            Err(error) => return Ok(vec![format!("all of them: {error}")]),
        };
        let reader = || ContentReader::new(Arc::clone(store), Handle::current());
        let (nodes, reader) = (reader(), reader());
        let damaged = damaged.clone();
        let work = move || {
            let mut found = Vec::new();
            let nodes = StoredNodes::new(nodes, Arc::default());
            affected(&nodes, snapshot.tree, &RelPath::default(), &damaged, 0, &mut found);
            // That a blob is missing shows only when it is looked for.
            if found.is_empty() {
                let mut reached = HashSet::new();
                let mut walk = Walk { nodes: &nodes, found: &mut reached };
                if let Err(error) = walk.folder(snapshot.tree, snapshot.times, 0) {
                    found.push(error.to_string());
                } else if let Err(error) = reader.by_pack(&reached.into_iter().collect::<Vec<_>>()) {
                    found.push(error.to_string());
                }
            }
            found
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(found) => Ok(found),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

/// More than these aren't named.
const NAMED: usize = 100;

/// Paths below a folder that can't be restored.
fn affected(
    nodes: &dyn Nodes,
    id: BlobId,
    path: &RelPath,
    damaged: &HashSet<BlobId>,
    depth: usize,
    found: &mut Vec<String>,
) {
    if found.len() >= NAMED {
        return;
    }
    let Ok(leaves) = folder(nodes, id) else {
        found.push(format!("{path}/"));
        return;
    };
    for leaf in leaves {
        let path = path.join(&leaf.name);
        match leaf.entry {
            Entry::Folder { node, .. } if depth < MAX_DEPTH => affected(nodes, node, &path, damaged, depth + 1, found),
            Entry::File { content, size, .. } => {
                let is_lost = |id: BlobId| damaged.contains(&id);
                let lost = is_lost(content.id())
                    || matches!(content, Content::Pieces(list) if match nodes.node(list) {
                        Ok(bytes) => content::pieces(&bytes, size).is_ok_and(|pieces| {
                            pieces.iter().any(|piece| matches!(piece, Piece::Blob { id, .. } if is_lost(*id)))
                        }),
                        Err(_) => true,
                    });
                if lost && found.len() < NAMED {
                    found.push(path.to_string());
                }
            }
            _ => {}
        }
    }
}

struct Walk<'a> {
    nodes: &'a dyn Nodes,
    found: &'a mut HashSet<BlobId>,
}

impl Walk<'_> {
    /// A folder and its times. Where a folder was seen with the same times, so was everything below it.
    fn folder(&mut self, id: BlobId, times: Option<BlobId>, depth: usize) -> Result<(), WorkspaceError> {
        if depth > MAX_DEPTH {
            return Err(TreeError("folders nest too deeply").into());
        }
        let new = self.found.insert(id);
        let new_times = times.is_some_and(|times| self.found.insert(times));
        if !new && !new_times {
            return Ok(());
        }
        match parse_leaves(&self.nodes.node(id)?)? {
            Parsed::Branch(children) => {
                let times = match times {
                    Some(times) => match parse_times(&self.nodes.node(times)?, &[])? {
                        ParsedTimes::Branch(times) => times.into_iter().map(Some).collect(),
                        ParsedTimes::Times(_) => return Err(TreeError("times don't fit their folder").into()),
                    },
                    None => vec![None; children.len()],
                };
                if times.len() != children.len() {
                    return Err(TreeError("times don't fit their folder").into());
                }
                for ((child, _), times) in children.into_iter().zip(times) {
                    self.folder(child, times, depth + 1)?;
                }
            }
            Parsed::Entries(leaves) => {
                let times = match times {
                    Some(times) => match parse_times(&self.nodes.node(times)?, &leaves)? {
                        ParsedTimes::Times(times) => times,
                        ParsedTimes::Branch(_) => return Err(TreeError("times don't fit their folder").into()),
                    },
                    None => vec![TimedEntry::Nothing; leaves.len()],
                };
                for (leaf, time) in leaves.into_iter().zip(times) {
                    match (leaf.entry, time) {
                        (Entry::Folder { node, .. }, TimedEntry::Folder(times)) => {
                            self.folder(node, Some(times), depth + 1)?;
                        }
                        (Entry::Folder { node, .. }, _) => self.folder(node, None, depth + 1)?,
                        (Entry::File { content, size, .. }, _) => self.file(content, size)?,
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, content: Content, size: u64) -> Result<(), WorkspaceError> {
        if self.found.insert(content.id())
            && let Content::Pieces(list) = content
        {
            for piece in content::pieces(&self.nodes.node(list)?, size)? {
                if let Piece::Blob { id, .. } = piece {
                    self.found.insert(id);
                }
            }
        }
        Ok(())
    }
}
