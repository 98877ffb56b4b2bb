//! Handles that share nothing but the objects, and writers that were slow.

use std::sync::Arc;

use piton_store::{Commit, Segment, SegmentInfo, Span, Store, StoreError, Sweep};
use piton_store_objects::{FolderOptions, MemoryObjects, ObjectStore};
use piton_testing::scratch::Scratch;
use piton_types::Seq;

use crate::support::{Line, block_on, id};

fn segment(first: u32, last: u32) -> Segment {
    let info = SegmentInfo { first: Seq(first), last: Seq(last) };
    Segment { info, entries: "e".into(), index: "i".into(), nodes: "n".into() }
}

const SWEEP: Sweep = Sweep { packs: Vec::new(), bytes: u64::MAX };

/// Runs it on memory and on a folder; it may open as many handles as it likes.
fn on_each<F: Future<Output = ()>>(test: impl Fn(Arc<dyn Fn() -> Arc<dyn Store> + Send + Sync>) -> F) {
    let memory = Arc::new(MemoryObjects::new());
    block_on(ObjectStore::open(memory.clone(), true)).unwrap();
    block_on(test(Arc::new(move || {
        let opened = ObjectStore::open(memory.clone(), false);
        Arc::new(futures_now(opened).unwrap())
    })));
    let scratch = Scratch::in_memory();
    let folder = scratch.join("s");
    block_on(test(Arc::new(move || Arc::new(ObjectStore::in_folder(&folder, &FolderOptions::default()).unwrap()))));
}

/// Memory never waits.
fn futures_now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

