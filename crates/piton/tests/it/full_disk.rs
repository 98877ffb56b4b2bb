//! A disk that fills while a store is looked after, on a file system that is really full. Promise 4.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_log::upkeep::{check, copy_run, salvage_run};
use piton_store::RunQuery;
use piton_store::{Store, StoreError};
use piton_store_objects::{FolderOptions, ObjectStore};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::scratch::{TinyFs, tiny_tmpfs};
use piton_workspace::SnapshotReach;

use crate::keeping::{Folder, assert_whole, history, keep_nothing};

#[derive(Debug, Clone, Copy)]
enum Kind {
    Sqlite,
    Files,
}

impl Kind {
    fn open(self, disk: &TinyFs) -> Arc<dyn Store> {
        match self {
            Self::Sqlite => {
                Arc::new(SqliteStore::open(disk.path().join("store.db"), SqliteOptions::default()).unwrap())
            }
            Self::Files => {
                Arc::new(ObjectStore::in_folder(disk.path().join("store"), &FolderOptions::default()).unwrap())
            }
        }
    }
}

/// Fills the disk up to so many bytes; gives what takes the room.
fn fill(disk: &Path, free: u64) -> PathBuf {
    let path = disk.join("ballast");
    let mut file = File::create(&path).unwrap();
    let piece = [7; 4096];
    while file.write_all(&piece).is_ok() {}
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(free)).unwrap();
    path
}

const FREE: [u64; 5] = [0, 4 << 10, 32 << 10, 128 << 10, 512 << 10];

fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Full { .. })
}

/// gc without space says so, or gets by; everything that is to stay is there, a check needs no space, and with space
/// the same handle ends what it began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_during_gc_loses_nothing() {
    let mut full = 0;
    for kind in [Kind::Sqlite, Kind::Files] {
        for free in FREE {
            let (disk, folder) = (tiny_tmpfs(16 << 20), Folder::new());
            let store = kind.open(&disk);
            history(&store, &folder, 1).await;
            let ballast = fill(disk.path(), free);
            let kept = keep_nothing(&store).await;
            assert!(kept.as_ref().err().is_none_or(is_full), "{kind:?}, {free} bytes free: {kept:?}");
            full += u64::from(kept.is_err());
            assert_whole(&store, free).await;
            std::fs::remove_file(ballast).unwrap();
            keep_nothing(&store).await.unwrap();
            assert_whole(&store, free).await;
            assert_eq!(store.list(RunQuery::default()).await.unwrap().len(), 2, "{kind:?}: the guard's run is gone");
            store.close().await.unwrap();
        }
    }
    assert!(full > 2, "the disk was never full: {full}");
}

/// A copy, and what a repair takes over, into a store whose disk fills: what is there is whole, and with space it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_during_a_copy_or_a_repair_loses_nothing() {
    let (from, folder): (Arc<dyn Store>, _) = (Arc::new(ObjectStore::in_memory()), Folder::new());
    history(&from, &folder, 1).await;
    let runs: Vec<_> = from.list(RunQuery::default()).await.unwrap().into_iter().map(|run| run.id).collect();
    let mut full = 0;
    for kind in [Kind::Sqlite, Kind::Files] {
        for is_repair in [false, true] {
            for free in FREE {
                let disk = tiny_tmpfs(16 << 20);
                let to = kind.open(&disk);
                let ballast = fill(disk.path(), free);
                let copy = async || {
                    for run in &runs {
                        match is_repair {
                            false => drop(copy_run(&from, &to, run, &SnapshotReach).await?),
                            true => drop(salvage_run(&from, &to, run, &SnapshotReach).await?),
                        }
                    }
                    Ok::<_, StoreError>(())
                };
                let copied = copy().await;
                let context = format!("{kind:?}, repair {is_repair}, {free} bytes free");
                assert!(copied.as_ref().err().is_none_or(is_full), "{context}: {copied:?}");
                full += u64::from(copied.is_err());
                assert_whole(&to, free).await;
                std::fs::remove_file(ballast).unwrap();
                copy().await.unwrap();
                let (a, b) = (
                    check(&from, &SnapshotReach, true).await.unwrap(),
                    check(&to, &SnapshotReach, true).await.unwrap(),
                );
                assert_eq!(a.runs, b.runs, "{context}");
                to.close().await.unwrap();
            }
        }
    }
    assert!(full > 8, "the disk was never full: {full}");
}
