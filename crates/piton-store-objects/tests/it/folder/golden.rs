//! Promise 8: stores of format 1 still open, plain and encrypted. `PITON_WRITE_GOLDEN=1` writes them anew, which is
//! only right as long as no release has written that format.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_store::{EncryptedStore, Key, Span, Store, StoreError};
use piton_testing::SeededRandom;
use piton_testing::scratch::{Scratch, copy_tree};
use piton_types::{EntryKind, Timestamp, Value};

use super::open;
use crate::support::{block_on, id};

const PASSPHRASE: &[u8] = b"golden";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn value(n: u32) -> Value {
    Value::List((0..n % 40).map(|n| Value::from(format!("item {n} of a list ").repeat(4))).collect())
}

/// Enough for segments, entries and a staged pack.
async fn fill(store: &Arc<dyn Store>) {
    let new = NewRun { name: "golden".into(), ..NewRun::new(id("golden"), Timestamp::from_millis(1)) };
    let mut log = RunLog::create(Arc::clone(store), new).await.unwrap();
    for n in 0..150 {
        let value = if n == 149 { Value::from("large ".repeat(60_000)) } else { value(n) };
        let part = DraftPart { name: "app".into(), schema: "s".into(), version: 1, content: Content::Value(&value) };
        let parts = vec![part];
        log.append(Draft { parts, ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(2)) }).await.unwrap();
    }
    log.close().await.unwrap();
    store.close().await.unwrap();
}

async fn check(store: &Arc<dyn Store>) {
    let log = RunLog::open(Arc::clone(store), &id("golden")).await.unwrap();
    let entries = log.entries(Span::ALL).await.unwrap();
    assert_eq!(entries.len(), 151);
    for (entry, n) in entries.iter().skip(1).zip(0..) {
        let loaded = log.load(&entry.parts[&"app".into()]).await.unwrap();
        match n {
            149 => assert_eq!(loaded.as_str().map(str::len), Some(360_000)),
            n => assert_eq!(loaded, value(n)),
        }
    }
    assert_eq!(store.inspect().await.unwrap(), []);
}

#[test]
fn stores_of_format_one_still_open() {
    if std::env::var_os("PITON_WRITE_GOLDEN").is_some() {
        for name in ["folder-1", "folder-encrypted-1"] {
            let scratch = Scratch::in_memory();
            block_on(async {
                let mut store = open(scratch.path());
                if name.contains("encrypted") {
                    let (key, random) = (Key::weak_passphrase(PASSPHRASE), Arc::new(SeededRandom::new(1)));
                    store = Arc::new(EncryptedStore::create(store, &key, random).await.unwrap());
                }
                fill(&store).await;
            });
            drop(std::fs::remove_dir_all(golden(name)));
            std::fs::create_dir_all(golden(name)).unwrap();
            copy_tree(scratch.path(), &golden(name)).unwrap();
            // git keeps no empty folders; the store makes them again.
        }
    }
    for name in ["folder-1", "folder-encrypted-1"] {
        let scratch = Scratch::in_memory();
        copy_tree(&golden(name), scratch.path()).unwrap();
        block_on(async {
            let below = open(scratch.path());
            if !name.contains("encrypted") {
                return check(&below).await;
            }
            let random = Arc::new(SeededRandom::new(2));
            let wrong = EncryptedStore::open(Arc::clone(&below), &Key::weak_passphrase(b"other"), random.clone()).await;
            assert!(matches!(wrong, Err(StoreError::Locked { .. })), "{wrong:?}");
            let store = EncryptedStore::open(below, &Key::weak_passphrase(PASSPHRASE), random).await.unwrap();
            check(&(Arc::new(store) as Arc<dyn Store>)).await;
        });
    }
}
