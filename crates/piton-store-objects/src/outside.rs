//! Objects as a place for the large packs of another store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{PackPlace, StoreError};
use piton_types::Durability;

use crate::objects::{Objects, Part};

/// The pauses before a pack is written again whose answer was lost.
const PAUSES: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(500), Duration::from_secs(2)];

/// Packs as objects, each of its name.
#[derive(Debug, Clone)]
pub struct ObjectPacks(Arc<dyn Objects>);

impl ObjectPacks {
    /// Packs among these objects.
    pub fn new(objects: Arc<dyn Objects>) -> Self {
        Self(objects)
    }
}

#[async_trait]
impl PackPlace for ObjectPacks {
    async fn write(&self, name: &str, pack: Bytes) -> Result<(), StoreError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            // If it is there, an earlier attempt has written it.
            match (self.0.create(name, pack.clone(), Durability::Durable).await, pauses.next()) {
                (Ok(_), _) => return Ok(()),
                (Err(error), Some(pause)) if error.is_retryable() => tokio::time::sleep(pause).await,
                (Err(error), _) => return Err(error),
            }
        }
    }

    async fn read(&self, name: &str, part: Option<(u64, usize)>) -> Result<Bytes, StoreError> {
        let part = match part {
            Some((from, length)) => Part::Range(from..from.saturating_add(length as u64)),
            None => Part::Whole,
        };
        let found = self.0.get(name, part).await?;
        found
            .map(|object| object.bytes)
            .ok_or_else(|| StoreError::NotFound { what: format!("object {name} in {}", self.0.url()) })
    }

    async fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.0.delete(name, None, Durability::Durable).await.map(drop)
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<(String, u64)>, StoreError> {
        let listed = self.0.list("", after, limit).await?;
        Ok(listed.into_iter().filter_map(|object| Some((object.name, object.size?))).collect())
    }

    fn url(&self) -> String {
        self.0.url()
    }
}
