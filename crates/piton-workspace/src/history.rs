//! The life of some paths: the checkpoints of the folder in which they are not what they were in the one
//! before.

use std::collections::BTreeMap;

use piton_types::BlobId;

use crate::changes::classify;
use crate::timeline::Moment;
use crate::tree::{Difference, Nodes, diff_at};
use crate::workspace::blocking;
use crate::{FileChange, RelPath, Workspace, WorkspaceError};

impl Workspace {
    /// The checkpoints of the folder in which something at or below `paths` changed, oldest first, each with
    /// what changed since the one before. In the first, everything is new.
    pub async fn history_of(&self, paths: Vec<RelPath>) -> Result<Vec<(Moment, Vec<FileChange>)>, WorkspaceError> {
        let timeline = self.timeline().await?;
        let nodes = self.nodes();
        blocking(move || {
            let mut before = None;
            let mut found = Vec::new();
            for moment in timeline.moments.into_iter().filter(|moment| !moment.removed) {
                let tree = moment.snapshot.tree;
                let changes = if before == Some(tree) { Vec::new() } else { between(&nodes, before, tree, &paths)? };
                before = Some(tree);
                if !changes.is_empty() {
                    found.push((moment, changes));
                }
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
