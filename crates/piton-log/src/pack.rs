//! Packs: several nodes in one byte string, each with its id. A commit carries its new nodes as one, or
//! stages them ahead if they are large. And the form that every compressed record has.
//!
//! The checksum covers everything behind it, so a pack that opens is a pack as it was written, and its
//! nodes need not be hashed again one by one.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use piton_types::BlobId;

use crate::codec::{CHECKSUM, Reader, checksum, put_varint};
use crate::difference::{self, Base, Pair};
use crate::framed::{self, FramedPack};
use crate::state::grammar::Malformed;
use crate::state::{Fresh, IdMap};
use piton_store::{Hashing, StoreError};

/// First byte of a pack.
const FORM: u8 = 1;

/// The form and the checksum of all that follows.
const HEADER: usize = 1 + CHECKSUM;

/// The most that a compressed record may hold, so that a few bytes can't ask for all memory.
pub(crate) const MAX_INFLATED: u64 = 256 << 20;

/// Nodes by id, in one byte string.
#[derive(Debug)]
pub(crate) struct Pack {
    /// What is behind the checksum.
    body: Bytes,
    nodes: Vec<Stored>,
    /// Where nodes are by their ids.
    places: IdMap<u32>,
}

/// How a pack has a node.
#[derive(Debug)]
struct Stored {
    id: BlobId,
    range: Range<usize>,
    /// Unless it stands there whole, the node once it has been put together.
    whole: Option<OnceLock<Bytes>>,
}

impl Pack {
    /// A pack of these nodes, children before parents, and the bytes that it is stored as.
    ///
    /// Before it is given out, every node is taken from those bytes and hashed again: what a broken encoder
    /// or bad memory made is found before the commit that needs it counts as done.
    pub(crate) fn build(hashing: &Hashing, nodes: &[Fresh]) -> Result<(Self, Bytes), StoreError> {
        let mut places = IdMap::with_capacity(nodes.len());
        // What is written as a difference; empty for most packs.
        let mut differences = Vec::new();
        let mut lengths = Vec::with_capacity(nodes.len());
        for (place, fresh) in (0_u32..).zip(nodes) {
            let start = differences.len();
            let differs = fresh.base.as_ref().is_some_and(|(at, base)| {
                let pair = Pair { base: (*at, base), node: &fresh.node, references: &fresh.references };
                pair.write(&mut differences, |id| places.get(id).map(|near: &u32| u64::from(place - near)))
            });
            lengths.push((if differs { differences.len() - start } else { fresh.node.len() }, differs));
            places.insert(fresh.id, place);
        }
        let size: usize = lengths.iter().map(|(length, _)| length + 35).sum();
        let mut out = Vec::with_capacity(HEADER + 5 + size);
        out.push(FORM);
        out.extend_from_slice(&[0; HEADER - 1]);
        put_varint(&mut out, nodes.len() as u64);
        for (fresh, (length, differs)) in nodes.iter().zip(&lengths) {
            out.extend_from_slice(fresh.id.as_bytes());
            put_varint(&mut out, (*length as u64) << 1 | u64::from(*differs));
        }
        let mut differences = &differences[..];
        let mut stored = Vec::with_capacity(nodes.len());
        for (fresh, (length, differs)) in nodes.iter().zip(lengths) {
            let start = out.len() - HEADER;
            if differs {
                let (difference, rest) = differences.split_at(length);
                out.extend_from_slice(difference);
                differences = rest;
            } else {
                out.extend_from_slice(&fresh.node);
            }
            stored.push(Stored { id: fresh.id, range: start..start + length, whole: differs.then(OnceLock::new) });
        }
        let sum = checksum(&out[HEADER..]);
        out[1..HEADER].copy_from_slice(&sum);
        let bytes = Bytes::from(out);
        let pack = Self { body: bytes.slice(HEADER..), nodes: stored, places };
        for (place, fresh) in (0..).zip(nodes) {
            if let (false, Some((_, base))) = (pack.is_whole(place), &fresh.base) {
                pack.put_together(place, base, Some(fresh.node.len()))?;
            }
            let node = pack.node(place);
            if hashing.blob(node) != fresh.id {
                return Err(StoreError::corrupt(format!("blob {}", fresh.id), "its content doesn't have that hash"));
            }
        }
        Ok((pack, bytes))
    }

