//! Removing runs and packs.

use bytes::Bytes;
use piton_types::{RunId, Timestamp};

use super::{Fixture, blob, grow, next, run_id};
use crate::{Head, PackId, PackState, Reliance, RunQuery, Span, Store, StoreError, Sweep};

fn at(time: i64) -> Timestamp {
    Timestamp::from_millis(time)
}

fn sweep(before: i64) -> Sweep {
    Sweep { before: at(before), bytes: u64::MAX }
}

/// Stages a pack and commits an entry that relies on it.
async fn keep(store: &dyn Store, run: &RunId, text: &str) -> (PackId, Head) {
    let pack = store.stage(Bytes::from(text.to_owned()), &[blob(text)]).await.unwrap();
    let mut commit = next(run, store.head(run).await.unwrap(), 7);
    commit.staged = vec![pack];
    let head = Head { seq: commit.seq, hash: commit.hash, fence: commit.fence };
    store.append(vec![commit]).await.unwrap();
    (pack, head)
}

async fn state(store: &dyn Store, pack: PackId) -> Option<(PackState, Vec<RunId>)> {
    let packs = store.packs(None, usize::MAX).await.unwrap();
    packs.into_iter().find(|info| info.id == pack).map(|info| (info.state, info.runs))
}

/// Nothing is left of a removed run for any reader, and a new one of its name begins at entry 0.
pub async fn a_removed_run_is_gone_and_its_name_is_free(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (run, other) = (run_id("old"), run_id("other"));
    grow(&*store, &other, 3).await;
    let head = grow(&*store, &run, 5).await;
    let second = fixture.open().await;
    assert_eq!(second.head(&run).await.unwrap(), Some(head), "another handle knows it too");
    store.remove(&run, head).await.unwrap();
    for store in [&store, &second] {
        assert_eq!(store.head(&run).await.unwrap(), None);
        assert!(store.summary(&run).await.unwrap().is_none());
        assert!(matches!(store.read(&run, Span::ALL).await, Err(StoreError::NotFound { .. })));
        assert!(matches!(store.segments(&run).await, Err(StoreError::NotFound { .. })));
        assert_eq!(store.list(RunQuery::default()).await.unwrap().len(), 1);
    }
    assert!(matches!(store.remove(&run, head).await, Err(StoreError::NotFound { .. })));
    let stale = second.append(vec![next(&run, Some(head), 9)]).await;
    assert!(matches!(stale, Err(StoreError::Conflict { head: None, .. })), "{stale:?}");
    let again = grow(&*second, &run, 1).await;
    assert_eq!((again.seq.0, store.head(&run).await.unwrap()), (0, Some(again)));
    store.sweep(sweep(0)).await.unwrap();
    assert_eq!(store.read(&run, Span::ALL).await.unwrap().len(), 1, "the sweep took the old one only");
    assert_eq!(store.read(&other, Span::ALL).await.unwrap().len(), 3);
    assert_eq!(store.inspect().await.unwrap(), []);
}

/// A writer that appends in between wins.
pub async fn a_run_that_went_on_is_not_removed(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("alive");
    let seen = grow(&*store, &run, 2).await;
    let now = grow(&*store, &run, 1).await;
    assert!(
        matches!(store.remove(&run, seen).await, Err(StoreError::Conflict { head: Some(head), .. }) if head == now)
    );
    assert_eq!(store.head(&run).await.unwrap(), Some(now));
    store.remove(&run, now).await.unwrap();
}

