//! The WAL under continuous load, and what a closed store leaves behind.

use std::os::unix::fs::PermissionsExt as _;

use piton_store::{
    Blobs as _, Log as _, PackId, PackState, Pin, Span, Store as _, StoreError, Sweep, Upkeep as _, stage,
};
use piton_types::{BlobId, Timestamp};

use crate::child::Process;
use crate::support::{Line, block_on, open};

#[test]
fn the_log_stays_small_under_continuous_load() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::relaxed("run");
        line.size = 3000;
        let log = folder.path().join("store.db-wal");
        let (mut restarts, mut last) = (0, 0);
        for _ in 0..12_000 {
            line.grow(&store, 1).await;
            let pages = store.counters().wal_pages;
            restarts += u32::from(pages < last);
            last = pages;
        }
        let size = std::fs::metadata(&log).unwrap().len();
        let counters = store.counters();
        println!("{restarts} restarts, {counters:?}, {size} bytes");
        assert!(restarts >= 2, "{counters:?}");
        assert!(size < 8 << 20, "{size}");
        assert_eq!(store.read(&line.run, Span::ALL).await.unwrap().len(), 12_000);
    });
}

/// Several processes that write without a pause leave the WAL as short as one does.
#[test]
fn the_wal_stays_short_beside_rivals() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut rivals: Vec<_> = (0..3).map(|_| Process::start("busy", &path)).collect();
    let wal = folder.path().join("store.db-wal");
    for rival in &mut rivals {
        rival.hear().unwrap();
    }
    let store = open(&folder);
    let mut line = Line { size: 3000, ..Line::relaxed("mine") };
    block_on(line.grow(&store, 4000));
    // A rival that doesn't get its turn in the middle of a look lets the WAL grow; its space is given back.
    let size = || std::fs::metadata(&wal).unwrap().len();
    for _ in 0..100 {
        if size() < 16 << 20 {
            break;
        }
        block_on(line.grow(&store, 200));
    }
    let (size, counters) = (size(), store.counters());
    println!("{counters:?}, {size} bytes");
    assert!(counters.checkpoints >= 2, "{counters:?}");
    assert!(size < 16 << 20, "{size}");
    rivals.into_iter().for_each(Process::kill);
}

/// A WAL that grew because a reader stood still gives its space back when that one is gone. While it stands there the WAL is
/// long: that is the negative control.
#[test]
fn a_wal_that_grew_gives_its_space_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let size = || std::fs::metadata(folder.path().join("store.db-wal")).unwrap().len();
    block_on(async {
        let mut line = Line { size: 3000, ..Line::relaxed("mine") };
        line.grow(&store, 10).await;
        let reader = rusqlite::Connection::open(folder.path().join("store.db")).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        reader.query_row("SELECT count(*) FROM entry", (), |row| row.get::<_, i64>(0)).unwrap();
        line.grow(&store, 3000).await;
        assert!(size() > 16 << 20, "{}", size());
        reader.execute_batch("COMMIT").unwrap();
        line.grow(&store, 3000).await;
        assert!(size() <= 8 << 20, "{}", size());
    });
}

#[test]
fn a_closed_store_is_one_file_and_its_lock() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (open(&folder), open(&folder));
        Line::relaxed("run").grow(&first, 5).await;
        assert_eq!(second.usage().await.unwrap().runs, 1);
        for name in ["store.db", "store.db-wal", "store.db-shm", "store.db-lock"] {
            let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        first.close().await.unwrap();
        assert_eq!(second.usage().await.unwrap().runs, 1);
        drop(second);
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["store.db", "store.db-lock"]);
    });
}

/// A process that died after it staged a pack leaves it for as long as its pin says, and the next process may condemn it.
#[test]
fn a_pin_of_a_dead_process_runs_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    block_on(async {
        let store = open(&folder);
        let mut other = Process::start("stage", &path);
        let pack: PackId = other.hear().unwrap().parse().unwrap();
        other.kill();
        assert_eq!(store.locate(&[BlobId::new([7; 32])]).await.unwrap(), [Some(pack)]);
        assert_eq!(store.condemn(&[pack], Timestamp::from_millis(1)).await.unwrap(), 0, "it is still pinned");
        let ended = || rusqlite::Connection::open(&path).unwrap().execute("UPDATE pin SET until = until - 3600000", ());
        assert_eq!(ended().unwrap(), 1);
        assert_eq!(store.packs(None, 9).await.unwrap()[0].state, PackState::Abandoned);
        assert_eq!(store.condemn(&[pack], Timestamp::from_millis(1)).await.unwrap(), 1);
        let sweep = Sweep { packs: vec![(pack, Timestamp::from_millis(1))], bytes: u64::MAX };
        assert_eq!(store.sweep(sweep).await.unwrap().packs, 1);
        assert!(matches!(store.pack(pack).await, Err(StoreError::NotFound { .. })));
    });
}

/// Ids that begin alike are told apart.
#[test]
fn locating_compares_whole_ids() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let alike = |last: u8| {
            let mut id = [5; 32];
            id[31] = last;
            BlobId::new(id)
        };
        let first = stage(&store, "first".into(), &[alike(1), alike(2)], Pin::new()).await.unwrap();
        let second = stage(&store, "second".into(), &[alike(3), alike(3)], Pin::new()).await.unwrap();
        let places = store.locate(&[alike(3), alike(1), alike(4), alike(2)]).await.unwrap();
        assert_eq!(places, [Some(second), Some(first), None, Some(first)]);
    });
}
