//! Finding blobs: by several handles, and ids that are made to look alike.

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
fn blobs_are_found_by_every_handle() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let (store, other) = (open(&folder), open(&folder));
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

/// Ids that begin alike are told apart, and so are those that aren't spread as hashes are.
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
        let large = store.stage("large".into(), &many).await.unwrap();
        let few: Vec<_> = (0..100).map(|last| alike(1 + last * 4)).collect();
        let small = store.stage("small".into(), &few).await.unwrap();
        let asked: Vec<_> = [0, 1, 2, 3, 5, 400, 401, 402, 11_998, 11_999, 12_000].map(alike).into();
        let (l, s) = (Some(large), Some(small));
        let places: Vec<Option<PackId>> = vec![l, s, l, None, s, l, None, l, l, None, None];
        assert_eq!(store.locate(&asked).await.unwrap(), places);
        let asked_often: Vec<_> = asked.iter().cycle().take(asked.len() * 40).copied().collect();
        assert_eq!(store.locate(&asked_often).await.unwrap(), places.repeat(40));
        store.close().await.unwrap();
    });
}
