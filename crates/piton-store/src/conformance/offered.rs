//! What stores may offer: changes and a queue; and what happens where they don't offer something.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use piton_types::{Fence, Timestamp};

use super::{Fixture, grow, holder, run_id};
use crate::{Cursor, Depth, Limit, Place, Queue, Segment, SegmentInfo, StoreError, Waiting, WorkerInfo};

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

/// A run that waits since `ago` seconds, or will be due then if that is negative.
async fn waiting(queue: &dyn Queue, run: &str, labels: &[&str], priority: i32, ago: i64) -> Waiting {
    let now = queue.now().await.unwrap();
    Waiting {
        run: run_id(run),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        priority,
        due: Some(Timestamp::from_millis(now.as_millis() - ago * 1000)),
        limit: None,
        attempts: 0,
        problem: None,
    }
}

fn worker(name: &str, labels: &[&str]) -> WorkerInfo {
    let labels = labels.iter().map(|label| (*label).to_owned()).collect();
    WorkerInfo { name: name.to_owned(), labels, concurrency: 1, holder: None }
}

const HOUR: Duration = Duration::from_secs(3600);

/// The highest priority first, then what was due first; nothing before its time or without its labels.
pub async fn runs_are_taken_by_labels_priority_and_time(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let queue = store.queue().expect("it is offered");
    let unknown = queue.enqueue(waiting(queue, "unknown", &[], 0, 0).await).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { .. })), "{unknown:?}");
    let put = async |run, labels: &[&str], priority, ago| {
        let one = waiting(queue, run, labels, priority, ago).await;
        if store.head(&one.run).await.unwrap().is_none() {
            grow(&*store, &one.run, 1).await;
        }
        queue.enqueue(one).await.unwrap();
    };
    put("later", &[], 9, -3000).await;
    put("second", &[], 1, 20).await;
    put("first", &[], 1, 30).await;
    put("special", &["gpu", "eu"], 5, 30).await;
    put("gone", &[], 8, 30).await;
    assert!(queue.dequeue(&run_id("gone")).await.unwrap());
    assert!(!queue.dequeue(&run_id("gone")).await.unwrap());
    let take = async |labels: &[&str]| {
        queue.take(&worker("w", labels), HOUR).await.unwrap().map(|taken| taken.run.to_string())
    };
    assert_eq!(queue.depth().await.unwrap(), Depth { due: 3, later: 1, held: 0 });
    assert_eq!(queue.next_due(&[]).await.unwrap(), Some(Duration::ZERO));
    assert_eq!(take(&["gpu"]).await.as_deref(), Some("first"));
    assert_eq!(take(&["eu", "other", "gpu"]).await.as_deref(), Some("special"));
    // Changed while it waits, and then once only.
    put("second", &["eu"], 1, 10).await;
    assert_eq!(take(&[]).await, None);
    assert_eq!(take(&["eu"]).await.as_deref(), Some("second"));
    assert_eq!(take(&["eu", "gpu"]).await, None);
    assert_eq!(queue.depth().await.unwrap(), Depth { due: 0, later: 1, held: 3 });
    let next = queue.next_due(&[]).await.unwrap().expect("one is due later");
    assert!(next > Duration::from_secs(2000) && next <= Duration::from_secs(3000), "{next:?}");
    assert!(fixture.open().await.queue().unwrap().wake(&run_id("later")).await.unwrap());
    assert_eq!(take(&[]).await.as_deref(), Some("later"));
    assert!(!queue.wake(&run_id("gone")).await.unwrap());
}

