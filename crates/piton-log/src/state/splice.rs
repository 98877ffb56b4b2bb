//! Replacing entries of a tree, with the nodes above rewritten and everything else left alone.
//!
//! On each level the entries are cut anew from the start of the first node that changes, up to where a
//! new cut meets an old one. The result is the tree that [`encode`](super::encode()) would have made.

use std::borrow::Cow;
use std::rc::Rc;

use bytes::Bytes;
use piton_types::BlobId;

use super::cut::{Cutter, HEAD_MAX, Sink, Top};
use super::grammar::Malformed;
use super::node::{Entries, Node};
use piton_store::{Hashing, StoreError};

/// Why an edit or a search didn't come to its end.
#[derive(Debug)]
pub(super) enum Fail {
    /// This node must be fetched first; then the whole is tried again.
    Missing(BlobId),
    /// It can't succeed.
    Error(StoreError),
}

impl From<Malformed> for Fail {
    fn from(malformed: Malformed) -> Self {
        Self::Error(malformed.into())
    }
}

impl From<StoreError> for Fail {
    fn from(error: StoreError) -> Self {
        Self::Error(error)
    }
}

/// Where edits and searches find nodes.
pub(super) trait Shelf {
    fn node(&self, id: BlobId) -> Result<Bytes, Fail>;
}

/// The nodes from the top of a tree to a leaf, with the place in each.
#[derive(Debug, Clone)]
pub(super) struct Spine(Vec<(Rc<Node>, usize)>);

impl Spine {
    /// Down to where `place` leads in each node.
    pub(super) fn descend(shelf: &impl Shelf, top: Node, mut place: impl FnMut(&Node) -> usize) -> Result<Self, Fail> {
        let mut spine = Self(Vec::with_capacity(usize::from(top.level()) + 1));
        let mut node = Rc::new(top);
        loop {
            let at = place(&node);
            spine.0.push((node.clone(), at));
            if node.level() == 0 {
                return Ok(spine);
            }
            node = Rc::new(child(shelf, &node, at)?);
        }
    }

    /// To the item at `index`, or to the end.
    pub(super) fn to_index(shelf: &impl Shelf, top: Node, index: u64) -> Result<Self, Fail> {
        let mut index = index;
        Self::descend(shelf, top, |node| {
            let (place, rest) = node.place_at(index);
            index = rest;
            place
        })
    }

    /// Behind the last item.
    pub(super) fn to_end(shelf: &impl Shelf, top: Node) -> Result<Self, Fail> {
        Self::to_index(shelf, top, u64::MAX)
    }

    /// To `key`, or to where it belongs.
    pub(super) fn to_key(shelf: &impl Shelf, top: Node, key: &[u8]) -> Result<Self, Fail> {
        Self::descend(shelf, top, |node| node.place_of(key))
    }

    /// The leaf and the place in it.
    pub(super) fn leaf(&self) -> Option<(&Node, usize)> {
        self.0.last().map(|(node, at)| (&**node, *at))
    }

    /// Whether its place in a map is that of an entry with this key.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.leaf().is_some_and(|(leaf, at)| at < leaf.len() && leaf.entry(at).key() == key)
    }

    /// Whether there is another node on the level of the last one.
    fn has_next(&self) -> bool {
        let above = self.0.iter().rev().skip(1);
        above.into_iter().any(|(node, at)| at + 1 < node.len())
    }

    /// The next node on the level of the last one.
    fn advance(&mut self, shelf: &impl Shelf) -> Result<bool, Fail> {
        let depth = self.0.len();
        loop {
            self.0.pop();
            let Some((node, at)) = self.0.last_mut() else { return Ok(false) };
            if *at + 1 < node.len() {
                *at += 1;
                break;
            }
        }
        while self.0.len() < depth {
            let Some((node, at)) = self.0.last() else { return Ok(false) };
            let next = child(shelf, node, *at)?;
            self.0.push((Rc::new(next), 0));
        }
        Ok(true)
    }
}

/// The node that the entry at `at` leads to.
pub(super) fn child(shelf: &impl Shelf, node: &Node, at: usize) -> Result<Node, Fail> {
    let child = Node::parse(&shelf.node(node.branch(at)?)?)?.ok_or(Malformed("a child is of another level or kind"))?;
    node.check_child(at, &child)?;
    Ok(child)
}

/// Replaces the `drop` entries from the spine's place on with `new` ones, and returns the new top.
pub(super) fn splice(
    hashing: &Hashing,
    shelf: &mut (impl Shelf + Sink),
    spine: Spine,
    drop: usize,
    new: &Entries,
) -> Result<Bytes, Fail> {
    let (mut rest, mut drop, mut new) = (spine, drop, Cow::Borrowed(new));
    loop {
        let Some((node, index)) = rest.0.last() else { return Err(Malformed("a tree has no top").into()) };
        let unclosed = (*index).min(node.len().saturating_sub(1));
        let room = node.bytes().len() + new.size();
        let mut cutter = Cutter::new(hashing, node.kind(), node.level(), Vec::with_capacity(room));
        cutter.take_over(node, unclosed);
        for at in unclosed..*index {
            cutter.push(node.entry(at), shelf);
        }
        for entry in new.iter() {
            cutter.push(entry, shelf);
        }
        let replaced = resume(shelf, &mut cutter, &rest, drop)?;
        rest.0.pop();
        if rest.0.is_empty() {
            let top = cutter.finish(shelf);
            return collapse(shelf, top);
        }
        new = Cow::Owned(cutter.into_branches(shelf));
        drop = replaced;
    }
}

/// Skips `drop` old entries and then cuts the old ones that follow, until an old cut is met again or
/// the level ends. Returns how many old nodes are replaced.
fn resume(
    shelf: &mut (impl Shelf + Sink),
    cutter: &mut Cutter<'_>,
    spine: &Spine,
    mut drop: usize,
) -> Result<usize, Fail> {
    let mut replaced = 1;
    // Most often an old cut is met at the end of the first node.
    let mut old = Cow::Borrowed(spine);
    loop {
        let Some((node, at)) = old.0.last() else { return Err(Malformed("a tree has no top").into()) };
        let mut at = *at;
        let skipped = drop.min(node.len() - at);
        drop -= skipped;
        at += skipped;
        for at in at..node.len() {
            cutter.push(node.entry(at), shelf);
        }
        if drop == 0 && cutter.at_boundary() {
            return Ok(replaced);
        }
        // An append is at the end of every level, and needs no path of its own there.
        if !old.has_next() || !old.to_mut().advance(shelf)? {
            return if drop == 0 { Ok(replaced) } else { Err(Malformed("a tree ends early").into()) };
        }
        replaced += 1;
    }
}

/// The node at the top, below any that have one child only. A tree that shrank may leave those.
pub(super) fn collapse(shelf: &impl Shelf, top: Top) -> Result<Bytes, Fail> {
    let mut bytes = Vec::with_capacity(HEAD_MAX + top.body.len());
    top.head.write(&mut bytes);
    bytes.extend_from_slice(&top.body);
    let mut bytes = Bytes::from(bytes);
    if top.head.level == 0 || top.head.count > 1 {
        return Ok(bytes);
    }
    loop {
        match Node::parse(&bytes)? {
            Some(node) if node.level() > 0 && node.len() == 1 => {
                let only = child(shelf, &node, 0)?;
                bytes = only.bytes();
            }
            _ => return Ok(bytes),
        }
    }
}
