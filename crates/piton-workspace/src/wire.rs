//! Numbers and byte strings as trees and contents have them; the notation of `docs/format.md`.

use crate::TreeError;

/// Appends an unsigned LEB128 integer.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n.to_le_bytes()[0] | 0x80);
        n >>= 7;
    }
    out.push(n.to_le_bytes()[0]);
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

/// Reads what the above wrote, and refuses everything else.
pub(crate) struct Wire<'a>(pub(crate) &'a [u8]);

impl<'a> Wire<'a> {
    pub(crate) fn bytes(&mut self, n: u64) -> Result<&'a [u8], TreeError> {
        let n = usize::try_from(n).map_err(|_| TreeError("a length is too large"))?;
        let (taken, rest) = self.0.split_at_checked(n).ok_or(TreeError("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, TreeError> {
        Ok(self.bytes(1)?[0])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], TreeError> {
        Ok(self.bytes(N as u64)?.try_into().expect("N bytes were taken"))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, TreeError> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 { Err(TreeError("a number is longer than need be")) } else { Ok(n) };
            }
        }
        Err(TreeError("a number is too large"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, TreeError> {
        let n = self.varint()?;
        Ok((n >> 1).cast_signed() ^ -(n & 1).cast_signed())
    }

    /// A length and then the bytes.
    pub(crate) fn sized(&mut self) -> Result<&'a [u8], TreeError> {
        let n = self.varint()?;
        self.bytes(n)
    }

    /// A number of things of which each takes at least `least` bytes of what is left.
    pub(crate) fn count_of(&mut self, least: usize) -> Result<usize, TreeError> {
        match usize::try_from(self.varint()?) {
            Ok(n) if n <= self.0.len() / least => Ok(n),
            _ => Err(TreeError("a count is too large")),
        }
    }

    pub(crate) fn end(&self) -> Result<(), TreeError> {
        if self.0.is_empty() { Ok(()) } else { Err(TreeError("bytes are left over")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_and_have_one_spelling() {
        for n in [0, 1, 127, 128, 300, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, n);
            assert_eq!(Wire(&out).varint(), Ok(n));
        }
        for n in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_signed(&mut out, n);
            assert_eq!(Wire(&out).signed(), Ok(n));
        }
        for wrong in [&[0x80, 0x00][..], &[0xff; 10], &[0x80], &[]] {
            assert!(Wire(wrong).varint().is_err(), "{wrong:?}");
        }
        assert!(Wire(&[5, 1]).sized().is_err() && Wire(&[5, 1]).count_of(1).is_err());
    }
}
