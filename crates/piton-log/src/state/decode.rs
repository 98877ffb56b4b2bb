//! Nodes become a value again. The decoder keeps its own stack, so it can stop at a node that isn't at
//! hand and go on, without doing anything twice, when it is; and hostile bytes can't exhaust the
//! thread's stack.

use piton_types::{BlobId, Value};

use super::grammar::{
    BYTES, CHUNK, FALSE, FLOAT, Head, INLINE_MAX, Kind, LONG, MAX_DEPTH, Malformed, NATURAL, NEGATIVE, NULL, REFERENCE,
    Reader, STRING, TRUE,
};
use piton_store::StoreError;

/// The largest value that is decoded, in bytes of memory, about. Nodes may share parts, so a few
/// kilobytes of hostile ones can stand for more than any memory holds.
const DECODED_MAX: u64 = if cfg!(test) { 64 << 20 } else { 4 << 30 };

/// Where the decoder finds nodes.
pub(crate) trait Nodes {
    /// A node that is at hand.
    type Ref: Copy;

    /// Whether ids are written as 32 bytes, so that a node's length is the canonical one.
    const CANONICAL: bool;

    /// Its bytes.
    fn node(&self, node: Self::Ref) -> Result<&[u8], StoreError>;

    /// Reads a reference in `parent`. Whatever comes out, the same call at the same place must give
    /// the node once it was provided.
    fn child(&self, parent: Self::Ref, reader: &mut Reader<'_>) -> Result<Resolved<Self::Ref>, StoreError>;
}

/// What a reference leads to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Resolved<R> {
    /// A node at hand.
    Here(R),
    /// A node to be provided first.
    Missing(BlobId),
}

/// How far the decoder came.
#[derive(Debug)]
pub(crate) enum Progress {
    /// To the end.
    Done(Value),
    /// To this node, which must be provided before it goes on.
    Missing(BlobId),
}

/// A place in a node whose entries are being read.
struct Frame<R> {
    node: R,
    at: usize,
    left: u64,
    head: Head,
    /// The node stands in its parent, where reading goes on behind it.
    inline: bool,
    /// The node is the top of a container, which is complete when the frame is.
    top: bool,
    /// How much the container must hold when the frame is complete, if it isn't the top.
    until: Option<u64>,
    /// Where the parent's bytes have the tag, if the node stands there, or the last key of a map.
    within: (usize, usize),
}

/// A container that is being filled.
enum Building {
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
}

/// What a slot holds.
enum Slot<R> {
    Value(Value),
    Open(Frame<R>),
    Missing(BlobId),
}

/// A decoder of one value.
pub(crate) struct Decoder<R> {
    root: Option<R>,
    frames: Vec<Frame<R>>,
    building: Vec<Building>,
    budget: u64,
}

impl<R: Copy> Decoder<R> {
    /// Starts at `root`, a node of a value.
    pub(crate) fn new(root: R) -> Self {
        Self { root: Some(root), frames: Vec::new(), building: Vec::new(), budget: DECODED_MAX }
    }

    /// Goes on as far as the nodes at hand allow. After an error or the end it must not be called again.
    pub(crate) fn run<N: Nodes<Ref = R>>(&mut self, nodes: &N) -> Result<Progress, StoreError> {
        if let Some(root) = self.root.take() {
            match referenced::<N>(nodes, root)? {
                Slot::Value(value) => return Ok(Progress::Done(value)),
                Slot::Open(frame) => self.open(frame)?,
                Slot::Missing(id) => return Ok(Progress::Missing(id)),
            }
        }
        loop {
            let (Some(frame), Some(building)) = (self.frames.last_mut(), self.building.last_mut()) else {
                return Err(Malformed("there is nothing to decode").into());
            };
            let opened = match fill(frame, building, nodes, &mut self.budget)? {
                Filled::Open(opened) => Some(opened),
                Filled::Complete => None,
                Filled::Missing(id) => return Ok(Progress::Missing(id)),
            };
            if let Some(opened) = opened {
                self.open(opened)?;
            } else if let Some(value) = self.close(nodes)? {
                return Ok(Progress::Done(value));
            }
        }
    }

