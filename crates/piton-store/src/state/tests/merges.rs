//! Entries that are put into maps: in the tree they are the same as entries that were set, and out of it too.

use std::sync::Arc;

use piton_types::Seq;

use super::super::appended::unwind;
use super::super::load;
use super::edits::{item, model, step};
use super::*;
use crate::{Redaction, RedactionPolicy};

/// A state that is saved in the entries of one log, one after the other.
struct Saved {
    state: State,
    memory: Arc<Memory>,
    seq: u32,
}

impl Saved {
    fn new(hashing: &Hashing, value: &Value) -> Self {
        let memory = Arc::new(Memory::default());
        let mut state = State::new(hashing, value).unwrap();
        state.settle((1, "r".parse().unwrap(), 0), memory.clone());
        let mut saved = Self { state, memory, seq: 0 };
        assert_eq!(saved.save().1, 0);
        saved
    }

    /// What the state is called in the next entry, how many records that takes, and how many nodes are stored.
    fn save(&mut self) -> (BlobId, u32, usize) {
        let group = self.seq / 16;
        let unsaved = self.state.unsaved_in(group);
        let nodes: Vec<_> = unsaved.nodes.into_iter().map(|fresh| (fresh.id, fresh.node)).collect();
        let (count, places) = (nodes.len(), nodes.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        self.memory.store(nodes);
        let place = |id: &BlobId| places.iter().position(|known| known == id).and_then(|at| u32::try_from(at).ok());
        self.state.saved_in(group, Seq(self.seq), place);
        self.seq += 1;
        (unsaved.root, unsaved.appends, count)
    }

    /// The state that was saved under this name, opened anew.
    async fn open(&self, hashing: &Hashing, (root, appends, _): (BlobId, u32, usize)) -> Result<State, StoreError> {
        let mut state = State::open(hashing.clone(), root, Some(self.memory.clone()));
        state.unwind(appends).await?;
        Ok(state)
    }
}

fn entry(key: impl Into<String>, value: impl Into<Value>) -> Vec<(String, Value)> {
    vec![(key.into(), value.into())]
}

fn numbers(count: i64) -> std::collections::BTreeMap<String, Value> {
    (0..count).map(|n| (format!("key {n}"), Value::from(n))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whether entries are put in one by one or together, the tree is the same; in small maps and large ones.
    #[test]
    fn a_merge_is_as_many_sets(
        entries in prop_oneof![0..40_u16, 100..1_100_u16],
        pick in proptest::collection::vec(item(), 1..20),
        merges in proptest::collection::vec(proptest::collection::vec((0..2_000_u16, item()), 0..40), 1..8),
    ) {
        now(async {
            let mut expected = model(0, entries, &pick).value().field("m").unwrap().as_map().unwrap().clone();
            let mut state = State::new(&Hashing::PLAIN, &Value::Map(expected.clone())).unwrap();
            for merge in merges {
                let merge: Vec<_> = merge.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
                expected.extend(merge.clone());
                state.merge(&Path::root(), &merge).await.unwrap();
                assert_eq!(state.root(), root_of(&Value::Map(expected.clone())));
            }
            assert_eq!(state.value().await.unwrap(), Value::Map(expected));
        });
    }

    /// Whatever is done between saves, each of them has the state as it was, however it is stored.
    #[test]
    fn every_save_has_the_state_as_it_was(
        items in prop_oneof![Just(0_usize), 1..40_usize],
        entries in prop_oneof![Just(0_u16), 1..40_u16, 200..400_u16],
        pick in proptest::collection::vec(item(), 1..20),
        steps in proptest::collection::vec((step(), 0..3_u8, 0..4_u8), 1..40),
        key in proptest::option::of(any::<[u8; 32]>()),
    ) {
        now(async {
            let hashing = key.map_or(Hashing::PLAIN, Hashing::keyed);
            let mut model = model(items, entries, &pick);
            let mut saved = Saved::new(&hashing, &model.value());
            let mut names = Vec::new();
            for (step, save, look) in steps {
                model.apply(&mut saved.state, step, entries * 2 + 10).await;
                if save > 0 {
                    names.push((saved.save(), model.value()));
                }
                if look == 0 {
                    assert_eq!(saved.state.root(), encode(&hashing, &model.value()).unwrap().root);
                }
            }
            for (name, value) in names {
                let state = saved.open(&hashing, name).await.unwrap();
                assert_eq!(state.root(), encode(&hashing, &value).unwrap().root);
                assert!(state.value().await.unwrap() == value);
                assert!(unwind(load(&*saved.memory, name.0).await.unwrap(), name.1).unwrap() == value);
            }
        });
    }
}

/// In a group of entries a save has one node, and the next group begins with the tree.
#[tokio::test]
async fn a_save_of_one_entry_stores_one_node() {
    for (at, inside) in [("", false), ("/inside", true)] {
        for before in [3, 60, 200] {
            let mut expected = numbers(before);
            let value = |map: &std::collections::BTreeMap<String, Value>| match inside {
                true => Value::map([("inside", Value::Map(map.clone()))]),
                false => Value::Map(map.clone()),
            };
            let mut saved = Saved::new(&Hashing::PLAIN, &value(&expected));
            for n in 1..40 {
                // A new one, and one that is there already.
                let (key, other) = (format!("new {n}"), "key 1".to_owned());
                let entries = [(key, Value::from(n)), (other, Value::from(n * 1000))];
                let count = if n % 2 == 0 { 1 } else { 2 };
                expected.extend(entries[..count].to_vec());
                saved.state.merge(&path(at), &entries[..count]).await.unwrap();
                let name = saved.save();
                assert_eq!(name.1, u32::try_from(n % 16).unwrap());
                assert!(name.1 == 0 || name.2 == 1, "{} nodes in save {n}", name.2);
                let opened = saved.open(&Hashing::PLAIN, name).await.unwrap();
                assert_eq!(opened.root(), root_of(&value(&expected)), "save {n}");
            }
            assert_eq!(saved.state.root(), root_of(&value(&expected)));
        }
    }
}

/// What is replaced before it is saved isn't stored, and neither is anything that only it needed.
#[tokio::test]
async fn what_is_replaced_before_it_is_saved_leaves_nothing() {
    let mut saved = Saved::new(&Hashing::PLAIN, &Value::Map(numbers(20)));
    saved.state.merge(&Path::root(), &entry("a", prose(1, 500))).await.unwrap();
    saved.state.merge(&Path::root(), &entry("b", 1)).await.unwrap();
    saved.state.merge(&Path::root(), &entry("a", prose(2, 500))).await.unwrap();
    let gone = Hashing::PLAIN.blob(&encode(&Hashing::PLAIN, &Value::from(prose(1, 500))).unwrap().nodes[0].1);
    let name = saved.save();
    assert!(!saved.memory.nodes.lock().unwrap().contains_key(&gone));
    let mut expected = numbers(20);
    expected.extend(entry("a", prose(2, 500)).into_iter().chain(entry("b", 1)));
    assert_eq!(saved.open(&Hashing::PLAIN, name).await.unwrap().root(), root_of(&Value::Map(expected)));
}

/// A value that may have to vanish is set: then the next save doesn't lead to what was there before.
#[tokio::test]
async fn what_is_set_is_not_behind_a_record() {
    let mut saved = Saved::new(&Hashing::PLAIN, &Value::Map(numbers(20)));
    saved.state.merge(&Path::root(), &entry("a", "secret")).await.unwrap();
    assert_eq!(saved.save().1, 1);
    saved.state.set(&path("/a"), Value::Null).await.unwrap();
    let (root, appends, _) = saved.save();
    assert_eq!((root, appends), (saved.state.root(), 0));
}

/// By the names of their keys and by what is in them, in a record as in the tree.
#[tokio::test]
async fn secrets_are_taken_out_of_what_is_merged() {
    let policy = RedactionPolicy::default().with_secret("HORSE", "correct horse").with_name("shoe_size");
    let redaction = Arc::new(Redaction::new(&policy).unwrap());
    let new = || State::redacted(&Hashing::PLAIN, Some(&redaction), &Value::Map(numbers(3))).unwrap();
    let entries = [("shoe_size", "forty-two and a half"), ("said", "it was correct horse"), ("plain", "text")];
    let entries = entries.map(|(key, value)| (key.to_owned(), Value::from(value)));
    let mut expected = new();
    for (key, value) in entries.clone() {
        expected.set(&Path::root().key(key), value).await.unwrap();
    }
    for is_saved in [false, true] {
        let mut saved = Saved { state: new(), memory: Arc::default(), seq: 0 };
        if is_saved {
            saved.state.settle((1, "r".parse().unwrap(), 0), saved.memory.clone());
            saved.save();
        }
        saved.state.merge(&Path::root(), &entries).await.unwrap();
        let (_, appends, _) = saved.save();
        assert_eq!(appends, u32::from(is_saved));
        for node in saved.memory.nodes.lock().unwrap().values() {
            let text = String::from_utf8_lossy(node);
            assert!(!text.contains("correct horse") && !text.contains("forty-two"), "{text}");
        }
        assert_eq!(saved.state.root(), expected.root());
    }
}

/// Entries whose keys or values don't fit into a record, too many of them, and maps that are too large for it.
#[tokio::test]
async fn what_does_not_fit_is_stored_all_the_same() {
    let mut expected = numbers(30);
    let mut saved = Saved::new(&Hashing::PLAIN, &Value::Map(expected.clone()));
    let long = "long key ".repeat(30);
    let merges = [
        entry(long.clone(), 1),
        entry(long.clone(), prose(3, 9_000)),
        // The entry as a map of its own is a value of another one.
        vec![(long.clone(), Value::from(7)), ("a".to_owned(), Value::map([(long, Value::from(7))]))],
        (0..32).map(|n| (format!("many {n}"), message(n))).collect(),
        (0..33).map(|n| (format!("more {n}"), message(n))).collect(),
        (0..900_u64).map(|n| (format!("far more {n}"), Value::from(n))).collect(),
        entry("a", 1),
        entry("b", 2),
    ];
    let mut appends = Vec::new();
    for merge in merges {
        expected.extend(merge.clone());
        saved.state.merge(&Path::root(), &merge).await.unwrap();
        let name = saved.save();
        appends.push(name.1);
        let opened = saved.open(&Hashing::PLAIN, name).await.unwrap();
        assert_eq!(opened.root(), root_of(&Value::Map(expected.clone())));
        assert!(unwind(load(&*saved.memory, name.0).await.unwrap(), name.1).unwrap() == Value::Map(expected.clone()));
    }
    assert_eq!(appends, [1, 2, 3, 4, 0, 0, 0, 0]);
}

/// A list and a map take turns: what is deferred is of one of them.
#[tokio::test]
async fn another_place_makes_the_tree_first() {
    let value = Value::map([("l", Value::List(vec![])), ("m", Value::map([("k", Value::Null)]))]);
    let mut saved = Saved::new(&Hashing::PLAIN, &value);
    let names = [
        (saved.state.merge(&path("/m"), &entry("a", 1)).await, saved.save()),
        (saved.state.merge(&Path::root(), &entry("a", 1)).await, saved.save()),
        (saved.state.merge(&Path::root(), &entry("b", 1)).await, saved.save()),
        (saved.state.push(&path("/l"), Value::from(1)).await, saved.save()),
        (saved.state.push(&path("/l"), Value::from(2)).await, saved.save()),
        (
            saved.state.merge(&path("/l"), &entry("a", 1)).await.map_err(drop).map_or(Ok(()), |()| panic!()),
            saved.save(),
        ),
        (saved.state.merge(&path("/m"), &Vec::<(String, Value)>::new()).await, saved.save()),
    ];
    assert_eq!(names.map(|(done, (_, appends, _))| done.map(|()| appends).unwrap()), [1, 0, 1, 0, 1, 0, 0]);
    let all = Value::map([
        ("a", Value::from(1)),
        ("b", Value::from(1)),
        ("l", Value::List(vec![Value::from(1), Value::from(2)])),
        ("m", Value::map([("a", Value::from(1)), ("k", Value::Null)])),
    ]);
    assert_eq!(saved.state.value().await.unwrap(), all);
}

/// Promise 21.
#[tokio::test]
async fn records_that_nobody_wrote_are_refused() {
    let map = || Value::map([("a", Value::from(1)), ("t", Value::from("text"))]);
    let one = || Value::map([("b", Value::from(1))]);
    let bad = [
        (map(), "", vec![Value::Null]),
        (map(), "", vec![one(), Value::List(vec![])]),
        (map(), "", vec![Value::map::<&str>([])]),
        (map(), "", vec![Value::map([("b", Value::from(1)), ("c", Value::from(1))])]),
        (map(), "", vec![Value::Map(numbers(300))]),
        (map(), "", vec![Value::from(prose(1, 200))]),
        (map(), "/t", vec![one()]),
        (map(), "/none", vec![one()]),
        (map(), "/a/b", vec![one()]),
        (Value::Null, "", vec![one()]),
    ];
    for (before, at, items) in bad {
        let record = Value::List([vec![before.clone(), Value::from(at)], items].concat());
        let (memory, root) = Memory::of(&record);
        memory.add(&before);
        let mut state = State::open(Hashing::PLAIN, root, Some(Arc::new(memory)));
        let refused = state.unwind(1).await;
        assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{record:?}: {refused:?}");
        assert!(matches!(unwind(record, 1), Err(StoreError::Corrupt { .. })));
    }
    // A list takes any item.
    let list = Value::List(vec![Value::Null]);
    let (memory, root) = Memory::of(&Value::List(vec![list.clone(), Value::from(""), one()]));
    memory.add(&list);
    let mut state = State::open(Hashing::PLAIN, root, Some(Arc::new(memory)));
    state.unwind(1).await.unwrap();
    assert_eq!(state.value().await.unwrap(), Value::List(vec![Value::Null, one()]));
}
