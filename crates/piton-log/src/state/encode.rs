//! A whole value becomes nodes, in one walk.

use std::collections::BTreeMap;

use bytes::Bytes;
use fastcdc::v2020::{FastCDC, Normalization};
use piton_types::{BlobId, Value};

use super::cache::IdSet;
use super::cut::{Cutter, Sink, Top, place_body};
use super::grammar::{
    BYTES, CHUNK, FALSE, FLOAT, INLINE_MAX, Kind, LONG, MAX_DEPTH, NATURAL, NEGATIVE, NULL, REFERENCE, STRING, TRUE,
    write_varint,
};
use super::node::Entries;
use piton_store::{Hashing, StoreError};

/// The sizes of the chunks of a long string, in bytes; part of the format.
const CHUNK_MIN: usize = 1 << 10;
const CHUNK_AVERAGE: usize = 4 << 10;
const CHUNK_MAX: usize = 16 << 10;

/// A value as nodes.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// The name of the whole value.
    pub root: BlobId,
    /// Every node once, each after those it refers to; the root is the last.
    pub nodes: Vec<(BlobId, Bytes)>,
}

/// Encodes a whole value. Equal values have equal roots, in every process.
///
/// An error means that containers nest more than 128 deep.
///
/// ```
/// use piton_log::state::encode;
/// use piton_store::Hashing;
/// use piton_types::Value;
/// let one = encode(&Hashing::PLAIN, &Value::map([("a", Value::from(1)), ("b", Value::Null)]))?;
/// let other = encode(&Hashing::PLAIN, &Value::map([("b", Value::Null), ("a", Value::from(1))]))?;
/// assert_eq!(one.root, other.root);
/// assert_eq!(one.nodes.len(), 1, "small values stand inside their parents");
/// # Ok::<(), piton_store::StoreError>(())
/// ```
pub fn encode(hashing: &Hashing, value: &Value) -> Result<Encoded, StoreError> {
    let mut encoder = Encoder::new(hashing);
    let mut slot = Vec::with_capacity(INLINE_MAX);
    encoder.slot(value, 0, &mut slot)?;
    let root = encoder.root(&slot);
    Ok(Encoded { root, nodes: encoder.finish() })
}

/// Encodes a value whose top node stands somewhere else as it is, so that no caller asks for its id. Gives the nodes
/// below it, each after those it refers to, and the top.
pub(crate) fn encode_inside(hashing: &Hashing, value: &Value) -> Result<(Vec<(BlobId, Bytes)>, Bytes), StoreError> {
    let mut encoder = Encoder::new(hashing);
    let mut out = Vec::with_capacity(ROOM);
    encoder.slot(value, 0, &mut out)?;
    let mut nodes = encoder.finish();
    // One that is too large for a slot is the last node.
    let top = if out.first() == Some(&REFERENCE) { nodes.pop().map(|(_, node)| node) } else { None };
    Ok((nodes, top.unwrap_or_else(|| out.into())))
}

/// Room for a small value.
const ROOM: usize = 256;

/// Collects nodes in one buffer, which they share. (Several of bounded size would save the copying when
/// it grows, but an allocator that hands many middling buffers back to the system and asks for them
/// again at the next save costs more: measured at a third of the whole.)
pub(super) struct Encoder<'h> {
    hashing: &'h Hashing,
    buffer: Vec<u8>,
    /// The nodes in the buffer, with where they start.
    nodes: Vec<(BlobId, usize)>,
    seen: IdSet,
}

impl Sink for Encoder<'_> {
    fn put(&mut self, head: &[u8], body: &[u8]) -> BlobId {
        let start = self.buffer.len();
        if start == 0 {
            // Where there is one there is most often another.
            self.buffer.reserve(2 * (head.len() + body.len()) + ROOM);
        }
        self.buffer.extend_from_slice(head);
        self.buffer.extend_from_slice(body);
        let id = self.hashing.blob(&self.buffer[start..]);
        if self.seen.insert(id) {
            self.nodes.push((id, start));
        } else {
            self.buffer.truncate(start);
        }
        id
    }
}

impl<'h> Encoder<'h> {
    pub(super) fn new(hashing: &'h Hashing) -> Self {
        Self { hashing, buffer: Vec::new(), nodes: Vec::new(), seen: IdSet::default() }
    }

    /// The nodes, each after those it refers to.
    pub(super) fn finish(self) -> Vec<(BlobId, Bytes)> {
        let len = self.buffer.len();
        let buffer = Bytes::from(self.buffer);
        let ends = self.nodes.iter().skip(1).map(|(_, start)| *start).chain([len]);
        self.nodes.iter().zip(ends).map(|(&(id, start), end)| (id, buffer.slice(start..end))).collect()
    }

