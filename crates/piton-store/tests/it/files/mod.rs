//! The file store on real files: what people read, what hostile hands leave, what damage and faults do.
//! `PITON_TEST` chooses how much of the fault tests is run: `quick`, `standard` (the default) or `full`.

mod damage;
mod faults;
mod golden;
mod hostile;
mod readable;
pub(crate) mod saver;

use std::path::Path;
use std::sync::Arc;

use piton_store::{FileOptions, FileStore, Store, StoreError};
use piton_testing::SeededRandom;

/// Every choice in these tests comes from here.
const SEED: u64 = 20_261_116;

fn try_open(folder: &Path) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(FileStore::open(folder, FileOptions::default())?))
}

fn open(folder: &Path) -> Arc<dyn Store> {
    try_open(folder).unwrap()
}

/// A number for each level of thoroughness.
fn by_level<T>(quick: T, standard: T, full: T) -> T {
    match std::env::var("PITON_TEST").as_deref() {
        Ok("quick") => quick,
        Ok("full") => full,
        Err(_) | Ok("standard") => standard,
        Ok(other) => panic!("PITON_TEST is quick, standard or full, not {other}"),
    }
}

/// At most `count` of `all`, spread over the whole.
fn sample<T: Clone>(all: &[T], count: usize) -> Vec<T> {
    if all.len() <= count {
        return all.to_vec();
    }
    let random = SeededRandom::new(SEED);
    let pick = |n: usize| {
        let (from, to) = (n * all.len() / count, (n + 1) * all.len() / count);
        all[from + random.below(to - from)].clone()
    };
    (0..count).map(pick).collect()
}
