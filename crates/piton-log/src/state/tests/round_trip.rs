//! What goes in comes out, and the format doesn't change unnoticed.

use super::super::grammar::{INLINE_MAX, LONG, MAX_DEPTH, Reader, reference_offsets};
use super::super::load;
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn values_survive(value in any_value()) {
        let (memory, root) = Memory::of(&value);
        prop_assert_eq!(now(load(&memory, root)).unwrap(), value.clone());
        prop_assert_eq!(root_of(&value.clone()), root);
    }

    #[test]
    fn different_values_have_different_roots(a in any_value(), b in any_value()) {
        prop_assert_eq!(a == b, root_of(&a) == root_of(&b));
    }
}

fn survives(value: &Value) {
    let (memory, root) = Memory::of(value);
    assert!(now(load(&memory, root)).unwrap() == *value);
}

#[test]
fn limits_survive() {
    for value in [
        Value::from(u64::MAX),
        Value::from(i64::MIN),
        Value::from(i64::MAX),
        Value::UInt(5),
        Value::from(-1),
        Value::Float(f64::from_bits(0x7ff4_dead_beef_0001)),
        Value::Float(-0.0),
        Value::from(""),
        Value::Bytes(vec![]),
        Value::List(vec![]),
        Value::Map(Default::default()),
        Value::from("ä".repeat(LONG / 2)),
        Value::from("ä".repeat(LONG / 2 + 1)),
        Value::from("𝄞".repeat(100_000)),
        Value::Bytes(vec![0xff; 1 << 20]),
        Value::from("x".repeat(INLINE_MAX - 2)),
        Value::from("x".repeat(INLINE_MAX - 1)),
        Value::List(vec![Value::from(1); 5_000]),
        Value::List(vec![Value::from("same".repeat(50)); 5_000]),
        Value::List(vec![Value::List(vec![]); 3_000]),
        Value::map((0..5_000).map(|n| (format!("key {n}"), Value::from(n)))),
        Value::map([("k".repeat(100_000), Value::Null), ("l".repeat(100_000), Value::Null)]),
        Value::List((0..3_000).map(Value::from).collect()),
        Value::List((0..1_000).map(message).collect()),
    ] {
        survives(&value);
    }
}

#[test]
fn integers_of_either_kind_are_one() {
    assert_eq!(root_of(&Value::UInt(5)), root_of(&Value::Int(5)));
}

#[test]
fn nesting_has_a_limit_in_both_directions() {
    let nest = |depth| (0..depth).fold(Value::from(prose(1, 5_000)), |inner, _| Value::List(vec![inner]));
    let deepest = nest(MAX_DEPTH);
    survives(&deepest);
    let refused = encode(&Hashing::PLAIN, &nest(MAX_DEPTH + 1));
    assert!(matches!(refused, Err(StoreError::Invalid { .. })));

    // By edits, too: around 100 containers another 28 fit.
    let mut state = State::new(&Hashing::PLAIN, &nest(100)).unwrap();
    let inside = path(&"/0".repeat(100));
    assert!(matches!(now(state.set(&inside, nest(29))), Err(StoreError::Invalid { .. })));
    now(state.set(&inside, nest(28))).unwrap();
    assert_eq!(state.root(), root_of(&deepest));
    assert!(matches!(now(state.push(&path(&"/0".repeat(127)), Value::List(vec![]))), Err(StoreError::Invalid { .. })));

    // A reader meets one level too many.
    let (memory, root) = Memory::of(&deepest);
    let wrapped = match &memory.nodes.lock().unwrap()[&root] {
        inline if inline.len() <= INLINE_MAX => [&[0x08, 1][..], inline].concat(),
        _ => [&[0x08, 1, 0x0f][..], root.as_bytes()].concat(),
    };
    let id = Hashing::PLAIN.blob(&wrapped);
    memory.store(vec![(id, wrapped.into())]);
    assert!(matches!(now(load(&memory, id)), Err(StoreError::Corrupt { .. })));
}

/// A change here makes every stored checkpoint unreadable or stored anew.
#[test]
fn roots_are_pinned() {
    let values = [
        Value::Null,
        Value::from(-300),
        Value::map([("messages", Value::List((0..100).map(message).collect())), ("turn", Value::from(7))]),
        Value::map((0..1_000).map(|n| (format!("key {n}"), Value::Float(f64::from(n) / 8.0)))),
        Value::from(prose(5, 300_000)),
    ];
    let roots = values.map(|value| root_of(&value).to_string());
    assert_eq!(
        roots,
        [
            "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
            "ab5f7a9864740defaf4a7217c35495dfe864a9fc5e53d8cf4e27b9d0343050f9",
            "9831b1958d08f4e0ab2e86b430965af051f37b72bd1d83040b2f271720fb43f3",
            "1a8df745bd35a3e4655386703db00410709a9a079922281ae1c57e40caa300d5",
            "19e4e2279b6e5e65534687561fc6289e52d9385b1995f25206042f101862647b"
        ]
    );
    assert_ne!(encode(&Hashing::keyed([3; 32]), &Value::Null).unwrap().root, root_of(&Value::Null));
}

#[test]
fn nodes_come_once_and_after_their_children() {
    let twice = Value::List((0..300).map(|n| message(n % 70)).collect());
    let encoded = encode(&Hashing::PLAIN, &Value::map([("a", twice.clone()), ("b", twice)])).unwrap();
    let mut seen = super::super::cache::IdSet::default();
    for (id, node) in &encoded.nodes {
        assert_eq!(Hashing::PLAIN.blob(node), *id);
        for at in reference_offsets(node).unwrap() {
            assert!(seen.contains(&Reader::at(node, at).id().unwrap()));
        }
        assert!(seen.insert(*id));
    }
    assert_eq!(encoded.nodes.last().unwrap().0, encoded.root);
}

#[test]
fn nodes_have_about_the_size_that_is_meant() {
    for list in [(0..4_000).map(Value::from).collect(), (0..4_000).map(message).collect::<Vec<_>>()] {
        let encoded = encode(&Hashing::PLAIN, &Value::List(list)).unwrap();
        let sizes: Vec<_> =
            encoded.nodes.iter().filter(|(_, node)| node[0] == 0x08).map(|(_, node)| node.len()).collect();
        let average = sizes.iter().sum::<usize>() / sizes.len();
        assert!((350..700).contains(&average), "{average}");
    }
}
