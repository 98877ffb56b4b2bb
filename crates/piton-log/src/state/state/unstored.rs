//! The nodes of a state that aren't stored yet.

use bytes::Bytes;
use piton_types::BlobId;

use super::{Fresh, offsets};
use crate::difference::Base;
use crate::state::cache::IdMap;

/// The room for unsaved nodes that is kept from one save to the next.
const MANY: usize = 1 << 10;

/// Nodes that edits left behind are dropped when the unsaved ones have grown by this much and doubled.
pub(super) const SWEEP_MIN: usize = 1 << 20;

/// Nodes that aren't stored yet; some of them may be left from earlier edits.
#[derive(Clone, Default)]
pub(super) struct Unstored {
    pub(super) nodes: IdMap<New>,
    /// Their ids in the order in which they came, each after those it refers to.
    pub(super) order: Vec<BlobId>,
    /// Edits that added to them. After the second one some are out of use: the root of the first, at least.
    pub(super) edits: u32,
    pub(super) bytes: usize,
    /// How many bytes there may be before those out of use are looked for.
    pub(super) limit: usize,
}

#[derive(Clone)]
pub(super) struct New {
    pub(super) node: Bytes,
    pub(super) origin: Origin,
}

/// Where a node comes from.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    /// A value that came in. Most often no caller passes through it again, and one that does gets it from the log.
    Value,
    /// An edit, and the stored node whose place it took, as far as that can be told.
    Edit(Option<BlobId>),
}

impl New {
    /// The stored node whose place it took.
    pub(super) const fn old(&self) -> Option<BlobId> {
        match self.origin {
            Origin::Value => None,
            Origin::Edit(old) => old,
        }
    }
}

impl Unstored {
    pub(super) fn insert(&mut self, id: BlobId, node: Bytes, origin: Origin) {
        self.bytes += node.len();
        self.nodes.insert(id, New { node, origin });
        self.order.push(id);
    }

    /// All of them, with their bases.
    pub(super) fn all(&self, base: impl Fn(&New) -> Option<(Base, Bytes)>) -> Vec<Fresh> {
        let mut all = Vec::with_capacity(self.order.len() + 1);
        let nodes = self.order.iter().filter_map(|id| Some((*id, self.nodes.get(id)?)));
        all.extend(nodes.map(|(id, new)| {
            let base = base(new);
            let references = base.as_ref().map_or_else(Vec::new, |_| offsets(&new.node));
            Fresh { id, node: new.node.clone(), base, references }
        }));
        all
    }

    /// Whether all of them are known to be in use.
    pub(super) const fn are_in_use(&self) -> bool {
        self.edits < 2
    }

    /// All of them are stored.
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.order.clear();
        // The next save will most likely be as small as most are.
        self.nodes.shrink_to(MANY);
        self.order.shrink_to(MANY);
        (self.edits, self.bytes, self.limit) = (0, 0, SWEEP_MIN);
    }
}
