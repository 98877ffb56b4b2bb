//! Opening a store by its URL, `sqlite:PATH`.

use std::sync::Arc;

use async_trait::async_trait;
use piton_store::{Driver, Store, StoreError};

use crate::{SqliteOptions, SqliteStore};

/// Opens stores of the scheme `sqlite:`, for a [`Registry`](piton_store::Registry).
#[derive(Debug, Clone, Copy)]
pub struct SqliteDriver {
    /// Make a store that isn't there.
    pub create: bool,
    /// Only look, as [`SqliteOptions::looks`] says.
    pub looks: bool,
}

#[async_trait]
impl Driver for SqliteDriver {
    async fn open(&self, location: &str) -> Result<Arc<dyn Store>, StoreError> {
        let invalid = |detail: &str| {
            Err(StoreError::Invalid { what: format!("store URL \"sqlite:{location}\""), detail: detail.to_owned() })
        };
        if location.is_empty() {
            return invalid("the path is missing");
        }
        // Elsewhere the path after two slashes is relative, or absolute, or has a host in front.
        if location.starts_with("//") {
            return invalid("the path follows the colon at once, with no slashes of its own");
        }
        // A caller that only looks needs no space.
        let options =
            SqliteOptions::default().with_create(self.create).with_read_when_full(!self.create).with_looks(self.looks);
        Ok(Arc::new(SqliteStore::open(location, options)?))
    }
}
