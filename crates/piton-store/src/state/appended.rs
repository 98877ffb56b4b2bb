//! A state named by what was appended to another one.
//!
//! A checkpoint whose list has grown by a message would have new nodes from the list's last leaf up to the root, which
//! are more than the message. So within a group of entries it may name its state by a *record* instead: a list of what
//! was there before, where it was appended to, and the items. To whoever looks for nodes that is a value like any
//! other. What was there before is the root of a state, or another record, and how many there are is said where the
//! first of them is named.
//!
//! What is put into a map is told in the same way: each item is a map of one entry, which is set.

use std::collections::BTreeMap;

use bytes::Bytes;
use piton_types::{BlobId, Path, Value};

use super::cut::{HEAD_MAX, Sink, place, write_reference};
use super::grammar::{Head, INLINE_MAX, Kind, STRING, write_varint};
use super::node::{Entries, Node, slot_reference};
use crate::{Hashing, StoreError};

/// The most records between a state and a root: they lie in one group of entries, which begins with a root.
pub(crate) const MAX_APPENDS: u32 = 15;

/// The longest path that a record has, in bytes.
const MAX_PATH: usize = 64;

/// One append.
#[derive(Debug)]
pub(super) struct Record {
    /// The name of what was there before.
    pub(super) before: Before,
    /// Where the list or map is.
    pub(super) path: Path,
    /// What was appended to it; for a map, maps of one entry each.
    pub(super) items: Entries,
}

/// What was there before an append.
#[derive(Debug)]
pub(super) enum Before {
    /// A small node, which stands in the record.
    Here(Bytes),
    /// A node that is referred to.
    Node(BlobId),
}

/// A path as records have it; `None` if it is too long for them.
pub(super) fn write_path(path: &Path) -> Option<Box<str>> {
    Some(path.to_string()).filter(|path| path.len() <= MAX_PATH).map(Into::into)
}

/// The node of such an item.
pub(super) fn only_entry(item: &Bytes) -> Result<Node, StoreError> {
    let is_one = |node: &Node| node.kind() == Kind::Map && node.level() == 0 && node.len() == 1;
    Node::parse(item)?.filter(is_one).ok_or_else(no_record)
}

/// The record of items, from the one at `first` on, that were appended to the list at `path` of what `before` names.
pub(super) fn write(before: (BlobId, &[u8]), path: &str, items: &Entries, first: usize) -> Bytes {
    let mut out = begin(before, path, items, first);
    items.iter_from(first).for_each(|item| out.extend_from_slice(item.bytes));
    out.into()
}

/// The same for entries that were put into a map, and the nodes of those that are too large for it.
pub(super) fn write_entries(
    hashing: &Hashing,
    before: (BlobId, &[u8]),
    path: &str,
    entries: &Entries,
    first: usize,
) -> (Bytes, Vec<(BlobId, Bytes)>) {
    let (mut out, mut large) = (begin(before, path, entries, first), Large { hashing, nodes: Vec::new() });
    for entry in entries.iter_from(first) {
        place(Head { kind: Kind::Map, level: 0, count: 1 }, entry.bytes, &mut out, &mut large);
    }
    (out.into(), large.nodes)
}

/// What stands before the items of a record, with room for those.
fn begin(before: (BlobId, &[u8]), path: &str, items: &Entries, first: usize) -> Vec<u8> {
    let count = items.len() - first;
    let mut out = Vec::with_capacity(48 + INLINE_MAX + MAX_PATH + items.size() + count * HEAD_MAX);
    Head { kind: Kind::List, level: 0, count: 2 + count as u64 }.write(&mut out);
    if before.1.len() <= INLINE_MAX {
        out.extend_from_slice(before.1);
    } else {
        write_reference(&mut out, before.0);
    }
    out.push(STRING);
    write_varint(&mut out, path.len() as u64);
    out.extend_from_slice(path.as_bytes());
    out
}

/// Nodes that are too large for the record that has them. Most records have none.
struct Large<'h> {
    hashing: &'h Hashing,
    nodes: Vec<(BlobId, Bytes)>,
}

impl Sink for Large<'_> {
    fn put(&mut self, head: &[u8], body: &[u8]) -> BlobId {
        let node = Bytes::from([head, body].concat());
        let id = self.hashing.blob(&node);
        self.nodes.push((id, node));
        id
    }
}

