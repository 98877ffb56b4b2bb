//! Where a sequence of entries is cut into nodes, and the levels above.
//!
//! Whether a node ends after an entry depends on the entries of that node alone, from its first one to
//! this. So the cuts are the same however the sequence came to be, and an edit changes the cuts only
//! from its node to the next old cut that is met again.

use bytes::Bytes;
use piton_types::BlobId;

use super::grammar::{Head, INLINE_MAX, Kind, REFERENCE};
use super::node::{Entries, Entry, Node};
use piton_store::Hashing;

/// A node is closed when its entries reach this many bytes, if nothing closed it before.
pub(super) const NODE_MAX: usize = 2048;
/// The chance, of 2^32, that a byte of an entry closes a node: one in 512.
const CHANCE_PER_BYTE: u32 = 1 << 23;
/// Bytes of an entry beyond these don't raise the chance.
const WEIGHT_MAX: usize = 256;
/// The chance, of 2^32, that a key closes a node: one in 16.
const CHANCE_PER_KEY: u32 = 1 << 28;
/// How many entries a node of a map has at most.
const MAP_MAX: u64 = 64;

/// The most bytes that stand before the entries of a node.
pub(super) const HEAD_MAX: usize = 12;

/// Takes finished nodes. The bytes come in two parts so that the caller doesn't have to join them first.
pub(super) trait Sink {
    fn put(&mut self, head: &[u8], body: &[u8]) -> BlobId;

    /// The same for a node that is in one piece, which may be kept as it is.
    fn put_whole(&mut self, node: Bytes) -> BlobId {
        self.put(&node, &[])
    }
}

/// The topmost node of a tree, not yet put anywhere: it may be small enough to stand in its parent.
pub(super) struct Top {
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

impl Top {
    /// Writes it as a slot: itself if it is small, else a reference to it.
    pub(super) fn place(&self, out: &mut Vec<u8>, sink: &mut impl Sink) {
        place(self.head, &self.body, out, sink);
    }
}

/// Writes a container as a slot: itself if it is small, else a reference to it.
pub(super) fn place(head: Head, body: &[u8], out: &mut Vec<u8>, sink: &mut impl Sink) {
    let start = out.len();
    head.write(out);
    place_body(start, body, out, sink);
}

/// The same, behind a head that was written at `start`.
pub(super) fn place_body(start: usize, body: &[u8], out: &mut Vec<u8>, sink: &mut impl Sink) {
    if out.len() - start + body.len() <= INLINE_MAX {
        out.extend_from_slice(body);
    } else {
        let id = sink.put(&out[start..], body);
        out.truncate(start);
        write_reference(out, id);
    }
}

/// Writes a slot that refers to `id`.
pub(super) fn write_reference(out: &mut Vec<u8>, id: BlobId) {
    out.push(REFERENCE);
    out.extend_from_slice(id.as_bytes());
}

/// Cuts the entries of one level into nodes.
pub(super) struct Cutter<'h> {
    hashing: &'h Hashing,
    kind: Kind,
    level: u8,
    /// The entries of the node that is being filled.
    pub(super) open: Vec<u8>,
    count: u64,
    items: u64,
    key: (usize, usize),
    /// The node ends here; it is put only when another entry comes, so a single node never is.
    full: bool,
    up: Entries,
    head: Vec<u8>,
}

impl<'h> Cutter<'h> {
    /// `open` is an empty buffer, perhaps with room from an earlier use.
    pub(super) fn new(hashing: &'h Hashing, kind: Kind, level: u8, open: Vec<u8>) -> Self {
        Self {
            hashing,
            kind,
            level,
            open,
            count: 0,
            items: 0,
            key: (0, 0),
            full: false,
            up: Entries::default(),
            head: Vec::new(),
        }
    }

    /// Appends a whole entry.
    pub(super) fn push(&mut self, entry: Entry<'_>, sink: &mut impl Sink) {
        self.make_room(sink);
        let start = self.open.len();
        self.open.extend_from_slice(entry.bytes);
        self.close_entry(start, (start + entry.key.0, start + entry.key.1), entry.items);
    }

