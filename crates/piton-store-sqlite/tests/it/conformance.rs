//! The suite that every store must pass.

use std::sync::Arc;

use piton_store::conformance::Fixture;
use piton_store::{CheckpointStore, EncryptedStore, Key, Store, async_trait, is_encrypted};
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

piton_store::conformance!(Sqlite(tempfile::tempdir().unwrap()));
piton_log::conformance!(Sqlite(tempfile::tempdir().unwrap()));

mod encrypted {
    use super::*;

    struct Encrypted(Sqlite, Key);

    #[async_trait]
    impl Fixture for Encrypted {
        async fn open(&self) -> Arc<dyn Store> {
            let (below, random) = (self.0.open().await, Arc::new(SeededRandom::new(5)));
            Arc::new(match is_encrypted(&*below).await.unwrap() {
                true => EncryptedStore::open(below, &self.1, random).await.unwrap(),
                false => EncryptedStore::create(below, &self.1, random).await.unwrap(),
            })
        }
    }

    piton_store::conformance!(Encrypted(Sqlite(tempfile::tempdir().unwrap()), Key::weak_passphrase(b"open")));
    piton_log::conformance!(Encrypted(Sqlite(tempfile::tempdir().unwrap()), Key::weak_passphrase(b"open")));
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
