//! Appending: numbers, parents, fences, races.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use piton_types::{EntryHash, Fence, RunStatus, Seq};

use super::{Fixture, PIN, blob, grow, next, run_id, summary};
use crate::{Head, Span, StoreError};

/// A new run's log begins with entry 0 and nothing else.
pub async fn a_run_starts_at_entry_zero(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("fresh");
    assert_eq!(store.head(&run).await.unwrap(), None);
    let commit = next(&run, None, 5);
    store.append(vec![commit.clone()]).await.unwrap();
    assert_eq!(store.head(&run).await.unwrap(), Some(Head { seq: Seq(0), hash: commit.hash, fence: commit.fence }));
    assert_eq!(store.summary(&run).await.unwrap(), commit.index);
}

/// What was appended is what is read.
pub async fn entries_come_back_in_order(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("ordered");
    let mut commits = Vec::new();
    let mut head = None;
    for at in 0..20 {
        let commit = next(&run, head, at);
        head = Some(Head { seq: commit.seq, hash: commit.hash, fence: commit.fence });
        store.append(vec![commit.clone()]).await.unwrap();
        commits.push(commit);
    }
    let records = store.read(&run, Span { packs: true, ..Span::ALL }).await.unwrap();
    assert_eq!(records.len(), commits.len());
    for (record, commit) in records.iter().zip(&commits) {
        assert_eq!((record.seq, record.hash, record.fence), (commit.seq, commit.hash, commit.fence));
        assert_eq!((&record.entry, &record.pack), (&commit.entry, &commit.pack));
    }
    let unknown = store.read(&run_id("unknown"), Span::ALL).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { .. })), "{unknown:?}");
}

/// A number that is taken can't be taken again.
pub async fn a_used_number_conflicts(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("used");
    let first = grow(&*store, &run, 1).await;
    let second = next(&run, Some(first), 7);
    store.append(vec![second.clone()]).await.unwrap();
    let error = store.append(vec![second.clone()]).await.unwrap_err();
    let StoreError::Conflict { wanted, head: Some(head), .. } = error else { panic!("{error}") };
    assert_eq!((wanted, head.seq, head.hash), (second.seq, second.seq, second.hash));
    let again = next(&run, None, 8);
    assert!(matches!(store.append(vec![again]).await, Err(StoreError::Conflict { .. })), "entry 0 exists");
}

/// A log has no gaps.
pub async fn a_skipped_number_conflicts(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("skipped");
    let head = grow(&*store, &run, 3).await;
    let mut commit = next(&run, Some(head), 7);
    commit.seq = commit.seq.next();
    assert!(matches!(store.append(vec![commit]).await, Err(StoreError::Conflict { .. })));
    let mut first = next(&run_id("nobody"), None, 7);
    first.seq = Seq(1);
    assert!(matches!(store.append(vec![first]).await, Err(StoreError::Conflict { head: None, .. })));
    assert_eq!(store.head(&run).await.unwrap(), Some(head));
}

/// An entry that doesn't follow the head's hash is refused, whatever its number.
pub async fn a_wrong_parent_conflicts(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("parents");
    let head = grow(&*store, &run, 3).await;
    let mut commit = next(&run, Some(head), 7);
    commit.parent = EntryHash::new([9; 32]);
    assert!(matches!(store.append(vec![commit]).await, Err(StoreError::Conflict { .. })));
    assert_eq!(store.head(&run).await.unwrap(), Some(head));
}

/// Without its index row a run could not be listed.
pub async fn a_first_entry_needs_an_index_row(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("rowless");
    let mut commit = next(&run, None, 7);
    commit.index = None;
    assert!(matches!(store.append(vec![commit]).await, Err(StoreError::Invalid { .. })));
    assert_eq!(store.head(&run).await.unwrap(), None);
}

