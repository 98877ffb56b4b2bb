//! Packs: several nodes in one byte string, each with its id. A commit carries its new nodes as one, or
//! stages them ahead if they are large. And the form that every compressed record has.
//!
//! The checksum covers everything behind it, so a pack that opens is a pack as it was written, and its
//! nodes need not be hashed again one by one.

use std::ops::Range;

use bytes::Bytes;
use piton_types::BlobId;

use crate::codec::{Reader, put_varint};
use crate::state::IdMap;
use crate::{Hashing, StoreError};

/// First byte of a pack.
const FORM: u8 = 1;

/// The form and the checksum.
const HEADER: usize = 33;

/// The most that a compressed record may hold, so that a few bytes can't ask for all memory.
pub(crate) const MAX_INFLATED: u64 = 256 << 20;

/// Nodes by id, in one byte string.
#[derive(Debug)]
pub(crate) struct Pack {
    /// What is behind the checksum.
    body: Bytes,
    nodes: Vec<(BlobId, Range<usize>)>,
    places: IdMap<u32>,
}

impl Pack {
    /// A pack of these nodes, children before parents, and the bytes that it is stored as.
    pub(crate) fn build(hashing: &Hashing, nodes: &[(BlobId, Bytes)]) -> (Self, Bytes) {
        let size: usize = nodes.iter().map(|(_, node)| node.len() + 35).sum();
        let mut out = Vec::with_capacity(size + HEADER + 5);
        out.push(FORM);
        out.extend_from_slice(&[0; HEADER - 1]);
        put_varint(&mut out, nodes.len() as u64);
        for (id, node) in nodes {
            out.extend_from_slice(id.as_bytes());
            put_varint(&mut out, node.len() as u64);
        }
        let mut ranges = Vec::with_capacity(nodes.len());
        let mut places = IdMap::with_capacity_and_hasher(nodes.len(), Default::default());
        for (place, (id, node)) in (0..).zip(nodes) {
            let start = out.len() - HEADER;
            ranges.push((*id, start..start + node.len()));
            places.insert(*id, place);
            out.extend_from_slice(node);
        }
        let checksum = hashing.blob(&out[HEADER..]);
        out[1..HEADER].copy_from_slice(checksum.as_bytes());
        let plain = Bytes::from(out);
        (Self { body: plain.slice(HEADER..), nodes: ranges, places }, plain)
    }

