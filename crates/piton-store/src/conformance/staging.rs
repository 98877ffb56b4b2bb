//! Large data, stored ahead of its commit.

use bytes::Bytes;

use super::{Fixture, PIN, blob, grow, next, run_id};
use crate::{PackId, StoreError, stage};

/// A staged pack is found by each of its blobs, and by no other.
pub async fn staged_packs_are_found(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (a, b, c, d) = (blob("a"), blob("b"), blob("c"), blob("d"));
    let bytes = Bytes::from(vec![7; 3 << 20]);
    let one = stage(&*store, bytes.clone(), &[a, b], PIN).await.unwrap();
    let two = stage(&*store, Bytes::from_static(b"two"), &[c], PIN).await.unwrap();
    assert_ne!(one, two);
    assert_eq!(store.locate(&[c, a, d, b]).await.unwrap(), [Some(two), Some(one), None, Some(one)]);
    assert_eq!(store.locate(&[]).await.unwrap(), []);
    let three = stage(&*store, Bytes::from_static(b"three"), &[b, d], PIN).await.unwrap();
    let places = store.locate(&[a, b, d]).await.unwrap();
    assert!(places == [Some(one), Some(one), Some(three)] || places == [Some(one), Some(three), Some(three)]);
    assert_eq!(crate::pack(&*store, one).await.unwrap(), bytes);
    let part = async |from, length| store.pack_part(two, from, length).await.unwrap();
    // A store that gives parts gives the right ones.
    let unknown = PackId::new([9; 32]);
    if part(0, 2).await.is_some() {
        assert_eq!(part(0, 2).await.unwrap(), b"tw"[..]);
        assert_eq!(part(1, 9).await.unwrap(), b"wo"[..]);
        assert_eq!(part(3, 1).await.unwrap(), b""[..]);
        assert_eq!(part(u64::MAX, usize::MAX).await.unwrap(), b""[..]);
        assert_eq!(store.pack_part(one, 1 << 20, 70_000).await.unwrap().unwrap(), bytes.slice(..70_000));
        let missing = store.pack_part(unknown, 0, 1).await;
        assert!(matches!(missing, Err(StoreError::NotFound { .. })), "{missing:?}");
    }
    assert!(matches!(store.pack(unknown).await, Err(StoreError::NotFound { .. })));
}

/// A pack has one name. To stage it again, through whichever handle, does no harm and keeps one of it.
pub async fn a_pack_is_staged_once(fixture: &dyn Fixture) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let bytes = Bytes::from(vec![3; 100_000]);
    let one = stage(&*store, bytes.clone(), &[blob("one")], PIN).await.unwrap();
    let before = store.usage().await.unwrap().bytes;
    for store in [&store, &other] {
        assert_eq!(stage(&**store, bytes.clone(), &[blob("one")], PIN).await.unwrap(), one);
        assert_eq!(store.locate(&[blob("one")]).await.unwrap(), [Some(one)]);
        assert_eq!(crate::pack(&**store, one).await.unwrap(), bytes);
    }
    assert!(store.usage().await.unwrap().bytes < before + 100_000, "it is there once");
}

/// A commit that relies on a pack which isn't there changes nothing.
pub async fn a_commit_needs_its_staged_packs(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("stager");
    let head = grow(&*store, &run, 1).await;
    let pack = stage(&*store, Bytes::from_static(b"pack"), &[blob("p")], PIN).await.unwrap();
    let mut commit = next(&run, Some(head), 2);
    let unknown = PackId::new([9; 32]);
    commit.staged = vec![pack, unknown];
    let refused = store.append(vec![commit.clone()]).await;
    assert!(matches!(refused, Err(StoreError::PackGone { pack }) if pack == unknown), "{refused:?}");
    assert_eq!(store.head(&run).await.unwrap(), Some(head));
    commit.staged = vec![pack];
    store.append(vec![commit]).await.unwrap();
    assert_eq!(store.locate(&[blob("p")]).await.unwrap(), [Some(pack)]);
    drop(store);
    assert_eq!(fixture.open().await.pack(pack).await.unwrap(), Bytes::from_static(b"pack"), "taken, so kept");
}
