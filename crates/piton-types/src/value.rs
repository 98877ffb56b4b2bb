//! The value that state, inputs and outputs are made of: JSON's kinds, with integers exact over 64
//! bits and bytes of their own.

use std::collections::BTreeMap;

use crate::Path;

/// A plain value.
///
/// Equality is exact: floats compare by their bits (so a NaN equals itself and `0.0` differs from
/// `-0.0`), and `Int(1)` differs from `Float(1.0)`. Two values are equal just when the roots of their
/// encodings are.
#[derive(Debug, Clone, Default)]
pub enum Value {
    /// Nothing.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// An integer that fits `i64`.
    Int(i64),
    /// An integer; `From<u64>` uses this only above `i64::MAX`, and it equals the `Int` of the same
    /// number below.
    UInt(u64),
    /// A float, every bit of which is kept.
    Float(f64),
    /// Text.
    String(String),
    /// Bytes that need not be text.
    Bytes(Vec<u8>),
    /// Values in order.
    List(Vec<Value>),
    /// Values by key.
    Map(BTreeMap<String, Value>),
}

/// What a [`Value`] is, without its content; prints as people call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of `Value`")]
pub enum ValueKind {
    Null,
    Bool,
    Int,
    Float,
    String,
    Bytes,
    List,
    Map,
}

impl std::fmt::Display for ValueKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Int => "an integer",
            Self::Float => "a float",
            Self::String => "a string",
            Self::Bytes => "bytes",
            Self::List => "a list",
            Self::Map => "a map",
        })
    }
}

impl Value {
    /// Which kind of value this is.
    pub const fn kind(&self) -> ValueKind {
        match self {
            Self::Null => ValueKind::Null,
            Self::Bool(_) => ValueKind::Bool,
            Self::Int(_) | Self::UInt(_) => ValueKind::Int,
            Self::Float(_) => ValueKind::Float,
            Self::String(_) => ValueKind::String,
            Self::Bytes(_) => ValueKind::Bytes,
            Self::List(_) => ValueKind::List,
            Self::Map(_) => ValueKind::Map,
        }
    }

    /// The value at `path`, if there is one.
    ///
    /// ```
    /// use piton_types::{Path, Value};
    /// let value = Value::map([("xs", Value::from(vec![Value::from(7)]))]);
    /// assert_eq!(value.get(&"/xs/0".parse().unwrap()), Some(&Value::from(7)));
    /// ```
    pub fn get(&self, path: &Path) -> Option<&Self> {
        path.segments().iter().try_fold(self, |value, segment| match value {
            Self::List(items) => items.get(segment.as_index()?),
            Self::Map(entries) => entries.get(segment.as_key().as_ref()),
            _ => None,
        })
    }

    /// Whether it is null.
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// A map of these entries; of equal keys the last one stays.
    pub fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        // One insertion serves all callers; a map that is collected brings a sort for each of them.
        let mut map = BTreeMap::new();
        for (key, value) in entries {
            map.insert(key.into(), value);
        }
        Self::Map(map)
    }

    /// The entry of a map.
    pub fn field(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.get(key),
            _ => None,
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is an integer of `i64`.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::Int(n) => Some(n),
            Self::UInt(n) => n.try_into().ok(),
            _ => None,
        }
    }

    /// The items of a list.
    pub fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// The entries of a map.
    pub fn as_map(&self) -> Option<&BTreeMap<String, Self>> {
        match self {
            Self::Map(entries) => Some(entries),
            _ => None,
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::UInt(a), Self::UInt(b)) => a == b,
            (Self::Int(a), Self::UInt(b)) | (Self::UInt(b), Self::Int(a)) => u64::try_from(*a) == Ok(*b),
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

macro_rules! from {
    ($($from:ty => |$name:ident| $value:expr),* $(,)?) => {$(
        impl From<$from> for Value {
            fn from($name: $from) -> Self {
                $value
            }
        }
    )*};
}

from! {
    bool => |b| Self::Bool(b),
    i32 => |n| Self::Int(n.into()),
    u32 => |n| Self::Int(n.into()),
    i64 => |n| Self::Int(n),
    u64 => |n| i64::try_from(n).map_or(Self::UInt(n), Self::Int),
    f64 => |x| Self::Float(x),
    &str => |text| Self::String(text.to_owned()),
    String => |text| Self::String(text),
    Vec<Value> => |items| Self::List(items),
    BTreeMap<String, Value> => |entries| Self::Map(entries),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_is_exact() {
        assert_eq!(Value::Float(f64::NAN), Value::Float(f64::NAN));
        assert_ne!(Value::Float(0.0), Value::Float(-0.0));
        assert_ne!(Value::Int(1), Value::Float(1.0));
        assert_eq!(Value::UInt(1), Value::Int(1));
        assert_eq!(Value::from(u64::MAX), Value::UInt(u64::MAX));
        assert_ne!(Value::UInt(u64::MAX), Value::Int(-1));
    }

    #[test]
    fn paths_reach_into_lists_and_maps() {
        let value = Value::map([("a", Value::from(vec![Value::Null, Value::map([("0", Value::from(true))])]))]);
        assert_eq!(value.get(&Path::root()), Some(&value));
        assert_eq!(value.get(&"/a/1/0".parse().unwrap()), Some(&Value::Bool(true)));
        assert_eq!(value.get(&"/a/2".parse().unwrap()), None);
        assert_eq!(value.get(&"/a/1/0/x".parse().unwrap()), None);
    }
}
