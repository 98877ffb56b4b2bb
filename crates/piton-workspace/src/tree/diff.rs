//! What differs between two trees. Folders that are equal are equal nodes and aren't looked at.

use piton_types::BlobId;

use super::format::MAX_DEPTH;
use super::nodes::{Nodes, entry_at, folder};
use super::{Entry, alike};
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

/// How many pairs of folders are compared at a time: their nodes are at hand together.
const TOGETHER: usize = 4096;

/// Everything that differs, in the order of paths.
pub(crate) fn diff(nodes: &dyn Nodes, old: BlobId, new: BlobId) -> Result<Vec<Difference>, WorkspaceError> {
    below(nodes, Pair { path: RelPath::default(), old: Some(old), new: Some(new) }, Vec::new())
}

/// The same of one path and what is below it. Without an old tree, everything is new.
pub(crate) fn diff_at(
    nodes: &dyn Nodes,
    old: Option<BlobId>,
    new: BlobId,
    path: &RelPath,
) -> Result<Vec<Difference>, WorkspaceError> {
    let old = match old {
        Some(old) => entry_at(nodes, old, path)?,
        None => None,
    };
    let new = entry_at(nodes, new, path)?;
    let pair = Pair { path: path.clone(), old: node_of(&old), new: node_of(&new) };
    let mut found = Vec::new();
    if !path.is_root() && !alike(&old, &new) {
        found.push(Difference { path: path.clone(), old, new });
    }
    below(nodes, pair, found)
}

/// The node of a folder in either tree; `None` where it isn't one.
struct Pair {
    path: RelPath,
    old: Option<BlobId>,
    new: Option<BlobId>,
}

/// Level by level, so that the nodes of a level are read together: a pack holds thousands of them, and to
/// inflate it for each anew took longer than all the rest of a restore.
fn below(nodes: &dyn Nodes, top: Pair, mut found: Vec<Difference>) -> Result<Vec<Difference>, WorkspaceError> {
    let mut level = vec![top];
    level.retain(|pair| pair.old != pair.new);
    while let Some(first) = level.first() {
        if first.path.names().count() > MAX_DEPTH {
            return Err(TreeError("folders nest too deeply").into());
        }
        let mut next = Vec::new();
        for together in level.chunks(TOGETHER) {
            let ids: Vec<BlobId> = together.iter().flat_map(|pair| [pair.old, pair.new]).flatten().collect();
            nodes.expect(&ids)?;
            together.iter().try_for_each(|pair| compare(nodes, pair, &mut found, &mut next))?;
        }
        level = next;
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The names of one folder, of which the trees say different things, and the folders to compare next.
fn compare(
    nodes: &dyn Nodes,
    pair: &Pair,
    found: &mut Vec<Difference>,
    next: &mut Vec<Pair>,
) -> Result<(), WorkspaceError> {
    let leaves = |node: Option<BlobId>| node.map_or_else(|| Ok(Vec::new()), |node| folder(nodes, node));
    let mut old = leaves(pair.old)?.into_iter().peekable();
    let mut new = leaves(pair.new)?.into_iter().peekable();
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
        if before.as_ref().map(|leaf| &leaf.entry) == after.as_ref().map(|leaf| &leaf.entry) {
            continue;
        }
        let path = pair.path.join(&leaf.name);
        let [before, after] = [before, after].map(|leaf| leaf.map(|leaf| leaf.entry));
        let (below_old, below_new) = (node_of(&before), node_of(&after));
        if below_old != below_new {
            next.push(Pair { path: path.clone(), old: below_old, new: below_new });
        }
        if !alike(&before, &after) {
            found.push(Difference { path, old: before, new: after });
        }
    }
}

fn node_of(entry: &Option<Entry>) -> Option<BlobId> {
    match entry {
        Some(Entry::Folder { node, .. }) => Some(*node),
        _ => None,
    }
}
