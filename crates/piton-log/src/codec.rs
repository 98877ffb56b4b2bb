//! Byte-level pieces that records other than nodes are made of too; numbers and texts are those of the
//! state's grammar.

pub(crate) use crate::state::grammar::{Reader, write_varint as put_varint};

use piton_types::BlobId;
use twox_hash::XxHash3_64;

use crate::state::grammar::{Malformed, each_offset};
use piton_store::StoreError;

/// The length of a [`checksum`].
pub(crate) const CHECKSUM: usize = 8;

/// What tells that bytes are as they were written. It is there for accidents: what a record holds is named by
/// cryptographic hashes, and what an attacker forges is found by those, or by the cipher of an encrypted store.
pub(crate) fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    XxHash3_64::oneshot(bytes).to_le_bytes()
}

/// Appends a signed integer, zigzag-coded.
pub(crate) fn put_signed(out: &mut Vec<u8>, n: i64) {
    put_varint(out, (n.cast_unsigned() << 1) ^ (n >> 63).cast_unsigned());
}

/// Appends a length and then the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The ids that a node refers to.
pub(crate) fn references(node: &[u8]) -> Result<Vec<BlobId>, StoreError> {
    let mut ids = Vec::new();
    each_reference(node, |id| ids.push(id))?;
    Ok(ids)
}

/// Gives every id that a node refers to.
pub(crate) fn each_reference(node: &[u8], mut give: impl FnMut(BlobId)) -> Result<(), StoreError> {
    each_offset(node, |at| give(BlobId::new(node[at..at + 32].try_into().expect("32 bytes"))))
}

impl<'a> Reader<'a> {
    /// What [`put_signed`] wrote.
    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let n = self.varint()?;
        Ok((n >> 1).cast_signed() ^ -(n & 1).cast_signed())
    }

    /// `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.bytes(N as u64)?.try_into().expect("N bytes were taken"))
    }

    /// A number of things of which each takes at least `least` bytes of what is left.
    pub(crate) fn count_of(&mut self, least: usize) -> Result<usize, Malformed> {
        match usize::try_from(self.varint()?) {
            Ok(n) if n <= self.remaining() / least => Ok(n),
            _ => Err(Malformed("a count is too large")),
        }
    }

    /// All that is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        let left = self.remaining() as u64;
        self.clone().bytes(left).expect("so much is left")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins the format: a change here makes every existing store unreadable.
    #[test]
    fn the_checksum_is_pinned() {
        assert_eq!(checksum(b"piton"), [28, 68, 177, 208, 226, 238, 134, 238]);
    }

    #[test]
    fn signed_integers_survive() {
        for n in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_signed(&mut out, n);
            assert_eq!(Reader::new(&out).signed(), Ok(n));
        }
    }

    /// A length field of 2^63 must not become an allocation.
    #[test]
    fn lengths_are_bounded_by_what_is_there() {
        let mut out = Vec::new();
        put_varint(&mut out, 1 << 63);
        assert!(Reader::new(&out).sized().is_err());
        assert!(Reader::new(&out).count_of(1).is_err());
        assert_eq!(Reader::new(&out).rest(), out);
    }
}