/// Promise 11, between handles without a shared lock: every number has one winner, and the log has no gap, while
/// another handle folds what it can.
#[test]
fn handles_that_share_no_lock_write_one_log() {
    on_each(|open| async move {
        let mut first = Line::new("one");
        first.append(&*open()).await.unwrap();
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let store = open();
                tokio::spawn(async move {
                    let (mut line, mut won, mut unknown) = (Line::new("one"), 0_u32, 0_u32);
                    while won < 30 {
                        line.head = store.head(&line.run).await.unwrap();
                        match line.append(&*store).await {
                            Ok(()) => won += 1,
                            Err(StoreError::Conflict { .. }) => {}
                            Err(StoreError::Unavailable { .. }) => unknown += 1,
                            Err(other) => panic!("{other}"),
                        }
                        tokio::task::yield_now().await;
                    }
                    unknown
                })
            })
            .collect();
        let folder = open();
        let folding = tokio::spawn(async move {
            for round in 0..60 {
                let head = folder.head(&id("one")).await.unwrap().unwrap().seq.0;
                let covered = folder.segments(&id("one")).await.unwrap().last().map_or(0, |info| info.last.0 + 1);
                if head > covered + 3 {
                    let first = if round % 3 == 0 { 0 } else { covered };
                    match folder.fold(&id("one"), segment(first, covered + 2)).await {
                        Ok(()) | Err(StoreError::Conflict { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
                tokio::task::yield_now().await;
            }
        });
        let mut unknown = 0;
        for writer in writers {
            unknown += writer.await.unwrap();
        }
        folding.await.unwrap();
        let store = open();
        let newest = store.head(&id("one")).await.unwrap().unwrap().seq.0;
        assert!((120..=120 + unknown).contains(&newest), "{newest}, {unknown} unknown");
        let covered = store.segments(&id("one")).await.unwrap().last().map_or(0, |info| info.last.0 + 1);
        let left = store.read(&id("one"), Span::ALL).await.unwrap();
        assert!(left.iter().map(|record| record.seq.0).eq(covered..=newest));
        assert_eq!(store.inspect().await.unwrap(), []);
    });
}

/// Two folds that meet: one gives way, or one stands inside the other, and nothing is lost.
#[test]
fn folds_that_meet_lose_nothing() {
    on_each(|open| async move {
        for round in 0..20 {
            let mut line = Line::new(&format!("run-{round}"));
            let store = open();
            line.grow(&*store, 12).await;
            let folds = [(0, 5), (3, 8), (0, 8), (6, 9)].map(|(first, last)| {
                let (store, run) = (open(), line.run.clone());
                tokio::spawn(async move { store.fold(&run, segment(first, last)).await })
            });
            for fold in folds {
                match fold.await.unwrap() {
                    Ok(()) | Err(StoreError::Conflict { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            let mut covered = vec![false; 12];
            for info in store.segments(&line.run).await.unwrap() {
                covered[info.first.0 as usize..=info.last.0 as usize].iter_mut().for_each(|covered| {
                    assert!(!*covered, "twice");
                    *covered = true;
                });
            }
            for record in store.read(&line.run, Span::ALL).await.unwrap() {
                assert!(!covered[record.seq.0 as usize]);
                covered[record.seq.0 as usize] = true;
            }
            assert_eq!(covered, [true; 12]);
        }
    });
}

/// A segment that overlaps another one, left by a fold that died before it gave way, is in no reader's way, and the
/// next fold takes it away.
#[test]
fn a_fold_that_died_is_passed_over() {
    let scratch = Scratch::in_memory();
    block_on(async {
        let store: Arc<dyn Store> =
            Arc::new(ObjectStore::in_folder(scratch.join("s"), &FolderOptions::default()).unwrap());
        let mut line = Line::new("one");
        line.grow(&*store, 12).await;
        let segments = scratch.join("s/runs/one/segments");
        let entries = scratch.join("s/runs/one/entries");
        let keep = |seq: u32| std::fs::read(entries.join(format!("{seq:010}.json"))).unwrap();
        let kept: Vec<_> = (0..4).map(|seq| (seq, keep(seq))).collect();
        store.fold(&line.run, segment(0, 5)).await.unwrap();
        let dead = std::fs::read(segments.join("0000000000-0000000005.segment")).unwrap();
        std::fs::remove_file(segments.join("0000000000-0000000005.segment")).unwrap();
        for (seq, bytes) in kept {
            std::fs::write(entries.join(format!("{seq:010}.json")), bytes).unwrap();
        }
        // What the dead one had of 4 and 5 is in the one that stands.
        std::fs::create_dir_all(&segments).unwrap();
        std::fs::write(segments.join("0000000000-0000000005.segment"), &dead).unwrap();
        let other = Line::new("other");
        let mut other_line = other;
        other_line.grow(&*store, 12).await;
        store.fold(&other_line.run, segment(4, 8)).await.unwrap();
        let standing = std::fs::read(scratch.join("s/runs/other/segments/0000000004-0000000008.segment")).unwrap();
        std::fs::write(segments.join("0000000004-0000000008.segment"), &standing).unwrap();
        for seq in 6..=8 {
            std::fs::remove_file(entries.join(format!("{seq:010}.json"))).unwrap();
        }
        let infos = store.segments(&line.run).await.unwrap();
        assert_eq!(infos, [segment(4, 8).info]);
        let left: Vec<_> = store.read(&line.run, Span::ALL).await.unwrap().iter().map(|r| r.seq.0).collect();
        assert_eq!(left, [0, 1, 2, 3, 9, 10, 11]);
        store.fold(&line.run, segment(0, 10)).await.unwrap();
        assert_eq!(std::fs::read_dir(&segments).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(&entries).unwrap().count(), 1);
    });
}

/// Several entries in one object: they can be folded in the middle, and what is left of it is still read.
#[test]
fn a_burst_is_one_object_and_folds_anywhere() {
    on_each(|open| async move {
        let (store, other) = (open(), open());
        let mut line = Line::new("burst");
        line.append(&*store).await.unwrap();
        let mut chain = Vec::new();
        for _ in 0..6 {
            let commit = line.next();
            line.head = Some(piton_store::Head { seq: commit.seq, hash: commit.hash, fence: commit.fence });
            chain.push(commit);
        }
        store.append(chain).await.unwrap();
        line.grow(&*store, 3).await;
        let read = async |span| other.read(&line.run, span).await.unwrap().iter().map(|r| r.seq.0).collect::<Vec<_>>();
        assert_eq!(read(Span::ALL).await, (0..10).collect::<Vec<_>>());
        assert_eq!(read(Span { from: Seq(3), to: Seq(5), ..Span::ALL }).await, [3, 4, 5]);
        assert_eq!(read(Span { newest_first: true, limit: 5, ..Span::ALL }).await, [9, 8, 7, 6, 5]);
        other.fold(&line.run, segment(0, 3)).await.unwrap();
        assert_eq!(read(Span::ALL).await, [4, 5, 6, 7, 8, 9]);
        store.fold(&line.run, segment(4, 7)).await.unwrap();
        assert_eq!(read(Span::ALL).await, [8, 9]);
        assert_eq!(store.inspect().await.unwrap(), []);
        assert_eq!(store.totals().await.unwrap().entries, 2);
    });
}

/// A run that takes the id of a removed one is numbered behind it, and a writer of the old one can't touch it, however
/// slow it was.
#[test]
fn a_writer_of_a_removed_run_changes_nothing() {
    on_each(|open| async move {
        let (store, slow) = (open(), open());
        for round in 0..3 {
            let mut old = Line::new("again");
            old.size = 10 + round;
            old.grow(&*store, 4).await;
            assert_eq!(slow.head(&old.run).await.unwrap(), old.head);
            let late: Commit = old.next();
            store.remove(&old.run, old.head.unwrap()).await.unwrap();
            let refused = slow.append(vec![late.clone()]).await;
            assert!(matches!(refused, Err(StoreError::Conflict { head: None, .. })), "{refused:?}");
            let mut new = Line::new("again");
            new.size = 99;
            new.grow(&*slow, 2).await;
            let refused = store.append(vec![late.clone()]).await;
            assert!(matches!(refused, Err(StoreError::Conflict { head: Some(_), .. })), "{refused:?}");
            while store.sweep(SWEEP).await.unwrap().more {}
            assert_eq!(store.read(&new.run, Span { packs: true, ..Span::ALL }).await.unwrap().len(), 2);
            store.remove(&new.run, new.head.unwrap()).await.unwrap();
            store.sweep(SWEEP).await.unwrap();
            let refused = slow.append(vec![late]).await;
            assert!(matches!(refused, Err(StoreError::Conflict { head: None, .. })), "{refused:?}");
        }
        store.sweep(SWEEP).await.unwrap();
        store.sweep(SWEEP).await.unwrap();
        assert_eq!(store.run_ids().await.unwrap(), []);
        assert_eq!(store.totals().await.unwrap().entry_bytes, 0);
        let mut anew = Line::new("again");
        anew.grow(&*store, 1).await;
        assert_eq!(slow.head(&anew.run).await.unwrap(), anew.head);
    });
}
