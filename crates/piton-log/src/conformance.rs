//! What run logs must do on every store, one behaviour a function, over `dyn Store`. A store's tests stamp them into one
//! named test each, beside those of [`piton_store::conformance`](mod@piton_store::conformance).

use std::sync::Arc;

use piton_store::conformance::Fixture;
use piton_store::{SegmentInfo, Span, Store, StoreError};
use piton_types::{Durability, EntryKind, Fence, Path, RunId, Seq, Timestamp, Value};

use crate::state::State;
use crate::{Content, Draft, DraftPart, NewRun, RunLog};

/// Stamps every behaviour into a test of its own, each with a fixture made by the given expression.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        $crate::conformance::conformance_each!([$crate::conformance] $fixture;
            states_of_every_entry_load
            a_whole_value_saves_only_what_changed
            damaged_parents_are_noticed
            an_equal_entry_conflicts_too
            a_taken_over_writer_cannot_append
            a_state_can_move_to_another_run
        );
    };
}

#[doc(hidden)]
pub use piton_store::conformance_each;

fn run_id(name: &str) -> RunId {
    name.parse().expect("a valid id")
}

/// A new run with the given name.
async fn new_log(store: Arc<dyn Store>, name: &str) -> Result<RunLog, StoreError> {
    let new = NewRun {
        body: Value::map([("document", Value::from("text ".repeat(2_000)))]),
        durability: Durability::Relaxed,
        ..NewRun::new(run_id(name), Timestamp::from_millis(1_000))
    };
    RunLog::create(store, new).await
}

fn checkpoint<'a>(label: String, content: Content<'a>) -> Draft<'a> {
    Draft {
        label,
        body: Value::map([("note", Value::from("n".repeat(150)))]),
        parts: vec![DraftPart { name: "app".into(), schema: "test".into(), version: 1, content }],
        durability: Durability::Relaxed,
        ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(2_000))
    }
}

fn message(n: u32) -> Value {
    Value::map([("role", Value::from("user")), ("content", Value::from(format!("message {n} ").repeat(60)))])
}

/// Decision 6 on every store: hundreds of checkpoints of a growing state, folded and merged on the way;
/// each of them loads, before and after reopening.
pub async fn states_of_every_entry_load(fixture: &dyn Fixture) {
    const COUNT: u32 = 330;
    let store = fixture.open().await;
    let mut log = new_log(Arc::clone(&store), "growing").await.unwrap();
    let empty = Value::map([("messages", Value::List(Vec::new()))]);
    let mut state = State::new(store.hashing(), &empty).unwrap();
    let path: Path = "/messages".parse().unwrap();
    for n in 0..COUNT {
        state.push(&path, message(n)).await.unwrap();
        let seq = log.append(checkpoint(format!("step {n}"), Content::State(&mut state))).await.unwrap();
        assert_eq!(seq, Seq(n + 1));
    }
    let whole = Value::map([("messages", Value::List((0..COUNT).map(message).collect()))]);
    assert_eq!(state.root(), crate::state::encode(store.hashing(), &whole).unwrap().root, "equal states, equal roots");
    log.close().await.unwrap();
    drop(store);

    let store = fixture.open().await;
    let log = RunLog::open(Arc::clone(&store), &run_id("growing")).await.unwrap();
    if store.folding().is_some() {
        let folded: u64 = store.segments(log.run()).await.unwrap().iter().map(SegmentInfo::len).sum();
        assert!(folded > u64::from(COUNT) - 32, "{folded} of {COUNT} entries are folded");
    }
    let entries = log.entries(Span::ALL).await.unwrap();
    assert_eq!(entries.len(), COUNT as usize + 1);
    let document = log.body(&entries[0]).await.unwrap();
    assert_eq!(document.field("document").and_then(Value::as_str).map(str::len), Some(10_000));
    for (entry, n) in entries.iter().skip(1).zip(0..) {
        assert_eq!((entry.seq, entry.label.as_str()), (Seq(n + 1), format!("step {n}").as_str()));
        let loaded = log.load(&entry.parts[&"app".into()]).await.unwrap();
        let messages = loaded.field("messages").and_then(Value::as_list).unwrap();
        assert_eq!(messages.len(), n as usize + 1);
        assert_eq!(messages[n as usize], message(n));
    }
    assert_eq!(log.load(&entries[COUNT as usize].parts[&"app".into()]).await.unwrap(), whole);
    let newest = log.entries(Span::newest(5)).await.unwrap();
    assert!(newest.iter().eq(entries.iter().rev().take(5)));
    let middle = log.entries(Span { from: Seq(20), to: Seq(300), ..Span::ALL }).await.unwrap();
    assert_eq!(middle, entries[20..=300]);

    // A state opened in the middle of a segment goes on from there.
    let mut old = log.state(&entries[100].parts[&"app".into()]);
    old.push(&path, message(9_999)).await.unwrap();
    assert_eq!(old.len(&path).await.unwrap(), Some(101));
    assert_eq!(old.get(&"/messages/99".parse().unwrap()).await.unwrap(), Some(message(99)));
}