    /// Opens what [`build`](Self::build) gave, or a pack of file contents: a file may happen to have the
    /// bytes of a node, and then the node is found there.
    pub(crate) fn open(bytes: Bytes) -> Result<Self, StoreError> {
        Self::open_read(bytes, true)
    }

    /// Opens a pack that was read from a store which names blobs so. An encrypted one has authenticated every byte just
    /// before, which says more than a checksum: that isn't computed again.
    pub(crate) fn open_from(hashing: &Hashing, bytes: Bytes) -> Result<Self, StoreError> {
        Self::open_read(bytes, !hashing.is_keyed())
    }

    fn open_read(bytes: Bytes, compare: bool) -> Result<Self, StoreError> {
        if bytes.first() == Some(&framed::FORM) {
            return Self::open_framed(bytes);
        }
        let mut reader = Reader::new(&bytes);
        let form = reader.byte()?;
        let sum: [u8; CHECKSUM] = reader.array()?;
        if form != FORM || (compare && sum != checksum(reader.rest())) {
            return Err(StoreError::corrupt("a pack", "its checksum doesn't fit its content"));
        }
        let body = bytes.slice(HEADER..);
        let count = reader.count_of(33)?;
        let mut lengths = Vec::with_capacity(count);
        for _ in 0..count {
            lengths.push((reader.id()?, reader.varint()?));
        }
        let mut start = body.len() - reader.rest().len();
        let mut nodes = Vec::with_capacity(count);
        let mut places = IdMap::with_capacity(count);
        for (place, (id, length)) in (0..).zip(lengths) {
            let stored = reader.bytes(length >> 1)?.len();
            let whole = (length & 1 == 1).then(OnceLock::new);
            nodes.push(Stored { id, range: start..start + stored, whole });
            places.insert(id, place);
            start += stored;
        }
        reader.end()?;
        Ok(Self { body, nodes, places })
    }

    fn open_framed(bytes: Bytes) -> Result<Self, StoreError> {
        let (mut body, mut nodes, mut places) = (Vec::new(), Vec::new(), IdMap::new());
        let mut add = |id, node: Bytes| {
            places.insert(id, u32::try_from(nodes.len()).map_err(|_| Malformed("a pack has too many nodes"))?);
            nodes.push(Stored { id, range: body.len()..body.len() + node.len(), whole: None });
            body.extend_from_slice(&node);
            Ok(())
        };
        FramedPack::open(bytes)?.read_all(&mut add)?;
        Ok(Self { body: body.into(), nodes, places })
    }

    /// Where a node is in the pack.
    pub(crate) fn place(&self, id: &BlobId) -> Option<u32> {
        self.places.get(id).copied()
    }

    /// Whether a node can be read: it stands there whole or was [completed](Self::complete).
    pub(crate) fn is_whole(&self, place: u32) -> bool {
        self.nodes[place as usize].whole.as_ref().is_none_or(|whole| whole.get().is_some())
    }

    /// Where the node is that the one at `place` is written as a difference from.
    pub(crate) fn base(&self, place: u32) -> Result<Base, StoreError> {
        Ok(difference::base(&self.body[self.nodes[place as usize].range.clone()])?)
    }

    /// Puts a node together.
    pub(crate) fn complete(&self, place: u32, base: &[u8]) -> Result<(), StoreError> {
        self.put_together(place, base, None)
    }

