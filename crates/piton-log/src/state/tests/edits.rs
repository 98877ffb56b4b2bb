//! Whatever edits lead to a value, its root is that of the value encoded at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::grammar::{Reader, reference_offsets};
use super::super::load;
use super::*;

/// One edit of the list `/xs` or the map `/m` of a state.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Push(Value),
    Extend(Vec<Value>),
    Insert(u16, Value),
    SetItem(u16, Value),
    RemoveItem(u16),
    Put(u16, Value),
    Merge(Vec<(u16, Value)>),
    Take(u16),
    Append(String),
    Replace(Value),
}

/// Items of which many are equal, many stand inside their parent, and some don't.
pub(super) fn item() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0..4_u64).prop_map(Value::from),
        3 => (0..100_000_u64).prop_map(Value::from),
        1 => Just(Value::List(vec![])),
        3 => (0..20_u64).prop_map(message),
        1 => (0..9_u64).prop_map(|n| Value::from(prose(n, 90 + n as usize))),
        1 => (0..9_u64).prop_map(|n| Value::from(prose(n, 9_000))),
    ]
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => item().prop_map(Step::Push),
        1 => proptest::collection::vec(item(), 0..300).prop_map(Step::Extend),
        3 => (any::<u16>(), item()).prop_map(|(at, value)| Step::Insert(at, value)),
        3 => (any::<u16>(), item()).prop_map(|(at, value)| Step::SetItem(at, value)),
        5 => any::<u16>().prop_map(Step::RemoveItem),
        5 => (any::<u16>(), item()).prop_map(|(key, value)| Step::Put(key, value)),
        3 => proptest::collection::vec((any::<u16>(), item()), 0..4).prop_map(Step::Merge),
        1 => proptest::collection::vec((any::<u16>(), item()), 0..60).prop_map(Step::Merge),
        4 => any::<u16>().prop_map(Step::Take),
        2 => (any::<u32>(), 0..6_000_usize).prop_map(|(seed, len)| Step::Append(prose(seed.into(), len))),
        1 => item().prop_map(Step::Replace),
    ]
}

/// The state as a plain value.
#[derive(Clone)]
pub(super) struct Model {
    items: Vec<Value>,
    entries: std::collections::BTreeMap<String, Value>,
    text: String,
    other: Value,
}

impl Model {
    pub(super) fn value(&self) -> Value {
        Value::map([
            ("xs", Value::List(self.items.clone())),
            ("m", Value::Map(self.entries.clone())),
            ("deep", Value::List(vec![Value::Null, Value::map([("text", Value::from(self.text.as_str()))])])),
            ("other", self.other.clone()),
        ])
    }

    /// The same edit on both.
    pub(super) async fn apply(&mut self, state: &mut State, step: Step, keys: u16) {
        let (xs, m) = (path("/xs"), path("/m"));
        let within = |at: u16, len: usize| usize::from(at) * len / (usize::from(u16::MAX) + 1);
        match step {
            Step::Push(value) => {
                self.items.push(value.clone());
                state.push(&xs, value).await.unwrap();
            }
            Step::Extend(values) => {
                self.items.extend(values.clone());
                state.extend(&xs, values).await.unwrap();
            }
            Step::Insert(at, value) => {
                let at = within(at, self.items.len() + 1);
                self.items.insert(at, value.clone());
                state.insert(&xs.index(at), value).await.unwrap();
            }
            Step::SetItem(at, value) => {
                let at = within(at, self.items.len() + 1);
                if at == self.items.len() {
                    self.items.push(value.clone());
                } else {
                    self.items[at] = value.clone();
                }
                state.set(&xs.index(at), value).await.unwrap();
            }
            Step::RemoveItem(at) => {
                let at = within(at, self.items.len() + 1);
                let there = at < self.items.len();
                if there {
                    self.items.remove(at);
                }
                assert_eq!(state.remove(&xs.index(at)).await.unwrap(), there);
            }
            Step::Put(key, value) => {
                let key = format!("{}", key % keys);
                self.entries.insert(key.clone(), value.clone());
                state.set(&m.key(key), value).await.unwrap();
            }
            Step::Merge(entries) => {
                let entries: Vec<_> =
                    entries.into_iter().map(|(key, value)| (format!("{}", key % keys), value)).collect();
                self.entries.extend(entries.clone());
                state.merge(&m, &entries).await.unwrap();
            }
            Step::Take(key) => {
                let key = format!("{}", key % keys);
                let there = self.entries.remove(&key).is_some();
                assert_eq!(state.remove(&m.key(key)).await.unwrap(), there);
            }
            Step::Append(text) => {
                self.text.push_str(&text);
                state.append_text(&path("/deep/1/text"), &text).await.unwrap();
            }
            Step::Replace(value) => {
                self.other = value.clone();
                state.set(&path("/other"), value).await.unwrap();
            }
        }
    }
}