    fn open(&mut self, frame: Frame<R>) -> Result<(), StoreError> {
        if frame.top {
            let is_container = matches!(frame.head.kind, Kind::List | Kind::Map);
            if is_container && self.building.len() >= MAX_DEPTH {
                return Err(Malformed("it nests too deeply").into());
            }
            // A leaf's count is at most the length of the node, so hostile bytes can't ask for much.
            let count = if frame.head.level == 0 { usize::try_from(frame.head.count).unwrap_or(0) } else { 0 };
            self.building.push(match frame.head.kind {
                Kind::List => Building::List(Vec::with_capacity(count)),
                Kind::Map => Building::Map(Vec::with_capacity(count)),
                Kind::Text => Building::Text(Vec::new()),
                Kind::Bytes => Building::Bytes(Vec::new()),
            });
        }
        self.frames.push(frame);
        Ok(())
    }

    /// The innermost frame is complete. Returns the value if that was all.
    fn close<N: Nodes<Ref = R>>(&mut self, nodes: &N) -> Result<Option<Value>, StoreError> {
        let (Some(frame), Some(building)) = (self.frames.pop(), self.building.last_mut()) else {
            return Err(Malformed("there is nothing to decode").into());
        };
        if !frame.inline && frame.at != nodes.node(frame.node)?.len() {
            return Err(Malformed("bytes follow its end").into());
        }
        if frame.until.is_some_and(|until| until != building.len()) {
            return Err(Malformed("a number of items doesn't add up").into());
        }
        if !frame.top {
            if let (Building::Map(entries), Some(parent)) = (building, self.frames.last()) {
                let key = nodes.node(parent.node)?.get(frame.within.0..frame.within.1);
                if entries.last().map(|(last, _)| last.as_bytes()) != key {
                    return Err(Malformed("a last key isn't that of the child").into());
                }
            }
            return Ok(None);
        }
        let value = self.building.pop().map_or(Ok(Value::Null), Building::finish)?;
        let Some(parent) = self.frames.last_mut() else { return Ok(Some(value)) };
        if frame.inline {
            if N::CANONICAL && frame.at - frame.within.0 > INLINE_MAX {
                return Err(Malformed("a large node isn't referred to").into());
            }
            parent.at = frame.at;
        }
        match self.building.last_mut() {
            Some(Building::List(items)) => items.push(value),
            Some(Building::Map(entries)) => {
                if let Some(last) = entries.last_mut() {
                    last.1 = value;
                }
            }
            _ => return Err(Malformed("a value stands in a string").into()),
        }
        Ok(None)
    }
}

impl Building {
    /// How many items, or bytes, it holds.
    fn len(&self) -> u64 {
        (match self {
            Self::List(items) => items.len(),
            Self::Map(entries) => entries.len(),
            Self::Text(bytes) | Self::Bytes(bytes) => bytes.len(),
        }) as u64
    }

    fn finish(self) -> Result<Value, Malformed> {
        match self {
            Self::List(items) => Ok(Value::List(items)),
            Self::Map(entries) => Ok(Value::Map(entries.into_iter().collect())),
            Self::Text(bytes) | Self::Bytes(bytes) if bytes.len() <= LONG => Err(Malformed("a short string is cut")),
            Self::Text(bytes) => {
                String::from_utf8(bytes).map(Value::String).map_err(|_| Malformed("a string isn't UTF-8"))
            }
            Self::Bytes(bytes) => Ok(Value::Bytes(bytes)),
        }
    }
}

/// Why [`fill`] returned.
enum Filled<R> {
    Complete,
    Open(Frame<R>),
    Missing(BlobId),
}

