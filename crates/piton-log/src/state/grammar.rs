//! The bytes of a node: tags, numbers, and a reader that refuses whatever isn't written in the one
//! canonical way. A node is self-delimiting, so a small one stands inside its parent as it is.
//!
//! | tag | content |
//! |---|---|
//! | 00 01 02 | null, false, true |
//! | 03 | integer `n >= 0`: varint `n` |
//! | 04 | integer `n < 0`: varint `-1 - n` |
//! | 05 | float: its bits, 8 bytes, big-endian |
//! | 06 07 | string, bytes: varint length, content |
//! | 08 | list leaf: varint count, slots |
//! | 09 | map leaf: varint count, (varint key length, key, slot) ascending |
//! | 0a | list inner: level, varint count, (id, varint items below) |
//! | 0b | map inner: level, varint count, (varint key length, last key below, id, varint items below) |
//! | 0c 0d | long string, long bytes: level, varint count, (id, varint content bytes below) |
//! | 0e | raw chunk of a long string or bytes: varint length, content |
//! | 0f | reference: id; only as a slot |
//!
//! A slot is the child's whole node if that has at most [`INLINE_MAX`] bytes, else a reference.
//! Varints are LEB128 of 64 bits in their shortest form.

use piton_types::BlobId;

use piton_store::StoreError;

pub(crate) const NULL: u8 = 0x00;
pub(crate) const FALSE: u8 = 0x01;
pub(crate) const TRUE: u8 = 0x02;
pub(crate) const NATURAL: u8 = 0x03;
pub(crate) const NEGATIVE: u8 = 0x04;
pub(crate) const FLOAT: u8 = 0x05;
pub(crate) const STRING: u8 = 0x06;
pub(crate) const BYTES: u8 = 0x07;
pub(crate) const LIST: u8 = 0x08;
pub(crate) const MAP: u8 = 0x09;
pub(crate) const LIST_INNER: u8 = 0x0a;
pub(crate) const MAP_INNER: u8 = 0x0b;
pub(crate) const LONG_STRING: u8 = 0x0c;
pub(crate) const LONG_BYTES: u8 = 0x0d;
pub(crate) const CHUNK: u8 = 0x0e;
pub(crate) const REFERENCE: u8 = 0x0f;

/// The longest node that stands inside its parent; two references and a little text fit.
pub(crate) const INLINE_MAX: usize = 96;
/// The longest string that is one node; longer ones are cut into chunks.
pub(crate) const LONG: usize = 4096;
/// How deep containers may nest.
pub(crate) const MAX_DEPTH: usize = 128;
/// No tree of 2^64 items needs more levels, as a node has at least two entries.
pub(crate) const MAX_LEVEL: u8 = 64;

/// What is wrong with the bytes of a node. Kept apart from [`StoreError`] so that reading allocates
/// nothing until it has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl From<Malformed> for StoreError {
    fn from(malformed: Malformed) -> Self {
        Self::corrupt("a node of the state", malformed.0)
    }
}

/// What is spread over a tree of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    List,
    Map,
    Text,
    Bytes,
}

/// The start of a node that has entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    /// 0 for the lowest nodes: those with slots, or with references to chunks.
    pub(crate) level: u8,
    pub(crate) count: u64,
}

impl Head {
    /// Writes it in front of `count` entries.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        match (self.kind, self.level) {
            (Kind::List, 0) => out.push(LIST),
            (Kind::Map, 0) => out.push(MAP),
            (kind, level) => out.extend([
                match kind {
                    Kind::List => LIST_INNER,
                    Kind::Map => MAP_INNER,
                    Kind::Text => LONG_STRING,
                    Kind::Bytes => LONG_BYTES,
                },
                level,
            ]),
        }
        write_varint(out, self.count);
    }

    /// Reads the rest of it after its tag; `None` if the tag isn't one of a node with entries.
    pub(crate) fn read(tag: u8, reader: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
        let kind = match tag {
            LIST | LIST_INNER => Kind::List,
            MAP | MAP_INNER => Kind::Map,
            LONG_STRING => Kind::Text,
            LONG_BYTES => Kind::Bytes,
            _ => return Ok(None),
        };
        let level = if matches!(tag, LIST | MAP) { 0 } else { reader.byte()? };
        if level > MAX_LEVEL || (level == 0 && matches!(tag, LIST_INNER | MAP_INNER)) {
            return Err(Malformed("a level is out of range"));
        }
        let count = reader.count()?;
        if count == 0 && !matches!(tag, LIST | MAP) {
            return Err(Malformed("an inner node is empty"));
        }
        Ok(Some(Self { kind, level, count }))
    }
}

