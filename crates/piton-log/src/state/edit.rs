//! One change at a path: down to the container, a splice there, and a splice in each container around.
//!
//! Nothing here waits. A node that isn't at hand ends the attempt with [`Fail::Missing`]; since an
//! attempt reads a few nodes only, the caller fetches it and tries again from the start.

use std::borrow::Cow;

use bytes::Bytes;
use piton_types::{BlobId, Path, Segment};

use super::cut::{Sink, write_reference};
use super::encode::{chunks, write_blob};
use super::grammar::{CHUNK, INLINE_MAX, Kind, LONG_STRING, Malformed, Reader, STRING};
use super::merge::merge;
use super::node::{Entries, Node, slot_reference};
use super::splice::{Fail, Shelf, Spine, splice};
use piton_store::{Hashing, StoreError};

/// What to do at a path. Values are slots already, their nodes put.
#[derive(Debug, Clone)]
pub(super) enum Edit<'a> {
    /// Replace the item or entry, or create it.
    Set(Vec<u8>),
    /// Make room in a list.
    Insert(Vec<u8>),
    /// Take the item or entry out.
    Remove,
    /// Append to the list.
    Extend(Entries),
    /// Put entries, in the order of their keys and none twice, into the map.
    Merge(Entries),
    /// Append to the string.
    AppendText(&'a str),
}

/// Where a segment leads in a container.
struct Place<'p> {
    spine: Spine,
    /// Whether something is there, or it is only where something could be.
    occupied: bool,
    /// The key, if it is a map.
    key: Option<Cow<'p, str>>,
}

impl Place<'_> {
    /// What to put there.
    fn entries(&self, slot: &[u8]) -> Entries {
        let mut entries = Entries::default();
        match &self.key {
            Some(key) => entries.push_keyed(key.as_bytes(), slot),
            None => entries.push_slot(slot),
        }
        entries
    }
}

/// The node of the value at `path`.
pub(super) fn find(shelf: &impl Shelf, root: BlobId, path: &Path) -> Result<Option<Bytes>, Fail> {
    let mut node = shelf.node(root)?;
    for segment in path.segments() {
        match step(shelf, &node, segment)? {
            Some((_, child)) => node = child,
            None => return Ok(None),
        }
    }
    Ok(Some(node))
}

/// The new root, or `None` if there was nothing to remove.
pub(super) fn apply(
    hashing: &Hashing,
    desk: &mut (impl Shelf + Sink),
    root: BlobId,
    path: &Path,
    edit: &Edit<'_>,
) -> Result<Option<BlobId>, Fail> {
    let segments = path.segments();
    let (parents, last) = match (edit, segments.split_last()) {
        (Edit::Extend(_) | Edit::Merge(_) | Edit::AppendText(_), _) => (segments, None),
        (_, Some((last, parents))) => (parents, Some(last)),
        (_, None) => return Err(invalid(path, "the whole state can only be replaced").into()),
    };
    let mut around = Vec::with_capacity(parents.len());
    let mut node = desk.node(root)?;
    for (depth, segment) in parents.iter().enumerate() {
        let Some((place, child)) = step(desk, &node, segment)? else {
            return if matches!(edit, Edit::Remove) { Ok(None) } else { Err(missing(path, depth + 1).into()) };
        };
        around.push(place);
        node = child;
    }
    let changed = match (edit, last) {
        (Edit::Extend(entries), _) => extend(hashing, desk, &node, path, entries)?,
        (Edit::Merge(entries), _) => merge_into(hashing, desk, &node, path, entries)?,
        (Edit::AppendText(text), _) => append_text(hashing, desk, &node, path, text)?,
        (edit, Some(segment)) => change_part(hashing, desk, &node, path, segment, edit)?,
        (_, None) => None,
    };
    let Some(mut changed) = changed else { return Ok(None) };
    while let Some(place) = around.pop() {
        let entries = place.entries(&slot_of(desk, changed));
        changed = splice(hashing, desk, place.spine, 1, &entries)?;
    }
    Ok(Some(desk.put_whole(changed)))
}

/// Into one part of `node`; `None` if there is no such part.
fn step<'p>(shelf: &impl Shelf, node: &Bytes, segment: &'p Segment) -> Result<Option<(Place<'p>, Bytes)>, Fail> {
    let Some(place) = locate(shelf, node, segment)? else { return Ok(None) };
    if !place.occupied {
        return Ok(None);
    }
    let Some((leaf, at)) = place.spine.leaf() else { return Ok(None) };
    let slot = leaf.slot(at);
    let child = match slot_reference(&slot)? {
        Some(id) => shelf.node(id)?,
        None => slot,
    };
    Ok(Some((place, child)))
}

/// Where `segment` leads; `None` if it can't lead anywhere in `node`.
fn locate<'p>(shelf: &impl Shelf, node: &Bytes, segment: &'p Segment) -> Result<Option<Place<'p>>, Fail> {
    let Some(top) = Node::parse(node)? else { return Ok(None) };
    match top.kind() {
        Kind::List => {
            let items = top.items()?;
            match segment.as_index().map(|index| index as u64) {
                Some(index) if index <= items => {
                    let spine = Spine::to_index(shelf, top, index)?;
                    Ok(Some(Place { spine, occupied: index < items, key: None }))
                }
                _ => Ok(None),
            }
        }
        Kind::Map => {
            let key = segment.as_key();
            let spine = Spine::to_key(shelf, top, key.as_bytes())?;
            let occupied = spine.has(key.as_bytes());
            Ok(Some(Place { spine, occupied, key: Some(key) }))
        }
        Kind::Text | Kind::Bytes => Ok(None),
    }
}

