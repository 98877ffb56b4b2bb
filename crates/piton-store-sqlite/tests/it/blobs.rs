//! Finding blobs: packs that are listed, packs that aren't yet, and ids that are made to look alike.

use piton_store::{Blobs as _, PackId, Store as _};
use piton_types::BlobId;

use crate::support::{block_on, open};

/// Hashes, as ids are.
fn id(number: u64) -> BlobId {
    BlobId::new(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

fn ids(numbers: std::ops::Range<u64>) -> Vec<BlobId> {
    numbers.map(id).collect()
}

#[test]
fn blobs_are_found_before_they_are_listed_and_afterwards() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let (store, other) = (open(&folder), open(&folder));
        // One that is listed at once, and many that are listed together, some of them during the test.
        let mut packs = vec![(ids(0..5_000), store.stage("large".into(), &ids(0..5_000)).await.unwrap())];
        for number in 0..300 {
            let few = ids(10_000 + number * 20..10_020 + number * 20);
            let by = if number % 3 == 0 { &other } else { &store };
            packs.push((few.clone(), by.stage(format!("{number}").into(), &few).await.unwrap()));
        }
        let fresh = open(&folder);
        for store in [&store, &other, &fresh] {
            for (ids, pack) in &packs {
                assert_eq!(store.locate(&ids[3..5]).await.unwrap(), [Some(*pack); 2]);
                assert_eq!(store.locate(ids).await.unwrap(), vec![Some(*pack); ids.len()]);
            }
            let unknown = store.locate(&ids(50_000..50_600)).await.unwrap();
            assert_eq!(unknown, vec![None; 600]);
        }
    });
}

/// A small pack changes a few pages, however many blobs there are: each has its own place in the table of all.
#[test]
fn to_stage_a_few_blobs_changes_a_few_pages() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        store.stage("large".into(), &ids(0..60_000)).await.unwrap();
        let mut changed = Vec::new();
        let mut before = store.counters().wal_pages;
        for number in 0..10 {
            store.stage("few".into(), &ids(100_000 + number * 40..100_040 + number * 40)).await.unwrap();
            let now = store.counters().wal_pages;
            changed.push(now - before);
            before = now;
        }
        assert!(changed.iter().all(|pages| *pages <= 10), "{changed:?}");
    });
}

/// Ids that begin alike, in a pack that is listed and in one that isn't, are told apart; and so are those that aren't
/// spread as hashes are.
#[test]
fn ids_that_look_alike_are_told_apart() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let alike = |last: u64| {
            let mut bytes = [9; 32];
            bytes[24..].copy_from_slice(&last.to_be_bytes());
            BlobId::new(bytes)
        };
        let many: Vec<_> = (0..6_000).map(|last| alike(last * 2)).collect();
        let listed = store.stage("listed".into(), &many).await.unwrap();
        let few: Vec<_> = (0..100).map(|last| alike(1 + last * 4)).collect();
        let unlisted = store.stage("unlisted".into(), &few).await.unwrap();
        let asked: Vec<_> = [0, 1, 2, 3, 5, 400, 401, 402, 11_998, 11_999, 12_000].map(alike).into();
        let (l, u) = (Some(listed), Some(unlisted));
        let places: Vec<Option<PackId>> = vec![l, u, l, None, u, l, None, l, l, None, None];
        assert_eq!(store.locate(&asked).await.unwrap(), places);
        let asked_often: Vec<_> = asked.iter().cycle().take(asked.len() * 40).copied().collect();
        assert_eq!(store.locate(&asked_often).await.unwrap(), places.repeat(40));
        store.close().await.unwrap();
    });
}