/// Writes `n` in LEB128.
pub(crate) fn write_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(0x80 | (n & 0x7f) as u8);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A place in the bytes of a node.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// At the start of `bytes`.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// At `at` in `bytes`.
    pub(crate) const fn at(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// How many bytes were read.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(crate) const fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or(Malformed("it ends early"))?;
        self.at += 1;
        Ok(byte)
    }

    /// The tag of a node or slot.
    pub(crate) fn tag(&mut self) -> Result<u8, Malformed> {
        match self.byte()? {
            tag @ NULL..=REFERENCE => Ok(tag),
            _ => Err(Malformed("a tag is unknown")),
        }
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).ok().filter(|len| *len <= self.remaining()).ok_or(Malformed("it ends early"))?;
        let bytes = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(bytes)
    }

    /// A number.
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(first.into());
        }
        let mut n = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Malformed("a number is too large"));
            }
            n |= bits << shift;
            if byte < 0x80 {
                return if byte == 0 { Err(Malformed("a number isn't in its shortest form")) } else { Ok(n) };
            }
        }
        Err(Malformed("a number is too large"))
    }

    /// The number of entries that follow. Each takes a byte at least, so more than are left is refused before the
    /// decoder makes room for them.
    pub(crate) fn count(&mut self) -> Result<u64, Malformed> {
        let count = self.varint()?;
        if count > self.remaining() as u64 { Err(Malformed("a count is too large")) } else { Ok(count) }
    }

    /// A length and that many bytes.
    pub(crate) fn sized(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.varint()?;
        self.bytes(len)
    }

    /// A length and that many bytes of UTF-8.
    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.sized()?).map_err(|_| Malformed("a string isn't UTF-8"))
    }

    /// The content of a short string or bytes.
    pub(crate) fn short(&mut self) -> Result<&'a [u8], Malformed> {
        let bytes = self.sized()?;
        if bytes.len() > LONG { Err(Malformed("a long string isn't cut")) } else { Ok(bytes) }
    }

    /// The 32 bytes of an id.
    pub(crate) fn id(&mut self) -> Result<BlobId, Malformed> {
        let bytes = self.bytes(32)?;
        Ok(BlobId::new(bytes.try_into().map_err(|_| Malformed("it ends early"))?))
    }

    /// Nothing may follow.
    pub(crate) const fn end(&self) -> Result<(), Malformed> {
        if self.remaining() == 0 { Ok(()) } else { Err(Malformed("bytes follow its end")) }
    }
}

/// Where the 32-byte ids in `node` start, in order, those in containers inside it too. The whole node
/// is checked on the way.
pub(crate) fn reference_offsets(node: &[u8]) -> Result<Vec<usize>, StoreError> {
    // An id takes 32 bytes, and something stands around most. Where there are no entries, there are none.
    let has_entries = node.first().is_some_and(|tag| (LIST..=LONG_BYTES).contains(tag));
    let mut offsets = Vec::with_capacity(if has_entries { node.len() / 33 } else { 0 });
    each_offset(node, |at| offsets.push(at))?;
    Ok(offsets)
}

/// Reports where the ids in a node start.
pub(crate) fn each_offset(node: &[u8], mut found: impl FnMut(usize)) -> Result<(), StoreError> {
    let mut reader = Reader::new(node);
    if node.first() == Some(&CHUNK) {
        reader.tag()?;
        reader.sized()?;
    } else if node.first() == Some(&REFERENCE) {
        return Err(Malformed("a reference stands alone").into());
    } else {
        skip(&mut reader, 0, &mut found)?;
    }
    reader.end()?;
    Ok(())
}

/// Reads over one slot and reports where the ids in it start.
///
/// It calls itself for a container inside a container; `depth` bounds that on hostile bytes.
pub(crate) fn skip(reader: &mut Reader<'_>, depth: usize, found: &mut impl FnMut(usize)) -> Result<(), Malformed> {
    if depth > MAX_DEPTH {
        return Err(Malformed("it nests too deeply"));
    }
    let tag = reader.tag()?;
    match tag {
        NULL | FALSE | TRUE => {}
        NATURAL | NEGATIVE => {
            reader.varint()?;
        }
        FLOAT => {
            reader.bytes(8)?;
        }
        STRING | BYTES => {
            reader.short()?;
        }
        REFERENCE => {
            found(reader.position());
            reader.id()?;
        }
        CHUNK => return Err(Malformed("a chunk stands where a value should")),
        tag => {
            let Some(head) = Head::read(tag, reader)? else { return Err(Malformed("a tag is unknown")) };
            for _ in 0..head.count {
                if head.kind == Kind::Map {
                    reader.text()?;
                }
                if head.level == 0 && matches!(head.kind, Kind::List | Kind::Map) {
                    skip(reader, depth + 1, found)?;
                } else {
                    found(reader.position());
                    reader.id()?;
                    reader.varint()?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_have_one_form() {
        for n in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX, 1 << 63, (1 << 63) - 1] {
            let mut out = Vec::new();
            write_varint(&mut out, n);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.varint(), Ok(n));
            assert_eq!(reader.end(), Ok(()));
        }
        for bad in
            [&[0x80, 0][..], &[0xff, 0x80, 0], &[0x80], &[0xff; 11], &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2]]
        {
            assert!(Reader::new(bad).varint().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn references_are_found_inside_inline_containers() {
        let mut node = vec![LIST, 2, LIST, 1, REFERENCE];
        node.extend([7; 32]);
        node.push(REFERENCE);
        node.extend([8; 32]);
        assert_eq!(reference_offsets(&node).unwrap(), [5, 38]);
        assert!(reference_offsets(&node[4..]).is_err(), "a reference is no node");
        assert!(reference_offsets(&node[..60]).is_err());
        assert!(reference_offsets(&[CHUNK, 1, 255]).unwrap().is_empty());
    }

    #[test]
    fn deep_nesting_ends_in_an_error_not_in_the_stack() {
        let mut bomb = [LIST, 1].repeat(100_000);
        bomb.push(NULL);
        assert!(reference_offsets(&bomb).is_err());
    }
}
