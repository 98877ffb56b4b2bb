//! A node with entries, taken apart: what edits and diffs work on.

use bytes::Bytes;
use piton_types::BlobId;

use super::grammar::{Head, INLINE_MAX, Kind, Malformed, REFERENCE, Reader, skip, write_varint};

/// Where one entry stands in the bytes around it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    start: usize,
    end: usize,
    key: (usize, usize),
    items: u64,
}

/// One entry of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    /// All its bytes.
    pub(super) bytes: &'a [u8],
    /// Where the key is in them; empty unless it is an entry of a map.
    pub(super) key: (usize, usize),
    /// How many items, or bytes of a long string, it stands for.
    pub(super) items: u64,
}

impl<'a> Entry<'a> {
    /// The key, or the last key below.
    pub(super) fn key(&self) -> &'a [u8] {
        &self.bytes[self.key.0..self.key.1]
    }

    /// What follows the key: a slot in a leaf, a reference elsewhere.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.key.1..]
    }
}

/// The most bytes that a number takes.
const VARINT_MAX: usize = 10;

/// Entries one after the other, with their marks.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries {
    buffer: Vec<u8>,
    marks: Vec<Mark>,
}

impl Entries {
    /// Appends an entry of a list: a slot.
    pub(super) fn push_slot(&mut self, slot: &[u8]) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(slot);
        self.mark(start, (start, start), 1);
    }

    /// Appends an entry of a map's leaf.
    pub(super) fn push_keyed(&mut self, key: &[u8], slot: &[u8]) {
        let start = self.buffer.len();
        self.buffer.reserve(VARINT_MAX + key.len() + slot.len());
        let key = self.push_key(key);
        self.buffer.extend_from_slice(slot);
        self.mark(start, key, 1);
    }

    /// Appends a reference to a node, or to a chunk, with `items` below; `key` is the last one below
    /// if it is a map.
    pub(super) fn push_branch(&mut self, key: Option<&[u8]>, id: BlobId, items: u64) {
        let start = self.buffer.len();
        self.buffer.reserve(2 * VARINT_MAX + key.map_or(0, <[u8]>::len) + id.as_bytes().len());
        let key = key.map_or((start, start), |key| self.push_key(key));
        self.buffer.extend_from_slice(id.as_bytes());
        write_varint(&mut self.buffer, items);
        self.mark(start, key, items);
    }

    /// Appends an entry as it stands elsewhere.
    pub(super) fn push(&mut self, entry: Entry<'_>) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(entry.bytes);
        self.mark(start, (start + entry.key.0, start + entry.key.1), entry.items);
    }

    /// What was written from `start` on is an entry. Most often it stays the only one.
    fn mark(&mut self, start: usize, key: (usize, usize), items: u64) {
        if self.marks.is_empty() {
            self.marks.reserve_exact(2);
        }
        self.marks.push(Mark { start, end: self.buffer.len(), key, items });
    }

    fn push_key(&mut self, key: &[u8]) -> (usize, usize) {
        write_varint(&mut self.buffer, key.len() as u64);
        let start = self.buffer.len();
        self.buffer.extend_from_slice(key);
        (start, self.buffer.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// The bytes of all of them.
    pub(super) fn size(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.marks.iter().map(|mark| entry(&self.buffer, mark))
    }
}

fn entry<'a>(bytes: &'a [u8], mark: &Mark) -> Entry<'a> {
    let key = (mark.key.0 - mark.start, mark.key.1 - mark.start);
    Entry { bytes: &bytes[mark.start..mark.end], key, items: mark.items }
}

/// A node with entries.
#[derive(Debug)]
pub(super) struct Node {
    bytes: Bytes,
    head: Head,
    marks: Vec<Mark>,
}