/// Takes a record apart.
pub(super) fn read(node: &Bytes) -> Result<Record, StoreError> {
    let record = Node::parse(node)?.filter(|node| node.kind() == Kind::List && node.level() == 0 && node.len() > 2);
    let record = record.ok_or_else(no_record)?;
    let slot = record.slot(0);
    let before = slot_reference(&slot)?.map_or(Before::Here(slot), Before::Node);
    let mut items = Entries::default();
    (2..record.len()).for_each(|at| items.push_slot(&record.slot(at)));
    let path = record.slot(1);
    let mut reader = super::grammar::Reader::new(&path);
    let path = match reader.tag()? {
        STRING => reader.text()?.parse().map_err(|_| no_record())?,
        _ => return Err(no_record()),
    };
    Ok(Record { before, path, items })
}

impl Before {
    /// Its id.
    pub(super) fn id(&self, hashing: &Hashing) -> BlobId {
        match self {
            Self::Here(node) => hashing.blob(node),
            Self::Node(id) => *id,
        }
    }
}

/// The state that a value stands for which was loaded from so many records.
pub(crate) fn unwind(mut value: Value, appends: u32) -> Result<Value, StoreError> {
    check(appends)?;
    let mut added = Vec::new();
    for _ in 0..appends {
        let Value::List(mut record) = value else { return Err(no_record()) };
        if record.len() < 3 {
            return Err(no_record());
        }
        let items = record.split_off(2);
        let (Some(Value::String(path)), Some(before)) = (record.pop(), record.pop()) else { return Err(no_record()) };
        added.push((path.parse::<Path>().map_err(|_| no_record())?, items));
        value = before;
    }
    for (path, items) in added.into_iter().rev() {
        match part_of(&mut value, &path) {
            Some(Value::List(list)) => list.extend(items),
            Some(Value::Map(map)) => put_into(map, items)?,
            _ => return Err(no_record()),
        }
    }
    Ok(value)
}

fn put_into(map: &mut BTreeMap<String, Value>, items: Vec<Value>) -> Result<(), StoreError> {
    for item in items {
        match item {
            Value::Map(entry) if entry.len() == 1 => map.extend(entry),
            _ => return Err(no_record()),
        }
    }
    Ok(())
}

/// That there may be so many records.
pub(super) fn check(appends: u32) -> Result<(), StoreError> {
    if appends <= MAX_APPENDS { Ok(()) } else { Err(no_record()) }
}

fn part_of<'v>(value: &'v mut Value, path: &Path) -> Option<&'v mut Value> {
    path.segments().iter().try_fold(value, |value, segment| match value {
        Value::List(items) => items.get_mut(segment.as_index()?),
        Value::Map(entries) => entries.get_mut(&*segment.as_key()),
        _ => None,
    })
}

