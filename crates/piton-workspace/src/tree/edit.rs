//! A tree with some paths changed: only the folders on the way are written anew.

use std::collections::BTreeMap;

use piton_store::Hashing;
use piton_types::BlobId;

use super::Entry;
use super::format::{FolderWriter, TimedEntry};
use super::nodes::{Nodes, folder};
use crate::{RelPath, WorkspaceError};

/// What each path is to become; `None` takes it away, with all below it that isn't named itself.
type Changes<'a> = BTreeMap<&'a [u8], Change<'a>>;

#[derive(Default)]
struct Change<'a> {
    entry: Option<&'a Option<Entry>>,
    below: Changes<'a>,
}

/// The root of the tree `root` with `changes`. A folder in `changes` keeps what it had, and gets what is
/// named below it; one that is needed and not there is made.
pub(crate) fn edit<'a>(
    nodes: &dyn Nodes,
    hashing: &Hashing,
    root: BlobId,
    changes: impl IntoIterator<Item = (&'a RelPath, &'a Option<Entry>)>,
    put: &mut dyn FnMut(&[u8]) -> Result<BlobId, WorkspaceError>,
) -> Result<BlobId, WorkspaceError> {
    let mut tree = Change::default();
    for (path, entry) in changes {
        let mut here = &mut tree;
        for name in path.names() {
            here = here.below.entry(name).or_default();
        }
        here.entry = Some(entry);
    }
    rewrite(nodes, hashing, Some(root), &tree.below, put)
}

fn rewrite(
    nodes: &dyn Nodes,
    hashing: &Hashing,
    node: Option<BlobId>,
    changes: &Changes<'_>,
    put: &mut dyn FnMut(&[u8]) -> Result<BlobId, WorkspaceError>,
) -> Result<BlobId, WorkspaceError> {
    let old = match node {
        Some(node) if changes.is_empty() => return Ok(node),
        Some(node) => folder(nodes, node)?,
        None => Vec::new(),
    };
    let mut entries: BTreeMap<Vec<u8>, Entry> = old.into_iter().map(|leaf| (leaf.name, leaf.entry)).collect();
    for (name, change) in changes {
        let before = entries.remove(*name);
        let after = match change.entry {
            None => before.clone(),
            Some(entry) => entry.clone(),
        };
        let node_before = match before {
            Some(Entry::Folder { node, .. }) => Some(node),
            _ => None,
        };
        let after = match after {
            Some(Entry::Folder { mode, .. }) => {
                Some(Entry::Folder { mode, node: rewrite(nodes, hashing, node_before, &change.below, put)? })
            }
            // Something below is to be there, so the folder is.
            None if change.below.values().any(Change::makes) => {
                Some(Entry::Folder { mode: 0o755, node: rewrite(nodes, hashing, None, &change.below, put)? })
            }
            other => other,
        };
        if let Some(after) = after {
            entries.insert(name.to_vec(), after);
        }
    }
    let mut writer = FolderWriter::new(hashing, false, &mut *put);
    for (name, entry) in &entries {
        writer.add(name, entry, TimedEntry::Nothing)?;
    }
    Ok(writer.finish()?.0)
}

impl Change<'_> {
    fn makes(&self) -> bool {
        matches!(self.entry, Some(Some(_))) || self.below.values().any(Self::makes)
    }
}
