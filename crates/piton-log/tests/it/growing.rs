//! States that grow: a checkpoint's part is the root of its value, and a save stores little more than what is new.

use std::sync::Arc;

use piton_log::state::{State, diff, encode};
use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_store::{Span, Store, StoreError};
use piton_store_objects::ObjectStore;
use piton_testing::{CrashStore, Fault, SeededRandom};
use piton_types::{EntryKind, Part, Path, Seq, Timestamp, Value};

pub(crate) const AT: Timestamp = Timestamp::from_millis(7);

pub(crate) async fn new_log() -> RunLog {
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    RunLog::create(store, NewRun::new("r".parse().unwrap(), AT)).await.unwrap()
}

pub(crate) async fn save(log: &mut RunLog, state: &mut State) -> Part {
    let part = DraftPart { name: "app".into(), schema: "s".into(), version: 1, content: Content::State(state) };
    log.append(Draft { parts: vec![part], ..Draft::new(EntryKind::Checkpoint, AT) }).await.unwrap();
    log.appended_parts()[&"app".into()].clone()
}

fn message(n: u64) -> Value {
    Value::map([("content", Value::from(format!("message {n} ").repeat(40))), ("n", Value::from(n))])
}

fn talk(messages: u64) -> Value {
    Value::map([("messages", Value::List((0..messages).map(message).collect()))])
}

pub(crate) fn path(text: &str) -> Path {
    text.parse().unwrap()
}

/// A save of a list that grew by a message has the message and little more: the nodes above it are differences.
#[tokio::test]
async fn a_checkpoint_of_a_list_that_grew_has_what_was_appended() {
    let mut log = new_log().await;
    let mut state = log.new_state(&talk(100)).unwrap();
    save(&mut log, &mut state).await;
    let length = message(99).field("content").and_then(Value::as_str).unwrap().len();
    let mut bytes = 0;
    for n in 100..260 {
        state.push(&path("/messages"), message(n)).await.unwrap();
        let part = save(&mut log, &mut state).await;
        assert_eq!(part.root, encode(log.store().hashing(), &talk(n + 1)).unwrap().root);
        let seq = log.head().seq;
        let span = Span { from: seq, to: seq, packs: true, ..Span::ALL };
        bytes += log.store().read(log.run(), span).await.unwrap()[0].pack.len();
    }
    assert!(bytes < 160 * (length + 450), "{} bytes in each entry for a message of {length}", bytes / 160);
    assert_eq!(log.load(log.appended_parts().values().next().unwrap()).await.unwrap(), talk(260));
}

/// Equal states have equal roots, and what differs between two is found.
#[tokio::test]
async fn roots_and_differences_are_those_of_the_values() {
    let mut log = new_log().await;
    let mut state = log.new_state(&talk(3)).unwrap();
    let mut parts = vec![save(&mut log, &mut state).await];
    for n in 3..40 {
        state.push(&path("/messages"), message(n)).await.unwrap();
        parts.push(save(&mut log, &mut state).await);
    }
    for (part, n) in parts.iter().zip(3..) {
        let state = log.state(part);
        assert_eq!(part.root, encode(log.store().hashing(), &talk(n)).unwrap().root, "{n}");
        assert_eq!(state.root(), part.root);
        assert_eq!(state.len(&path("/messages")).await.unwrap(), Some(usize::try_from(n).unwrap()));
    }
    let changes = diff(&*log.source(), parts[30].root, parts[32].root).await.unwrap();
    let added: Vec<_> = changes.iter().map(|change| (change.path.to_string(), change.new.clone())).collect();
    let expected = [33, 34].map(|n| (format!("/messages/{n}"), Some(message(n))));
    assert_eq!(added, expected);
}

/// Edits, looks, copies and saves in any order: every checkpoint is what the state was.
#[tokio::test]
async fn whatever_is_done_between_saves_is_saved() {
    for seed in 0..12 {
        let random = SeededRandom::new(seed);
        let pick = |below: u64| random.next_u64() % below;
        let mut log = new_log().await;
        let (a, b) = (path("/a"), path("/b/list"));
        let mut model = (vec![message(0)], vec![message(1)], Value::Null);
        let value = |model: &(Vec<Value>, Vec<Value>, Value)| {
            let inner = Value::map([("list", Value::List(model.1.clone())), ("x", model.2.clone())]);
            Value::map([("a", Value::List(model.0.clone())), ("b", inner)])
        };
        let mut state = log.new_state(&value(&model)).unwrap();
        let mut saved = Vec::new();
        for n in 2..120 {
            match pick(12) {
                0..=5 => {
                    let many: Vec<_> = (0..pick(3)).map(|more| message(1000 * n + more)).collect();
                    model.0.extend(many.clone());
                    state.extend(&a, many).await.unwrap();
                }
                6 => {
                    let many: Vec<_> = (0..pick(60)).map(|more| message(1000 * n + more)).collect();
                    model.1.extend(many.clone());
                    state.extend(&b, many).await.unwrap();
                }
                7 => {
                    model.2 = Value::from(n);
                    state.set(&path("/b/x"), Value::from(n)).await.unwrap();
                }
                8 if !model.0.is_empty() => {
                    let at = usize::try_from(pick(model.0.len() as u64)).unwrap();
                    model.0.remove(at);
                    assert!(state.remove(&path(&format!("/a/{at}"))).await.unwrap());
                }
                9 => assert_eq!(state.value().await.unwrap(), value(&model)),
                10 => state = state.clone(),
                _ => {
                    assert!(state.extend(&path("/b/x"), vec![Value::Null]).await.is_err(), "it isn't a list");
                    assert!(state.extend(&path("/none"), vec![Value::Null]).await.is_err());
                }
            }
            if pick(3) > 0 {
                saved.push((save(&mut log, &mut state).await, value(&model)));
            }
        }
        let run = log.run().clone();
        let store = Arc::clone(log.store());
        for close in [false, true] {
            if close {
                log.close().await.unwrap();
                log = RunLog::open(Arc::clone(&store), &run).await.unwrap();
            }
            for (part, value) in &saved {
                assert_eq!(&log.load(part).await.unwrap(), value, "seed {seed}");
                let mut state = log.state(part);
                assert_eq!(&state.value().await.unwrap(), value, "seed {seed}");
                assert_eq!(part.root, encode(store.hashing(), value).unwrap().root, "seed {seed}");
                state.push(&a, Value::Null).await.unwrap();
            }
        }
    }
}