    /// The id of the value that `slot` holds, which becomes a node of its own if it isn't one.
    pub(super) fn root(&mut self, slot: &[u8]) -> BlobId {
        match slot {
            [REFERENCE, id @ ..] if id.len() == 32 => {
                let mut bytes = [0; 32];
                bytes.copy_from_slice(id);
                BlobId::new(bytes)
            }
            inline => self.put(inline, &[]),
        }
    }

    /// Writes `value`, which has `depth` containers around it, as a slot.
    pub(super) fn slot(&mut self, value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<(), StoreError> {
        match value {
            Value::Null => out.push(NULL),
            Value::Bool(false) => out.push(FALSE),
            Value::Bool(true) => out.push(TRUE),
            Value::Int(n) => match u64::try_from(*n) {
                Ok(n) => number(out, NATURAL, n),
                Err(_) => number(out, NEGATIVE, (!*n).cast_unsigned()),
            },
            Value::UInt(n) => number(out, NATURAL, *n),
            Value::Float(x) => {
                out.push(FLOAT);
                out.extend_from_slice(&x.to_bits().to_be_bytes());
            }
            Value::String(text) => write_blob(self.hashing, Kind::Text, text.as_bytes(), out, self),
            Value::Bytes(bytes) => write_blob(self.hashing, Kind::Bytes, bytes, out, self),
            Value::List(items) => self.list(items, inside(depth)?)?.place(out, self),
            Value::Map(entries) => self.map(entries, inside(depth)?)?.place(out, self),
        }
        Ok(())
    }

    fn list(&mut self, items: &[Value], depth: usize) -> Result<Top, StoreError> {
        let mut cutter = Cutter::new(self.hashing, Kind::List, 0, Vec::new());
        for item in items {
            cutter.make_room(self);
            let start = cutter.open.len();
            self.slot(item, depth, &mut cutter.open)?;
            cutter.close_entry(start, (start, start), 1);
        }
        Ok(cutter.finish(self))
    }

    fn map(&mut self, entries: &BTreeMap<String, Value>, depth: usize) -> Result<Top, StoreError> {
        let mut cutter = Cutter::new(self.hashing, Kind::Map, 0, Vec::new());
        for (key, value) in entries {
            cutter.make_room(self);
            let start = cutter.open.len();
            write_varint(&mut cutter.open, key.len() as u64);
            let at = cutter.open.len();
            cutter.open.extend_from_slice(key.as_bytes());
            self.slot(value, depth, &mut cutter.open)?;
            cutter.close_entry(start, (at, at + key.len()), 1);
        }
        Ok(cutter.finish(self))
    }
}

/// Writes a string or bytes as a slot.
pub(super) fn write_blob(hashing: &Hashing, kind: Kind, bytes: &[u8], out: &mut Vec<u8>, sink: &mut impl Sink) {
    if bytes.len() > LONG {
        let mut cutter = Cutter::new(hashing, kind, 0, Vec::new());
        for chunk in chunks(hashing, bytes, sink).iter() {
            cutter.push(chunk, sink);
        }
        return cutter.finish(sink).place(out, sink);
    }
    let start = out.len();
    number(out, if kind == Kind::Text { STRING } else { BYTES }, bytes.len() as u64);
    place_body(start, bytes, out, sink);
}

/// Cuts `bytes` into chunks and puts them. A chunk depends only on where it starts and on what follows
/// up to its end, so appending changes the last one alone.
pub(super) fn chunks(hashing: &Hashing, bytes: &[u8], sink: &mut impl Sink) -> Entries {
    let mut entries = Entries::default();
    let level = Normalization::Level1;
    let cuts = FastCDC::with_level_and_seed(bytes, CHUNK_MIN, CHUNK_AVERAGE, CHUNK_MAX, level, hashing.seed());
    let mut head = Vec::with_capacity(4);
    for cut in cuts {
        let chunk = &bytes[cut.offset..cut.offset + cut.length];
        head.clear();
        number(&mut head, CHUNK, chunk.len() as u64);
        entries.push_branch(None, sink.put(&head, chunk), chunk.len() as u64);
    }
    entries
}

fn number(out: &mut Vec<u8>, tag: u8, n: u64) {
    out.push(tag);
    write_varint(out, n);
}

/// The depth inside one more container.
fn inside(depth: usize) -> Result<usize, StoreError> {
    if depth < MAX_DEPTH {
        Ok(depth + 1)
    } else {
        Err(StoreError::Invalid {
            what: "the state".to_owned(),
            detail: format!("it nests more than {MAX_DEPTH} deep"),
        })
    }
}
