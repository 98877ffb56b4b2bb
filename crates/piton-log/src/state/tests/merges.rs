//! Entries that are merged into maps: the tree is the same as if each had been set.

use std::sync::Arc;

use piton_types::Seq;

use super::super::load;
use super::edits::{item, model, step};
use super::*;
use piton_store::{Redaction, RedactionPolicy};

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
        saved.save();
        saved
    }

    /// Stores what the next entry has of the state, and gives its root.
    fn save(&mut self) -> BlobId {
        let group = self.seq / 16;
        let unsaved = self.state.unsaved_in(group);
        let nodes: Vec<_> = unsaved.into_iter().map(|fresh| (fresh.id, fresh.node)).collect();
        let places = nodes.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        self.memory.store(nodes);
        let place = |id: &BlobId| places.iter().position(|known| known == id).and_then(|at| u32::try_from(at).ok());
        self.state.saved_in(group, Seq(self.seq), place);
        self.seq += 1;
        self.state.root()
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

    /// Whatever is done between saves, each of them has the state as it was.
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
            for (root, value) in names {
                assert_eq!(root, encode(&hashing, &value).unwrap().root);
                let state = State::open(hashing.clone(), root, Some(saved.memory.clone()));
                assert!(state.value().await.unwrap() == value);
                assert!(load(&*saved.memory, root).await.unwrap() == value);
            }
        });
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
    let root = saved.save();
    assert!(!saved.memory.nodes.lock().unwrap().contains_key(&gone));
    let mut expected = numbers(20);
    expected.extend(entry("a", prose(2, 500)).into_iter().chain(entry("b", 1)));
    assert_eq!(root, root_of(&Value::Map(expected)));
}

/// By the names of their keys and by what is in them.
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
        saved.save();
        for node in saved.memory.nodes.lock().unwrap().values() {
            let text = String::from_utf8_lossy(node);
            assert!(!text.contains("correct horse") && !text.contains("forty-two"), "{text}");
        }
        assert_eq!(saved.state.root(), expected.root());
    }
}

/// Long keys, long values, many entries at once, and maps that are too large to be gone through.
#[tokio::test]
async fn merges_of_any_size_are_stored() {
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
    for merge in merges {
        expected.extend(merge.clone());
        saved.state.merge(&Path::root(), &merge).await.unwrap();
        let root = saved.save();
        assert_eq!(root, root_of(&Value::Map(expected.clone())));
        assert!(load(&*saved.memory, root).await.unwrap() == Value::Map(expected.clone()));
    }
}