/// Promise 31: what a silent worker holds is due again by itself, what a living one holds isn't, and one that ends gives
/// back what it has.
pub async fn what_a_silent_worker_holds_is_due_again(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let queue = store.queue().expect("it is offered");
    let put = async |run| {
        grow(&*store, &run_id(run), 1).await;
        queue.enqueue(waiting(queue, run, &[], 0, 1).await).await.unwrap();
    };
    let (silent, living) = (worker("silent", &[]), worker("living", &["x"]));
    put("a").await;
    let a = [run_id("a")];
    assert!(!queue.alive(&silent, &[], HOUR).await.unwrap());
    assert_eq!(queue.take(&silent, Duration::ZERO).await.unwrap().map(|one| one.attempts), Some(1));
    // Its hold is over, and it can't get it back.
    queue.alive(&silent, &a, HOUR).await.unwrap();
    let again = queue.take(&living, HOUR).await.unwrap().expect("it is due again");
    assert_eq!((again.run, again.attempts), (run_id("a"), 2));
    queue.alive(&living, &a, HOUR).await.unwrap();
    assert_eq!(queue.take(&silent, HOUR).await.unwrap(), None);
    assert!(queue.wake(&run_id("a")).await.unwrap());
    let place = queue.place(&run_id("a")).await.unwrap().expect("it is there");
    assert_eq!((place.worker.as_deref(), place.waiting.attempts), (Some("living"), 2), "who has it keeps it");
    let standing = queue.workers().await.unwrap();
    assert_eq!(standing.iter().map(|one| one.holds).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(standing[0].info, living);
    assert!(queue.drain("living").await.unwrap() && !queue.drain("unknown").await.unwrap());
    assert!(queue.alive(&living, &a, HOUR).await.unwrap());
    // What it doesn't name stays due when it was, and what it does isn't due any more.
    let due =
        async || queue.place(&run_id("a")).await.unwrap().and_then(|place| place.waiting.due).expect("it is held");
    let before = due().await;
    queue.alive(&living, &[run_id("other")], 2 * HOUR).await.unwrap();
    assert_eq!(due().await, before, "a worker that never heard that it took a run doesn't keep it");
    queue.alive(&living, &a, 2 * HOUR).await.unwrap();
    assert!(due().await > before);
    queue.leave("living").await.unwrap();
    assert_eq!(queue.take(&silent, HOUR).await.unwrap().map(|one| one.run), Some(run_id("a")));
    assert_eq!(queue.workers().await.unwrap().len(), 1);
    // One that sleeps is taken only once it is woken, and then its problem is forgotten.
    let asleep = Waiting { due: None, attempts: 7, problem: Some("x".into()), ..waiting(queue, "a", &[], 0, 0).await };
    queue.enqueue(asleep.clone()).await.unwrap();
    assert_eq!(queue.place(&run_id("a")).await.unwrap(), Some(Place { waiting: asleep, worker: None }));
    assert_eq!((queue.take(&silent, HOUR).await.unwrap(), queue.next_due(&[]).await.unwrap()), (None, None));
    assert!(queue.wake(&run_id("a")).await.unwrap());
    let woken = queue.take(&silent, HOUR).await.unwrap().expect("it was woken");
    assert_eq!((woken.attempts, woken.problem), (1, None));
}

/// Of all workers one at a time keeps house, until its time is over.
pub async fn one_worker_at_a_time_keeps_house(fixture: &dyn Fixture) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (queue, other) = (store.queue().expect("it is offered"), other.queue().expect("it is offered"));
    assert!(queue.keep("a", HOUR).await.unwrap());
    assert!(!other.keep("b", HOUR).await.unwrap());
    assert!(queue.keep("a", Duration::ZERO).await.unwrap(), "it goes on");
    assert!(other.keep("b", HOUR).await.unwrap(), "the time of the other one is over");
    assert!(!queue.keep("a", HOUR).await.unwrap());
}

/// Of the runs of one key no more are held at once than its limit says.
pub async fn a_limit_holds_for_all_workers(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let queue = store.queue().expect("it is offered");
    for n in 0..4 {
        let name = format!("l{n}");
        grow(&*store, &run_id(&name), 1).await;
        let limit = (n < 3).then(|| Limit { key: "api".to_owned(), at_once: 2 });
        queue.enqueue(Waiting { limit, ..waiting(queue, &name, &[], -n, 1).await }).await.unwrap();
    }
    let mut takers = Vec::new();
    for n in 0..4 {
        let store = Arc::clone(&fixture.open().await);
        takers.push(tokio::spawn(async move {
            store.queue().expect("it is offered").take(&worker(&format!("w{n}"), &[]), HOUR).await.unwrap()
        }));
    }
    let mut taken = Vec::new();
    for taker in takers {
        taken.extend(taker.await.unwrap().map(|one| one.run.to_string()));
    }
    taken.sort_unstable();
    assert_eq!(taken, ["l0", "l1", "l3"]);
    queue.dequeue(&run_id("l0")).await.unwrap();
    assert_eq!(queue.take(&worker("w9", &[]), HOUR).await.unwrap().map(|one| one.run), Some(run_id("l2")));
}

/// Promise 11, for workers: each run goes to one of them.
pub async fn no_two_workers_take_the_same_run(fixture: &dyn Fixture) {
    const RUNS: usize = 40;
    let store = fixture.open().await;
    let queue = store.queue().expect("it is offered");
    for n in 0..RUNS {
        let name = format!("w{n:02}");
        grow(&*store, &run_id(&name), 1).await;
        queue.enqueue(waiting(queue, &name, &[], 0, 1).await).await.unwrap();
    }
    let mut workers = Vec::new();
    for n in 0..4 {
        let store = Arc::clone(&fixture.open().await);
        workers.push(tokio::spawn(async move {
            let (mut taken, me) = (Vec::new(), worker(&format!("w{n}"), &[]));
            while let Some(one) = store.queue().expect("it is offered").take(&me, HOUR).await.unwrap() {
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