    fn put_together(&self, place: u32, base: &[u8], length: Option<usize>) -> Result<(), StoreError> {
        let stored = &self.nodes[place as usize];
        if let Some(whole) = &stored.whole {
            let near = |distance: u64| {
                let near = u64::from(place).checked_sub(distance)?;
                Some(self.nodes[usize::try_from(near).ok()?].id).filter(|_| distance > 0)
            };
            let node = difference::apply(&self.body[stored.range.clone()], base, length, near)?;
            whole.get_or_init(|| node.into());
        }
        Ok(())
    }

    /// How many nodes it has.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node at a place, which is [whole](Self::is_whole).
    pub(crate) fn node(&self, place: u32) -> &[u8] {
        let stored = &self.nodes[place as usize];
        match &stored.whole {
            None => &self.body[stored.range.clone()],
            Some(whole) => whole.get().expect("the caller has seen to it that it is whole"),
        }
    }

    /// Every node with its id, in order. `base` gives the bases of those that are differences.
    pub(crate) fn nodes(
        &self,
        mut base: impl FnMut(Base) -> Option<Bytes>,
    ) -> Result<Vec<(BlobId, Bytes)>, StoreError> {
        (0..)
            .zip(&self.nodes)
            .map(|(place, stored)| {
                let Some(whole) = &stored.whole else { return Ok((stored.id, self.body.slice(stored.range.clone()))) };
                if whole.get().is_none() {
                    let at = self.base(place)?;
                    let missing =
                        || StoreError::corrupt("a pack", format!("what it builds on in entry {} is missing", at.seq));
                    self.complete(place, &base(at).ok_or_else(missing)?)?;
                }
                Ok((stored.id, whole.get().expect("completed just now").clone()))
            })
            .collect()
    }

    /// Bytes in memory.
    pub(crate) fn size(&self) -> usize {
        self.body.len() + self.nodes.len() * 112
    }
}

/// `form`, checksum, inflated length, compressed bytes.
pub(crate) fn deflate(form: u8, plain: &[u8], level: i32) -> Result<Bytes, StoreError> {
    let packed = zstd::bulk::compress(plain, level)
        .map_err(|error| StoreError::Invalid { what: "compression".to_owned(), detail: error.to_string() })?;
    let mut out = Vec::with_capacity(packed.len() + 43);
    out.push(form);
    out.extend_from_slice(&[0; CHECKSUM]);
    put_varint(&mut out, plain.len() as u64);
    out.extend_from_slice(&packed);
    let sum = checksum(&out[HEADER..]);
    out[1..HEADER].copy_from_slice(&sum);
    Ok(out.into())
}