impl Node {
    /// Takes a node apart; `None` if it is a value without entries.
    pub(super) fn parse(bytes: &Bytes) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader::new(bytes);
        let tag = reader.tag()?;
        let Some(head) = Head::read(tag, &mut reader)? else { return Ok(None) };
        let mut marks = Vec::with_capacity(usize::try_from(head.count).unwrap_or(0));
        let mut last: Option<&[u8]> = None;
        for _ in 0..head.count {
            let start = reader.position();
            let mut key = (start, start);
            if head.kind == Kind::Map {
                let text = reader.text()?.as_bytes();
                if last.is_some_and(|last| last >= text) {
                    return Err(Malformed("keys are out of order"));
                }
                last = Some(text);
                key = (reader.position() - text.len(), reader.position());
            }
            let items = if head.level == 0 && matches!(head.kind, Kind::List | Kind::Map) {
                skip(&mut reader, 0, &mut |_| {})?;
                if reader.position() - key.1 > INLINE_MAX {
                    return Err(Malformed("a large node isn't referred to"));
                }
                1
            } else {
                reader.id()?;
                reader.varint()?
            };
            marks.push(Mark { start, end: reader.position(), key, items });
        }
        reader.end()?;
        Ok(Some(Self { bytes: bytes.clone(), head, marks }))
    }

    /// The whole node.
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    pub(super) const fn kind(&self) -> Kind {
        self.head.kind
    }

    pub(super) const fn level(&self) -> u8 {
        self.head.level
    }

    /// How many entries it has.
    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }

    /// How many items, or bytes of a long string, are below. Hostile numbers may not fit.
    pub(super) fn items(&self) -> Result<u64, Malformed> {
        self.marks
            .iter()
            .try_fold(0_u64, |sum, mark| sum.checked_add(mark.items))
            .ok_or(Malformed("a number of items is too large"))
    }

    /// The entry at `index`, which is below [`len`](Self::len).
    pub(super) fn entry(&self, index: usize) -> Entry<'_> {
        entry(&self.bytes, &self.marks[index])
    }

    /// The bytes of the first `count` entries.
    pub(super) fn front(&self, count: usize) -> &[u8] {
        match (self.marks.first(), count.checked_sub(1).and_then(|last| self.marks.get(last))) {
            (Some(first), Some(last)) => &self.bytes[first.start..last.end],
            _ => &[],
        }
    }

    /// How many items are in the first `count` entries or below them.
    pub(super) fn items_in_front(&self, count: usize) -> u64 {
        self.marks.iter().take(count).map(|mark| mark.items).sum()
    }

    /// The last key in it or below it.
    pub(super) fn last_key(&self) -> &[u8] {
        self.len().checked_sub(1).map_or(&[], |last| self.entry(last).key())
    }

    /// The bytes of the slot in a leaf.
    pub(super) fn slot(&self, index: usize) -> Bytes {
        let mark = &self.marks[index];
        self.bytes.slice(mark.key.1..mark.end)
    }

    /// The node or chunk that an entry of an inner node, or of a long string, leads to.
    pub(super) fn branch(&self, index: usize) -> Result<BlobId, Malformed> {
        Reader::new(self.entry(index).rest()).id()
    }

    /// Checks that `child` is what the entry at `index` says.
    pub(super) fn check_child(&self, index: usize, child: &Self) -> Result<(), Malformed> {
        let entry = self.entry(index);
        if child.kind() != self.kind() || self.level().checked_sub(1) != Some(child.level()) {
            Err(Malformed("a child is of another level or kind"))
        } else if child.items()? != entry.items {
            Err(Malformed("a number of items doesn't add up"))
        } else if child.last_key() != entry.key() {
            Err(Malformed("a last key isn't that of the child"))
        } else {
            Ok(())
        }
    }

    /// Which child of an inner node, or place in a leaf, belongs to `key`: the first whose key isn't
    /// less; in an inner node the last child if all are.
    pub(super) fn place_of(&self, key: &[u8]) -> usize {
        let place = self.marks.partition_point(|mark| &self.bytes[mark.key.0..mark.key.1] < key);
        if self.level() > 0 { place.min(self.len().saturating_sub(1)) } else { place }
    }

    /// Which child or entry holds the item at `index`, and its place in that; past the end, the last
    /// child of an inner node or the end of a leaf.
    pub(super) fn place_at(&self, mut index: u64) -> (usize, u64) {
        if self.level() == 0 {
            return (usize::try_from(index).unwrap_or(usize::MAX).min(self.len()), 0);
        }
        let last = self.len().saturating_sub(1);
        for (place, mark) in self.marks.iter().enumerate() {
            if index < mark.items || place == last {
                return (place, index);
            }
            index -= mark.items;
        }
        (last, index)
    }
}

/// The id in a slot, or `None` if the child itself stands there.
pub(super) fn slot_reference(slot: &[u8]) -> Result<Option<BlobId>, Malformed> {
    if slot.first() == Some(&REFERENCE) { Reader::at(slot, 1).id().map(Some) } else { Ok(None) }
}
