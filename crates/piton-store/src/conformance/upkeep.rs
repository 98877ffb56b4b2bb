//! Removing runs and packs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use piton_types::{RunId, Timestamp};

use super::{Fixture, OWNER, PIN, blob, grow, next, run_id};
use crate::{Head, Owner, PackId, PackState, Pin, RunQuery, Span, Store, StoreError, Sweep, stage};

fn at(time: i64) -> Timestamp {
    Timestamp::from_millis(time)
}

/// Deletes these if they are condemned since then.
fn sweep(packs: &[PackId], since: i64) -> Sweep {
    Sweep { packs: packs.iter().map(|pack| (*pack, at(since))).collect(), bytes: u64::MAX }
}

async fn put(store: &dyn Store, text: &str, pin: Pin) -> PackId {
    stage(store, Bytes::from(text.to_owned()), &[blob(text)], pin).await.unwrap()
}

/// Stages a pack and commits an entry that relies on it.
async fn keep(store: &dyn Store, run: &RunId, text: &str) -> (PackId, Head) {
    let pack = put(store, text, PIN).await;
    let mut commit = next(run, store.head(run).await.unwrap(), 7);
    commit.staged = vec![pack];
    let head = Head { seq: commit.seq, hash: commit.hash, fence: commit.fence };
    store.append(vec![commit]).await.unwrap();
    (pack, head)
}

async fn state(store: &dyn Store, pack: PackId) -> Option<PackState> {
    let packs = store.packs(None, usize::MAX).await.unwrap();
    packs.into_iter().find(|info| info.id == pack).map(|info| info.state)
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
    store.sweep(sweep(&[], 0)).await.unwrap();
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

/// By name, in pages, with what became of them.
pub async fn packs_are_listed(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let pinned = stage(&*store, Bytes::from_static(b"pinned"), &[blob("pinned"), blob("two")], PIN).await.unwrap();
    let (kept, _) = keep(&*store, &run_id("a"), "kept").await;
    let (condemned, _) = keep(&*store, &run_id("b"), "condemned").await;
    assert_eq!(store.condemn(&[condemned], at(3)).await.unwrap(), 1);
    let mut expected =
        vec![(pinned, PackState::Pinned, 6), (kept, PackState::Kept, 4), (condemned, PackState::Condemned(at(3)), 9)];
    expected.sort_unstable_by_key(|(pack, _, _)| *pack);
    let listed = store.packs(None, 9).await.unwrap();
    assert_eq!(listed.iter().map(|info| (info.id, info.state, info.size)).collect::<Vec<_>>(), expected);
    assert_eq!(store.packs(None, 2).await.unwrap(), listed[..2]);
    assert_eq!(store.packs(Some(listed[0].id), 1).await.unwrap(), listed[1..2]);
    assert_eq!(store.packs(Some(listed[2].id), 9).await.unwrap(), []);
    let mut ids = vec![blob("pinned"), blob("two")];
    ids.sort_unstable();
    assert_eq!(store.pack_ids(pinned).await.unwrap(), ids);
}

/// Each writer has its own pin. A pack isn't condemned while one counts, and a dead writer's runs out.
pub async fn a_pin_keeps_a_pack_until_its_commit_or_its_end(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let pack = put(&*store, "pinned", PIN).await;
    let other = Pin { owner: Owner(8), ..PIN };
    assert_eq!(put(&*store, "pinned", other).await, pack);
    assert_eq!(store.condemn(&[pack], at(1)).await.unwrap(), 0);
    for (run, owner) in [("a", OWNER), ("b", other.owner)] {
        assert_eq!(state(&*store, pack).await, Some(PackState::Pinned), "before the commit of {owner:?}");
        let mut commit = next(&run_id(run), None, 7);
        (commit.staged, commit.owner) = (vec![pack], owner);
        store.append(vec![commit]).await.unwrap();
    }
    assert_eq!(state(&*store, pack).await, Some(PackState::Kept));

    let dead = put(&*store, "left behind", Pin { owner: Owner(9), life: Duration::ZERO }).await;
    drop(store);
    let store = fixture.open().await;
    assert_eq!(state(&*store, dead).await, Some(PackState::Abandoned));
    assert_eq!(store.condemn(&[dead], at(5)).await.unwrap(), 1);
    assert_eq!(store.condemn(&[dead, pack], at(6)).await.unwrap(), 1, "it stays condemned since the first time");
    assert_eq!(state(&*store, dead).await, Some(PackState::Condemned(at(5))));
    store.pardon(&[dead, pack]).await.unwrap();
    assert_eq!([state(&*store, dead).await, state(&*store, pack).await], [Some(PackState::Kept); 2]);
}

/// A writer that comes to need a condemned pack has it.
pub async fn a_pack_that_is_condemned_may_be_staged_or_pinned_again(fixture: &dyn Fixture) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (pack, _) = keep(&*store, &run_id("a"), "again").await;
    for by in ["stage", "pin"] {
        assert_eq!(store.condemn(&[pack], at(5)).await.unwrap(), 1);
        match by {
            "stage" => assert_eq!(put(&*other, "again", PIN).await, pack),
            _ => other.pin(&[pack], PIN).await.unwrap(),
        }
        assert_eq!(store.sweep(sweep(&[pack], 5)).await.unwrap().packs, 0);
        assert_eq!(state(&*store, pack).await, Some(PackState::Pinned), "by {by}");
        let mut commit = next(&run_id(by), None, 7);
        commit.staged = vec![pack];
        other.append(vec![commit]).await.unwrap();
    }
    assert_eq!(crate::pack(&*store, pack).await.unwrap(), Bytes::from_static(b"again"));
    let missing = store.pin(&[pack, PackId::new([9; 32])], PIN).await;
    assert!(matches!(missing, Err(StoreError::PackGone { .. })), "{missing:?}");
}