pub(super) fn no_record() -> StoreError {
    StoreError::corrupt("a state", "what was appended to it isn't told as it should be")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::encode;

    fn record(before: Value, path: &str, items: Vec<Value>) -> Value {
        Value::List([vec![before, Value::from(path)], items].concat())
    }

    #[test]
    fn a_record_says_what_it_was_made_of() {
        let path: Path = "/a/0".parse().unwrap();
        let mut items = Entries::default();
        (1..=3).for_each(|n| items.push_slot(&[crate::state::grammar::NATURAL, n]));
        for (before, is_here) in [(Value::from("small"), true), (Value::from("large ".repeat(50)), false)] {
            let encoded = encode(&Hashing::PLAIN, &before).unwrap();
            let (id, node) = encoded.nodes.last().unwrap();
            let record = read(&write((*id, node), &write_path(&path).unwrap(), &items, 1)).unwrap();
            assert_eq!(record.path, path);
            assert_eq!(record.items.iter().map(|item| item.bytes[1]).collect::<Vec<_>>(), [2, 3]);
            assert_eq!(matches!(record.before, Before::Here(_)), is_here);
            assert_eq!(record.before.id(&Hashing::PLAIN), encoded.root);
        }
    }

    #[test]
    fn records_unwind_in_the_order_in_which_they_were_made() {
        let list =
            |items: &[i64]| Value::map([("l", items.iter().copied().map(Value::from).collect::<Vec<_>>().into())]);
        let first = record(list(&[1]), "/l", vec![Value::from(2)]);
        let second = record(first.clone(), "/l", vec![Value::from(3), Value::from(4)]);
        assert_eq!(unwind(list(&[1]), 0).unwrap(), list(&[1]));
        assert_eq!(unwind(first, 1).unwrap(), list(&[1, 2]));
        assert_eq!(unwind(second, 2).unwrap(), list(&[1, 2, 3, 4]));
    }

    #[test]
    fn what_was_put_into_a_map_unwinds_in_the_order_in_which_it_was() {
        let entry = |key: &str, n: i64| Value::map([(key, Value::from(n))]);
        let before = Value::map([("m", Value::map([("a", Value::from(1)), ("b", Value::from(1))]))]);
        let first = record(before, "/m", vec![entry("b", 2), entry("c", 2)]);
        let second = record(first.clone(), "/m", vec![entry("c", 3)]);
        let expected = |c: i64| Value::map([("m", Value::map([("a", 1.into()), ("b", 2.into()), ("c", c.into())]))]);
        assert_eq!(unwind(first, 1).unwrap(), expected(2));
        assert_eq!(unwind(second.clone(), 2).unwrap(), expected(3));
        // An entry of a list is whatever it is.
        let list = record(second, "/m", vec![entry("c", 4), Value::map([("l", Value::List(vec![]))])]);
        let unwound = unwind(record(list, "/m/l", vec![entry("x", 1)]), 4).unwrap();
        assert_eq!(unwound.field("m").and_then(|m| m.field("l")), Some(&Value::List(vec![entry("x", 1)])));
    }

    #[test]
    fn a_large_entry_is_a_node_of_its_own() {
        let mut entries = Entries::default();
        entries.push_keyed(b"small", &[crate::state::grammar::NATURAL, 1]);
        entries.push_keyed("large ".repeat(50).as_bytes(), &[crate::state::grammar::NATURAL, 2]);
        let (record, nodes) = write_entries(&Hashing::PLAIN, (BlobId::new([0; 32]), &[0]), "", &entries, 0);
        let items = read(&record).unwrap().items;
        assert_eq!((items.len(), nodes.len()), (2, 1));
        let large = encode(&Hashing::PLAIN, &Value::map([("large ".repeat(50), Value::from(2))])).unwrap();
        assert_eq!(nodes, large.nodes);
        for (node, entry) in items.iter().map(|item| item.bytes).zip(entries.iter()) {
            let node =
                slot_reference(node).unwrap().map_or_else(|| Bytes::copy_from_slice(node), |_| nodes[0].1.clone());
            assert_eq!(only_entry(&node).unwrap().entry(0).bytes, entry.bytes);
        }
    }

    /// Promise 21.
    #[test]
    fn what_is_no_record_is_refused() {
        let list = Value::List(vec![Value::Null; 3]);
        let good = || record(list.clone(), "", vec![Value::Null]);
        let bad = [
            (Value::Null, 1),
            (Value::List(vec![]), 1),
            (record(list.clone(), "", vec![]), 1),
            (record(list.clone(), "no path", vec![Value::Null]), 1),
            (record(list.clone(), "/7", vec![Value::Null]), 1),
            (record(Value::from("text"), "", vec![Value::Null]), 1),
            (record(Value::map([("a", list.clone())]), "", vec![Value::Null]), 1),
            (record(Value::map([("a", list.clone())]), "", vec![Value::map::<&str>([])]), 1),
            (record(Value::map([("a", list.clone())]), "", vec![Value::map([("b", 1.into()), ("c", 1.into())])]), 1),
            (record(Value::map([("a", list.clone())]), "/b", vec![Value::map([("b", 1.into())])]), 1),
            (record(Value::from("text"), "", vec![Value::map([("b", 1.into())])]), 1),
            (good(), 2),
            (good(), MAX_APPENDS + 1),
            (good(), u32::MAX),
        ];
        for (value, appends) in bad {
            let refused = unwind(value.clone(), appends);
            assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{value:?} {appends}: {refused:?}");
        }
        for node in [&[][..], &[8, 0], &[8, 3, 0, 0, 0], &[8, 3, 0, 6, 1, b'x', 0], &[9, 0]] {
            assert!(read(&Bytes::from_static(node)).is_err(), "{node:?}");
        }
    }
}
