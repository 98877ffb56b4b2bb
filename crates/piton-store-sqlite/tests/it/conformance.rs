//! The suite that every store must pass.

use std::sync::Arc;

use piton_store::conformance::Fixture;
use piton_store::{Store, async_trait};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

struct Sqlite(TempDir);

#[async_trait]
impl Fixture for Sqlite {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.0.path().join("store.db"), SqliteOptions::default()).unwrap())
    }
}

piton_store::conformance!(Sqlite(tempfile::tempdir().unwrap()));
