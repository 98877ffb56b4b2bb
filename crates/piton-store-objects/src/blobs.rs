//! Staging packs and finding blobs in them.

use std::sync::PoisonError;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Blobs, Era, PackId, StoreError};
use piton_types::{BlobId, Durability};

use crate::packs::{self, PackIndex, name};
use crate::store::ObjectStore;

#[async_trait]
impl Blobs for ObjectStore {
    async fn stage(&self, pack: Bytes, ids: &[BlobId]) -> Result<PackId, StoreError> {
        let objects = self.objects()?;
        let mut number = self.marks(objects).await?.last_key_value().map_or(1, |(last, _)| last + 1);
        loop {
            // The pin takes the number, so the pack is never there without it.
            if objects.create(&name(number, "pin"), Bytes::new(), Durability::Relaxed).await? {
                let bytes = packs::encode(number, &pack, ids)?;
                if objects.create(&name(number, "pack"), bytes, Durability::Durable).await? {
                    return Ok(PackId(number));
                }
                // Another writer staged and committed under this number since the list was made.
                objects.delete(&name(number, "pin"), None, Durability::Relaxed).await?;
            }
            number += 1;
        }
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        let objects = self.objects()?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.marks(objects).await?;
        let is_there = |pack: &u64| now.get(pack).is_some_and(|marks| marks.pack.is_some());
        let index = || self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if !index().packs.keys().all(is_there) {
            *index() = PackIndex::default();
        }
        for pack in now.keys().copied().filter(is_there) {
            self.pack_header(objects, pack).await?;
        }
        let index = index();
        Ok(ids.iter().map(|id| index.blobs.get(id).copied()).collect())
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        self.pack_bytes(self.objects()?, pack.0).await
    }

    async fn era(&self) -> Result<Era, StoreError> {
        self.current_era(self.objects()?).await
    }
}