/// Promise 12: a writer whose run was taken over can't write, and is told so.
pub async fn a_lower_fence_is_fenced(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("fenced");
    let head = grow(&*store, &run, 2).await;
    let mut takeover = next(&run, Some(head), 7);
    takeover.fence = Fence(head.fence.0 + 5);
    store.append(vec![takeover.clone()]).await.unwrap();
    let stale = next(&run, Some(head), 8);
    let error = store.append(vec![stale]).await.unwrap_err();
    let StoreError::Fenced { held, current, .. } = error else { panic!("{error}") };
    assert_eq!((held, current), (head.fence, takeover.fence));
    assert_eq!(store.head(&run).await.unwrap().unwrap().seq, takeover.seq);
}

/// Promise 11: of many writers for one number exactly one wins, and the others change nothing.
pub async fn racing_appends_have_one_winner(fixture: &dyn Fixture) {
    const WRITERS: i64 = 16;
    let store = fixture.open().await;
    let run = run_id("raced");
    let mut head = grow(&*store, &run, 1).await;
    for round in 0..10 {
        let racers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (store, commit) = (Arc::clone(&store), next(&run, Some(head), round * WRITERS + writer));
                tokio::spawn(async move { store.append(vec![commit.clone()]).await.map(|()| commit.hash) })
            })
            .collect();
        let mut winners = Vec::new();
        for racer in racers {
            match racer.await.unwrap() {
                Ok(hash) => winners.push(hash),
                Err(StoreError::Conflict { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        let now = store.head(&run).await.unwrap().unwrap();
        assert_eq!((now.seq, now.hash), (head.seq.next(), winners[0]));
        head = now;
    }
}

/// The same for the creation of a run.
pub async fn racing_creations_have_one_winner(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("born-once");
    let racers: Vec<_> = (0..16)
        .map(|at| {
            let (store, commit) = (Arc::clone(&store), next(&run, None, at));
            tokio::spawn(async move { store.append(vec![commit]).await.is_ok() })
        })
        .collect();
    let mut winners = 0;
    for racer in racers {
        winners += u32::from(racer.await.unwrap());
    }
    assert_eq!(winners, 1);
    assert_eq!(store.read(&run, Span::ALL).await.unwrap().len(), 1);
}

/// Many runs at once: each ends up with exactly its own entries.
pub async fn parallel_runs_do_not_disturb_each_other(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { grow(&*store, &run_id(&format!("parallel-{n}")), 25).await })
        })
        .collect();
    for (n, task) in tasks.into_iter().enumerate() {
        let head = task.await.unwrap();
        let run = run_id(&format!("parallel-{n}"));
        assert_eq!(store.head(&run).await.unwrap(), Some(head));
        for (record, seq) in store.read(&run, Span { packs: true, ..Span::ALL }).await.unwrap().iter().zip(0..) {
            assert_eq!(record.seq, Seq(seq));
            assert!(record.entry.starts_with(format!("entry {seq} of {run}").as_bytes()));
            assert!(record.pack.starts_with(format!("pack {seq} of {run}").as_bytes()));
        }
    }
}

/// A caller that stops waiting leaves a whole entry or none, and the store may still be at it when the caller
/// looks again: the entry that takes the place is one of those that were given up, or the one that was awaited.
pub async fn a_dropped_append_is_whole_or_absent(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("dropped");
    let mut head = grow(&*store, &run, 1).await;
    let mut tried = Vec::new();
    for round in 0..40 {
        let commit = next(&run, Some(head), round);
        tried.push(commit.clone());
        let busy = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { grow(&*store, &run_id(&format!("noise-{round}")), 3).await })
        };
        let nanos = u64::try_from(round).unwrap() * 2_000;
        let outcome = tokio::time::timeout(Duration::from_nanos(nanos), store.append(vec![commit.clone()])).await;
        busy.await.unwrap();
        let now = store.head(&run).await.unwrap().unwrap();
        if now == head {
            assert!(outcome.is_err(), "an acknowledged entry is missing");
            continue;
        }
        assert_eq!(now.seq, commit.seq, "one place is taken at a time");
        let record = &store.read(&run, Span { packs: true, ..Span::newest(1) }).await.unwrap()[0];
        let whole = tried.iter().find(|tried| tried.hash == record.hash).expect("an entry that was appended");
        assert_eq!((&record.entry, &record.pack), (&whole.entry, &whole.pack));
        match outcome {
            Ok(Ok(())) => assert_eq!(record.hash, commit.hash, "an acknowledged entry has its place"),
            Ok(Err(error)) => {
                assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
                assert_ne!(record.hash, commit.hash, "a refused entry is there");
            }
            Err(_elapsed) => {}
        }
        head = now;
        tried.clear();
    }
}

