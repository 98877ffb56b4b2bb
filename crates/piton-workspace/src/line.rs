//! The one line of a folder's checkpoints: what `@`, `@-` and `@~3` count along, whoever made them.
//!
//! A state of the files is on the line once, by its newest checkpoint by hand, or else its newest one. A return to a
//! checkpoint stands where that checkpoint stood: what comes behind it on the line is what came before that one, so to
//! go one back twice leads two back. What was left behind is still in the timeline.

use piton_types::{BlobId, CheckpointKind};

use crate::Timeline;
use crate::record::{RestoreKind, Role};

impl Timeline {
    /// The places of the checkpoints on the line, newest first; none that was removed.
    pub fn line(&self) -> Vec<usize> {
        let mut line: Vec<usize> = Vec::new();
        // The tree of the last one on the line, and of what a return led to: what has it is the same state.
        let mut same: Vec<BlobId> = Vec::new();
        let mut next = self.moments.len().checked_sub(1);
        while let Some(place) = next {
            let moment = &self.moments[place];
            let (tree, by_hand) = (moment.snapshot.tree, moment.record.kind == CheckpointKind::Manual);
            let returned = match &moment.record.role {
                Role::Restored { restore: RestoreKind::To { checkpoint, partial: false }, .. } => {
                    self.find(checkpoint).filter(|to| *to < place)
                }
                _ => None,
            };
            match line.last_mut() {
                _ if moment.removed => {}
                Some(last) if same.contains(&tree) => {
                    let has_hand = self.moments[*last].record.kind == CheckpointKind::Manual;
                    if by_hand && !has_hand && self.moments[*last].snapshot.tree == tree {
                        *last = place;
                    }
                }
                _ => {
                    line.push(place);
                    same = vec![tree];
                }
            }
            next = match returned {
                Some(to) => {
                    same.push(self.moments[to].snapshot.tree);
                    Some(to)
                }
                None => place.checked_sub(1),
            };
        }
        line
    }
}
