//! Opening a store in a cloud by its URL.

use std::sync::Arc;

use async_trait::async_trait;
use piton_store::{Driver, Store, StoreError};

use super::{CloudKind, CloudObjects, CloudPlace, CloudSettings};
use crate::store::ObjectStore;

/// Opens `s3://…`, `gs://…` or `az://…`.
#[derive(Clone)]
pub struct CloudDriver {
    /// Which of them.
    pub kind: CloudKind,
    /// Make a store that isn't there.
    pub create: bool,
    /// What reaches it, credentials included.
    pub settings: CloudSettings,
}

impl std::fmt::Debug for CloudDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloudDriver").field("kind", &self.kind).field("create", &self.create).finish_non_exhaustive()
    }
}

#[async_trait]
impl Driver for CloudDriver {
    async fn open(&self, location: &str) -> Result<Arc<dyn Store>, StoreError> {
        let place = CloudPlace::parse(&format!("{}:{location}", self.kind.scheme()), &self.settings)?;
        Ok(Arc::new(ObjectStore::open(Arc::new(CloudObjects::new(place)?), self.create).await?))
    }
}
