//! Bytes that no encoder wrote: an error, never a panic, a hang or a large allocation.

use super::super::diff;
use super::super::grammar::reference_offsets;
use super::super::load;
use super::*;

/// A source that answers every id with one of a few nodes, so that hostile ones can refer to
/// themselves, which no honest hash allows.
struct Echo(Vec<Bytes>);

#[async_trait]
impl NodeSource for Echo {
    async fn fetch(&self, id: BlobId) -> Result<Bytes, StoreError> {
        Ok(self.0[usize::from(id.as_bytes()[0]) % self.0.len()].clone())
    }
}

fn nodes() -> impl Strategy<Value = Vec<Bytes>> {
    any_value()
        .prop_map(|value| encode(&Hashing::PLAIN, &value).unwrap().nodes.into_iter().map(|(_, node)| node).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn mutated_nodes_never_panic(
        nodes in nodes(),
        pick in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut node = pick.get(&nodes).to_vec();
        for (at, byte) in changes {
            let at = at.index(node.len());
            node[at] = byte;
        }
        if let Some(cut) = cut {
            node.truncate(cut.index(node.len()));
        }
        feed(node.into(), nodes);
    }

    #[test]
    fn random_bytes_never_panic(
        node in proptest::collection::vec(prop_oneof![0..16_u8, any::<u8>()], 0..200),
        nodes in nodes(),
    ) {
        feed(node.into(), nodes);
    }
}

/// Hands `node` to everything that reads nodes.
fn feed(node: Bytes, nodes: Vec<Bytes>) {
    let _ = reference_offsets(&node);
    let memory = Memory::default();
    memory.store(nodes.iter().map(|node| (Hashing::PLAIN.blob(node), node.clone())).collect());
    let id = Hashing::PLAIN.blob(&node);
    memory.store(vec![(id, node.clone())]);
    // The cuts aren't checked, so what is read may have another root; but it is a value like any other.
    if let Ok(value) = now(load(&memory, id)) {
        let (again, root) = Memory::of(&value);
        assert!(now(load(&again, root)).unwrap() == value);
    }
    let source: Option<std::sync::Arc<dyn NodeSource>> = Some(std::sync::Arc::new(memory));
    let mut state = State::open(Hashing::PLAIN, id, source);
    let _ = now(state.push(&Path::root(), Value::Null));
    let _ = now(state.set(&path("/a"), Value::Null));
    let _ = now(state.set(&path("/0"), Value::Null));
    let _ = now(state.merge(&Path::root(), &[("b".to_owned(), Value::Null), ("~".to_owned(), Value::Null)]));
    let _ = now(state.remove(&path("/3")));
    let _ = now(state.append_text(&Path::root(), "x"));
    let _ = now(state.len(&path("/0")));
    let _ = state.unsaved();

    let mut nodes: Vec<_> = nodes.into_iter().take(5).collect();
    nodes.push(node.clone());
    let echo = Echo(nodes);
    for first in 0..6 {
        let _ = now(diff(&echo, BlobId::new([first; 32]), BlobId::new([5; 32])));
    }
}

/// What mustn't be accepted although it could be understood.
#[test]
fn there_is_one_way_to_write_a_value() {
    let id = [7_u8; 32];
    let long = Bytes::from([&[0x06, 0x60][..], &[b'x'; 0x60]].concat());
    let small = Bytes::from_static(&[0x06, 1, b'x']);
    let leaf = Bytes::from_static(&[0x08, 2, 0, 0]);
    let refused: &[(&str, Vec<u8>, &Bytes)] = &[
        ("a number that isn't shortest", vec![0x03, 0x80, 0], &small),
        ("a negative number beyond 64 bits", [&[0x04][..], &[0xff; 9], &[1]].concat(), &small),
        ("bytes behind the end", vec![0x00, 0x00], &small),
        ("an unknown tag", vec![0x10], &small),
        ("a chunk as a value", vec![0x0e, 0], &small),
        ("a reference as a node", [&[0x0f][..], &id].concat(), &long),
        ("a reference to what is small", [&[0x08, 1, 0x0f][..], &id].concat(), &small),
        ("text that isn't UTF-8", vec![0x06, 1, 0xff], &small),
        ("keys out of order", vec![0x09, 2, 1, b'b', 0, 1, b'a', 0], &small),
        ("a key twice", vec![0x09, 2, 1, b'a', 0, 1, b'a', 0], &small),
        ("a count without entries", vec![0x08, 0xff, 0xff, 0x03], &small),
        ("a needless level", [&[0x0a, 1, 1][..], &id, &[2]].concat(), &leaf),
        ("an empty inner node", vec![0x0a, 1, 0], &leaf),
        ("a wrong number of items", [&[0x0a, 1, 2][..], &id, &[2], &id, &[3]].concat(), &leaf),
        ("a child of the wrong level", [&[0x0a, 2, 2][..], &id, &[2], &id, &[2]].concat(), &leaf),
        ("a child of the wrong kind", [&[0x0c, 1, 2][..], &id, &[2], &id, &[2]].concat(), &leaf),
        ("a level beyond all", [&[0x0a, 200, 2][..], &id, &[2], &id, &[2]].concat(), &leaf),
        ("a short string that is cut", [&[0x0c, 0, 1][..], &id, &[1]].concat(), &Bytes::from_static(&[0x0e, 1, b'x'])),
        ("a large node inside another", [&[0x08, 1, 0x06, 0x60][..], &[b'x'; 0x60]].concat(), &small),
        ("a large list inside another", [&[0x08, 1, 0x08, 0x60][..], &[0; 0x60]].concat(), &small),
    ];
    for (what, node, child) in refused {
        let echo = Echo(vec![Bytes::from(node.clone()), Bytes::clone(child)]);
        let result = now(load(&echo, BlobId::new([0; 32])));
        assert!(matches!(result, Err(StoreError::Corrupt { .. })), "{what}: {result:?}");
    }
    let accepted = Echo(vec![[&[0x0a, 1, 2][..], &id, &[2], &id, &[2]].concat().into(), leaf]);
    assert_eq!(now(load(&accepted, BlobId::new([0; 32]))).unwrap(), Value::List(vec![Value::Null; 4]));
}

/// Each list holds the next one twice: 2^100 values from 100 small nodes.
#[test]
fn shared_nodes_cannot_grow_without_bound() {
    struct Doubling;
    #[async_trait]
    impl NodeSource for Doubling {
        async fn fetch(&self, id: BlobId) -> Result<Bytes, StoreError> {
            let n = id.as_bytes()[0];
            let mut node = vec![0x08, 3];
            for _ in 0..3 {
                node.push(0x0f);
                node.extend([n + 1; 32]);
            }
            Ok(if n < 100 { node.into() } else { [&[0x07, 0x80, 0x20][..], &[0; 4096]].concat().into() })
        }
    }
    let result = now(load(&Doubling, BlobId::new([80; 32])));
    assert!(matches!(result, Err(StoreError::TooLarge { .. })), "{:?}", result.map(drop));
    // Ids that lead back: the levels and the depth bound it.
    let loops = Echo(vec![[&[0x08, 3, 0x0f][..], &[0; 32], &[0x0f], &[0; 32], &[0x0f], &[0; 32]].concat().into()]);
    assert!(matches!(now(load(&loops, BlobId::new([0; 32]))), Err(StoreError::Corrupt { .. })));
}
