//! Finding blobs: by several handles, and ids that are made to look alike.

use piton_store::{Blobs as _, Log as _, PackId, Pin, Store as _, Upkeep as _, stage};
use piton_types::BlobId;

use crate::support::{Line, block_on, open};

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
        let mut packs = vec![(ids(0..5_000), stage(&store, "large".into(), &ids(0..5_000), Pin::new()).await.unwrap())];
        for number in 0..300 {
            let few = ids(10_000 + number * 20..10_020 + number * 20);
            let by = if number % 3 == 0 { &other } else { &store };
            packs.push((few.clone(), stage(by, format!("{number}").into(), &few, Pin::new()).await.unwrap()));
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
        let large = stage(&store, "large".into(), &many, Pin::new()).await.unwrap();
        let few: Vec<_> = (0..100).map(|last| alike(1 + last * 4)).collect();
        let small = stage(&store, "small".into(), &few, Pin::new()).await.unwrap();
        let asked: Vec<_> = [0, 1, 2, 3, 5, 400, 401, 402, 11_998, 11_999, 12_000].map(alike).into();
        let (l, s) = (Some(large), Some(small));
        let places: Vec<Option<PackId>> = vec![l, s, l, None, s, l, None, l, l, None, None];
        assert_eq!(store.locate(&asked).await.unwrap(), places);
        let asked_often: Vec<_> = asked.iter().cycle().take(asked.len() * 40).copied().collect();
        assert_eq!(store.locate(&asked_often).await.unwrap(), places.repeat(40));
        store.close().await.unwrap();
    });
}

/// The table that finds blobs is made from the lists of the packs. Where it is damaged these tell, and the next pack that
/// is staged makes it anew.
#[test]
fn a_damaged_table_of_blobs_costs_nothing() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = open(&folder);
        let first = stage(&store, "first".into(), &ids(0..50), Pin::new()).await.unwrap();
        let mut commit = Line::relaxed("run").next();
        commit.staged = vec![first];
        store.append(vec![commit]).await.unwrap();
        store.close().await.unwrap();
        let conn = rusqlite::Connection::open(&path).unwrap();
        let page: u32 =
            conn.query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'blob'", (), |row| row.get(0)).unwrap();
        conn.close().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[(page as usize - 1) * 4096 + 2000] ^= 1;
        std::fs::write(&path, bytes).unwrap();

        let store = open(&folder);
        assert_eq!(store.inspect().await.unwrap()[0].what, format!("page {page} of the database"));
        assert_eq!(store.locate(&ids(40..60)).await.unwrap(), [vec![Some(first); 10], vec![None; 10]].concat());
        let second = stage(&store, "second".into(), &ids(50..60), Pin::new()).await.unwrap();
        assert_eq!(store.locate(&ids(40..60)).await.unwrap(), [vec![Some(first); 10], vec![Some(second); 10]].concat());
    });
}
