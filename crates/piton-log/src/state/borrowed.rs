//! A value whose pieces the caller owns.

use std::collections::BTreeMap;

use piton_types::Value;

use piton_store::StoreError;

/// A value that is only there to be encoded: a caller that has its pieces needn't put them together first.
#[derive(Debug, Clone, Copy)]
pub enum Borrowed<'a> {
    /// A value as it is.
    Value(&'a Value),
    /// A string.
    Text(&'a str),
    /// A list.
    List(&'a [Self]),
    /// A map, whose entries are in the order of their keys, each once.
    Map(&'a [(&'a str, Self)]),
    /// A map of values.
    Values(&'a BTreeMap<String, Value>),
}

impl Borrowed<'_> {
    /// The value, put together.
    pub fn to_value(self) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Text(text) => text.into(),
            Self::List(items) => Value::List(items.iter().map(|item| item.to_value()).collect()),
            Self::Map(entries) => Value::map(entries.iter().map(|(key, value)| (*key, value.to_value()))),
            Self::Values(entries) => Value::Map(entries.clone()),
        }
    }
}

impl<'a> From<&'a Value> for Borrowed<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Value(value)
    }
}

impl<'a> From<&'a str> for Borrowed<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

/// That entries of a map are in the order of their keys, each once.
pub(crate) fn check_order(entries: &[(&str, Borrowed<'_>)]) -> Result<(), StoreError> {
    match entries.is_sorted_by(|one, other| one.0 < other.0) {
        true => Ok(()),
        false => Err(StoreError::Invalid {
            what: "entries of a map".to_owned(),
            detail: "they aren't in the order of their keys, each once".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::encode::{encode_inside, encode_map_inside};
    use piton_store::Hashing;

    /// Whatever it is put together from, the bytes are the same.
    #[test]
    fn pieces_are_encoded_like_the_whole() {
        let (number, long) = (Value::from(-3), "long ".repeat(40));
        let values: BTreeMap<_, _> = (0..90).map(|n| (format!("key {n}"), Value::from(n))).collect();
        let list = [Borrowed::Value(&number), "text".into(), long.as_str().into(), Borrowed::List(&[])];
        let inner = [("a", Borrowed::List(&list)), ("b", Borrowed::Map(&[]))];
        let entries =
            [("inner", Borrowed::Map(&inner)), ("list", Borrowed::List(&list)), ("values", Borrowed::Values(&values))];
        for hashing in [Hashing::PLAIN, Hashing::keyed([3; 32])] {
            let pieces = encode_map_inside(&hashing, entries).unwrap();
            let whole = Borrowed::Map(&entries).to_value();
            assert_eq!(pieces, encode_inside(&hashing, &whole).unwrap());
            assert!(!pieces.0.is_empty(), "some of it is too large to stand inside");
        }
    }

    /// Promise 21: they would be a map that no reader accepts.
    #[test]
    fn entries_out_of_order_are_refused() {
        let entry = |key: &'static str| (key, Borrowed::Text("x"));
        assert!(check_order(&[entry("a"), entry("b")]).is_ok() && check_order(&[]).is_ok());
        for keys in [["b", "a"], ["a", "a"]] {
            assert!(matches!(check_order(&keys.map(entry)), Err(StoreError::Invalid { .. })), "{keys:?}");
        }
    }
}
