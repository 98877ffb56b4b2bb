//! An embedder's checkpoints in a SQLite store.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use piton_log::LogCheckpointStore;
use piton_store::{CheckpointError, CheckpointStore, Expected, Saved};

use crate::{SqliteOptions, SqliteStore};

/// A [`CheckpointStore`] in one SQLite database, which several processes may use. When `save` or `delete` returns,
/// what it did survives a power cut. It is plaintext; for encryption put a
/// [`LogCheckpointStore`] over a [`piton_store::EncryptedStore`].
#[derive(Debug)]
pub struct SqliteCheckpointStore(LogCheckpointStore);

impl SqliteCheckpointStore {
    /// The store at `path`, which is made if it isn't there and the options say so.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, CheckpointError> {
        let store = SqliteStore::open(path, options).map_err(|error| CheckpointError::Storage(error.to_string()))?;
        Ok(Self(LogCheckpointStore::new(Arc::new(store))))
    }
}

#[async_trait]
impl CheckpointStore for SqliteCheckpointStore {
    async fn save(&self, id: &str, bytes: Bytes, expected: Expected) -> Result<u64, CheckpointError> {
        self.0.save(id, bytes, expected).await
    }

    async fn load(&self, id: &str) -> Result<Option<Saved>, CheckpointError> {
        self.0.load(id).await
    }

    async fn delete(&self, id: &str) -> Result<(), CheckpointError> {
        self.0.delete(id).await
    }
}
