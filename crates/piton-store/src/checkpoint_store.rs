//! The smallest thing an embedder can implement to have runs stored: three methods over bytes.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;

/// What must be there for a save to go ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Whatever; the caller asserts that there is no other writer.
    Any,
    /// Nothing.
    Absent,
    /// The version that an earlier call returned.
    Version(u64),
}

/// What was saved under an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Changes with every save.
    pub version: u64,
    /// The bytes.
    pub bytes: Bytes,
}

/// An error of a [`CheckpointStore`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The state could not be turned into bytes.
    #[error("the state can't be encoded: {0}")]
    Serialization(String),
    /// The store failed.
    #[error("the checkpoint store failed: {0}")]
    Storage(String),
    /// There is no such checkpoint.
    #[error("there is no checkpoint for {0:?}")]
    NotFound(String),
    /// What was loaded isn't what was saved.
    #[error("the checkpoint is damaged: {0}")]
    Corrupted(String),
    /// Another writer saved meanwhile. Nothing was written.
    #[error("the checkpoint for {0:?} was changed by another writer")]
    Conflict(String),
    /// The environment changed so much that going on was refused.
    #[error("resuming was refused: {0}")]
    ResumeRejected(String),
}

/// Where an embedder keeps the state of runs: one document per id, replaced by each save. The bytes are JSON that people
/// can read (`docs/format.md`); they must come back as they were given.
///
/// A store of your own takes a few lines:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use piton_store::{Bytes, CheckpointError, CheckpointStore, Expected, Saved, async_trait};
///
/// #[derive(Default)]
/// struct MyStore(Mutex<HashMap<String, Saved>>);
///
/// #[async_trait]
/// impl CheckpointStore for MyStore {
///     async fn save(&self, id: &str, bytes: Bytes, expected: Expected) -> Result<u64, CheckpointError> {
///         let mut saved = self.0.lock().unwrap();
///         let old = saved.get(id).map(|saved| saved.version);
///         if expected != Expected::Any && expected != old.map_or(Expected::Absent, Expected::Version) {
///             return Err(CheckpointError::Conflict(id.to_owned()));
///         }
///         let version = old.unwrap_or(0) + 1;
///         saved.insert(id.to_owned(), Saved { version, bytes });
///         Ok(version)
///     }
///
///     async fn load(&self, id: &str) -> Result<Option<Saved>, CheckpointError> {
///         Ok(self.0.lock().unwrap().get(id).cloned())
///     }
///
///     async fn delete(&self, id: &str) -> Result<(), CheckpointError> {
///         self.0.lock().unwrap().remove(id);
///         Ok(())
///     }
/// }
/// ```
///
/// `piton_log::EmbeddedStore` makes a [`Store`](crate::Store) of it.
#[async_trait]
pub trait CheckpointStore: Send + Sync {
    /// Replaces what is saved under `id`, all or nothing, and returns its new version. When it returns,
    /// the bytes are as safe as this store makes them. With [`Expected::Absent`] or
    /// [`Expected::Version`] it fails with [`CheckpointError::Conflict`] if something else is there.
    async fn save(&self, id: &str, bytes: Bytes, expected: Expected) -> Result<u64, CheckpointError>;

    /// What is saved under `id`, or `None`.
    async fn load(&self, id: &str) -> Result<Option<Saved>, CheckpointError>;

    /// Removes what is saved under `id`. Nothing there is fine too.
    async fn delete(&self, id: &str) -> Result<(), CheckpointError>;

    /// Whether `expected` is honoured. A store that can't compare says `false`, and its user asserts
    /// that each id has a single writer.
    fn compares(&self) -> bool {
        true
    }
}

/// A [`CheckpointStore`] in memory.
#[derive(Debug, Default)]
pub struct MemoryCheckpointStore {
    saved: Mutex<(HashMap<String, Saved>, u64)>,
}

impl MemoryCheckpointStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl CheckpointStore for MemoryCheckpointStore {
    async fn save(&self, id: &str, bytes: Bytes, expected: Expected) -> Result<u64, CheckpointError> {
        let mut guard = self.saved.lock().expect("no code that holds this lock panics");
        let (saved, version) = &mut *guard;
        let old = saved.get(id).map(|saved| saved.version);
        if expected != Expected::Any && expected != old.map_or(Expected::Absent, Expected::Version) {
            return Err(CheckpointError::Conflict(id.to_owned()));
        }
        // Counted over all ids and never again the same, so a version of before a delete fits nothing.
        *version += 1;
        saved.insert(id.to_owned(), Saved { version: *version, bytes });
        Ok(*version)
    }

    async fn load(&self, id: &str) -> Result<Option<Saved>, CheckpointError> {
        Ok(self.saved.lock().expect("no code that holds this lock panics").0.get(id).cloned())
    }

    async fn delete(&self, id: &str) -> Result<(), CheckpointError> {
        self.saved.lock().expect("no code that holds this lock panics").0.remove(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn saves_compare_and_deletes_repeat() {
        let store = MemoryCheckpointStore::new();
        let bytes = Bytes::from_static(b"x");
        let first = store.save("../x", bytes.clone(), Expected::Absent).await.unwrap();
        let conflict = store.save("../x", bytes.clone(), Expected::Absent).await;
        assert_eq!(conflict, Err(CheckpointError::Conflict("../x".into())));
        store.delete("../x").await.unwrap();
        store.delete("../x").await.unwrap();
        assert_eq!(store.load("../x").await.unwrap(), None);
        store.save("../x", bytes.clone(), Expected::Any).await.unwrap();
        assert!(store.save("../x", bytes, Expected::Version(first)).await.is_err(), "that version is gone");
    }
}
