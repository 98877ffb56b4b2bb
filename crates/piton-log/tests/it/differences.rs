//! Nodes that are stored as differences from those whose places they took.

use std::sync::Arc;

use piton_log::state::State;
use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_store::{Span, Store};
use piton_store_objects::ObjectStore;
use piton_types::{EntryKind, Path, RunId, Seq, Timestamp, Value};

fn store() -> Arc<dyn Store> {
    Arc::new(ObjectStore::in_memory())
}

async fn create(store: &Arc<dyn Store>, id: &str) -> RunLog {
    RunLog::create(Arc::clone(store), NewRun::new(id.parse().unwrap(), Timestamp::from_millis(7))).await.unwrap()
}

async fn save(log: &mut RunLog, state: &mut State) -> Seq {
    let content = Content::State(state);
    let parts = vec![DraftPart { name: "s".into(), schema: "s".into(), version: 1, content }];
    let draft = Draft { parts, ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(7)) };
    log.append(draft).await.unwrap()
}

async fn load(log: &RunLog, seq: Seq) -> Value {
    let entry = log.entry(seq).await.unwrap();
    log.load(entry.parts.values().next().unwrap()).await.unwrap()
}

fn text(n: usize) -> Value {
    Value::from(format!("{n}: {}", "some words that make an item of their own ".repeat(3)))
}

fn messages(count: usize) -> Value {
    Value::map([("messages", Value::List((0..count).map(text).collect()))])
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

/// C4: what one message costs doesn't grow with the conversation.
#[tokio::test(flavor = "current_thread")]
async fn an_appended_message_is_most_of_what_is_stored() {
    let store = store();
    for count in [100, 10_000] {
        let mut log = create(&store, &format!("run-{count}")).await;
        let mut state = State::new(store.hashing(), &messages(count)).unwrap();
        save(&mut log, &mut state).await;
        for n in 0..14 {
            state.push(&path("/messages"), text(count + n)).await.unwrap();
            save(&mut log, &mut state).await;
        }
        let span = Span { from: Seq(2), to: Seq(15), packs: true, ..Span::ALL };
        let packs = store.read(log.run(), span).await.unwrap();
        let mut sizes: Vec<_> = packs.iter().map(|record| record.pack.len()).collect();
        sizes.sort_unstable();
        assert!(sizes[sizes.len() / 2] < 500, "{count}: {sizes:?}");
    }
}

/// A random walk over edits; every checkpoint is loaded from a handle that knows nothing, before and after
/// the log is folded.
#[tokio::test(flavor = "current_thread")]
async fn every_checkpoint_of_a_run_of_edits_loads() {
    let mut seed = 7_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((seed >> 33) % below as u64).unwrap()
    };
    let store = store();
    let mut log = create(&store, "walk").await;
    let run: RunId = log.run().clone();
    let mut value = messages(40);
    let mut state = State::new(store.hashing(), &value).unwrap();
    let mut saved = Vec::new();
    for round in 0..100 {
        for _ in 0..=random(2) {
            let Value::Map(map) = &mut value else { unreachable!() };
            let key = format!("k{}", random(30));
            let list = format!("/messages/{}", random(20));
            let place = list.rsplit('/').next().unwrap().parse::<usize>().unwrap();
            match random(5) {
                0 => {
                    state.set(&path(&format!("/{key}")), text(round)).await.unwrap();
                    map.insert(key, text(round));
                    continue;
                }
                1 => {
                    state.remove(&path(&format!("/{key}"))).await.unwrap();
                    map.remove(&key);
                    continue;
                }
                edit => {
                    let Some(Value::List(items)) = map.get_mut("messages") else { unreachable!() };
                    match edit {
                        2 => {
                            state.push(&path("/messages"), text(round)).await.unwrap();
                            items.push(text(round));
                        }
                        3 => {
                            state.insert(&path(&list), text(round)).await.unwrap();
                            items.insert(place, text(round));
                        }
                        _ => {
                            state.set(&path(&list), text(round)).await.unwrap();
                            items[place] = text(round);
                        }
                    }
                }
            }
        }
        saved.push((save(&mut log, &mut state).await, value.clone()));
    }
    let fresh = RunLog::open(Arc::clone(&store), &run).await.unwrap();
    for (seq, value) in saved.iter().rev() {
        assert_eq!(load(&fresh, *seq).await, *value, "{seq}");
    }
    // A handle that has read some of the tail, and whose neighbours are folded under it.
    let half = RunLog::open(Arc::clone(&store), &run).await.unwrap();
    assert_eq!(load(&half, Seq(100)).await, saved[99].1);
    log.close().await.unwrap();
    assert!(!store.segments(&run).await.unwrap().is_empty());
    let fresh = RunLog::open(Arc::clone(&store), &run).await.unwrap();
    for (seq, value) in saved.iter().rev() {
        assert_eq!(load(&fresh, *seq).await, *value, "{seq} from a segment");
        assert_eq!(load(&half, *seq).await, *value, "{seq} by a handle that was there before");
    }
}

/// A difference needs the entries before it; a state that goes to another run takes all of itself along.
#[tokio::test(flavor = "current_thread")]
async fn a_state_that_moves_between_runs_loads_in_both() {
    let store = store();
    let (mut one, mut other) = (create(&store, "one").await, create(&store, "other").await);
    let mut state = State::new(store.hashing(), &messages(60)).unwrap();
    for n in 60..70 {
        state.push(&path("/messages"), text(n)).await.unwrap();
        let log = if n % 3 == 0 { &mut other } else { &mut one };
        let seq = save(log, &mut state).await;
        let fresh = RunLog::open(Arc::clone(&store), log.run()).await.unwrap();
        assert_eq!(load(&fresh, seq).await, messages(n + 1));
    }
}
