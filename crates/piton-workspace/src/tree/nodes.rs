//! Reading trees: the nodes of a folder by its id, from memory or from the store.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use piton_store::ContentReader;
use piton_types::BlobId;

use super::Entry;
use super::format::{Leaf, MAX_DEPTH, Parsed, parse_leaves};
use crate::{RelPath, TreeError, WorkspaceError};

/// Where nodes come from.
pub(crate) trait Nodes: Sync {
    fn node(&self, id: BlobId) -> Result<Bytes, WorkspaceError>;
}

/// How many nodes are kept at hand.
const KEPT: usize = 4096;

/// Nodes from the store.
pub(crate) struct StoredNodes<'a> {
    reader: &'a ContentReader,
    kept: Mutex<HashMap<BlobId, Bytes>>,
}

impl<'a> StoredNodes<'a> {
    pub(crate) fn new(reader: &'a ContentReader) -> Self {
        Self { reader, kept: Mutex::default() }
    }
}

impl Nodes for StoredNodes<'_> {
    fn node(&self, id: BlobId) -> Result<Bytes, WorkspaceError> {
        if let Some(node) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Ok(node.clone());
        }
        let node = self.reader.get(id)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(id, node.clone());
        Ok(node)
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
}

/// The entries of a folder, in the order of their names.
pub(crate) fn folder(nodes: &dyn Nodes, id: BlobId) -> Result<Vec<Leaf>, WorkspaceError> {
    let children = match parse_leaves(&nodes.node(id)?)? {
        Parsed::Entries(leaves) => return Ok(leaves),
        Parsed::Branch(children) => children,
    };
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

/// Visits everything below a folder, each folder before what is in it.
pub(crate) fn walk(
    nodes: &dyn Nodes,
    node: BlobId,
    path: &RelPath,
    visit: &mut dyn FnMut(RelPath, &Entry) -> Result<(), WorkspaceError>,
) -> Result<(), WorkspaceError> {
    fn below(
        nodes: &dyn Nodes,
        node: BlobId,
        path: &RelPath,
        depth: usize,
        visit: &mut dyn FnMut(RelPath, &Entry) -> Result<(), WorkspaceError>,
    ) -> Result<(), WorkspaceError> {
        if depth > MAX_DEPTH {
            return Err(TreeError("folders nest too deeply").into());
        }
        for leaf in folder(nodes, node)? {
            let path = path.join(&leaf.name);
            visit(path.clone(), &leaf.entry)?;
            if let Entry::Folder { node, .. } = leaf.entry {
                below(nodes, node, &path, depth + 1, visit)?;
            }
        }
        Ok(())
    }
    below(nodes, node, path, path.names().count(), visit)
}
