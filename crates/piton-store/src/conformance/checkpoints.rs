//! What an embedder's store must do.

use std::sync::Arc;

use bytes::Bytes;

use crate::{CheckpointError, CheckpointStore, Expected};

/// Opens the store under test, for the first time or again.
pub type Reopen<'a> = &'a (dyn Fn() -> Arc<dyn CheckpointStore> + Sync);

/// F10: a save replaces, a load of nothing is `None`, a delete can be repeated; saves that expect something else
/// conflict and change nothing; ids are only texts; of racing saves exactly one wins.
pub async fn checkpoint_store_behaves(open: Reopen<'_>) {
    let store = open();
    let long = "x".repeat(300);
    let ids =
        ["", "plain", "Plain", "../../x", "a/b", "a\0b", "a\nb", "'; DROP TABLE x; --", "*", "-rf", ".", "é", &long];
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(store.load(id).await.unwrap(), None, "{id:?}");
        store.delete(id).await.unwrap();
        store.save(id, Bytes::from(vec![u8::try_from(n).unwrap(); n * 1000]), Expected::Absent).await.unwrap();
    }
    drop(store);
    let store = open();
    for (n, id) in ids.iter().enumerate() {
        let saved = store.load(id).await.unwrap().unwrap();
        assert_eq!(saved.bytes, vec![u8::try_from(n).unwrap(); n * 1000], "{id:?}");
        let conflict = store.save(id, Bytes::new(), Expected::Absent).await;
        assert_eq!(conflict, Err(CheckpointError::Conflict((*id).to_owned())));
        let next = store.save(id, Bytes::from_static(b"next"), Expected::Version(saved.version)).await.unwrap();
        assert_ne!(next, saved.version);
        let stale = store.save(id, Bytes::new(), Expected::Version(saved.version)).await;
        assert_eq!(stale, Err(CheckpointError::Conflict((*id).to_owned())));
        assert_eq!(&store.load(id).await.unwrap().unwrap().bytes[..], b"next");
        store.delete(id).await.unwrap();
        store.delete(id).await.unwrap();
        assert_eq!(store.load(id).await.unwrap(), None);
        store.save(id, Bytes::from_static(b"anew"), Expected::Any).await.unwrap();
        assert!(store.save(id, Bytes::new(), Expected::Version(next)).await.is_err(), "that version is gone");
    }
    let mut version = store.save("raced", Bytes::new(), Expected::Any).await.unwrap();
    for round in 0..40_u8 {
        let racers: Vec<_> = (0..4)
            .map(|racer| {
                let store = open();
                tokio::spawn(async move {
                    store.save("raced", Bytes::from(vec![round, racer]), Expected::Version(version)).await
                })
            })
            .collect();
        let mut winners = Vec::new();
        for racer in racers {
            match racer.await.unwrap() {
                Ok(version) => winners.push(version),
                Err(CheckpointError::Conflict(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        version = winners[0];
        let saved = store.load("raced").await.unwrap().unwrap();
        assert_eq!((saved.version, saved.bytes[0]), (version, round));
    }
}
