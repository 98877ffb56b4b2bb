//! Folding, and what becomes of the space.

use bytes::Bytes;
use piton_store::{Fold as _, Log as _, Section, Segment, SegmentInfo, Span, Store as _, StoreError};
use piton_types::Seq;

use crate::support::{Line, block_on, open};

fn segment(first: u32, last: u32) -> Segment {
    let part = |name: &str| Bytes::from(format!("{name} {first} {last} ").repeat(20));
    let info = SegmentInfo { first: Seq(first), last: Seq(last) };
    Segment { info, entries: part("entries"), index: part("index"), nodes: part("nodes") }
}

#[test]
fn only_exactly_what_is_there_is_folded() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::relaxed("run");
        line.grow(&store, 10).await;
        Line::relaxed("other").grow(&store, 20).await;
        store.fold(&line.run, segment(0, 3)).await.unwrap();
        for (first, last) in [(5, 9), (5, 20), (2, 6), (0, 2), (1, 3), (3, 4), (10, 12)] {
            let refused = store.fold(&line.run, segment(first, last)).await;
            assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{first}–{last}: {refused:?}");
        }
        assert!(matches!(store.fold(&line.run, segment(4, 3)).await, Err(StoreError::Invalid { .. })));
        store.fold(&line.run, segment(4, 5)).await.unwrap();
        store.fold(&line.run, segment(0, 7)).await.unwrap();
        let info = SegmentInfo { first: Seq(0), last: Seq(7) };
        assert_eq!(store.segments(&line.run).await.unwrap(), [info]);
        assert_eq!(store.section(&line.run, info, Section::Nodes).await.unwrap(), segment(0, 7).nodes);
        let gone = store.section(&line.run, SegmentInfo { first: Seq(0), last: Seq(3) }, Section::Nodes).await;
        assert!(matches!(gone, Err(StoreError::NotFound { .. })));
        assert_eq!(store.read(&line.run, Span::ALL).await.unwrap().len(), 2);
        assert_eq!(store.head(&line.run).await.unwrap(), line.head);
        line.grow(&store, 3).await;
    });
}

/// Free pages are given back, every page that moves on the way keeps its checksum, and nothing changes.
#[test]
fn space_is_given_back() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::relaxed("run");
        line.size = 9000;
        let mut other = Line::relaxed("other");
        other.size = 5000;
        for _ in 0..10 {
            line.grow(&store, 50).await;
            other.grow(&store, 20).await;
        }
        for first in [0, 100, 200, 300] {
            store.fold(&line.run, segment(first, first + 99)).await.unwrap();
        }
        let give_up = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while store.counters().vacuumed == 0 && std::time::Instant::now() < give_up {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(store.counters().vacuumed > 0, "{:?}", store.counters());
        store.close().await.unwrap();
        let store = open(&folder);
        let span = Span { packs: true, ..Span::ALL };
        let entries = store.read(&other.run, span).await.unwrap();
        assert_eq!(entries.len(), 200);
        assert!(entries.iter().all(|entry| entry.pack.len() == 5000));
        assert_eq!(store.read(&line.run, span).await.unwrap().len(), 100);
        let conn = rusqlite::Connection::open(folder.path().join("store.db")).unwrap();
        let check: String = conn.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
    });
}