    /// Opens what [`build`](Self::build) gave.
    pub(crate) fn open(hashing: &Hashing, bytes: Bytes) -> Result<Self, StoreError> {
        let mut reader = Reader::new(&bytes);
        if reader.byte()? != FORM || reader.id()? != hashing.blob(reader.rest()) {
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
        let mut places = IdMap::with_capacity_and_hasher(count, Default::default());
        for (place, (id, length)) in (0..).zip(lengths) {
            let length = reader.bytes(length)?.len();
            nodes.push((id, start..start + length));
            places.insert(id, place);
            start += length;
        }
        reader.end()?;
        Ok(Self { body, nodes, places })
    }

    /// Hashes every node again: what a broken encoder or bad memory made is found before the commit
    /// that needs it counts as done.
    pub(crate) fn verify(&self, hashing: &Hashing) -> Result<(), StoreError> {
        for (id, range) in &self.nodes {
            if hashing.blob(&self.body[range.clone()]) != *id {
                return Err(StoreError::corrupt(format!("blob {id}"), "its content doesn't have that hash"));
            }
        }
        Ok(())
    }

    /// Where a node is in the pack.
    pub(crate) fn place(&self, id: &BlobId) -> Option<u32> {
        self.places.get(id).copied()
    }

    /// The node at a place.
    pub(crate) fn node(&self, place: u32) -> &[u8] {
        &self.body[self.nodes[place as usize].1.clone()]
    }

    /// Every node with its id, in order.
    pub(crate) fn nodes(&self) -> impl ExactSizeIterator<Item = (BlobId, Bytes)> {
        self.nodes.iter().map(|(id, range)| (*id, self.body.slice(range.clone())))
    }

    /// Bytes in memory.
    pub(crate) fn size(&self) -> usize {
        self.body.len() + self.nodes.len() * 88
    }
}

/// `form`, checksum, inflated length, compressed bytes.
pub(crate) fn deflate(hashing: &Hashing, form: u8, plain: &[u8], level: i32) -> Result<Bytes, StoreError> {
    let packed = zstd::bulk::compress(plain, level)
        .map_err(|error| StoreError::Invalid { what: "compression".to_owned(), detail: error.to_string() })?;
    let mut out = Vec::with_capacity(packed.len() + 43);
    out.push(form);
    out.extend_from_slice(&[0; 32]);
    put_varint(&mut out, plain.len() as u64);
    out.extend_from_slice(&packed);
    let checksum = hashing.blob(&out[33..]);
    out[1..33].copy_from_slice(checksum.as_bytes());
    Ok(out.into())
}

/// Undoes [`deflate`], after the checksum was found right.
pub(crate) fn inflate(hashing: &Hashing, form: u8, bytes: &[u8]) -> Result<Bytes, StoreError> {
    let corrupt = |detail: &str| StoreError::corrupt("a compressed record", detail);
    let mut reader = Reader::new(bytes);
    if reader.byte()? != form {
        return Err(corrupt("it is of another kind"));
    }
    let checksum = reader.id()?;
    if hashing.blob(reader.rest()) != checksum {
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

    fn sample() -> Vec<(BlobId, Bytes)> {
        ["", "a", "some longer text, some longer text"]
            .map(|text| (HASHING.blob(text.as_bytes()), Bytes::from_static(text.as_bytes())))
            .to_vec()
    }

    #[test]
    fn a_pack_gives_its_nodes_back() {
        let (built, bytes) = Pack::build(&HASHING, &sample());
        for pack in [built, Pack::open(&HASHING, bytes).unwrap()] {
            pack.verify(&HASHING).unwrap();
            assert_eq!(pack.nodes().collect::<Vec<_>>(), sample());
            assert_eq!(pack.place(&sample()[2].0), Some(2));
            assert_eq!(pack.node(1), b"a");
        }
    }

    /// Promise 5: no flipped byte goes unseen, in packs and in compressed records.
    #[test]
    fn every_flipped_byte_is_found() {
        let (_, bytes) = Pack::build(&HASHING, &sample());
        let packed = deflate(&HASHING, 9, &bytes, 3).unwrap();
        let opens = |bytes: Vec<u8>| Pack::open(&HASHING, bytes.into()).is_ok();
        let inflates = |bytes: Vec<u8>| inflate(&HASHING, 9, &bytes).is_ok();
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
        let wrong = [(HASHING.blob(b"x"), Bytes::from_static(b"y"))];
        let (pack, _) = Pack::build(&HASHING, &wrong);
        assert!(matches!(pack.verify(&HASHING), Err(StoreError::Corrupt { .. })));
    }

    #[test]
    fn bombs_do_not_go_off() {
        let zeros = vec![0; 1 << 20];
        let honest = deflate(&HASHING, 9, &zeros, 3).unwrap();
        assert!(honest.len() < 1000);
        let reseal = |length: u64| {
            let mut reader = Reader::new(&honest[33..]);
            reader.varint().unwrap();
            let mut out = vec![9];
            out.extend_from_slice(&[0; 32]);
            put_varint(&mut out, length);
            out.extend_from_slice(reader.rest());
            let checksum = HASHING.blob(&out[33..]);
            out[1..33].copy_from_slice(checksum.as_bytes());
            inflate(&HASHING, 9, &out)
        };
        assert_eq!(reseal(1 << 20).unwrap().len(), 1 << 20);
        assert!(matches!(reseal(10), Err(StoreError::Corrupt { .. })), "inflates to more than it claims");
        assert!(matches!(reseal(1 << 63), Err(StoreError::TooLarge { .. })), "claims more than is allowed");
        assert!(matches!(reseal(2 << 20), Err(StoreError::Corrupt { .. })), "inflates to less than it claims");
    }
}
