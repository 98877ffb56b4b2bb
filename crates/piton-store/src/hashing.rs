//! How blobs get their names and where lists and maps are cut. A store fixes it for its whole life: in
//! an encrypted store both depend on a key, so that neither names nor sizes give content away.

use piton_types::{BlobId, EntryHash, PackId};

/// Odd constants of the boundary hash; part of the format.
const MIX: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

/// The hash functions of a store.
#[derive(Clone, PartialEq, Eq)]
pub struct Hashing {
    key: Option<[u8; 32]>,
    seed: u64,
}

impl Hashing {
    /// Plain BLAKE3, the same in every store that isn't encrypted.
    pub const PLAIN: Self = Self { key: None, seed: 0 };

    /// Keyed by `key`, which no one without it can predict.
    pub fn keyed(key: [u8; 32]) -> Self {
        let seed = blake3::keyed_hash(&key, b"piton boundary seed");
        let seed = u64::from_le_bytes(seed.as_bytes()[..8].try_into().expect("eight bytes"));
        Self { key: Some(key), seed }
    }

    /// The key, if there is one.
    pub(crate) fn key(&self) -> Option<&[u8; 32]> {
        self.key.as_ref()
    }

    /// Whether names and cuts depend on a key, as in an encrypted store.
    pub fn is_keyed(&self) -> bool {
        self.key.is_some()
    }

    /// The name of a blob.
    pub fn blob(&self, bytes: &[u8]) -> BlobId {
        BlobId::new(
            *match &self.key {
                None => blake3::hash(bytes),
                Some(key) => blake3::keyed_hash(key, bytes),
            }
            .as_bytes(),
        )
    }

    /// The name of a pack.
    pub fn pack(&self, bytes: &[u8]) -> PackId {
        PackId::new(*self.blob(bytes).as_bytes())
    }

    /// The hash of an entry, over parts whose lengths are fixed or written before them.
    pub fn entry(&self, parts: &[&[u8]]) -> EntryHash {
        // Most are small, and then what a hasher is made of costs more than copying them together.
        let mut whole = [0; 1 << 10];
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length <= whole.len() {
            let mut end = 0;
            for part in parts {
                whole[end..end + part.len()].copy_from_slice(part);
                end += part.len();
            }
            return EntryHash::new(*self.blob(&whole[..length]).as_bytes());
        }
        let mut hasher = match &self.key {
            None => blake3::Hasher::new(),
            Some(key) => blake3::Hasher::new_keyed(key),
        };
        for part in parts {
            hasher.update(part);
        }
        EntryHash::new(*hasher.finalize().as_bytes())
    }

    /// A fast hash that decides where lists and maps are cut.
    pub fn boundary(&self, bytes: &[u8]) -> u32 {
        let mut hash = self.seed ^ (bytes.len() as u64).wrapping_mul(MIX[0]);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(MIX[0]);
            hash = (hash ^ (hash >> 32)).wrapping_mul(MIX[1]);
        }
        u32::try_from(hash >> 32).expect("32 bits are left")
    }

    /// The seed for cutting long strings.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

impl std::fmt::Debug for Hashing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.key.is_some() { "Hashing(keyed)" } else { "Hashing(plain)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins the format: a change here makes every existing store unreadable.
    #[test]
    fn boundary_hash_is_pinned() {
        assert_eq!(Hashing::PLAIN.boundary(b""), 0);
        let a = Hashing::PLAIN.boundary(b"piton");
        assert_ne!(a, Hashing::keyed([1; 32]).boundary(b"piton"));
        assert_ne!(a, Hashing::PLAIN.boundary(b"pitoo"));
        assert_ne!(Hashing::PLAIN.boundary(b"a"), Hashing::PLAIN.boundary(b"a\0"));
    }

    #[test]
    fn boundary_hash_spreads() {
        let hits = (0..16_000_u32).filter(|n| Hashing::PLAIN.boundary(&n.to_le_bytes()) < u32::MAX / 16).count();
        assert!((800..1200).contains(&hits), "{hits} of 16000");
    }

    /// However long it is, and wherever it is cut.
    #[test]
    fn an_entry_in_parts_is_hashed_as_a_whole() {
        for hashing in [Hashing::PLAIN, Hashing::keyed([7; 32])] {
            for length in [0, 1, 63, 64, 1_023, 1_024, 1_025, 5_000] {
                let whole = vec![3; length];
                let (one, other) = whole.split_at(length / 3);
                assert_eq!(hashing.entry(&[one, &[], other]).as_bytes(), hashing.blob(&whole).as_bytes(), "{length}");
            }
        }
    }

    #[test]
    fn keys_change_names() {
        assert_ne!(Hashing::PLAIN.blob(b"x"), Hashing::keyed([7; 32]).blob(b"x"));
        assert_ne!(Hashing::keyed([8; 32]).blob(b"x"), Hashing::keyed([7; 32]).blob(b"x"));
    }
}