/// Eight megabytes in one entry.
pub async fn large_entries_come_back(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("large");
    let mut commit = next(&run, None, 1);
    commit.pack = (0..8_u32 << 20).map(|n| u8::try_from(n % 251).unwrap()).collect();
    store.append(vec![commit.clone()]).await.unwrap();
    let small = next(&run, store.head(&run).await.unwrap(), 2);
    store.append(vec![small]).await.unwrap();
    let records = store.read(&run, Span { packs: true, ..Span::ALL }).await.unwrap();
    assert_eq!(records[0].pack, commit.pack);
}

/// Entries that follow each other are appended at once: all of them, or none.
pub async fn a_chain_is_there_as_a_whole_or_not_at_all(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("chained");
    let first = grow(&*store, &run, 1).await;
    let chain_after = |head: Head, length: usize, at: i64| {
        let mut chain = Vec::new();
        let mut head = head;
        for n in 0..length {
            let commit = next(&run, Some(head), at + i64::try_from(n).unwrap());
            head = Head { seq: commit.seq, hash: commit.hash, fence: commit.fence };
            chain.push(commit);
        }
        (chain, head)
    };
    let (chain, end) = chain_after(first, 5, 10);
    store.append(chain.clone()).await.unwrap();
    store.append(Vec::new()).await.unwrap();
    let read = async || store.read(&run, Span { packs: true, ..Span::ALL }).await.unwrap();
    let records = read().await;
    assert_eq!(records.len(), 6);
    for (record, commit) in records[1..].iter().zip(&chain) {
        assert_eq!((record.seq, record.hash, &record.entry), (commit.seq, commit.hash, &commit.entry));
        assert_eq!(record.pack, commit.pack);
    }
    assert_eq!(store.head(&run).await.unwrap(), Some(end));

    // None of what is behind a place that another writer has taken, or behind a higher fence.
    assert!(matches!(store.append(chain).await, Err(StoreError::Conflict { .. })));
    let (mut behind, _) = chain_after(end, 3, 20);
    store.append(vec![crate::Commit { fence: Fence(9), ..next(&run, Some(end), 15) }]).await.unwrap();
    assert!(matches!(store.append(behind.clone()).await, Err(StoreError::Fenced { .. })));
    behind.iter_mut().for_each(|commit| commit.fence = Fence(9));
    assert!(matches!(store.append(behind).await, Err(StoreError::Conflict { .. })));
    assert_eq!(read().await.len(), 7);

    // Nor of one that isn't a chain, whichever of its entries is at fault.
    let end = store.head(&run).await.unwrap().unwrap();
    let (good, _) = chain_after(end, 4, 30);
    let mut bad = vec![good.clone(); 4];
    bad[0][2].seq = Seq(99);
    bad[1][3].parent = EntryHash::new([1; 32]);
    bad[2][1].run = run_id("another");
    bad[3][3].fence = Fence(10);
    for chain in bad {
        let refused = store.append(chain).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    }
    let mut unstaged = good.clone();
    unstaged[2].staged = vec![crate::PackId::new([9; 32])];
    let refused = store.append(unstaged).await;
    assert!(matches!(refused, Err(StoreError::PackGone { .. })), "{refused:?}");
    assert_eq!(read().await.len(), 7);

    // Any of them may bring a staged pack and an index row.
    let pack = crate::stage(&*store, Bytes::from_static(b"a pack of one"), &[blob("one")], PIN).await.unwrap();
    let mut good = good;
    good[1].staged = vec![pack];
    good[2].index = Some(summary(&run, RunStatus::Paused, 40));
    store.append(good).await.unwrap();
    assert_eq!(read().await.len(), 11);
    assert_eq!(store.summary(&run).await.unwrap().unwrap().status, RunStatus::Paused);
}
