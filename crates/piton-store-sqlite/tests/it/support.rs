//! What these tests share.

use super::{SqliteOptions, SqliteStore};
pub(crate) use piton_testing::Line;

/// Runs a test's future.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Opens the store of a test.
pub(crate) fn open(folder: &tempfile::TempDir) -> SqliteStore {
    SqliteStore::open(folder.path().join("store.db"), SqliteOptions::default()).unwrap()
}
