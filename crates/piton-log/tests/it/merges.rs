//! Maps that entries are merged into: a checkpoint's part is the root of its value, and a save stores little more than
//! what is new.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_log::state::encode;
use piton_log::{NewRun, RunLog};
use piton_store::Span;
use piton_testing::SeededRandom;
use piton_types::{Path, Value};

use crate::growing::{AT, new_log, path, save};

type Entries = BTreeMap<String, Value>;

/// What a node of a workflow gives.
fn output(n: u64) -> Value {
    Value::map([("output", Value::from(format!("what node {n} gave ").repeat(20)))])
}

fn outputs(count: u64) -> Entries {
    (0..count).map(|n| (format!("node {n}"), output(n))).collect()
}

/// Forty saves with a merge each have what was put in and little more, and every one of them is read as it was, through
/// the handle that wrote it and through a new one.
#[tokio::test]
async fn a_checkpoint_of_a_map_has_what_was_put_in() {
    let mut log = new_log().await;
    let mut state = log.new_state(&Value::Map(outputs(30))).unwrap();
    save(&mut log, &mut state).await;
    let length = output(30).field("output").and_then(Value::as_str).unwrap().len();
    let (mut expected, mut saved, mut bytes) = (outputs(30), Vec::new(), 0);
    for n in 30..70 {
        let merged = vec![(format!("node {n}"), output(n)), ("last".to_owned(), Value::from(n))];
        expected.extend(merged.clone());
        state.merge(&Path::root(), &merged).await.unwrap();
        let part = save(&mut log, &mut state).await;
        let seq = log.head().seq;
        let span = Span { from: seq, to: seq, packs: true, ..Span::ALL };
        bytes += log.store().read(log.run(), span).await.unwrap()[0].pack.len();
        saved.push((part, Value::Map(expected.clone())));
    }
    assert!(bytes < 40 * (length + 900), "{} bytes in each entry for an output of {length}", bytes / 40);
    let again = RunLog::open(Arc::clone(log.store()), log.run()).await.unwrap();
    for (part, value) in &saved {
        for log in [&log, &again] {
            assert_eq!(&log.load(part).await.unwrap(), value);
            let state = log.state(part);
            assert_eq!(part.root, encode(log.store().hashing(), value).unwrap().root);
            assert_eq!(&state.value().await.unwrap(), value);
        }
    }
}

/// A state that was opened in the middle of a group of entries grows on, in the same run and in another one.
#[tokio::test]
async fn a_state_that_was_merged_into_goes_on_elsewhere() {
    let mut log = new_log().await;
    let mut state = log.new_state(&Value::map([("m", Value::Map(outputs(40)))])).unwrap();
    save(&mut log, &mut state).await;
    for n in 40..48 {
        state.merge(&path("/m"), &[(format!("node {n}"), output(n))]).await.unwrap();
        save(&mut log, &mut state).await;
    }
    let part = log.appended_parts().values().next().unwrap().clone();
    // Unchanged and carried on, it keeps its name.
    assert_eq!(save(&mut log, &mut state).await, part);
    let mut log = RunLog::open(Arc::clone(log.store()), log.run()).await.unwrap();
    let mut again = log.state(&part);
    again.merge(&path("/m"), &[("node 48".to_owned(), output(48))]).await.unwrap();
    let saved = save(&mut log, &mut again).await;
    assert_eq!(log.load(&saved).await.unwrap(), Value::map([("m", Value::Map(outputs(49)))]));

    let mut other = RunLog::create(Arc::clone(log.store()), NewRun::new("other".parse().unwrap(), AT)).await.unwrap();
    let moved = save(&mut other, &mut state).await;
    let expected = Value::map([("m", Value::Map(outputs(48)))]);
    assert_eq!(moved.root, encode(log.store().hashing(), &expected).unwrap().root);
    let other = RunLog::open(Arc::clone(log.store()), other.run()).await.unwrap();
    assert_eq!(other.load(&moved).await.unwrap(), expected);
}

/// Merges among other edits, looks, copies and saves in any order: every checkpoint is what the state was.
#[tokio::test]
async fn whatever_is_done_between_merges_is_saved() {
    for seed in 0..12 {
        let random = SeededRandom::new(seed);
        let pick = |below: u64| random.next_u64() % below;
        let mut log = new_log().await;
        let (mut top, mut list) = (outputs(pick(120)), Vec::new());
        let value = |top: &Entries, list: &Vec<Value>| {
            let mut all = top.clone();
            all.insert("list".to_owned(), Value::List(list.clone()));
            Value::Map(all)
        };
        let mut state = log.new_state(&value(&top, &list)).unwrap();
        let mut saved = Vec::new();
        for n in 0..120 {
            match pick(20) {
                0..=12 => {
                    let many: Vec<_> = (0..pick(3)).map(|_| (format!("node {}", pick(150)), output(n))).collect();
                    top.extend(many.clone());
                    state.merge(&Path::root(), &many).await.unwrap();
                }
                13 => {
                    let many: Vec<_> = (0..pick(60)).map(|_| (format!("node {}", pick(150)), output(n))).collect();
                    top.extend(many.clone());
                    state.merge(&Path::root(), &many).await.unwrap();
                }
                14 => {
                    top.insert("set".to_owned(), Value::from(n));
                    state.set(&path("/set"), Value::from(n)).await.unwrap();
                }
                15 => {
                    let key = format!("node {}", pick(150));
                    let there = top.remove(&key).is_some();
                    assert_eq!(state.remove(&Path::root().key(key)).await.unwrap(), there);
                }
                16 => {
                    list.push(Value::from(n));
                    state.push(&path("/list"), Value::from(n)).await.unwrap();
                }
                17 => assert_eq!(state.value().await.unwrap(), value(&top, &list)),
                18 => state = state.clone(),
                _ => assert!(state.merge(&path("/list"), &[("a".to_owned(), Value::Null)]).await.is_err()),
            }
            if pick(4) > 0 {
                saved.push((save(&mut log, &mut state).await, value(&top, &list)));
            }
        }
        let again = RunLog::open(Arc::clone(log.store()), log.run()).await.unwrap();
        for (part, value) in &saved {
            assert_eq!(&again.load(part).await.unwrap(), value, "seed {seed}");
            assert_eq!(part.root, encode(log.store().hashing(), value).unwrap().root, "seed {seed}");
        }
    }
}