/// A commit makes its run rely on the packs that it names, until the run lets go or is removed.
pub async fn packs_say_who_relies_on_them(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (a, b) = (run_id("a"), run_id("b"));
    let pinned = store.stage(Bytes::from_static(b"pinned"), &[blob("pinned"), blob("two")]).await.unwrap();
    let (one, head_a) = keep(&*store, &a, "one").await;
    let (two, head_b) = keep(&*store, &b, "second").await;
    assert_eq!(state(&*store, pinned).await, Some((PackState::Pinned, vec![])));
    assert_eq!(state(&*store, one).await, Some((PackState::Kept, vec![a.clone()])));
    assert_eq!(store.packs(Some(pinned), 1).await.unwrap().len(), 1, "pages are honoured");
    assert_eq!(store.packs(Some(two), 9).await.unwrap().len(), 0);
    let mut ids = vec![blob("pinned"), blob("two")];
    ids.sort_unstable();
    assert_eq!(store.pack_ids(pinned).await.unwrap(), ids);
    assert_eq!(store.packs(None, 9).await.unwrap().last().unwrap().size, 6);

    store.rely(&b, head_b, Reliance { also: vec![one], no_more: vec![two] }).await.unwrap();
    assert_eq!(state(&*store, one).await, Some((PackState::Kept, vec![a.clone(), b.clone()])));
    assert_eq!(state(&*store, two).await, Some((PackState::Kept, vec![])));
    let gone = Reliance { also: vec![PackId(999_999)], no_more: vec![one] };
    assert!(matches!(store.rely(&b, head_b, gone).await, Err(StoreError::NotFound { .. })));
    let stale = store.rely(&b, head_a, Reliance { also: vec![], no_more: vec![one] }).await;
    assert!(matches!(stale, Err(StoreError::Conflict { .. })), "{stale:?}");
    assert_eq!(state(&*store, one).await, Some((PackState::Kept, vec![a.clone(), b.clone()])), "nothing changed");
    store.remove(&a, head_a).await.unwrap();
    assert_eq!(state(&*store, one).await, Some((PackState::Kept, vec![b])));
}

/// Neither what a run relies on nor what a writer is about to commit.
pub async fn only_what_nobody_relies_on_is_condemned(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (a, b) = (run_id("a"), run_id("b"));
    let (needed, _) = keep(&*store, &a, "needed").await;
    let (free, head) = keep(&*store, &b, "free").await;
    let pinned = store.stage(Bytes::from_static(b"pinned"), &[blob("pinned")]).await.unwrap();
    store.remove(&b, head).await.unwrap();
    let all = [needed, free, pinned, PackId(999_999)];
    assert_eq!(store.condemn(&all, at(50)).await.unwrap(), 1);
    assert_eq!(store.condemn(&all, at(60)).await.unwrap(), 0, "it stays condemned since the first time");
    assert_eq!(state(&*store, free).await, Some((PackState::Condemned(at(50)), vec![])));
    assert_eq!(state(&*store, pinned).await, Some((PackState::Pinned, vec![])));
    assert_eq!(store.sweep(sweep(i64::MAX)).await.unwrap().packs, 1);
    assert_eq!(store.pack(needed).await.unwrap(), Bytes::from_static(b"needed"));
    assert_eq!(store.pack(pinned).await.unwrap(), Bytes::from_static(b"pinned"));
}

/// A writer that found a condemned pack and names it has it, and one that comes too late is told.
pub async fn a_commit_saves_a_condemned_pack(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (a, b) = (run_id("a"), run_id("b"));
    let (pack, head) = keep(&*store, &a, "shared").await;
    store.remove(&a, head).await.unwrap();
    store.condemn(&[pack], at(50)).await.unwrap();
    let mut commit = next(&b, None, 7);
    commit.staged = vec![pack];
    store.append(vec![commit]).await.unwrap();
    assert_eq!(store.sweep(sweep(i64::MAX)).await.unwrap().packs, 0);
    assert_eq!(state(&*store, pack).await, Some((PackState::Kept, vec![b.clone()])));

    store.remove(&b, store.head(&b).await.unwrap().unwrap()).await.unwrap();
    store.condemn(&[pack], at(50)).await.unwrap();
    assert_eq!(store.sweep(sweep(i64::MAX)).await.unwrap().packs, 1);
    let mut late = next(&run_id("c"), None, 8);
    late.staged = vec![pack];
    assert!(matches!(store.append(vec![late]).await, Err(StoreError::NotFound { .. })));
    assert_eq!(store.locate(&[blob("shared")]).await.unwrap(), [None]);
}