pub(super) fn model(items: usize, entries: u16, pick: &[Value]) -> Model {
    let mut next = noise(items as u64);
    let mut value = || pick[next() as usize % pick.len()].clone();
    Model {
        items: (0..items).map(|_| value()).collect(),
        entries: (0..entries).map(|n| (n.to_string(), value())).collect(),
        text: String::new(),
        other: Value::Null,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn roots_do_not_depend_on_history(
        items in prop_oneof![Just(0_usize), 1..40_usize, 500..2_000_usize],
        entries in prop_oneof![Just(0_u16), 1..40_u16, 500..1_500_u16],
        pick in proptest::collection::vec(item(), 1..40),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        now(async {
            let mut model = model(items, entries, &pick);
            let mut state = State::new(&Hashing::PLAIN, &model.value()).unwrap();
            for step in steps {
                let shown = format!("{step:?}");
                model.apply(&mut state, step, entries * 2 + 10).await;
                assert_eq!(state.root(), root_of(&model.value()), "after {}", &shown[..shown.len().min(200)]);
            }
            assert!(state.value().await.unwrap() == model.value());
        });
    }

    /// What an edit made and no edit has replaced since is unsaved, in whatever order edits and saves come.
    #[test]
    fn what_is_unsaved_is_in_use(
        items in prop_oneof![Just(0_usize), 1..40_usize, 500..2_000_usize],
        entries in prop_oneof![Just(0_u16), 1..40_u16, 500..1_500_u16],
        pick in proptest::collection::vec(item(), 1..40),
        steps in proptest::collection::vec((step(), any::<bool>()), 1..40),
    ) {
        now(async {
            let mut model = model(items, entries, &pick);
            let mut state = State::new(&Hashing::PLAIN, &model.value()).unwrap();
            for (step, save) in steps {
                model.apply(&mut state, step, entries * 2 + 10).await;
                reached(&state);
                if save {
                    state.saved();
                    assert_eq!(reached(&state), 0);
                }
            }
            assert!(state.value().await.unwrap() == model.value());
        });
    }

    /// The same with everything stored after each edit, and nothing in memory before the next.
    #[test]
    fn a_cold_state_is_edited_alike(
        items in prop_oneof![Just(0_usize), 1..40_usize, 500..1_000_usize],
        pick in proptest::collection::vec(item(), 1..20),
        steps in proptest::collection::vec(step(), 1..15),
        key in proptest::option::of(any::<[u8; 32]>()),
    ) {
        now(async {
            let hashing = key.map_or(Hashing::PLAIN, Hashing::keyed);
            let mut model = model(items, 300, &pick);
            let memory = Arc::new(Memory::default());
            let mut state = State::new(&hashing, &model.value()).unwrap();
            for step in steps {
                memory.store(state.unsaved());
                state = State::open(hashing.clone(), state.root(), Some(memory.clone()));
                model.apply(&mut state, step, 600).await;
                assert_eq!(state.root(), encode(&hashing, &model.value()).unwrap().root);
                assert!(state.value().await.unwrap() == model.value());
                assert_eq!(state.len(&path("/xs")).await.unwrap(), Some(model.items.len()));
                assert_eq!(state.len(&path("/m")).await.unwrap(), Some(model.entries.len()));
                assert_eq!(state.get(&path("/xs/7")).await.unwrap().as_ref(), model.items.get(7));
                assert_eq!(state.get(&path("/m/7")).await.unwrap().as_ref(), model.entries.get("7"));
            }
        });
    }
}

/// Lists and maps that shrink to nothing and grow again, one by one.
#[tokio::test]
async fn trees_shrink_and_grow_level_by_level() {
    let mut next = noise(3);
    let items: [fn(u64) -> Value; 3] = [|_| Value::from(1), |n| Value::from(n % 7), |n| message(n % 50)];
    for item in items {
        let mut state = State::new(&Hashing::PLAIN, &Value::List(vec![])).unwrap();
        let mut items: Vec<Value> = Vec::new();
        for n in 0..400 {
            items.push(item(n));
            state.push(&Path::root(), item(n)).await.unwrap();
            assert_eq!(state.root(), root_of(&Value::List(items.clone())));
        }
        while !items.is_empty() {
            let at = next() as usize % items.len();
            items.remove(at);
            assert!(state.remove(&Path::root().index(at)).await.unwrap());
            assert_eq!(state.root(), root_of(&Value::List(items.clone())));
        }
        assert_eq!(state.root(), root_of(&Value::List(vec![])));
    }
    let mut entries = std::collections::BTreeMap::new();
    let mut state = State::new(&Hashing::PLAIN, &Value::Map(entries.clone())).unwrap();
    for step in 0..1_500 {
        let key = format!("{}", next() % 400);
        if next() % 3 < if step < 900 { 2 } else { 1 } {
            entries.insert(key.clone(), Value::from(step));
            state.set(&Path::root().key(key), Value::from(step)).await.unwrap();
        } else {
            let there = entries.remove(&key).is_some();
            assert_eq!(state.remove(&Path::root().key(key)).await.unwrap(), there);
        }
        assert_eq!(state.root(), root_of(&Value::Map(entries.clone())));
    }
}

#[tokio::test]
async fn a_push_saves_a_few_nodes_and_all_that_is_needed() {
    let mut items: Vec<_> = (0..2_000).map(message).collect();
    let value = |items: &[Value]| Value::map([("turn", Value::from(1)), ("messages", Value::List(items.to_vec()))]);
    let (memory, root) = Memory::of(&value(&items));
    let memory = Arc::new(memory);
    let mut state = State::open(Hashing::PLAIN, root, Some(memory.clone()));
    for n in 2_000..2_100 {
        items.push(message(n));
        state.push(&path("/messages"), message(n)).await.unwrap();
        let unsaved = state.unsaved();
        assert!(unsaved.len() <= 8, "{}", unsaved.len());
        assert!(memory.fetched() <= 8);
        let known = memory.nodes.lock().unwrap().clone();
        for (at, (_, node)) in unsaved.iter().enumerate() {
            for child in reference_offsets(node).unwrap() {
                let child = Reader::at(node, child).id().unwrap();
                assert!(known.contains_key(&child) || unsaved[..at].iter().any(|(id, _)| *id == child));
            }
        }
        memory.store(unsaved);
        state.saved();
        assert!(state.unsaved().is_empty());
    }
    assert_eq!(state.root(), root_of(&value(&items)));
    assert!(load(&*memory, state.root()).await.unwrap() == value(&items));
    memory.fetched();
    assert_eq!(state.get(&path("/turn")).await.unwrap(), Some(Value::from(1)));
    assert_eq!(state.get(&path("/messages/1000/role")).await.unwrap(), Some(Value::from("assistant")));
    assert!(memory.fetched() <= 8, "only the way there is loaded");
}

#[tokio::test]
async fn appending_to_a_long_text_stores_its_end_only() {
    let mut text = prose(1, 300_000);
    let (memory, root) = Memory::of(&Value::List(vec![Value::from(text.as_str())]));
    let memory = Arc::new(memory);
    let mut state = State::open(Hashing::PLAIN, root, Some(memory.clone()));
    for n in 0..50 {
        let more = format!("{} ä", prose(n, 100));
        text.push_str(&more);
        state.append_text(&path("/0"), &more).await.unwrap();
        let unsaved = state.unsaved();
        let bytes: usize = unsaved.iter().map(|(_, node)| node.len()).sum();
        assert!(bytes < 24_000, "{bytes}");
        assert!(memory.fetched() <= 6);
        memory.store(unsaved);
        state.saved();
    }
    assert_eq!(state.root(), root_of(&Value::List(vec![Value::from(text)])));
}

#[tokio::test]
async fn a_text_grows_across_every_form() {
    let mut state = State::new(&Hashing::PLAIN, &Value::from("")).unwrap();
    let mut text = String::new();
    for n in 0..400 {
        let more = prose(n, 37);
        text.push_str(&more);
        state.append_text(&Path::root(), &more).await.unwrap();
        assert_eq!(state.root(), root_of(&Value::from(text.as_str())));
    }
    state.append_text(&Path::root(), "").await.unwrap();
    assert_eq!(state.value().await.unwrap(), Value::from(text));
}

#[tokio::test]
async fn what_cannot_be_done_is_said_and_changes_nothing() {
    let value = Value::map([("a", Value::from(vec![Value::from(1)])), ("s", Value::from("text"))]);
    let mut state = State::new(&Hashing::PLAIN, &value).unwrap();
    let errors = [
        state.set(&path("/b/c/d"), Value::Null).await,
        state.set(&path("/a/2"), Value::Null).await,
        state.push(&path("/b"), Value::Null).await,
        state.set(&path("/a/x"), Value::Null).await,
        state.set(&path("/s/x"), Value::Null).await,
        state.push(&path("/s"), Value::Null).await,
        state.append_text(&path("/a"), "x").await,
        state.insert(&path("/k"), Value::Null).await,
        state.insert(&path(""), Value::Null).await,
        state.remove(&path("")).await.map(drop),
        state.merge(&path("/b/c"), &[("d".to_owned(), Value::Null)]).await,
        state.merge(&path("/a"), &[("x".to_owned(), Value::Null)]).await,
        state.merge(&path("/s"), &[("x".to_owned(), Value::Null)]).await,
    ]
    .map(|result| result.unwrap_err().to_string());
    assert_eq!(
        errors,
        [
            r#"path "/b" of the state doesn't exist"#,
            r#"path "/a/2" of the state doesn't exist"#,
            r#"path "/b" of the state doesn't exist"#,
            r#"path "/a/x" of the state is not valid: a list has indexes, not keys"#,
            r#"path "/s/x" of the state is not valid: it leads into a value that has no parts"#,
            r#"path "/s" of the state is not valid: it isn't a list"#,
            r#"path "/a" of the state is not valid: it isn't a string"#,
            r#"path "/k" of the state is not valid: only a list can be inserted into"#,
            r#"path "" of the state is not valid: the whole state can only be replaced"#,
            r#"path "" of the state is not valid: the whole state can only be replaced"#,
            r#"path "/b" of the state doesn't exist"#,
            r#"path "/a/x" of the state is not valid: a list has indexes, not keys"#,
            r#"path "/s/x" of the state is not valid: it leads into a value that has no parts"#,
        ]
    );
    for gone in ["/b/c", "/a/1", "/a/x", "/s/x"] {
        assert!(!state.remove(&path(gone)).await.unwrap());
        assert_eq!(state.get(&path(gone)).await.unwrap(), None);
        assert_eq!(state.len(&path(gone)).await.unwrap(), None);
    }
    assert_eq!(state.len(&path("/s")).await.unwrap(), None);
    assert_eq!(state.root(), root_of(&value));
    assert_eq!(state.value().await.unwrap(), value);
}

#[tokio::test]
async fn the_whole_state_is_replaced_at_the_empty_path() {
    let mut state = State::new(&Hashing::PLAIN, &message(1)).unwrap();
    state.set(&Path::root(), Value::Null).await.unwrap();
    assert_eq!((state.root(), state.unsaved().len()), (root_of(&Value::Null), 1));
    state.set(&Path::root(), message(2)).await.unwrap();
    assert_eq!(state.value().await.unwrap(), message(2));
}

/// A state that was never told where its nodes went still has them.
#[tokio::test]
async fn a_state_without_a_source_keeps_what_is_saved() {
    let value = Value::List((0..200).map(message).collect());
    let mut state = State::new(&Hashing::PLAIN, &value).unwrap();
    let memory = Arc::new(Memory::default());
    memory.store(state.unsaved());
    state.saved();
    assert!(state.unsaved().is_empty());
    assert!(state.value().await.unwrap() == value);
    state.set_source(memory.clone());
    assert!(state.value().await.unwrap() == value);
    assert!(memory.fetched() >= 200, "and lets go of them once it is");
}

/// Between two saves the store may have collected what the state didn't have any more.
#[tokio::test]
async fn what_left_the_state_is_saved_again_when_it_comes_back() {
    let list = |n: u64| Value::List((0..100).map(|item| Value::from(item * n)).collect());
    let mut state = State::new(&Hashing::PLAIN, &Value::map([("a", list(1))])).unwrap();
    let memory = Arc::new(Memory::default());
    state.set_source(memory.clone());
    for n in [1, 2, 1] {
        for item in 0..100 {
            state.set(&path("/a").index(item), Value::from(item as u64 * n)).await.unwrap();
        }
        memory.store(state.unsaved());
        state.saved();
        if n == 2 {
            let new = encode(&Hashing::PLAIN, &Value::map([("a", list(2))])).unwrap().nodes;
            memory.nodes.lock().unwrap().retain(|id, _| new.iter().any(|(kept, _)| kept == id));
        }
        assert!(load(&*memory, state.root()).await.unwrap() == Value::map([("a", list(n))]));
    }
}

/// Edits leave nodes behind; without saves those must not pile up.
#[tokio::test]
async fn what_edits_leave_behind_is_dropped() {
    let mut state = State::new(&Hashing::PLAIN, &Value::List((0..500).map(message).collect())).unwrap();
    let before = state.clone();
    for n in 0..5_000 {
        state.set(&Path::root().index(n % 500), message(n as u64)).await.unwrap();
    }
    assert!(format!("{state:?}").len() < 200);
    assert!(state.held() < 4_000_000, "{} bytes are held", state.held());
    assert_eq!(state.root(), root_of(&Value::List((4_500..5_000).map(message).collect())));
    assert_eq!(before.value().await.unwrap().as_list().unwrap().len(), 500, "a clone goes its own way");
}

#[tokio::test]
async fn damaged_and_absent_nodes_are_told_apart() {
    let value = Value::List((0..200).map(message).collect());
    let (memory, root) = Memory::of(&value);
    let absent = State::open(Hashing::PLAIN, BlobId::new([1; 32]), None);
    assert!(matches!(absent.value().await, Err(StoreError::NotFound { .. })));
    memory.nodes.lock().unwrap().values_mut().for_each(|node| {
        let mut bytes = node.to_vec();
        if bytes[0] == 0x06 {
            bytes[50] ^= 1;
        }
        *node = bytes.into();
    });
    let state = State::open(Hashing::PLAIN, root, Some(Arc::new(memory)));
    assert_eq!(state.len(&Path::root()).await.unwrap(), Some(200));
    assert!(matches!(state.get(&path("/3")).await, Err(StoreError::Corrupt { .. })));
}

/// How many nodes are unsaved: those that the root reaches, each after what it refers to, and no others.
fn reached(state: &State) -> usize {
    let unsaved = state.unsaved();
    let places: HashMap<_, _> = unsaved.iter().enumerate().map(|(place, (id, _))| (*id, place)).collect();
    assert_eq!(places.len(), unsaved.len(), "each is there once");
    let mut open = vec![state.root()];
    let mut seen = HashSet::new();
    while let Some(id) = open.pop() {
        if let Some(place) = places.get(&id)
            && seen.insert(id)
        {
            for child in crate::codec::references(&unsaved[*place].1).unwrap() {
                assert!(places.get(&child).is_none_or(|before| before < place), "children come first");
                open.push(child);
            }
        }
    }
    assert_eq!(seen.len(), unsaved.len(), "nothing else is among them");
    seen.len()
}

/// What is unsaved after a failure, an edit that changes nothing, and one that is undone.
#[tokio::test]
async fn what_is_unsaved_is_what_the_root_reaches() {
    let long = |text: &str| Value::from(text.repeat(100));
    let (list, item, nowhere) = (path("/list"), path("/list/0"), path("/no/where"));
    let mut state = State::new(&Hashing::PLAIN, &Value::map([("list", Value::List(vec![long("zero")]))])).unwrap();
    assert!(reached(&state) > 0);
    state.extend(&list, vec![long("one")]).await.unwrap();
    assert!(reached(&state) > 0, "the first root is out of use");
    state.saved();
    assert_eq!(reached(&state), 0);
    state.extend(&list, vec![long("two")]).await.unwrap();
    assert!(reached(&state) > 0);
    state.saved();
    state.set(&nowhere, long("three")).await.unwrap_err();
    assert_eq!(reached(&state), 0, "a failed edit leaves nothing");
    state.set(&item, long("four")).await.unwrap();
    assert!(reached(&state) > 0);
    state.saved();
    state.set(&item, long("four")).await.unwrap();
    assert_eq!(reached(&state), 0, "nothing changed");
    state.extend(&list, vec![long("five")]).await.unwrap();
    state.remove(&path("/list/3")).await.unwrap();
    assert!(reached(&state) > 0, "what left the state and came back is saved again");
}