/// Sets, inserts or removes one part of `node`.
fn change_part(
    hashing: &Hashing,
    desk: &mut (impl Shelf + Sink),
    node: &Bytes,
    path: &Path,
    segment: &Segment,
    edit: &Edit<'_>,
) -> Result<Option<Bytes>, Fail> {
    let Some(place) = locate(desk, node, segment)? else {
        let detail = match Node::parse(node)?.map(|node| node.kind()) {
            _ if matches!(edit, Edit::Remove) => return Ok(None),
            Some(Kind::List) if segment.as_index().is_some() => return Err(missing(path, path.segments().len()).into()),
            kind => no_keys(kind),
        };
        return Err(invalid(path, detail).into());
    };
    let (drop, slot) = match edit {
        Edit::Remove if !place.occupied => return Ok(None),
        Edit::Remove => (1, None),
        Edit::Insert(_) if place.key.is_some() => return Err(invalid(path, "only a list can be inserted into").into()),
        Edit::Insert(slot) => (0, Some(slot)),
        Edit::Set(slot) => (usize::from(place.occupied), Some(slot)),
        Edit::Extend(_) | Edit::Merge(_) | Edit::AppendText(_) => return Ok(None),
    };
    let entries = slot.map_or_else(Entries::default, |slot| place.entries(slot));
    splice(hashing, desk, place.spine, drop, &entries).map(Some)
}

fn extend(
    hashing: &Hashing,
    desk: &mut (impl Shelf + Sink),
    node: &Bytes,
    path: &Path,
    entries: &Entries,
) -> Result<Option<Bytes>, Fail> {
    match Node::parse(node)? {
        Some(top) if top.kind() == Kind::List => {
            let spine = Spine::to_end(desk, top)?;
            splice(hashing, desk, spine, 0, entries).map(Some)
        }
        _ => Err(invalid(path, "it isn't a list").into()),
    }
}

fn merge_into(
    hashing: &Hashing,
    desk: &mut (impl Shelf + Sink),
    node: &Bytes,
    path: &Path,
    entries: &Entries,
) -> Result<Option<Bytes>, Fail> {
    match Node::parse(node)? {
        Some(top) if top.kind() == Kind::Map => merge(hashing, desk, top, entries).map(Some),
        other => {
            // As for the first of them alone.
            let key = entries.iter().next().map_or_else(Cow::default, |entry| String::from_utf8_lossy(entry.key()));
            Err(invalid(&path.clone().key(key), no_keys(other.map(|node| node.kind()))).into())
        }
    }
}

/// Why a node that isn't a map has no entry.
const fn no_keys(kind: Option<Kind>) -> &'static str {
    match kind {
        Some(Kind::List) => "a list has indexes, not keys",
        _ => "it leads into a value that has no parts",
    }
}

/// A long string is cut anew from its last chunk on.
fn append_text(
    hashing: &Hashing,
    desk: &mut (impl Shelf + Sink),
    node: &Bytes,
    path: &Path,
    text: &str,
) -> Result<Option<Bytes>, Fail> {
    match node.first() {
        Some(&STRING) => {
            let old = Reader::at(node, 1).short()?;
            let mut slot = Vec::new();
            write_blob(hashing, Kind::Text, &[old, text.as_bytes()].concat(), &mut slot, desk);
            Ok(Some(match slot_reference(&slot)? {
                Some(id) => desk.node(id)?,
                None => slot.into(),
            }))
        }
        Some(&LONG_STRING) => {
            let top = Node::parse(node)?.ok_or(Malformed("a long string has no chunks"))?;
            let spine = Spine::descend(desk, top, |node| node.len() - 1)?;
            let (leaf, at) = spine.leaf().ok_or(Malformed("a long string has no chunks"))?;
            let chunk = desk.node(leaf.branch(at)?)?;
            let mut reader = Reader::new(&chunk);
            if reader.tag()? != CHUNK {
                return Err(Malformed("a chunk is wanted").into());
            }
            let end = [reader.sized()?, text.as_bytes()].concat();
            reader.end()?;
            let entries = chunks(hashing, &end, desk);
            splice(hashing, desk, spine, 1, &entries).map(Some)
        }
        _ => Err(invalid(path, "it isn't a string").into()),
    }
}

/// A node as a slot: itself if it is small, else a reference to it, which is put.
fn slot_of(sink: &mut impl Sink, node: Bytes) -> Bytes {
    if node.len() <= INLINE_MAX {
        return node;
    }
    let mut slot = Vec::with_capacity(33);
    write_reference(&mut slot, sink.put_whole(node));
    slot.into()
}

/// The first `depth` segments of `path` lead to nothing.
fn missing(path: &Path, depth: usize) -> StoreError {
    let mut prefix = Path::root();
    for segment in path.segments().iter().take(depth) {
        prefix.push(segment.clone());
    }
    StoreError::NotFound { what: format!("path {:?} of the state", prefix.to_string()) }
}

fn invalid(path: &Path, detail: &str) -> StoreError {
    StoreError::Invalid { what: format!("path {:?} of the state", path.to_string()), detail: detail.to_owned() }
}