/// C4: a save through a whole value stores only the nodes that the save before it didn't have.
pub async fn a_whole_value_saves_only_what_changed(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut log = new_log(Arc::clone(&store), "whole").await.unwrap();
    let mut items: Vec<_> = (0..400).map(message).collect();
    let mut sizes = Vec::new();
    for n in 0..4 {
        items[n * 50] = message(10_000 + u32::try_from(n).unwrap());
        let value = Value::List(items.clone());
        let seq = log.append(checkpoint(String::new(), Content::Value(&value))).await.unwrap();
        let span = Span { from: seq, to: seq, packs: true, ..Span::ALL };
        sizes.push(store.read(log.run(), span).await.unwrap()[0].pack.len());
        let entry = log.entry(seq).await.unwrap();
        assert_eq!(log.load(&entry.parts[&"app".into()]).await.unwrap(), value);
    }
    assert!(sizes[1..].iter().all(|size| (500..8_000).contains(size)), "{sizes:?}");
}

/// An entry that was put in behind the log's back is no part of it.
pub async fn damaged_parents_are_noticed(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut log = new_log(Arc::clone(&store), "forged").await.unwrap();
    log.append(checkpoint("one".into(), Content::Value(&Value::Null))).await.unwrap();
    let head = store.head(log.run()).await.unwrap();
    store.append(vec![piton_store::conformance::next(log.run(), head, 5_000)]).await.unwrap();
    let read = log.entries(Span::ALL).await;
    assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{read:?}");
    let opened = RunLog::open(Arc::clone(&store), log.run()).await.map(drop);
    assert!(matches!(opened, Err(StoreError::Corrupt { .. })), "{opened:?}");
}

/// Promise 11: an equal entry of another writer stays that writer's, and `refresh` shows it.
pub async fn an_equal_entry_conflicts_too(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut log = new_log(Arc::clone(&store), "twice").await.unwrap();
    let mut same = RunLog::open(Arc::clone(&store), log.run()).await.unwrap();
    log.append(checkpoint("one".into(), Content::Value(&Value::Null))).await.unwrap();
    let equal = same.append(checkpoint("one".into(), Content::Value(&Value::Null))).await;
    assert!(matches!(equal, Err(StoreError::Conflict { .. })), "{equal:?}");
    assert_eq!(same.refresh().await.unwrap().len(), 1);
    assert_eq!(log.entries(Span::ALL).await.unwrap().len(), 2);
    let other = same.append(checkpoint("two".into(), Content::Value(&Value::Null))).await.unwrap();
    assert_eq!(other, Seq(2));
    let stale = log.append(checkpoint("three".into(), Content::Value(&Value::Null))).await;
    assert!(matches!(stale, Err(StoreError::Conflict { .. })), "{stale:?}");
    assert_eq!(log.refresh().await.unwrap().len(), 1);
    assert_eq!(log.append(checkpoint("three".into(), Content::Value(&Value::Null))).await.unwrap(), Seq(3));
}

/// Decision 2 again: taking over appends a higher fence, and the old writer learns of it.
pub async fn a_taken_over_writer_cannot_append(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut old = new_log(Arc::clone(&store), "taken").await.unwrap();
    let mut new = RunLog::open(Arc::clone(&store), old.run()).await.unwrap();
    let claim = Draft { fence: Some(Fence(2)), ..Draft::new(EntryKind::Claimed, Timestamp::from_millis(1)) };
    new.append(claim).await.unwrap();
    let mut state = State::new(store.hashing(), &Value::from(7)).unwrap();
    for _ in 0..2 {
        let stale = old.append(checkpoint("late".into(), Content::State(&mut state))).await;
        assert!(matches!(stale, Err(StoreError::Fenced { current: Fence(2), .. })), "{stale:?}");
    }
    // What could not be saved there is still unsaved, and can be saved elsewhere.
    let seq = new.append(checkpoint("kept".into(), Content::State(&mut state))).await.unwrap();
    let entry = new.entry(seq).await.unwrap();
    assert_eq!(new.load(&entry.parts[&"app".into()]).await.unwrap(), Value::from(7));
    assert_eq!(new.head().fence, Fence(2), "the fence stays for what follows");
}

/// A state that was saved in one run is whole in another, too.
pub async fn a_state_can_move_to_another_run(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut one = new_log(Arc::clone(&store), "one").await.unwrap();
    let mut other = new_log(Arc::clone(&store), "other").await.unwrap();
    let mut state = State::new(store.hashing(), &Value::List((0..50).map(message).collect())).unwrap();
    one.append(checkpoint("here".into(), Content::State(&mut state))).await.unwrap();
    state.push(&Path::root(), message(50)).await.unwrap();
    let seq = other.append(checkpoint("there".into(), Content::State(&mut state))).await.unwrap();
    state.push(&Path::root(), message(51)).await.unwrap();
    let last = other.append(checkpoint("on".into(), Content::State(&mut state))).await.unwrap();
    let fresh = RunLog::open(Arc::clone(&store), other.run()).await.unwrap();
    for (seq, count) in [(seq, 51), (last, 52)] {
        let entry = fresh.entry(seq).await.unwrap();
        assert_eq!(
            fresh.load(&entry.parts[&"app".into()]).await.unwrap(),
            Value::List((0..count).map(message).collect())
        );
    }
}
