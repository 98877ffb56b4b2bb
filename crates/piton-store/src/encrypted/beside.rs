//! Sealing what lies beside an encrypted store: caches that say what the store does, names of files for instance.
//!
//! They are written anew as a whole, again and again, by every process that has the store open, and there is nothing of
//! them in the store to tell their versions apart. So a file's nonce isn't random but the keyed hash of its place and
//! content: two different contents never have the same nonce, and equal ones give equal bytes, which tells that nothing
//! changed.

use bytes::Bytes;
use zeroize::Zeroizing;

use super::cipher;
use crate::Hashing;

/// What the keys are derived for.
const FILES: &str = "piton 1 what lies beside an encrypted store";
const NONCES: &str = "piton 1 nonces of what lies beside an encrypted store";

impl Hashing {
    fn beside(&self, context: &str) -> Option<Zeroizing<[u8; 32]>> {
        Some(Zeroizing::new(blake3::derive_key(context, self.key()?)))
    }

    /// Seals a file that is kept beside the store, if the store is encrypted. `name` says which, so that one doesn't
    /// open in another's place.
    pub fn seal_beside(&self, name: &str, plain: &[&[u8]]) -> Option<Bytes> {
        let mut hasher = blake3::Hasher::new_keyed(&*self.beside(NONCES)?);
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
        for part in plain {
            hasher.update(part);
        }
        let nonce = hasher.finalize();
        Some(cipher::seal_with(&*self.beside(FILES)?, nonce.as_bytes(), &bound(name), plain))
    }

    /// What [`seal_beside`](Self::seal_beside) sealed under that name; `None` if it isn't exactly that.
    pub fn open_beside(&self, name: &str, sealed: Bytes) -> Option<Bytes> {
        cipher::open(&*self.beside(FILES)?, &bound(name), sealed)
    }
}

fn bound(name: &str) -> Vec<u8> {
    [b"piton beside ", name.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise 5: a file opens under its own name and key, whole, and not otherwise.
    #[test]
    fn a_file_beside_the_store_opens_in_its_place_only() {
        let hashing = Hashing::keyed([7; 32]);
        let sealed = hashing.seal_beside("cache", &[b"names", b" of files"]).unwrap();
        assert!(!sealed.windows(5).any(|window| window == b"names"));
        assert_eq!(hashing.open_beside("cache", sealed.clone()).unwrap(), "names of files");
        assert_eq!(hashing.seal_beside("cache", &[b"names of files"]).unwrap(), sealed, "the same is the same");
        assert!(hashing.open_beside("patch", sealed.clone()).is_none());
        assert!(Hashing::keyed([8; 32]).open_beside("cache", sealed.clone()).is_none());
        for at in 0..sealed.len() {
            let mut damaged = sealed.to_vec();
            damaged[at] ^= 1;
            assert!(hashing.open_beside("cache", damaged.into()).is_none(), "byte {at}");
            assert!(hashing.open_beside("cache", sealed.slice(..at)).is_none(), "cut at {at}");
        }
        assert!(Hashing::PLAIN.seal_beside("cache", &[b""]).is_none(), "a plain store has no key");
    }
}
