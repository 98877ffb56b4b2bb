//! Putting many entries into a map at once.
//!
//! A small map is gone through from its first entry to its last. Leaves that nothing is put into stay as they are, where
//! the cuts before them do; the levels above are cut anew. The result is the tree that [`encode`](super::encode()) would
//! have made.

use std::iter::Peekable;

use bytes::Bytes;

use super::cut::{Cutter, Sink};
use super::grammar::Kind;
use super::node::{Entries, Entry, Node};
use super::splice::{Fail, Shelf, Spine, child, collapse, splice};
use piton_store::Hashing;

/// The most entries of a map that is gone through.
const SMALL: u64 = 1 << 10;

/// Puts `new` entries, in the order of their keys and none twice, into a map, and returns the new top.
pub(super) fn merge(
    hashing: &Hashing,
    desk: &mut (impl Shelf + Sink),
    top: Node,
    new: &Entries,
) -> Result<Bytes, Fail> {
    if top.items()? > SMALL {
        return one_by_one(hashing, desk, top.bytes(), new);
    }
    let mut cutter = Cutter::new(hashing, Kind::Map, 0, Vec::with_capacity(top.bytes().len() + new.size()));
    let mut new = new.iter().peekable();
    if top.level() == 0 {
        put_into(&mut cutter, &top, &mut new, desk);
    } else {
        let above = above_leaves(desk, top)?;
        let mut branches = above.iter().flat_map(|node| (0..node.len()).map(move |at| (node, at))).peekable();
        while let Some((node, at)) = branches.next() {
            let branch = node.entry(at);
            let is_last = branches.peek().is_none();
            let is_meant = new.peek().is_some_and(|entry| is_last || entry.key() <= branch.key());
            if !is_meant && cutter.at_boundary() {
                cutter.pass(branch, desk);
                continue;
            }
            // What is complete is put before the next leaf is read, so that it is seen whose place it takes.
            cutter.make_room(desk);
            let leaf = child(desk, node, at)?;
            put_into(&mut cutter, &leaf, &mut new, desk);
        }
    }
    for entry in new {
        cutter.push(entry, desk);
    }
    let top = cutter.finish(desk);
    collapse(desk, top)
}

/// The entries of a leaf, and the new ones that belong before its last.
fn put_into<'n>(
    cutter: &mut Cutter<'_>,
    leaf: &Node,
    new: &mut Peekable<impl Iterator<Item = Entry<'n>>>,
    sink: &mut impl Sink,
) {
    for at in 0..leaf.len() {
        let old = leaf.entry(at);
        while let Some(entry) = new.next_if(|entry| entry.key() < old.key()) {
            cutter.push(entry, sink);
        }
        let instead = new.next_if(|entry| entry.key() == old.key());
        cutter.push(instead.unwrap_or(old), sink);
    }
}

/// The nodes whose children are the leaves.
pub(super) fn above_leaves(shelf: &impl Shelf, top: Node) -> Result<Vec<Node>, Fail> {
    let mut nodes = vec![top];
    while nodes.first().is_some_and(|node| node.level() > 1) {
        let mut below = Vec::new();
        for node in &nodes {
            for at in 0..node.len() {
                below.push(child(shelf, node, at)?);
            }
        }
        nodes = below;
    }
    Ok(nodes)
}

/// In a large map each entry has a way of its own.
fn one_by_one(hashing: &Hashing, desk: &mut (impl Shelf + Sink), mut top: Bytes, new: &Entries) -> Result<Bytes, Fail> {
    for entry in new.iter() {
        let Some(node) = Node::parse(&top)? else { break };
        let spine = Spine::to_key(desk, node, entry.key())?;
        let drop = usize::from(spine.has(entry.key()));
        let mut one = Entries::default();
        one.push(entry);
        top = splice(hashing, desk, spine, drop, &one)?;
    }
    Ok(top)
}
