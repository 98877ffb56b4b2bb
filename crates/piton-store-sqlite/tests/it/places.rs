//! Places for entries to come: what they save, and that nobody else notices.

use std::path::Path;

use piton_store::{Log as _, RunIndex as _, Segment, SegmentInfo, Span, Store as _, Upkeep as _};
use piton_types::{RunStatus, Seq, Timestamp};

use crate::child::Process;
use crate::support::{Line, block_on, open};

/// A run whose entries are large enough for places.
fn large(run: &str) -> Line {
    Line { size: 1500, ..Line::new(run) }
}

/// Rows that hold nothing, as a plain connection sees them.
fn places(path: &Path) -> i64 {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.query_row("SELECT count(*) FROM entry WHERE hash IS NULL", (), |row| row.get(0)).unwrap()
}

/// Whatever the size of entries, seven of eight change one page. Without places it would be five every other time.
#[test]
fn an_entry_changes_one_page() {
    for size in [640, 700, 1000, 1500, 1900, 2500, 3700] {
        block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let store = open(&folder);
            let mut line = Line { size, ..Line::new("run") };
            line.grow(&store, 24).await;
            let mut pages = Vec::new();
            for _ in 0..24 {
                let before = store.counters().wal_pages;
                line.grow(&store, 1).await;
                pages.push(store.counters().wal_pages - before);
            }
            let (most, all) = (pages.iter().max().unwrap(), pages.iter().sum::<u64>());
            assert_eq!(pages.iter().filter(|pages| **pages == 1).count(), 21, "size {size}: {pages:?}");
            assert!(*most <= 14 && all <= 63, "size {size}: {pages:?}");
        });
    }
}

/// Small entries have none, nor do runs of few entries or those that aren't the newest.
#[test]
fn places_are_for_large_entries_of_the_newest_run() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = open(&folder);
        Line::new("small").grow(&store, 40).await;
        let (mut short, mut long) = (large("short"), large("long"));
        short.grow(&store, 20).await;
        assert_eq!(places(&path), 0);
        long.grow(&store, 21).await;
        assert_eq!(places(&path), 8);
        short.grow(&store, 20).await;
        assert_eq!(places(&path), 8);
        long.grow(&store, 3).await;
        assert_eq!(places(&path), 5);
    });
}

/// What is read, listed, counted and checked is what was appended.
#[test]
fn nobody_sees_them() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = large("run");
        line.grow(&store, 22).await;
        assert_eq!(places(&folder.path().join("store.db")), 7);
        assert_eq!(store.head(&line.run).await.unwrap(), line.head);
        let all = store.read(&line.run, Span { packs: true, ..Span::ALL }).await.unwrap();
        assert_eq!(all.iter().map(|record| record.seq.0).collect::<Vec<_>>(), (0..22).collect::<Vec<_>>());
        assert!(all.iter().all(|record| record.pack.len() == 1500), "zeros behind them aren't theirs");
        let newest = Span { newest_first: true, limit: 1, ..Span::ALL };
        assert_eq!(store.read(&line.run, newest).await.unwrap()[0].seq, Seq(21));
        let summary = store.summary(&line.run).await.unwrap().unwrap();
        assert_eq!(summary.updated_at, Timestamp::from_millis(1021));
        let totals = store.totals().await.unwrap();
        assert_eq!((totals.entries, totals.entry_bytes > 22 * 1500), (22, true));
        assert!(totals.entry_bytes < 22 * 1600);
        assert_eq!(store.inspect().await.unwrap(), []);
    });
}

/// Another handle goes on in the same places, the first one after it, and what doesn't fit goes elsewhere.
#[test]
fn they_belong_to_the_run() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (open(&folder), open(&folder));
        let mut line = large("run");
        line.grow(&first, 22).await;
        line.grow(&second, 3).await;
        line.size = 6000;
        line.grow(&first, 1).await;
        line.size = 10;
        line.grow(&second, 1).await;
        assert_eq!(places(&folder.path().join("store.db")), 2);
        line.size = 1500;
        line.grow(&first, 30).await;
        let read = second.read(&line.run, Span { packs: true, ..Span::ALL }).await.unwrap();
        let sizes: Vec<_> = read.iter().map(|record| record.pack.len()).collect();
        let wanted: Vec<_> = (0..57)
            .map(|n| {
                if n == 25 {
                    6000
                } else if n == 26 {
                    10
                } else {
                    1500
                }
            })
            .collect();
        assert_eq!(sizes, wanted);
        let info = SegmentInfo { first: Seq(0), last: Seq(31) };
        let part = || bytes::Bytes::from_static(b"part");
        first.fold(&line.run, Segment { info, entries: part(), index: part(), nodes: part() }).await.unwrap();
        line.grow(&second, 9).await;
        assert_eq!(first.read(&line.run, Span::ALL).await.unwrap().len(), 57 + 9 - 32);
    });
}

/// The entry that ends a run removes what is left of them, and so does closing the store.
#[test]
fn none_are_left_behind() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = open(&folder);
        let mut line = large("ends");
        line.grow(&store, 22).await;
        let mut last = line.next();
        let summary = store.summary(&line.run).await.unwrap().unwrap();
        last.index = Some(piton_types::RunSummary { status: RunStatus::Completed, ..summary });
        store.append(last.clone()).await.unwrap();
        line.advance(&last);
        assert_eq!(places(&path), 0);
        // It may go on all the same.
        line.grow(&store, 10).await;
        let mut other = large("closed");
        other.grow(&store, 22).await;
        assert_eq!(places(&path), 7);
        store.close().await.unwrap();
        assert_eq!(places(&path), 0);
        let store = open(&folder);
        assert_eq!(store.head(&line.run).await.unwrap(), line.head);
        assert_eq!(store.head(&other.run).await.unwrap(), other.head);
    });
}

/// Whoever is killed leaves some; the next one fills them.
#[test]
fn a_kill_leaves_some_for_whoever_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut process = Process::start("large", &path);
    assert_eq!(process.hear().as_deref(), Some("22"));
    process.kill();
    block_on(async {
        let store = open(&folder);
        assert_eq!(places(&path), 7);
        let mut line = large("large");
        line.head = store.head(&line.run).await.unwrap();
        assert_eq!(line.head.unwrap().seq, Seq(21));
        line.grow(&store, 6).await;
        assert_eq!(places(&path), 1);
        line.grow(&store, 1).await;
        assert_eq!(places(&path), 8, "and makes new ones in time");
        assert_eq!(store.read(&line.run, Span::ALL).await.unwrap().len(), 29);
    });
}
