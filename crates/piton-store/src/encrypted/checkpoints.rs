//! Encryption for an embedder's own store: what is saved is sealed and bound to its id. Ids and sizes stay in clear.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::Random;
use zeroize::Zeroizing;

use super::cipher::{Cipher, DataKey, Place};
use super::key::Key;
use super::ring::{Opened, Ring};
use crate::checked;
use crate::{CheckpointError, CheckpointStore, Expected, Saved, StoreError};

/// Under which id the key is kept, wrapped.
const RING: &str = "piton.keys";

/// A [`CheckpointStore`] whose content is encrypted. `piton_log::EmbeddedStore` makes an encrypted store of
/// it.
pub struct EncryptedCheckpointStore {
    inner: Arc<dyn CheckpointStore>,
    cipher: Cipher,
}

fn failed(error: CheckpointError) -> StoreError {
    StoreError::Unavailable { detail: error.to_string() }
}

impl EncryptedCheckpointStore {
    /// Opens an encrypted store, and turns encryption on if nothing says yet that it is. With a wrong key that is
    /// `Locked`. What was saved before it was on can't be loaded. `random` must be unpredictable: keys are made of it.
    pub async fn open(inner: Arc<dyn CheckpointStore>, key: &Key, random: Arc<dyn Random>) -> Result<Self, StoreError> {
        let mut saved = inner.load(RING).await.map_err(failed)?;
        if saved.is_none() {
            let (mut data, mut id): (DataKey, _) = (Zeroizing::new([0; 32]), [0; 16]);
            random.fill(&mut *data);
            random.fill(&mut id);
            let ring = checked::seal(&Ring::new(&id, key.wrap(&data, &id, &*random)?))?;
            match inner.save(RING, ring.into(), Expected::Absent).await {
                // Another process was faster, and its ring counts.
                Ok(_) | Err(CheckpointError::Conflict(_)) => {}
                Err(error) => return Err(failed(error)),
            }
            saved = inner.load(RING).await.map_err(failed)?;
        }
        let missing = || StoreError::corrupt("the key ring", "it isn't kept");
        let Opened { data, store } = Ring::open(&saved.ok_or_else(missing)?.bytes, key)?;
        Ok(Self { inner, cipher: Cipher::new(&data, store, random).0 })
    }
}

#[async_trait]
impl CheckpointStore for EncryptedCheckpointStore {
    async fn save(&self, id: &str, bytes: Bytes, expected: Expected) -> Result<u64, CheckpointError> {
        if id == RING {
            return Err(CheckpointError::Storage(format!("the keys are kept under {RING:?}")));
        }
        self.inner.save(id, self.cipher.seal(Place::Checkpoint(id), &bytes), expected).await
    }

    async fn load(&self, id: &str) -> Result<Option<Saved>, CheckpointError> {
        let Some(Saved { version, bytes }) = self.inner.load(id).await?.filter(|_| id != RING) else {
            return Ok(None);
        };
        match self.cipher.open(Place::Checkpoint(id), bytes) {
            Ok(bytes) => Ok(Some(Saved { version, bytes })),
            Err(error) => Err(CheckpointError::Corrupted(error.to_string())),
        }
    }

    async fn delete(&self, id: &str) -> Result<(), CheckpointError> {
        match id == RING {
            true => Ok(()),
            false => self.inner.delete(id).await,
        }
    }

    fn compares(&self) -> bool {
        self.inner.compares()
    }
}

impl std::fmt::Debug for EncryptedCheckpointStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EncryptedCheckpointStore")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryCheckpointStore;

    struct Counting(std::sync::atomic::AtomicU8);

    impl Random for Counting {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill_with(|| self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        }
    }

    /// Promise 26, for an embedder's own store: nothing is in clear, and what is moved or changed doesn't open.
    #[tokio::test]
    async fn an_embedders_store_holds_nothing_in_clear() {
        let (below, random) = (Arc::new(MemoryCheckpointStore::new()), Arc::new(Counting(0.into())));
        let key = Key::generate(&*random);
        let open = || EncryptedCheckpointStore::open(below.clone(), &key, random.clone());
        open().await.unwrap().save("a", "a canary".into(), Expected::Absent).await.unwrap();
        let store = open().await.unwrap();
        assert_eq!(&store.load("a").await.unwrap().unwrap().bytes[..], b"a canary");
        let sealed = below.load("a").await.unwrap().unwrap().bytes;
        assert!(!sealed.windows(6).any(|window| window == b"canary"));
        below.save("b", sealed.clone(), Expected::Any).await.unwrap();
        below.save("c", "a canary".into(), Expected::Any).await.unwrap();
        for id in ["b", "c"] {
            assert!(matches!(store.load(id).await, Err(CheckpointError::Corrupted(_))), "{id}");
        }
        let other = EncryptedCheckpointStore::open(below.clone(), &Key::generate(&*random), random.clone()).await;
        assert!(matches!(other, Err(StoreError::Locked { .. })), "{other:?}");
        assert!(store.save(RING, Bytes::new(), Expected::Any).await.is_err());
        store.delete(RING).await.unwrap();
        assert!(open().await.is_ok(), "the keys can't be deleted through it");
    }
}
