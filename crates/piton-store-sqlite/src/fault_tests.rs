//! What a handle does after the disk failed it: promises 3 and 4, in process. The faults are put into
//! the file layer of the calling thread, which is the one that commits while the writer is free.

use piton_store::{Leases as _, Log as _, Span, Store as _, StoreError};
use piton_types::Durability;
use rusqlite::ffi;

use crate::vfs::fault;
use crate::{SqliteOptions, SqliteStore};

#[path = "../tests/it/support.rs"]
mod support;

use support::{Line, block_on, open};

#[test]
fn a_failed_sync_poisons_the_handle_and_loses_nothing() {
    // Every sync of the life of a handle fails once.
    for index in 0..4 {
        block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let store = open(&folder);
            let mut line = Line::new("run");
            line.durability = Durability::Durable;
            fault::SYNCS_LEFT.set(Some(index));
            let mut acknowledged = 0;
            let failed = loop {
                match line.append(&store).await {
                    Ok(()) => acknowledged += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(failed, StoreError::Poisoned { .. }), "{failed}");
            fault::SYNCS_LEFT.set(None);

            // The disk is well again, but nothing more is taken; reading goes on.
            assert!(matches!(line.append(&store).await, Err(StoreError::Poisoned { .. })));
            let beat = store.release(&line.run, piton_types::Fence(1)).await;
            assert!(matches!(beat, Err(StoreError::Poisoned { .. })));
            if acknowledged > 0 {
                assert_eq!(store.read(&line.run, Span::ALL).await.unwrap().len(), acknowledged);
                assert_eq!(store.head(&line.run).await.unwrap(), line.head);
            }
            store.close().await.unwrap();

            // What was acknowledged is there, and the failed one wholly or not at all.
            let store = open(&folder);
            let head = store.head(&line.run).await.unwrap();
            let found = head.map_or(0, |head| head.seq.0 as usize + 1);
            assert!((acknowledged..=acknowledged + 1).contains(&found), "{found} of {acknowledged}");
            line.head = head;
            line.append(&store).await.unwrap();
        });
    }
}

#[test]
fn a_full_disk_is_not_the_end() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::new("run");
        line.durability = Durability::Durable;
        line.grow(&store, 3).await;
        fault::WRITES.set(Some(ffi::SQLITE_FULL));
        for _ in 0..3 {
            let error = line.append(&store).await.unwrap_err();
            assert!(matches!(error, StoreError::Full { .. }), "{error}");
            assert!(error.is_retryable());
            assert_eq!(store.head(&line.run).await.unwrap(), line.head);
        }
        fault::WRITES.set(None);
        line.grow(&store, 3).await;
        assert_eq!(store.read(&line.run, Span::ALL).await.unwrap().len(), 6);
    });
}

#[test]
fn a_failed_write_poisons_the_handle() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::new("run");
        line.grow(&store, 3).await;
        fault::WRITES.set(Some(ffi::SQLITE_IOERR_WRITE));
        assert!(matches!(line.append(&store).await, Err(StoreError::Poisoned { .. })));
        fault::WRITES.set(None);
        assert!(matches!(line.append(&store).await, Err(StoreError::Poisoned { .. })));
        drop(store);
        line.grow(&open(&folder), 3).await;
    });
}
