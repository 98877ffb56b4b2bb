//! Reading trees: the nodes of a folder by its id, from memory or from the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use piton_log::ContentReader;
use piton_types::BlobId;

use super::Entry;
use super::format::{Leaf, MAX_DEPTH, Parsed, parse_leaves};
use crate::{RelPath, TreeError, WorkspaceError};

/// Where nodes come from.
pub(crate) trait Nodes: Sync {
    fn node(&self, id: BlobId) -> Result<Bytes, WorkspaceError>;

    /// Says that these will be asked for: a pack that has many of them is then opened and inflated once.
    fn expect(&self, ids: &[BlobId]) -> Result<(), WorkspaceError>;
}

/// How many bytes of nodes are kept at hand.
const KEPT: usize = 32 << 20;

/// Nodes that were read. What a node says never changes, so they are kept for as long as the workspace is
/// open, over all phases of a restore.
#[derive(Debug, Default)]
pub(crate) struct KeptNodes(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    nodes: HashMap<BlobId, Bytes>,
    bytes: usize,
}

impl KeptNodes {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, id: BlobId, node: &[u8]) {
        let mut kept = self.lock();
        if kept.bytes > KEPT {
            *kept = Kept::default();
        }
        // A copy: the bytes are a piece of a whole frame, which would be kept with them.
        if kept.nodes.insert(id, Bytes::copy_from_slice(node)).is_none() {
            kept.bytes += node.len();
        }
    }
}

/// Nodes from the store.
pub(crate) struct StoredNodes {
    reader: ContentReader,
    kept: Arc<KeptNodes>,
}

impl StoredNodes {
    pub(crate) fn new(reader: ContentReader, kept: Arc<KeptNodes>) -> Self {
        Self { reader, kept }
    }
}

impl Nodes for StoredNodes {
    fn node(&self, id: BlobId) -> Result<Bytes, WorkspaceError> {
        if let Some(node) = self.kept.lock().nodes.get(&id) {
            return Ok(node.clone());
        }
        Ok(self.reader.get_around(id, |near, node| self.kept.insert(near, node))?)
    }

    fn expect(&self, ids: &[BlobId]) -> Result<(), WorkspaceError> {
        let missing: Vec<BlobId> = {
            let kept = self.kept.lock();
            ids.iter().filter(|id| !kept.nodes.contains_key(id)).copied().collect()
        };
        if missing.len() > 1 {
            self.reader.get_all(&missing, |id, node| {
                self.kept.insert(id, &node);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// New nodes in front of others.
pub(crate) struct Overlay<'a> {
    pub(crate) new: &'a HashMap<BlobId, Bytes>,
    pub(crate) below: &'a dyn Nodes,
}

impl Nodes for Overlay<'_> {
    fn node(&self, id: BlobId) -> Result<Bytes, WorkspaceError> {
        match self.new.get(&id) {
            Some(node) => Ok(node.clone()),
            None => self.below.node(id),
        }
    }

    fn expect(&self, ids: &[BlobId]) -> Result<(), WorkspaceError> {
        let below: Vec<BlobId> = ids.iter().filter(|id| !self.new.contains_key(id)).copied().collect();
        self.below.expect(&below)
    }
}

/// The entries of a folder, in the order of their names.
pub(crate) fn folder(nodes: &dyn Nodes, id: BlobId) -> Result<Vec<Leaf>, WorkspaceError> {
    let children = match parse_leaves(&nodes.node(id)?)? {
        Parsed::Entries(leaves) => return Ok(leaves),
        Parsed::Branch(children) => children,
    };
    nodes.expect(&children.iter().map(|(child, _)| *child).collect::<Vec<_>>())?;
    let mut leaves: Vec<Leaf> = Vec::new();
    for (child, count) in children {
        let Parsed::Entries(more) = parse_leaves(&nodes.node(child)?)? else {
            return Err(TreeError("a branch leads to a branch").into());
        };
        let in_order = match (leaves.last(), more.first()) {
            (Some(last), Some(first)) => last.name < first.name,
            (_, None) => false,
            (None, _) => true,
        };
        if more.len() as u64 != count || !in_order {
            return Err(TreeError("a leaf doesn't fit its branch").into());
        }
        leaves.extend(more);
    }
    Ok(leaves)
}

/// What a snapshot says of `path`; for the root, the folder itself with no particular mode.
pub(crate) fn entry_at(nodes: &dyn Nodes, root: BlobId, path: &RelPath) -> Result<Option<Entry>, WorkspaceError> {
    let mut here = Entry::Folder { mode: 0o755, node: root };
    for name in path.names() {
        let Entry::Folder { node, .. } = here else { return Ok(None) };
        let mut leaves = folder(nodes, node)?;
        match leaves.binary_search_by(|leaf| leaf.name[..].cmp(name)) {
            Ok(at) => here = leaves.swap_remove(at).entry,
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(here))
}

/// Visits everything below a folder, each folder before what is in it, in the order of paths.
pub(crate) fn walk(
    nodes: &dyn Nodes,
    node: BlobId,
    path: &RelPath,
    visit: &mut dyn FnMut(RelPath, &Entry) -> Result<(), WorkspaceError>,
) -> Result<(), WorkspaceError> {
    // Not by recursion: folders may nest as deeply as a snapshot says.
    let mut open = vec![(path.clone(), entries(nodes, node)?)];
    while let Some((path, leaves)) = open.last_mut() {
        let Some(leaf) = leaves.next() else {
            open.pop();
            continue;
        };
        let path = path.join(&leaf.name);
        visit(path.clone(), &leaf.entry)?;
        if let Entry::Folder { node, .. } = leaf.entry {
            if open.len() > MAX_DEPTH {
                return Err(TreeError("folders nest too deeply").into());
            }
            open.push((path, entries(nodes, node)?));
        }
    }
    Ok(())
}

/// The entries of a folder; the folders in it will be asked for.
fn entries(nodes: &dyn Nodes, node: BlobId) -> Result<std::vec::IntoIter<Leaf>, WorkspaceError> {
    let leaves = folder(nodes, node)?;
    let folders = leaves.iter().filter_map(|leaf| match leaf.entry {
        Entry::Folder { node, .. } => Some(node),
        _ => None,
    });
    nodes.expect(&folders.collect::<Vec<_>>())?;
    Ok(leaves.into_iter())
}
