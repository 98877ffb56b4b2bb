//! Differences, against a plain comparison of the values.

use super::super::{Change, diff};
use super::*;

/// The same rules on plain values.
fn expected(path: &Path, a: &Value, b: &Value, changes: &mut Vec<Change>) {
    if a == b {
        return;
    }
    match (a, b) {
        (Value::List(a), Value::List(b)) => {
            let prefix = a.iter().zip(b).take_while(|(a, b)| a == b).count();
            let room = a.len().min(b.len()) - prefix;
            let suffix = a.iter().rev().zip(b.iter().rev()).take(room).take_while(|(a, b)| a == b).count();
            let (a_end, b_end) = (a.len() - suffix, b.len() - suffix);
            for n in prefix..a_end.max(b_end) {
                let (old, new) = (a[..a_end].get(n), b[..b_end].get(n));
                match (old, new) {
                    (Some(old), Some(new)) => expected(&path.clone().index(n), old, new, changes),
                    (old, new) => {
                        changes.push(Change { path: path.clone().index(n), old: old.cloned(), new: new.cloned() });
                    }
                }
            }
        }
        (Value::Map(a), Value::Map(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for key in keys {
                match (a.get(key), b.get(key)) {
                    (Some(old), Some(new)) => expected(&path.clone().key(key), old, new, changes),
                    (old, new) => {
                        changes.push(Change { path: path.clone().key(key), old: old.cloned(), new: new.cloned() });
                    }
                }
            }
        }
        (a, b) => changes.push(Change { path: path.clone(), old: Some(a.clone()), new: Some(b.clone()) }),
    }
}

fn check(a: &Value, b: &Value) -> (Vec<Change>, usize) {
    let memory = Memory::default();
    let (from, to) = (memory.add(a), memory.add(b));
    let mut wanted = Vec::new();
    expected(&Path::root(), a, b, &mut wanted);
    let changes = now(diff(&memory, from, to)).unwrap();
    assert_eq!(changes, wanted);
    (changes, memory.fetched())
}

/// Changes a few places of a value.
fn disturb(value: &mut Value, next: &mut impl FnMut() -> u64) {
    match value {
        Value::List(items) => {
            for _ in 0..=next() % 3 {
                let at = next() as usize % (items.len() + 1);
                match next() % 4 {
                    0 => items.insert(at, Value::from(next() % 5)),
                    1 if at < items.len() => drop(items.remove(at)),
                    2 if at < items.len() => drop(items.drain(at..(at + 30).min(items.len()))),
                    _ if at < items.len() => disturb(&mut items[at], next),
                    _ => items.extend((0..40).map(Value::from)),
                }
            }
        }
        Value::Map(entries) => {
            for _ in 0..=next() % 4 {
                let key = entries.keys().nth(next() as usize % entries.len().max(1)).cloned();
                match (next() % 3, key) {
                    (0, Some(key)) => drop(entries.remove(&key)),
                    (1, Some(key)) => drop(entries.get_mut(&key).map(|value| disturb(value, next))),
                    _ => drop(entries.insert(format!("{}", next() % 1_000), Value::from(next() % 9))),
                }
            }
        }
        value => *value = Value::from(next() % 3),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn disturbed_values_differ_as_they_should(value in any_value(), seed in any::<u64>()) {
        let mut next = noise(seed);
        let mut other = value.clone();
        disturb(&mut other, &mut next);
        check(&value, &other);
        check(&other, &value);
    }

    #[test]
    fn unrelated_values_differ_as_they_should(a in any_value(), b in any_value()) {
        check(&a, &b);
    }

    #[test]
    fn large_lists_and_maps_differ_as_they_should(
        len in 0..1_500_u64, modulus in 1..1_000_u64, seed in any::<u64>(),
    ) {
        let mut next = noise(seed);
        let list = Value::List((0..len).map(|n| Value::from(n % modulus)).collect());
        let map = Value::map((0..len).map(|n| (n.to_string(), Value::from(n % modulus))));
        for value in [list, map] {
            let mut other = value.clone();
            disturb(&mut other, &mut next);
            disturb(&mut other, &mut next);
            check(&value, &other);
        }
    }
}

/// 20,000 items and 20,000 entries are about 5,000 nodes; a small change must not look at them all.
#[test]
fn the_work_is_that_of_the_difference() {
    let list: Vec<_> = (0..20_000).map(|n| Value::from(prose(n, 40))).collect();
    let map: std::collections::BTreeMap<_, _> =
        (0..20_000).map(|n| (format!("key {n}"), Value::from(prose(n, 40)))).collect();
    let value = |list: &[Value], map| Value::map([("list", Value::List(list.to_vec())), ("map", Value::Map(map))]);
    let before = value(&list, map.clone());

    let mut longer = list.clone();
    longer.push(Value::from("new"));
    let (changes, fetches) = check(&before, &value(&longer, map.clone()));
    assert_eq!(changes.len(), 1);
    assert!(fetches < 60, "{fetches} to find what was pushed");

    let mut inserted = list.clone();
    inserted.insert(10_000, Value::from("new"));
    let (changes, fetches) = check(&before, &value(&inserted, map.clone()));
    assert_eq!(changes.len(), 1);
    assert!(fetches < 60, "{fetches} to find what was inserted");

    let mut changed = list.clone();
    changed[5_000] = Value::Null;
    changed[15_000] = Value::Null;
    let (changes, fetches) = check(&before, &value(&changed, map.clone()));
    assert_eq!(changes.len(), 2);
    assert!(fetches < 100, "{fetches} to find two changes far apart");

    let mut entries = map.clone();
    entries.remove("key 777");
    entries.insert("key 7777".to_owned(), Value::Null);
    entries.insert("new".to_owned(), Value::Null);
    let (changes, fetches) = check(&before, &value(&list, entries));
    assert_eq!(changes.len(), 3);
    assert!(fetches < 100, "{fetches} to find three entries");

    assert_eq!(check(&before, &before), (vec![], 0));
}
