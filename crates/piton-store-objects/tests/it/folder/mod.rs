//! The folder store on real files: what people read, what hostile hands leave, what damage and faults do.
//! `PITON_TEST` chooses how much of the fault tests is run: `quick`, `standard` (the default) or `full`.

mod damage;
mod faults;
mod golden;
mod hostile;
mod readable;
pub(crate) mod saver;

use std::path::Path;
use std::sync::Arc;

use piton_store::{Store, StoreError};
use piton_store_objects::{FolderOptions, ObjectStore};
use piton_testing::level;
use piton_testing::level::by_level;

/// Every choice in these tests comes from here.
const SEED: u64 = 20_261_116;

fn try_open(folder: &Path) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(ObjectStore::in_folder(folder, &FolderOptions::default())?))
}

fn open(folder: &Path) -> Arc<dyn Store> {
    try_open(folder).unwrap()
}

/// At most `count` of `all`.
fn sample<T: Clone>(all: &[T], count: usize) -> Vec<T> {
    level::sample(all, count, SEED)
}
