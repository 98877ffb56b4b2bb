//! Opening a store by its URL, for a [`Registry`](piton_store::Registry).

use std::sync::Arc;

use async_trait::async_trait;
use piton_store::{Driver, Store, StoreError};

use crate::{OutsidePacks, PostgresStore, PostgresUrl};

/// Opens stores of the schemes `postgres:` and `postgresql:`.
#[derive(Debug, Clone, Default)]
pub struct PostgresDriver {
    /// Make a store that isn't there.
    pub create: bool,
    /// The URL with a password that was found elsewhere; it replaces the one that the registry is asked for.
    pub url: Option<PostgresUrl>,
    /// Where large packs go if `blobs=` in the URL says so.
    pub outside: Option<OutsidePacks>,
}

#[async_trait]
impl Driver for PostgresDriver {
    async fn open(&self, location: &str) -> Result<Arc<dyn Store>, StoreError> {
        let url = match &self.url {
            Some(url) => url.clone(),
            None => PostgresUrl::parse(&format!("postgres:{location}"))?,
        };
        Ok(Arc::new(PostgresStore::open_with(url, self.create, self.outside.clone()).await?))
    }
}
