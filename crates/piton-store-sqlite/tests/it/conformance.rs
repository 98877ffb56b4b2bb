//! The suite that every store must pass.

use std::sync::Arc;

use piton_store::conformance::{Encrypted, Fixture};
use piton_store::{CheckpointStore, Store, async_trait};
use piton_store_sqlite::{SqliteCheckpointStore, SqliteOptions, SqliteStore};
use piton_testing::SeededRandom;
use tempfile::TempDir;

struct Sqlite(TempDir);

#[async_trait]
impl Fixture for Sqlite {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.0.path().join("store.db"), SqliteOptions::default()).unwrap())
    }
}

piton_store::conformance!(Sqlite(tempfile::tempdir().unwrap()); core folding leases upkeep changes queue);
piton_log::conformance!(Sqlite(tempfile::tempdir().unwrap()));

mod encrypted {
    use super::*;

    fn new() -> Encrypted<Sqlite> {
        Encrypted::new(Sqlite(tempfile::tempdir().unwrap()), Arc::new(SeededRandom::new(5)))
    }

    piton_store::conformance!(
        new();
        core folding leases upkeep changes queue
    );
    piton_log::conformance!(new());
}

/// F10.
#[test]
fn checkpoints_of_embedders_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn CheckpointStore> {
        Arc::new(SqliteCheckpointStore::open(folder.path().join("c.db"), SqliteOptions::default()).unwrap())
    };
    piton_store::conformance::runtime().block_on(piton_store::conformance::checkpoint_store_behaves(&open));
}
