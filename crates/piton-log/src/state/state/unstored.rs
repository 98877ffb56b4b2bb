//! The nodes of a state that aren't stored yet.

use bytes::Bytes;
use piton_types::BlobId;

use crate::state::cache::IdMap;

/// Nodes that edits left behind are dropped when the unsaved ones have grown by this much and doubled.
pub(super) const SWEEP_MIN: usize = 1 << 20;

/// Nodes that aren't stored yet; some of them may be left from earlier edits.
#[derive(Clone, Default)]
pub(super) struct Unstored {
    pub(super) nodes: IdMap<New>,
    pub(super) bytes: usize,
    /// How many bytes there may be before those out of use are looked for.
    pub(super) limit: usize,
}

#[derive(Clone)]
pub(super) struct New {
    pub(super) node: Bytes,
    /// The stored node whose place it took, as far as that can be told.
    pub(super) old: Option<BlobId>,
}

impl Unstored {
    pub(super) fn insert(&mut self, id: BlobId, node: Bytes, old: Option<BlobId>) {
        self.bytes += node.len();
        self.nodes.insert(id, New { node, old });
    }

    /// All of them are stored.
    pub(super) fn clear(&mut self) {
        self.nodes = IdMap::default();
        (self.bytes, self.limit) = (0, SWEEP_MIN);
    }
}