/// A writer that found a condemned pack and names it has it, and one that comes too late is told.
pub async fn a_commit_saves_a_condemned_pack(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (pack, _) = keep(&*store, &run_id("a"), "shared").await;
    store.condemn(&[pack], at(50)).await.unwrap();
    let mut commit = next(&run_id("b"), None, 7);
    commit.staged = vec![pack];
    store.append(vec![commit]).await.unwrap();
    assert_eq!(store.sweep(sweep(&[pack], 50)).await.unwrap().packs, 0);
    assert_eq!(state(&*store, pack).await, Some(PackState::Kept));

    store.condemn(&[pack], at(60)).await.unwrap();
    assert_eq!(store.sweep(sweep(&[pack], 60)).await.unwrap().packs, 1);
    let mut late = next(&run_id("c"), None, 8);
    late.staged = vec![pack];
    assert!(matches!(store.append(vec![late]).await, Err(StoreError::PackGone { .. })));
    assert_eq!(store.head(&run_id("c")).await.unwrap(), None);
    assert_eq!(store.locate(&[blob("shared")]).await.unwrap(), [None]);
}

/// The name of a deleted pack is free for the same pack.
pub async fn a_pack_that_was_deleted_may_be_staged_again(fixture: &dyn Fixture) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (pack, _) = keep(&*store, &run_id("a"), "twice").await;
    assert_eq!(other.locate(&[blob("twice")]).await.unwrap(), [Some(pack)]);
    store.condemn(&[pack], at(5)).await.unwrap();
    store.sweep(sweep(&[pack], 5)).await.unwrap();
    for store in [&store, &other] {
        assert!(matches!(store.pack(pack).await, Err(StoreError::NotFound { .. })));
        assert!(matches!(store.pack_ids(pack).await, Err(StoreError::NotFound { .. })));
    }
    keep(&*other, &run_id("b"), "twice").await;
    assert_eq!(store.locate(&[blob("twice")]).await.unwrap(), [Some(pack)]);
    assert_eq!(crate::pack(&*store, pack).await.unwrap(), Bytes::from_static(b"twice"));
    assert_eq!(state(&*store, pack).await, Some(PackState::Kept));
}

/// Only what is named, only if it is condemned since just then, and it is remembered since when.
pub async fn a_sweep_deletes_what_it_is_told_to(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("a");
    let (one, _) = keep(&*store, &run, "one").await;
    let (two, _) = keep(&*store, &run, "two").await;
    store.condemn(&[one], at(50)).await.unwrap();
    store.condemn(&[two], at(90)).await.unwrap();
    assert_eq!(store.sweep(sweep(&[one, two], 49)).await.unwrap().packs, 0);
    assert_eq!(store.sweep(sweep(&[one, two], 50)).await.unwrap().packs, 1);
    assert_eq!(store.locate(&[blob("one"), blob("two")]).await.unwrap(), [None, Some(two)]);
    drop(store);
    let store = fixture.open().await;
    assert_eq!(state(&*store, two).await, Some(PackState::Condemned(at(90))), "it is remembered");
    assert_eq!(store.sweep(sweep(&[two], 90)).await.unwrap().packs, 1);
    assert_eq!(store.packs(None, 9).await.unwrap(), []);
}

/// Promise 19, without a lock between the two: a writer that staged a pack and commits it has it, whatever a sweeper that
/// takes every pack for idle does meanwhile.
pub async fn staging_beside_a_sweeper_loses_nothing(fixture: &dyn Fixture) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let sweeper = tokio::spawn(async move {
        // On a slow place fewer rounds must do.
        let begun = std::time::Instant::now();
        for round in (0..150).take_while(|round| *round < 15 || begun.elapsed().as_secs() < 10) {
            let packs: Vec<PackId> = (0..3).map(|n| other.hashing().pack(format!("raced {n}").as_bytes())).collect();
            other.condemn(&packs, at(round)).await.unwrap();
            other.sweep(sweep(&packs, round)).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let store = Arc::clone(&store);
    let mut round = 0;
    while !sweeper.is_finished() {
        let text = format!("raced {}", round % 3);
        let pin = Pin { owner: Owner(100 + round), ..PIN };
        let pack = put(&*store, &text, pin).await;
        let mut commit = next(&run_id(&format!("r{round}")), None, 7);
        (commit.staged, commit.owner) = (vec![pack], pin.owner);
        assert_eq!(crate::pack(&*store, pack).await.unwrap(), Bytes::from(text), "it is pinned");
        store.append(vec![commit]).await.unwrap();
        round += 1;
    }
    sweeper.await.unwrap();
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
        let swept = store.sweep(Sweep { bytes: 150_000, ..sweep(&packs, 1) }).await.unwrap();
        (rounds, deleted) = (rounds + 1, deleted + swept.packs);
        assert!(swept.bytes < 400_000, "{swept:?}");
        if !swept.more {
            break;
        }
    }
    assert!(rounds > 2, "{rounds}");
    assert_eq!(deleted, 6);
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
    again.set_note("key/2", Some(Bytes::from_static(b"three"))).await.unwrap();
    let listed = store.notes("key").await.unwrap();
    assert_eq!(
        listed,
        [("key".to_owned(), Bytes::from_static(b"two")), ("key/2".to_owned(), Bytes::from_static(b"three"))]
    );
    assert_eq!(store.notes("none").await.unwrap(), []);
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
