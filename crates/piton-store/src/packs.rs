//! Packs by their names, for callers of any store.

use bytes::Bytes;
use piton_types::{BlobId, PackId};

use crate::{Pin, Store, StoreError};

/// Names a pack and [stages](crate::Blobs::stage) it.
pub async fn stage(store: &dyn Store, pack: Bytes, ids: &[BlobId], pin: Pin) -> Result<PackId, StoreError> {
    let id = store.hashing().pack(&pack);
    store.stage(id, pack, ids, pin).await?;
    Ok(id)
}

/// Reads a [pack](crate::Blobs::pack), and checks its name.
pub async fn pack(store: &dyn Store, id: PackId) -> Result<Bytes, StoreError> {
    let pack = store.pack(id).await?;
    match store.hashing().pack(&pack) == id {
        true => Ok(pack),
        false => Err(StoreError::corrupt(format!("staged pack {id}"), "its content doesn't fit its name")),
    }
}