/// Reads entries until one of them has entries of its own.
///
/// The place in `frame` moves only past what was taken, so after `Missing` the same entry is read
/// again.
fn fill<N: Nodes>(
    frame: &mut Frame<N::Ref>,
    building: &mut Building,
    nodes: &N,
    budget: &mut u64,
) -> Result<Filled<N::Ref>, StoreError> {
    let mut reader = Reader::at(nodes.node(frame.node)?, frame.at);
    while frame.left > 0 {
        let filled = match &mut *building {
            Building::List(items) if frame.head.level == 0 => match slot(nodes, frame.node, &mut reader)? {
                Slot::Value(value) => {
                    spend(budget, weight(&value))?;
                    items.push(value);
                    None
                }
                Slot::Open(opened) => Some(opened),
                Slot::Missing(id) => return Ok(Filled::Missing(id)),
            },
            Building::Map(entries) if frame.head.level == 0 => {
                let key = reader.text()?;
                if entries.last().is_some_and(|(last, _)| last.as_str() >= key) {
                    return Err(Malformed("keys are out of order").into());
                }
                let (value, opened) = match slot(nodes, frame.node, &mut reader)? {
                    Slot::Value(value) => (value, None),
                    Slot::Open(opened) => (Value::Null, Some(opened)),
                    Slot::Missing(id) => return Ok(Filled::Missing(id)),
                };
                spend(budget, weight(&value) + key.len() as u64)?;
                entries.push((key.to_owned(), value));
                opened
            }
            building => {
                let mut key = (0, 0);
                if matches!(building, Building::Map(_)) {
                    let len = reader.text()?.len();
                    key = (reader.position() - len, reader.position());
                }
                let child = match nodes.child(frame.node, &mut reader)? {
                    Resolved::Here(child) => child,
                    Resolved::Missing(id) => return Ok(Filled::Missing(id)),
                };
                let items = reader.varint()?;
                match building {
                    Building::Text(bytes) | Building::Bytes(bytes) if frame.head.level == 0 => {
                        let chunk = chunk(nodes.node(child)?, items)?;
                        spend(budget, items)?;
                        bytes.extend_from_slice(chunk);
                        None
                    }
                    building => Some(Frame { within: key, ..branch(nodes, child, frame.head, building, items)? }),
                }
            }
        };
        frame.left -= 1;
        frame.at = reader.position();
        if let Some(opened) = filled {
            if opened.top {
                spend(budget, size_of::<Value>() as u64)?;
            }
            return Ok(Filled::Open(opened));
        }
    }
    Ok(Filled::Complete)
}

/// Reads a slot of a list or map.
fn slot<N: Nodes>(nodes: &N, node: N::Ref, reader: &mut Reader<'_>) -> Result<Slot<N::Ref>, StoreError> {
    let start = reader.position();
    let tag = reader.tag()?;
    if tag == REFERENCE {
        return match nodes.child(node, reader)? {
            Resolved::Missing(id) => Ok(Slot::Missing(id)),
            Resolved::Here(child) if N::CANONICAL && nodes.node(child)?.len() <= INLINE_MAX => {
                Err(Malformed("a small node is referred to").into())
            }
            Resolved::Here(child) => referenced(nodes, child),
        };
    }
    if let Some(value) = plain(tag, reader)? {
        if N::CANONICAL && reader.position() - start > INLINE_MAX {
            return Err(Malformed("a large node isn't referred to").into());
        }
        return Ok(Slot::Value(value));
    }
    Ok(Slot::Open(Frame { inline: true, within: (start, start), ..top(tag, node, reader)? }))
}

/// Reads a node that is a value.
fn referenced<N: Nodes>(nodes: &N, node: N::Ref) -> Result<Slot<N::Ref>, StoreError> {
    let mut reader = Reader::new(nodes.node(node)?);
    let tag = reader.tag()?;
    if let Some(value) = plain(tag, &mut reader)? {
        reader.end()?;
        return Ok(Slot::Value(value));
    }
    top(tag, node, &mut reader).map(Slot::Open)
}

