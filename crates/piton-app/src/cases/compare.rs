//! What differs between what should have come out and what did, in words.

use std::collections::BTreeMap;

use piton_types::Value;

use crate::views;

/// The longest value that is shown.
const SHOWN: usize = 200;

/// Every difference, each with its place.
pub(crate) fn outputs(
    expected: &BTreeMap<String, Value>,
    found: &BTreeMap<String, Value>,
    partial: bool,
) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, wanted) in expected {
        let place = format!("outputs.{name}");
        match found.get(name) {
            Some(value) => differ(&place, wanted, value, &mut differences),
            None => differences.push(format!("{place}: expected {}, but it isn't there", shown(wanted))),
        }
    }
    if !partial {
        for (name, value) in found.iter().filter(|(name, _)| !expected.contains_key(*name)) {
            differences.push(format!("outputs.{name}: nothing was expected, got {}", shown(value)));
        }
    }
    differences
}

fn differ(place: &str, expected: &Value, found: &Value, differences: &mut Vec<String>) {
    match (expected, found) {
        (Value::Map(wanted), Value::Map(got)) => {
            for name in wanted.keys().chain(got.keys().filter(|name| !wanted.contains_key(*name))) {
                let place = format!("{place}.{name}");
                match (wanted.get(name), got.get(name)) {
                    (Some(wanted), Some(got)) => differ(&place, wanted, got, differences),
                    (Some(wanted), None) => {
                        differences.push(format!("{place}: expected {}, but it isn't there", shown(wanted)));
                    }
                    (None, Some(got)) => differences.push(format!("{place}: nothing was expected, got {}", shown(got))),
                    (None, None) => {}
                }
            }
        }
        (Value::List(wanted), Value::List(got)) => {
            if wanted.len() != got.len() {
                differences.push(format!("{place}: expected {} items, got {}", wanted.len(), got.len()));
            }
            for (number, (wanted, got)) in wanted.iter().zip(got).enumerate() {
                differ(&format!("{place}[{number}]"), wanted, got, differences);
            }
        }
        _ if same(expected, found) => {}
        _ => differences.push(format!("{place}: expected {}, got {}", shown(expected), shown(found))),
    }
}

/// Equal, with numbers by their size: 2 and 2.0 are the same.
fn same(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Int(n) => Some(*n as f64),
        Value::UInt(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        _ => None,
    };
    a == b || matches!((number(a), number(b)), (Some(a), Some(b)) if a == b)
}

fn shown(value: &Value) -> String {
    let text = views::value_json(value).to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.chars().count()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map<const N: usize>(entries: [(&str, Value); N]) -> BTreeMap<String, Value> {
        entries.map(|(name, value)| (name.to_owned(), value)).into()
    }

    #[test]
    fn differences_have_places() {
        let expected = map([
            ("a", 2.into()),
            ("b", Value::map([("x", vec![1.into(), 2.into()].into()), ("y", "s".into())])),
            ("gone", true.into()),
        ]);
        let found = map([
            ("a", 2.0.into()),
            ("b", Value::map([("x", vec![1.into(), 3.into(), 4.into()].into()), ("z", Value::Null)])),
            ("new", "x".repeat(300).into()),
        ]);
        let told = outputs(&expected, &found, false);
        insta::assert_snapshot!(told[..5].join("\n"), @r#"
        outputs.b.x: expected 2 items, got 3
        outputs.b.x[1]: expected 2, got 3
        outputs.b.y: expected "s", but it isn't there
        outputs.b.z: nothing was expected, got null
        outputs.gone: expected true, but it isn't there
        "#);
        assert!(told[5].starts_with("outputs.new: nothing was expected, got \"xxx") && told[5].len() < 300);
        assert_eq!(told.len(), 6);
        assert_eq!(outputs(&map([("a", 2.into())]), &found, true), [""; 0]);
    }
}
