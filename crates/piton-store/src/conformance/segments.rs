//! Folding, and the typed log on top of any store.

use std::collections::BTreeSet;

use bytes::Bytes;
use piton_types::Seq;

use super::{Fixture, grow, run_id};
use crate::{Section, Segment, SegmentInfo, Span, Store, StoreError};

fn piece(first: u32, last: u32) -> Segment {
    let info = SegmentInfo { first: Seq(first), last: Seq(last) };
    let section = |name: &str| Bytes::from(format!("{name} of {info}").repeat(40));
    Segment { info, entries: section("entries"), index: section("index"), nodes: section("nodes") }
}

async fn sections(store: &dyn Store, run: &str, info: SegmentInfo) -> Segment {
    let run = run_id(run);
    Segment {
        info,
        entries: store.section(&run, info, Section::Entries).await.unwrap(),
        index: store.section(&run, info, Section::Index).await.unwrap(),
        nodes: store.section(&run, info, Section::Nodes).await.unwrap(),
    }
}

fn assert_same(a: &Segment, b: &Segment) {
    assert_eq!((a.info, &a.entries, &a.index, &a.nodes), (b.info, &b.entries, &b.index, &b.nodes));
}

/// A segment takes the place of its entries; the rest of the log stays as it is and goes on.
pub async fn folding_keeps_every_byte(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("folded");
    let head = grow(&*store, &run, 10).await;
    assert_eq!(store.segments(&run).await.unwrap(), []);
    store.fold(&run, piece(0, 3)).await.unwrap();
    store.fold(&run, piece(4, 5)).await.unwrap();
    drop(store);
    let store = fixture.open().await;
    let infos = store.segments(&run).await.unwrap();
    assert_eq!(infos, [piece(0, 3).info, piece(4, 5).info]);
    assert_same(&sections(&*store, "folded", infos[0]).await, &piece(0, 3));
    assert_same(&sections(&*store, "folded", infos[1]).await, &piece(4, 5));
    let left: Vec<_> = store.read(&run, Span::ALL).await.unwrap().iter().map(|record| record.seq.0).collect();
    assert_eq!(left, [6, 7, 8, 9]);
    assert_eq!(store.head(&run).await.unwrap(), Some(head));
    assert_eq!(grow(&*store, &run, 2).await.seq, Seq(11));
}

/// Nothing is dropped that the segment doesn't stand for.
pub async fn folding_refuses_what_does_not_fit(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("misfit");
    grow(&*store, &run, 10).await;
    store.fold(&run, piece(2, 4)).await.unwrap();
    for (first, last, why) in [
        (5, 9, "the newest entry"),
        (5, 20, "entries that don't exist"),
        (3, 6, "half of a segment"),
        (0, 3, "half of a segment, from before"),
    ] {
        let refused = store.fold(&run, piece(first, last)).await;
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{why}: {refused:?}");
    }
    let unknown = store.fold(&run_id("unknown"), piece(0, 1)).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { .. })), "{unknown:?}");
    assert_eq!(store.read(&run, Span::ALL).await.unwrap().len(), 7);
    assert_eq!(store.segments(&run).await.unwrap(), [piece(2, 4).info]);
}

/// A reader that lists entries before segments sees every entry at every moment of a fold, in one or in both.
pub async fn a_reader_sees_every_entry_during_a_fold(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("watched");
    let head = grow(&*store, &run, 40).await;
    let reader = {
        let (store, run) = (fixture.open().await, run.clone());
        tokio::spawn(async move {
            loop {
                let mut seen: BTreeSet<u32> =
                    store.read(&run, Span::ALL).await.unwrap().iter().map(|record| record.seq.0).collect();
                let segments = store.segments(&run).await.unwrap();
                segments.iter().for_each(|info| seen.extend(info.first.0..=info.last.0));
                assert!(seen.into_iter().eq(0..=head.seq.0));
                if segments == [piece(0, 31).info] {
                    break;
                }
                tokio::task::yield_now().await;
            }
        })
    };
    for size in [4, 16, 32] {
        for first in (0..32).step_by(size) {
            store.fold(&run, piece(first, first + u32::try_from(size).unwrap() - 1)).await.unwrap();
        }
    }
    reader.await.unwrap();
}

/// Segments and the entries around them become one larger segment.
pub async fn segments_merge(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("merged");
    grow(&*store, &run, 12).await;
    store.fold(&run, piece(0, 3)).await.unwrap();
    store.fold(&run, piece(4, 7)).await.unwrap();
    store.fold(&run, piece(0, 8)).await.unwrap();
    assert_eq!(store.segments(&run).await.unwrap(), [piece(0, 8).info]);
    assert_same(&sections(&*store, "merged", piece(0, 8).info).await, &piece(0, 8));
    let gone = store.section(&run, piece(0, 3).info, Section::Nodes).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
    let left: Vec<_> = store.read(&run, Span::ALL).await.unwrap().iter().map(|record| record.seq.0).collect();
    assert_eq!(left, [9, 10, 11]);
}
