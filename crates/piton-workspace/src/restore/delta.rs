//! How many lines a planned change adds and removes (W4): for the user who is shown the plan.

use bytes::Bytes;

use super::{Plan, PlannedChange};
use crate::text_diff::is_binary;
use crate::tree::Entry;
use crate::workspace::blocking;
use crate::{TextDiff, Workspace, WorkspaceError, content};

/// The largest file whose lines are counted.
const MAX_TEXT: u64 = 16 << 20;

/// Lines that a change of a text adds and removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineDelta {
    /// How many come.
    pub added: usize,
    /// How many go.
    pub removed: usize,
}

impl Workspace {
    /// The lines that a change of `plan` adds and removes; `None` if it is no change of a text, or of one too large
    /// to compare. What is there now is read from the disk: a plan that was made a while ago may say less.
    pub async fn line_delta(&self, plan: &Plan, change: &PlannedChange) -> Result<Option<LineDelta>, WorkspaceError> {
        let sizes = [&change.now, &change.then].map(|entry| match entry {
            Some(Entry::File { size, .. }) => Some(*size),
            _ => None,
        });
        if sizes.iter().all(Option::is_none) || sizes.into_iter().flatten().any(|size| size > MAX_TEXT) {
            return Ok(None);
        }
        let fresh = match &change.then {
            Some(Entry::File { content, .. }) => plan.fresh.get(&content.id()).cloned(),
            _ => None,
        };
        let (workspace, change) = (self.clone(), change.clone());
        blocking(move || {
            let now = match change.now {
                Some(Entry::File { .. }) => workspace.read_now(&change.path)?,
                _ => Vec::new(),
            };
            let then = match (fresh, change.then) {
                (Some(fresh), _) => fresh,
                (None, Some(Entry::File { content, size, .. })) => {
                    let reader = workspace.reader();
                    content::load(&|id| Ok(reader.get(id)?), content, size)?
                }
                _ => Bytes::new(),
            };
            if is_binary(&now) || is_binary(&then) {
                return Ok(None);
            }
            let (added, removed) = TextDiff::compute(&now, &then).counts();
            Ok(Some(LineDelta { added, removed }))
        })
        .await
    }
}
