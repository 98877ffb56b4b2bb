//! What stores may offer: changes and a queue; and what happens where they don't offer something.

use std::collections::BTreeSet;
use std::sync::Arc;

use piton_types::{Fence, Timestamp};

use super::{Fixture, grow, holder, run_id};
use crate::{Cursor, Segment, SegmentInfo, StoreError, Waiting};

fn at(time: i64) -> Timestamp {
    Timestamp::from_millis(time)
}

/// A store that doesn't offer something says so, or that there is nothing, and never panics.
pub async fn what_a_store_lacks_is_unsupported(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("lacking");
    let head = grow(&*store, &run, 3).await;
    let lacks = |error: &StoreError| matches!(error, StoreError::Unsupported { .. });
    if store.folding().is_none() {
        assert_eq!(store.segments(&run).await.unwrap(), []);
        let info = SegmentInfo { first: piton_types::Seq(0), last: piton_types::Seq(1) };
        let segment = Segment { info, entries: "e".into(), index: "i".into(), nodes: "n".into() };
        assert!(lacks(&store.fold(&run, segment).await.unwrap_err()));
    }
    if store.leases().is_none() {
        assert_eq!(store.lease(&run).await.unwrap(), None);
        assert!(lacks(&store.beat(&run, Fence(1), &holder()).await.unwrap_err()));
    }
    if store.upkeep().is_none() {
        assert_eq!(store.note("key").await.unwrap(), None);
        assert!(lacks(&store.set_note("key", None).await.unwrap_err()));
        assert!(lacks(&store.remove(&run, head).await.unwrap_err()));
    }
    assert_eq!(store.head(&run).await.unwrap(), Some(head));
}

/// Every run that moved since the cursor, once, in order, in pages, by whichever handle.
pub async fn changes_are_told_once_and_in_order(fixture: &dyn Fixture) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let changes = store.changes().expect("it is offered");
    assert_eq!(changes.changed(Cursor::default(), 9).await.unwrap().0, []);
    let [a, b, c] = ["a", "b", "c"].map(run_id);
    grow(&*store, &a, 2).await;
    grow(&*other, &b, 1).await;
    grow(&*store, &c, 1).await;
    let (all, end) = changes.changed(Cursor::default(), 9).await.unwrap();
    assert_eq!(all, [a.clone(), b.clone(), c.clone()]);
    assert_eq!(changes.now().await.unwrap(), end);
    let (page, middle) = changes.changed(Cursor::default(), 2).await.unwrap();
    assert_eq!(page, [a.clone(), b.clone()]);
    assert_eq!(changes.changed(middle, 2).await.unwrap(), (vec![c.clone()], end));
    assert_eq!(changes.changed(end, 9).await.unwrap(), (vec![], end));
    grow(&*other, &b, 3).await;
    grow(&*store, &a, 1).await;
    let (moved, later) = changes.changed(end, 9).await.unwrap();
    assert_eq!(moved, [b.clone(), a.clone()]);
    // The run that moved last goes on, once by each handle.
    let mut last = later;
    for handle in [&store, &other] {
        grow(&**handle, &a, 1).await;
        let (moved, next) = changes.changed(last, 1).await.unwrap();
        assert_eq!(moved, std::slice::from_ref(&a));
        assert_eq!(changes.changed(next, 1).await.unwrap(), (vec![], next));
        last = next;
    }
    if store.upkeep().is_some() {
        let head = store.head(&a).await.unwrap().unwrap();
        store.remove(&a, head).await.unwrap();
        grow(&*store, &b, 1).await;
        assert_eq!(changes.changed(later, 9).await.unwrap().0, [b], "no number comes twice");
    }
}

fn waiting(run: &str, labels: &[&str], priority: i32, due: i64) -> Waiting {
    let labels = labels.iter().map(|label| (*label).to_owned()).collect();
    Waiting { run: run_id(run), labels, priority, due: at(due) }
}

/// The highest priority first, then what was due first; nothing before its time or without its labels.
pub async fn runs_are_taken_by_labels_priority_and_time(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let queue = store.queue().expect("it is offered");
    let unknown = queue.enqueue(waiting("unknown", &[], 0, 0)).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { .. })), "{unknown:?}");
    let runs = [
        waiting("later", &[], 9, 500),
        waiting("second", &[], 1, 20),
        waiting("first", &[], 1, 10),
        waiting("special", &["gpu", "eu"], 5, 10),
        waiting("gone", &[], 8, 10),
    ];
    for one in &runs {
        grow(&*store, &one.run, 1).await;
        queue.enqueue(one.clone()).await.unwrap();
    }
    assert!(queue.dequeue(&run_id("gone")).await.unwrap());
    assert!(!queue.dequeue(&run_id("gone")).await.unwrap());
    let take = async |labels: &[&str], now| {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        queue.take(&labels, at(now)).await.unwrap()
    };
    assert_eq!(queue.next_due(&[]).await.unwrap(), Some(at(10)));
    assert_eq!(take(&[], 9).await, None);
    assert_eq!(take(&["gpu"], 100).await, Some(runs[2].clone()));
    assert_eq!(take(&["eu", "other", "gpu"], 100).await, Some(runs[3].clone()));
    // Changed while it waits, and then once only.
    queue.enqueue(waiting("second", &["eu"], 1, 30)).await.unwrap();
    assert_eq!(take(&[], 100).await, None);
    assert_eq!(take(&["eu"], 100).await, Some(waiting("second", &["eu"], 1, 30)));
    assert_eq!(take(&["eu", "gpu"], 499).await, None);
    assert_eq!(queue.next_due(&[]).await.unwrap(), Some(at(500)));
    assert_eq!(fixture.open().await.queue().unwrap().take(&[], at(500)).await.unwrap(), Some(runs[0].clone()));
    assert_eq!(queue.next_due(&["eu".to_owned(), "gpu".to_owned()]).await.unwrap(), None);
}

/// Promise 11, for workers: each run goes to one of them.
pub async fn no_two_workers_take_the_same_run(fixture: &dyn Fixture) {
    const RUNS: usize = 40;
    let store = fixture.open().await;
    for n in 0..RUNS {
        let name = format!("w{n:02}");
        grow(&*store, &run_id(&name), 1).await;
        store.queue().expect("it is offered").enqueue(waiting(&name, &[], 0, 1)).await.unwrap();
    }
    let mut workers = Vec::new();
    for _ in 0..4 {
        let store = Arc::clone(&fixture.open().await);
        workers.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            while let Some(one) = store.queue().expect("it is offered").take(&[], at(5)).await.unwrap() {
                taken.push(one.run);
            }
            taken
        }));
    }
    let mut taken = Vec::new();
    for worker in workers {
        taken.extend(worker.await.unwrap());
    }
    assert_eq!(taken.len(), RUNS);
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>().len(), RUNS);
}