/// A state that was opened in the middle of a group of entries grows on, in the same run and in another one.
#[tokio::test]
async fn a_state_that_was_appended_to_goes_on_elsewhere() {
    let mut log = new_log().await;
    let mut state = log.new_state(&talk(40)).unwrap();
    for n in 40..48 {
        state.push(&path("/messages"), message(n)).await.unwrap();
        save(&mut log, &mut state).await;
    }
    let part = log.appended_parts().values().next().unwrap().clone();
    // Unchanged and carried on, it keeps its name.
    assert_eq!(save(&mut log, &mut state).await, part);
    let mut log = RunLog::open(Arc::clone(log.store()), log.run()).await.unwrap();
    let mut again = log.state(&part);
    again.push(&path("/messages"), message(48)).await.unwrap();
    let saved = save(&mut log, &mut again).await;
    assert_eq!(log.load(&saved).await.unwrap(), talk(49));

    let mut other = RunLog::create(Arc::clone(log.store()), NewRun::new("other".parse().unwrap(), AT)).await.unwrap();
    let moved = save(&mut other, &mut state).await;
    assert_eq!(moved.root, encode(log.store().hashing(), &talk(48)).unwrap().root);
    let other = RunLog::open(Arc::clone(log.store()), other.run()).await.unwrap();
    assert_eq!(other.load(&moved).await.unwrap(), talk(48));
    assert_eq!(other.entry(Seq(1)).await.unwrap().parts.values().next(), Some(&moved));
}

/// Nodes are written as differences from nodes of the same log, and of no other one.
#[tokio::test]
async fn a_state_that_moved_builds_on_nothing_of_the_run_it_came_from() {
    let mut one = new_log().await;
    one.append(Draft::new(EntryKind::Logged, AT)).await.unwrap();
    let mut other = RunLog::create(Arc::clone(one.store()), NewRun::new("other".parse().unwrap(), AT)).await.unwrap();
    let mut state = one.new_state(&talk(100)).unwrap();
    save(&mut one, &mut state).await;
    save(&mut other, &mut state).await;
    let mut expected = talk(100);
    for n in 0..5_i64 {
        state.set(&path("/messages/0/n"), Value::from(n + 1000)).await.unwrap();
        state.push(&path("/messages"), Value::from(n)).await.unwrap();
        if let Value::Map(map) = &mut expected
            && let Some(Value::List(messages)) = map.get_mut("messages")
        {
            messages.push(Value::from(n));
            if let Value::Map(first) = &mut messages[0] {
                first.insert("n".to_owned(), Value::from(n + 1000));
            }
        }
        let part = save(&mut other, &mut state).await;
        let fresh = RunLog::open(Arc::clone(other.store()), other.run()).await.unwrap();
        assert_eq!(fresh.load(&part).await.unwrap(), expected);
    }
}

/// Lists inside items of lists: where the outer one is cut changes with its items.
#[tokio::test]
async fn a_list_inside_an_item_of_another_grows() {
    let thread =
        |n: u64| Value::map([("about", Value::from(format!("thread {n} ").repeat(20))), ("m", Value::List(vec![]))]);
    let threads = Value::map([("threads", Value::List((0..200).map(thread).collect()))]);
    let mut log = new_log().await;
    let mut state = log.new_state(&threads).unwrap();
    let part = save(&mut log, &mut state).await;
    for item in [3, 17, 60, 199] {
        // Opened anew, so that it has few nodes at hand.
        let mut state = log.state(&part);
        let (list, mut count) = (path(&format!("/threads/{item}/m")), 0);
        for n in 0..40 {
            state.push(&list, message(n)).await.unwrap();
            let saved = save(&mut log, &mut state).await;
            count += 1;
            let loaded = log.state(&saved);
            assert_eq!(loaded.len(&list).await.unwrap(), Some(count));
        }
        assert_eq!(state.root(), encode(log.store().hashing(), &state.value().await.unwrap()).unwrap().root);
    }
}

/// An append whose future was dropped gets there, and what follows goes behind it.
#[tokio::test]
async fn a_dropped_append_is_not_overtaken() {
    let store = Arc::new(CrashStore::new(Arc::new(ObjectStore::in_memory()), Fault::StopBefore(2)));
    let mut log =
        RunLog::create(Arc::clone(&store) as Arc<dyn Store>, NewRun::new("r".parse().unwrap(), AT)).await.unwrap();
    {
        let draft = Draft::new(EntryKind::Logged, AT);
        let dropped = log.append(draft);
        let stopped = async {
            while !store.is_stopped() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { biased; _ = dropped => panic!("it isn't answered"), () = stopped => {} }
    }
    store.let_go_on();
    assert!(log.is_unsettled());
    let behind = log.append(Draft::new(EntryKind::Logged, AT)).await;
    assert!(matches!(behind, Err(StoreError::Conflict { .. })), "{behind:?}");
    assert_eq!(log.refresh().await.unwrap().len(), 1);
    assert_eq!(log.append(Draft::new(EntryKind::Logged, AT)).await.unwrap(), Seq(2));
}
