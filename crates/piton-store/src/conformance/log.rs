//! Reading logs.

use piton_types::Seq;

use super::{Fixture, grow, run_id};
use crate::{RunQuery, Span};

/// A handle that is dropped without being closed loses nothing that was acknowledged.
pub async fn entries_survive_reopening(fixture: &dyn Fixture) {
    let run = run_id("reopened");
    let store = fixture.open().await;
    let mut head = grow(&*store, &run, 3).await;
    for _ in 0..3 {
        drop(store.clone());
        let again = fixture.open().await;
        assert_eq!(again.head(&run).await.unwrap(), Some(head));
        head = grow(&*again, &run, 2).await;
    }
    drop(store);
    let last = fixture.open().await;
    let seqs: Vec<_> = last.read(&run, Span::ALL).await.unwrap().iter().map(|record| record.seq.0).collect();
    assert_eq!(seqs, (0..9).collect::<Vec<_>>());
    assert_eq!(last.list(RunQuery::default()).await.unwrap().len(), 1);
}

/// Bounds, direction, limit.
pub async fn spans_are_honoured(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("spans");
    grow(&*store, &run, 10).await;
    grow(&*store, &run_id("spans2"), 3).await;
    let read = |span: Span| {
        let (store, run) = (&store, &run);
        async move { store.read(run, span).await.unwrap().iter().map(|record| record.seq.0).collect::<Vec<_>>() }
    };
    assert_eq!(read(Span::ALL).await, (0..10).collect::<Vec<_>>());
    assert_eq!(read(Span::newest(3)).await, [9, 8, 7]);
    assert_eq!(read(Span { from: Seq(4), to: Seq(6), ..Span::ALL }).await, [4, 5, 6]);
    assert_eq!(read(Span { from: Seq(4), to: Seq(6), newest_first: true, limit: 2, ..Span::ALL }).await, [6, 5]);
    assert_eq!(read(Span { from: Seq(8), ..Span::ALL }).await, [8, 9]);
    assert_eq!(read(Span { from: Seq(7), to: Seq(3), ..Span::ALL }).await, [0_u32; 0]);
    assert_eq!(read(Span { limit: 0, ..Span::ALL }).await, [0_u32; 0]);
    let plain = store.read(&run, Span::newest(1)).await.unwrap();
    assert!(plain[0].pack.is_empty(), "packs come only when asked for");
}
