//! Large data, stored ahead of its commit.

use bytes::Bytes;

use super::{Fixture, blob, grow, next, run_id};
use crate::{PackId, StoreError};

/// A staged pack is found by each of its blobs, and by no other.
pub async fn staged_packs_are_found(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (a, b, c, d) = (blob("a"), blob("b"), blob("c"), blob("d"));
    let bytes = Bytes::from(vec![7; 3 << 20]);
    let one = store.stage(bytes.clone(), &[a, b]).await.unwrap();
    let two = store.stage(Bytes::from_static(b"two"), &[c]).await.unwrap();
    assert_ne!(one, two);
    assert_eq!(store.locate(&[c, a, d, b]).await.unwrap(), [Some(two), Some(one), None, Some(one)]);
    assert_eq!(store.locate(&[]).await.unwrap(), []);
    let three = store.stage(Bytes::from_static(b"three"), &[b, d]).await.unwrap();
    assert_eq!(store.locate(&[a, b]).await.unwrap(), [Some(one), Some(three)], "the newest of several");
    assert_eq!(store.pack(one).await.unwrap(), bytes);
    let part = async |from, length| store.pack_part(two, from, length).await.unwrap();
    // A store that gives parts gives the right ones.
    if part(0, 2).await.is_some() {
        assert_eq!(part(0, 2).await.unwrap(), b"tw"[..]);
        assert_eq!(part(1, 9).await.unwrap(), b"wo"[..]);
        assert_eq!(part(3, 1).await.unwrap(), b""[..]);
        assert_eq!(part(u64::MAX, usize::MAX).await.unwrap(), b""[..]);
        assert_eq!(store.pack_part(one, 1 << 20, 70_000).await.unwrap().unwrap(), bytes.slice(..70_000));
        let missing = store.pack_part(PackId(u64::MAX >> 1), 0, 1).await;
        assert!(matches!(missing, Err(StoreError::NotFound { .. })), "{missing:?}");
    }
    assert!(matches!(store.pack(PackId(u64::MAX >> 1)).await, Err(StoreError::NotFound { .. })));
}

/// A commit that relies on a pack which isn't there changes nothing.
pub async fn a_commit_needs_its_staged_packs(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("stager");
    let head = grow(&*store, &run, 1).await;
    let pack = store.stage(Bytes::from_static(b"pack"), &[blob("p")]).await.unwrap();
    let mut commit = next(&run, Some(head), 2);
    commit.staged = vec![pack, PackId(pack.0 + 1000)];
    assert!(matches!(store.append(vec![commit.clone()]).await, Err(StoreError::NotFound { .. })));
    assert_eq!(store.head(&run).await.unwrap(), Some(head));
    commit.staged = vec![pack];
    store.append(vec![commit]).await.unwrap();
    assert_eq!(store.locate(&[blob("p")]).await.unwrap(), [Some(pack)]);
    drop(store);
    assert_eq!(fixture.open().await.pack(pack).await.unwrap(), Bytes::from_static(b"pack"), "taken, so kept");
}