/// Undoes [`deflate`], after the checksum was found right.
pub(crate) fn inflate(form: u8, bytes: &[u8]) -> Result<Bytes, StoreError> {
    let corrupt = |detail: &str| StoreError::corrupt("a compressed record", detail);
    let mut reader = Reader::new(bytes);
    if reader.byte()? != form {
        return Err(corrupt("it is of another kind"));
    }
    if reader.array()? != checksum(reader.rest()) {
        return Err(corrupt("its checksum doesn't fit its content"));
    }
    let length = reader.varint()?;
    if length > MAX_INFLATED {
        return Err(StoreError::TooLarge { what: "a compressed record".into(), size: length, limit: MAX_INFLATED });
    }
    let length = usize::try_from(length).expect("checked against a small limit");
    // The capacity is also the limit: a bomb that claims little and inflates to much is an error.
    let plain = zstd::bulk::decompress(reader.rest(), length).map_err(|error| corrupt(&error.to_string()))?;
    if plain.len() != length {
        return Err(corrupt("its length isn't the one it claims"));
    }
    Ok(plain.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASHING: Hashing = Hashing::PLAIN;

    fn sample() -> Vec<Fresh> {
        ["", "a", "some longer text, some longer text"]
            .map(|text| Fresh::whole(HASHING.blob(text.as_bytes()), Bytes::from_static(text.as_bytes())))
            .to_vec()
    }

    fn list(items: u8) -> Bytes {
        let mut node = vec![crate::state::grammar::LIST, items];
        (0..items).for_each(|n| node.extend([crate::state::grammar::STRING, 8, n, n, n, n, n, n, n, n]));
        node.into()
    }

    #[test]
    fn a_pack_gives_its_nodes_back() {
        let (built, bytes) = Pack::build(&HASHING, &sample()).unwrap();
        let expected: Vec<_> = sample().into_iter().map(|fresh| (fresh.id, fresh.node)).collect();
        for pack in [built, Pack::open(bytes).unwrap()] {
            assert_eq!(pack.nodes(|_| None).unwrap(), expected);
            assert_eq!(pack.place(&expected[2].0), Some(2));
            assert_eq!(pack.node(1), b"a");
        }
    }

    #[test]
    fn a_node_that_took_the_place_of_another_is_its_difference() {
        let (old, new) = (list(40), list(41));
        let (base, id) = (Base { seq: piton_types::Seq(3), place: 7 }, HASHING.blob(&new));
        let fresh = Fresh { base: Some((base, old.clone())), ..Fresh::whole(id, new.clone()) };
        let (built, bytes) = Pack::build(&HASHING, &[fresh]).unwrap();
        assert!(bytes.len() < 140, "{}", bytes.len());
        assert_eq!(built.node(0), new);
        let opened = Pack::open(bytes).unwrap();
        assert!(!opened.is_whole(0));
        assert_eq!(opened.base(0).unwrap(), base);
        assert!(opened.nodes(|_| None).is_err(), "its base is missing");
        assert_eq!(opened.nodes(|wanted| (wanted == base).then(|| old.clone())).unwrap(), [(id, new)]);
    }

    /// Promise 5: no flipped byte goes unseen, in packs and in compressed records.
    #[test]
    fn every_flipped_byte_is_found() {
        let (_, bytes) = Pack::build(&HASHING, &sample()).unwrap();
        let packed = deflate(9, &bytes, 3).unwrap();
        let opens = |bytes: Vec<u8>| Pack::open(bytes.into()).is_ok();
        let inflates = |bytes: Vec<u8>| inflate(9, &bytes).is_ok();
        for (bytes, reads) in [(bytes, &opens as &dyn Fn(Vec<u8>) -> bool), (packed, &inflates)] {
            assert!(reads(bytes.to_vec()));
            for at in 0..bytes.len() {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= 1;
                assert!(!reads(damaged), "byte {at}");
                assert!(!reads(bytes[..at].to_vec()), "cut at {at}");
            }
        }
    }

    #[test]
    fn an_id_that_does_not_fit_is_found_before_the_commit() {
        let wrong = Fresh::whole(HASHING.blob(b"x"), Bytes::from_static(b"y"));
        assert!(matches!(Pack::build(&HASHING, &[wrong]), Err(StoreError::Corrupt { .. })));
    }

    #[test]
    fn bombs_do_not_go_off() {
        let zeros = vec![0; 1 << 20];
        let honest = deflate(9, &zeros, 3).unwrap();
        assert!(honest.len() < 1000);
        let reseal = |length: u64| {
            let mut reader = Reader::new(&honest[HEADER..]);
            reader.varint().unwrap();
            let mut out = vec![9];
            out.extend_from_slice(&[0; CHECKSUM]);
            put_varint(&mut out, length);
            out.extend_from_slice(reader.rest());
            let sum = checksum(&out[HEADER..]);
            out[1..HEADER].copy_from_slice(&sum);
            inflate(9, &out)
        };
        assert_eq!(reseal(1 << 20).unwrap().len(), 1 << 20);
        assert!(matches!(reseal(10), Err(StoreError::Corrupt { .. })), "inflates to more than it claims");
        assert!(matches!(reseal(1 << 63), Err(StoreError::TooLarge { .. })), "claims more than is allowed");
        assert!(matches!(reseal(2 << 20), Err(StoreError::Corrupt { .. })), "inflates to less than it claims");
    }
}