/// The grace period is the caller's; a sweep goes by it.
pub async fn a_sweep_deletes_what_was_condemned_long_enough(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("a");
    let (one, _) = keep(&*store, &run, "one").await;
    let (two, head) = keep(&*store, &run, "two").await;
    store.remove(&run, head).await.unwrap();
    store.condemn(&[one], at(50)).await.unwrap();
    store.condemn(&[two], at(90)).await.unwrap();
    assert_eq!(store.sweep(sweep(50)).await.unwrap().packs, 0);
    assert_eq!(store.sweep(sweep(90)).await.unwrap().packs, 1);
    assert_eq!(store.locate(&[blob("one"), blob("two")]).await.unwrap(), [None, Some(two)]);
    drop(store);
    let store = fixture.open().await;
    assert_eq!(state(&*store, two).await, Some((PackState::Condemned(at(90)), vec![])), "it is remembered");
    assert_eq!(store.sweep(sweep(91)).await.unwrap().packs, 1);
    assert_eq!(store.packs(None, 9).await.unwrap(), []);
}

/// One sweep deletes about what it may, and says if there is more.
pub async fn a_sweep_keeps_to_its_measure(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("a");
    let mut packs = Vec::new();
    for n in 0..6 {
        packs.push(keep(&*store, &run, &format!("{n}").repeat(100_000)).await.0);
    }
    store.remove(&run, store.head(&run).await.unwrap().unwrap()).await.unwrap();
    assert_eq!(store.condemn(&packs, at(1)).await.unwrap(), 6);
    let (mut rounds, mut deleted) = (0, 0);
    loop {
        let swept = store.sweep(Sweep { before: at(2), bytes: 150_000 }).await.unwrap();
        (rounds, deleted) = (rounds + 1, deleted + swept.packs);
        assert!(swept.bytes < 400_000, "{swept:?}");
        if !swept.more {
            break;
        }
    }
    assert!(rounds > 2, "{rounds}");
    assert_eq!(deleted, 6);
}

/// Of a commit that relies on what it doesn't name, nothing is written once packs may have been condemned.
pub async fn an_era_ends_for_commits_that_rely_on_it(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("a");
    let head = grow(&*store, &run, 1).await;
    let before = store.era().await.unwrap();
    let mut commit = next(&run, Some(head), 7);
    commit.era = Some(before);
    let after = store.next_era().await.unwrap();
    assert!(after > before);
    assert_eq!(fixture.open().await.era().await.unwrap(), after);
    assert!(matches!(store.append(vec![commit.clone()]).await, Err(StoreError::EraEnded { .. })));
    assert_eq!(store.head(&run).await.unwrap(), Some(head));
    commit.era = Some(after);
    store.append(vec![commit]).await.unwrap();
}

/// Notes are there for the next process that opens the store, and can be taken back.
pub async fn notes_are_kept(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert_eq!(store.note("key").await.unwrap(), None);
    store.set_note("key", Some(Bytes::from_static(b"one"))).await.unwrap();
    store.set_note("key", Some(Bytes::from_static(b"two"))).await.unwrap();
    store.set_note("'; --\n", Some(Bytes::new())).await.unwrap();
    let again = fixture.open().await;
    assert_eq!(again.note("key").await.unwrap(), Some(Bytes::from_static(b"two")));
    assert_eq!(again.note("'; --\n").await.unwrap(), Some(Bytes::new()));
    again.set_note("key", None).await.unwrap();
    assert_eq!(store.note("key").await.unwrap(), None);
}

/// The negative control of every check.
pub async fn a_sound_store_has_no_defects(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("a");
    grow(&*store, &run, 40).await;
    keep(&*store, &run, "pack").await;
    assert_eq!(store.inspect().await.unwrap(), []);
}