/// A value without entries.
fn plain(tag: u8, reader: &mut Reader<'_>) -> Result<Option<Value>, Malformed> {
    Ok(Some(match tag {
        NULL => Value::Null,
        FALSE => Value::Bool(false),
        TRUE => Value::Bool(true),
        NATURAL => Value::from(reader.varint()?),
        NEGATIVE => {
            let n = i64::try_from(reader.varint()?).map_err(|_| Malformed("a negative number is too large"))?;
            Value::Int(!n)
        }
        FLOAT => {
            let bits = reader.bytes(8)?.try_into().map_err(|_| Malformed("it ends early"))?;
            Value::Float(f64::from_bits(u64::from_be_bytes(bits)))
        }
        STRING => {
            let text = std::str::from_utf8(reader.short()?).map_err(|_| Malformed("a string isn't UTF-8"))?;
            Value::String(text.to_owned())
        }
        BYTES => Value::Bytes(reader.short()?.to_vec()),
        _ => return Ok(None),
    }))
}

/// The topmost node of a container or long string.
fn top<R: Copy>(tag: u8, node: R, reader: &mut Reader<'_>) -> Result<Frame<R>, StoreError> {
    let Some(head) = Head::read(tag, reader)? else {
        return Err(Malformed("a chunk or reference stands where a value should").into());
    };
    if head.count == 1 && head.level > 0 {
        return Err(Malformed("a level is needless").into());
    }
    let at = reader.position();
    Ok(Frame { node, at, left: head.count, head, inline: false, top: true, until: None, within: (0, 0) })
}

/// A node below another of the same container.
fn branch<N: Nodes>(
    nodes: &N,
    node: N::Ref,
    parent: Head,
    building: &mut Building,
    items: u64,
) -> Result<Frame<N::Ref>, StoreError> {
    let mut reader = Reader::new(nodes.node(node)?);
    let tag = reader.tag()?;
    let head = Head::read(tag, &mut reader)?.ok_or(Malformed("a child is of another level or kind"))?;
    if head.kind != parent.kind || Some(head.level) != parent.level.checked_sub(1) {
        return Err(Malformed("a child is of another level or kind").into());
    }
    if head.count == 0 {
        return Err(Malformed("a leaf is empty").into());
    }
    if head.level == 0 {
        match building {
            Building::List(list) => list.reserve(usize::try_from(head.count).unwrap_or(0)),
            Building::Map(entries) => entries.reserve(usize::try_from(head.count).unwrap_or(0)),
            Building::Text(_) | Building::Bytes(_) => {}
        }
    }
    let until = building.len().checked_add(items).ok_or(Malformed("a number of items is too large"))?;
    let at = reader.position();
    Ok(Frame { node, at, left: head.count, head, inline: false, top: false, until: Some(until), within: (0, 0) })
}

/// The content of a chunk, which must have `len` bytes.
fn chunk(node: &[u8], len: u64) -> Result<&[u8], Malformed> {
    let mut reader = Reader::new(node);
    if reader.tag()? != CHUNK {
        return Err(Malformed("a chunk is wanted"));
    }
    let bytes = reader.sized()?;
    reader.end()?;
    if bytes.len() as u64 == len { Ok(bytes) } else { Err(Malformed("a number of bytes doesn't add up")) }
}

fn weight(value: &Value) -> u64 {
    let content = match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    (content + size_of::<Value>()) as u64
}

fn spend(budget: &mut u64, cost: u64) -> Result<(), StoreError> {
    *budget = budget.checked_sub(cost).ok_or_else(|| StoreError::TooLarge {
        what: "the state".to_owned(),
        size: DECODED_MAX.saturating_add(cost),
        limit: DECODED_MAX,
    })?;
    Ok(())
}
