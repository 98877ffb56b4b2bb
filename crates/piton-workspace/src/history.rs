//! The life of some paths: the checkpoints of the folder in which they are not what they were in the one
//! before.

use std::collections::BTreeMap;

use piton_types::BlobId;

use crate::changes::classify;
use crate::timeline::{Maker, Moment};
use crate::tree::{Difference, Nodes, diff_at};
use crate::workspace::blocking;
use crate::{FileChange, RelPath, Workspace, WorkspaceError};

/// A checkpoint in which paths changed.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The checkpoint.
    pub moment: Moment,
    /// Who made the changes.
    pub made_by: Maker,
    /// What changed.
    pub changes: Vec<FileChange>,
}

impl Workspace {
    /// The checkpoints of the folder in which something at or below `paths` changed, oldest first, each with
    /// what changed since the one before, and who made that. In the first, everything is new.
    pub async fn history_of(&self, paths: Vec<RelPath>) -> Result<Vec<Changed>, WorkspaceError> {
        let timeline = self.timeline().await?;
        let nodes = self.nodes();
        blocking(move || {
            let mut before: Option<(usize, BlobId)> = None;
            let mut found = Vec::new();
            for (place, moment) in timeline.moments.iter().enumerate().filter(|(_, moment)| !moment.removed) {
                let tree = moment.snapshot.tree;
                let old = before.map(|(_, old)| old);
                let changes = if old == Some(tree) { Vec::new() } else { between(&nodes, old, tree, &paths)? };
                if !changes.is_empty() {
                    let made_by = before.map_or(Maker::User, |(before, _)| timeline.maker_between(before, place));
                    found.push(Changed { moment: moment.clone(), made_by, changes });
                }
                before = Some((place, tree));
            }
            Ok(found)
        })
        .await
    }
}

fn between(
    nodes: &dyn Nodes,
    old: Option<BlobId>,
    new: BlobId,
    paths: &[RelPath],
) -> Result<Vec<FileChange>, WorkspaceError> {
    // Paths may lie in one another.
    let mut differences: BTreeMap<RelPath, Difference> = BTreeMap::new();
    for path in paths {
        let changed = diff_at(nodes, old, new, path)?;
        differences.extend(changed.into_iter().map(|difference| (difference.path.clone(), difference)));
    }
    Ok(classify(differences.into_values().collect()))
}