    /// Takes over the first `count` entries of a node that is cut again from its start. None of them is its last,
    /// so none of them closed it, and none does now.
    pub(super) fn take_over(&mut self, node: &Node, count: usize) {
        debug_assert!(self.count == 0 && count < node.len().max(1), "it begins with a node and doesn't reach its end");
        let Some(last) = count.checked_sub(1).map(|last| node.entry(last)) else { return };
        self.open.extend_from_slice(node.front(count));
        self.items = node.items_in_front(count);
        self.count = count as u64;
        let start = self.open.len() - last.bytes.len();
        self.key = (start + last.key.0, start + last.key.1);
    }

    /// Takes over a whole node, which stays as it is. It must begin where [a node would](Self::at_boundary).
    pub(super) fn pass(&mut self, branch: Entry<'_>, sink: &mut impl Sink) {
        debug_assert!(self.at_boundary(), "it begins where a node would");
        self.flush(sink);
        self.up.push(branch);
    }

    /// Must be called before an entry is written to [`open`](Self::open).
    pub(super) fn make_room(&mut self, sink: &mut impl Sink) {
        if self.full {
            self.flush(sink);
        }
    }

    /// The entry from `start` on is complete; `key` is where its key is.
    pub(super) fn close_entry(&mut self, start: usize, key: (usize, usize), items: u64) {
        self.count += 1;
        self.items += items;
        self.key = key;
        self.full = match self.kind {
            // Two entries at least, so that each level has at most half the nodes of the one below.
            _ if self.count < 2 => false,
            Kind::Map => self.count == MAP_MAX || self.key_hash(&self.open[key.0..key.1]) < CHANCE_PER_KEY,
            _ => self.open.len() >= NODE_MAX || self.closes(&self.open[start..]),
        };
    }

    /// Whether an entry of a list or long string closes its node. A longer one does so more often,
    /// which keeps the nodes alike in bytes.
    fn closes(&self, entry: &[u8]) -> bool {
        let id = match (self.kind, self.level, entry) {
            (Kind::List, 0, [REFERENCE, id @ ..]) => Some(id),
            (Kind::List, 0, _) => None,
            (_, _, id) => Some(id),
        };
        let hash = match id {
            Some([a, b, c, d, ..]) => u32::from_le_bytes([*a, *b, *c, *d]),
            _ => self.hashing.boundary(entry),
        };
        hash < entry.len().min(WEIGHT_MAX) as u32 * CHANCE_PER_BYTE
    }

    /// The level counts: else the keys that closed a node would all close one on the next level too.
    fn key_hash(&self, key: &[u8]) -> u32 {
        let mut short = [0; 64];
        if let Some(room) = short.get_mut(..=key.len()) {
            room[..key.len()].copy_from_slice(key);
            room[key.len()] = self.level;
            self.hashing.boundary(room)
        } else {
            self.hashing.boundary(&[key, &[self.level]].concat())
        }
    }

    /// Whether a node would begin with the next entry.
    pub(super) const fn at_boundary(&self) -> bool {
        self.full || self.count == 0
    }

    /// Puts the node that is being filled, if it has entries.
    pub(super) fn flush(&mut self, sink: &mut impl Sink) {
        if self.count == 0 {
            return;
        }
        self.head.clear();
        self.head.reserve(HEAD_MAX);
        Head { kind: self.kind, level: self.level, count: self.count }.write(&mut self.head);
        let id = sink.put(&self.head, &self.open);
        let key = (self.kind == Kind::Map).then(|| &self.open[self.key.0..self.key.1]);
        self.up.push_branch(key, id, self.items);
        self.open.clear();
        self.count = 0;
        self.items = 0;
        self.full = false;
    }

    /// Puts the rest and returns the entries of the level above.
    pub(super) fn into_branches(mut self, sink: &mut impl Sink) -> Entries {
        self.flush(sink);
        self.up
    }

    /// Ends the level and builds those above it, up to the one that is a single node.
    pub(super) fn finish(mut self, sink: &mut impl Sink) -> Top {
        // Each round at least halves the number of nodes: only the last of a level may have one entry.
        while !self.up.is_empty() {
            let mut above = Cutter::new(self.hashing, self.kind, self.level + 1, Vec::new());
            for entry in self.into_branches(sink).iter() {
                above.push(entry, sink);
            }
            self = above;
        }
        // An inner level is left without entries only when all of a list or map was removed.
        let level = if self.count == 0 { 0 } else { self.level };
        Top { head: Head { kind: self.kind, level, count: self.count }, body: self.open }
    }
}
