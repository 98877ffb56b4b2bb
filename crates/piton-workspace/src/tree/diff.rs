//! What differs between two trees. Folders that are equal are equal nodes and aren't looked at.

use piton_types::BlobId;

use super::Entry;
use super::format::MAX_DEPTH;
use super::nodes::{Nodes, folder, walk};
use crate::{RelPath, TreeError, WorkspaceError};

/// One path of which two trees say different things. For a folder that both have, only its own mode; what
/// is in it comes on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub path: RelPath,
    /// What the first tree says.
    pub old: Option<Entry>,
    /// What the second tree says.
    pub new: Option<Entry>,
}

/// Everything that differs, in the order of paths.
pub(crate) fn diff(nodes: &dyn Nodes, old: BlobId, new: BlobId) -> Result<Vec<Difference>, WorkspaceError> {
    let mut found = Vec::new();
    folders(nodes, Some(old), Some(new), &RelPath::default(), &mut found)?;
    Ok(found)
}

fn folders(
    nodes: &dyn Nodes,
    old: Option<BlobId>,
    new: Option<BlobId>,
    path: &RelPath,
    found: &mut Vec<Difference>,
) -> Result<(), WorkspaceError> {
    if old == new {
        return Ok(());
    }
    if path.names().count() > MAX_DEPTH {
        return Err(TreeError("folders nest too deeply").into());
    }
    let (old, new) = match (old, new) {
        (Some(old), Some(new)) => (folder(nodes, old)?, folder(nodes, new)?),
        (Some(only), None) | (None, Some(only)) => {
            let gone = new.is_none();
            return walk(nodes, only, path, &mut |path, entry| {
                let (old, new) = if gone { (Some(entry.clone()), None) } else { (None, Some(entry.clone())) };
                found.push(Difference { path, old, new });
                Ok(())
            });
        }
        (None, None) => return Ok(()),
    };
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return Ok(()),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(old), Some(new)) => old.name.cmp(&new.name),
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { new.next() } else { None };
        let Some(leaf) = before.as_ref().or(after.as_ref()) else { return Ok(()) };
        let path = path.join(&leaf.name);
        let [before, after] = [before, after].map(|leaf| leaf.map(|leaf| leaf.entry));
        let alike = match (&before, &after) {
            (Some(before), Some(after)) => before.is_alike(after),
            _ => false,
        };
        let node = |entry: &Option<Entry>| match entry {
            Some(Entry::Folder { node, .. }) => Some(*node),
            _ => None,
        };
        let (below_old, below_new) = (node(&before), node(&after));
        if !alike {
            found.push(Difference { path: path.clone(), old: before, new: after });
        }
        folders(nodes, below_old, below_new, &path, found)?;
    }
}
