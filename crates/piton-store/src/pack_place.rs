//! A place outside of a store for packs that are too large for its rows.

use async_trait::async_trait;
use bytes::Bytes;

use crate::StoreError;

/// Keeps byte strings under names. The store that uses it gives each name once and for one content, so writing the same again
/// does no harm, and what a name has never changes.
#[async_trait]
pub trait PackPlace: Send + Sync {
    /// Keeps it. Durable when this returns; after an error it is there as a whole or not at all.
    async fn write(&self, name: &str, pack: Bytes) -> Result<(), StoreError>;

    /// All of it, or so many bytes from there on, as far as they are there. `NotFound` if it isn't.
    async fn read(&self, name: &str, part: Option<(u64, usize)>) -> Result<Bytes, StoreError>;

    /// Deletes it, if it is there.
    async fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// Names behind `after` with their sizes, ascending, at most so many.
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<(String, u64)>, StoreError>;

    /// Where it is, for people and without credentials.
    fn url(&self) -> String;
}
