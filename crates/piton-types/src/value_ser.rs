//! Any `Serialize` type to a [`Value`], without a detour through text.
//!
//! This module owns the writing half of the mapping between serde and [`Value`]; `value_de` owns the
//! reading half. The invariant: what is written is exact or refused. No integer is rounded, no float
//! loses a bit, no key replaces another, and nothing nests deeper than [`MAX_DEPTH`].

use std::collections::BTreeMap;

use serde::ser::{self, Serialize};

use crate::path::{Path, Segment};
use crate::value::{Value, ValueKind};

/// How many lists and maps may lie inside one another. Every reader and writer of values holds to it,
/// so that a value which could be written can be read, on any thread's stack.
pub(crate) const MAX_DEPTH: usize = 128;

/// Why something can't become a [`Value`], or a value can't become something, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// Too many lists and maps inside one another.
    #[error("{}nested more than {MAX_DEPTH} levels deep", place(path))]
    TooDeep {
        /// The first list or map too many.
        path: Path,
    },
    /// An integer below `i64::MIN` or above `u64::MAX`.
    #[error("{}the integer {number} does not fit 64 bits", place(path))]
    OutOfRange {
        /// Where it is.
        path: Path,
        /// The integer in decimal.
        number: String,
    },
    /// Two entries of a map with the same key.
    #[error("{}the key occurs twice", place(path))]
    DuplicateKey {
        /// The entry, key included.
        path: Path,
    },
    /// A key that has no text form.
    #[error("{}a key must be a string, a character, an integer, a boolean or a unit variant, not {found}", place(path))]
    InvalidKey {
        /// The map.
        path: Path,
        /// What the key was.
        found: ValueKind,
    },
    /// What the type itself had to say.
    #[error("{}{message}", place(path))]
    Other {
        /// Where it said so.
        path: Path,
        /// What it said.
        message: String,
    },
}

fn place(path: &Path) -> String {
    if path.segments().is_empty() { String::new() } else { format!("at {path}: ") }
}

impl ValueError {
    /// The place of the error; the root if it concerns the whole value.
    pub const fn path(&self) -> &Path {
        match self {
            Self::TooDeep { path }
            | Self::OutOfRange { path, .. }
            | Self::DuplicateKey { path }
            | Self::InvalidKey { path, .. }
            | Self::Other { path, .. } => path,
        }
    }

    /// The same error seen from one level further out. Errors start at the root and get their path,
    /// innermost step first, while the call stack unwinds, so success pays nothing for it.
    pub(crate) fn inside(mut self, outer: Segment) -> Self {
        let (Self::TooDeep { path }
        | Self::OutOfRange { path, .. }
        | Self::DuplicateKey { path }
        | Self::InvalidKey { path, .. }
        | Self::Other { path, .. }) = &mut self;
        let inner = std::mem::take(path);
        path.push(outer);
        inner.segments().iter().cloned().for_each(|segment| path.push(segment));
        self
    }

    /// The room left inside a list or map that is opened with `room` left.
    pub(crate) fn enter(room: usize) -> Result<usize, Self> {
        room.checked_sub(1).ok_or(Self::TooDeep { path: Path::root() })
    }

    fn other(message: impl ToString) -> Self {
        Self::Other { path: Path::root(), message: message.to_string() }
    }
}

impl ser::Error for ValueError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::other(message)
    }
}

impl serde::de::Error for ValueError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::other(message)
    }
}

/// The value that `value` serializes to.
///
/// Structs become maps, enums are tagged from outside as in `serde_json`, `None` and `()` become null,
/// newtypes vanish, and `serialize_bytes` becomes [`Value::Bytes`]. Integers and floats are exact.
///
/// ```
/// use piton_types::{Value, to_value};
/// let value = to_value(&(u64::MAX, "x", Some(0.5)))?;
/// assert_eq!(value, Value::from(vec![Value::from(u64::MAX), Value::from("x"), Value::from(0.5)]));
///
/// let error = to_value(&[[0, u128::MAX]]).unwrap_err();
/// assert_eq!(error.path().to_string(), "/0/1");
/// # Ok::<(), piton_types::ValueError>(())
/// ```
///
/// # Errors
///
/// Refuses integers outside `i64::MIN..=u64::MAX`, keys without a text form, duplicate keys, and more
/// than 128 lists and maps inside one another.
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, ValueError> {
    value.serialize(ValueSerializer { room: MAX_DEPTH })
}

/// An `f32` as the `f64` of the same number. Casts may change the bits of a NaN, so those are moved.
pub(crate) fn widen(x: f32) -> f64 {
    if !x.is_nan() {
        return x.into();
    }
    let bits = u64::from(x.to_bits());
    f64::from_bits((bits >> 31) << 63 | 0x7ff << 52 | (bits & 0x007f_ffff) << 29)
}

/// An integer of any width as a value, if it fits.
pub(crate) fn integer<N>(n: N) -> Result<Value, ValueError>
where
    N: Copy + ToString + TryInto<i64> + TryInto<u64>,
{
    let signed: Result<i64, _> = n.try_into();
    let unsigned: Result<u64, _> = n.try_into();
    signed
        .map(Value::Int)
        .or_else(|_| unsigned.map(Value::UInt))
        .map_err(|_| ValueError::OutOfRange { path: Path::root(), number: n.to_string() })
}

/// Builds one value; `room` is how many lists and maps it may still open inside one another.
#[derive(Clone, Copy)]
struct ValueSerializer {
    room: usize,
}

impl ValueSerializer {
    fn enter(self) -> Result<Self, ValueError> {
        Ok(Self { room: ValueError::enter(self.room)? })
    }

    fn list(self, len: usize, variant: Option<&'static str>) -> Result<ListBuilder, ValueError> {
        // The length is only a hint: a wrong one must not reserve the whole memory.
        let outer = if variant.is_some() { self.enter()? } else { self };
        Ok(ListBuilder { items: Vec::with_capacity(len.min(1024)), inner: outer.enter_in(variant)?, variant })
    }

    fn map(self, len: usize, variant: Option<&'static str>) -> Result<MapBuilder, ValueError> {
        let outer = if variant.is_some() { self.enter()? } else { self };
        Ok(MapBuilder {
            entries: Vec::with_capacity(len.min(1024)),
            key: None,
            inner: outer.enter_in(variant)?,
            variant,
        })
    }

    fn enter_in(self, variant: Option<&'static str>) -> Result<Self, ValueError> {
        self.enter().map_err(|error| in_variant(error, variant))
    }
}

fn in_variant(error: ValueError, variant: Option<&'static str>) -> ValueError {
    match variant {
        Some(name) => error.inside(Segment::Key(name.to_owned())),
        None => error,
    }
}

fn tagged(content: Value, variant: Option<&'static str>) -> Value {
    match variant {
        Some(name) => Value::map([(name, content)]),
        None => content,
    }
}

macro_rules! scalars {
    ($($method:ident: $type:ty => |$name:pat_param| $value:expr),* $(,)?) => {$(
        fn $method(self, $name: $type) -> Result<Self::Ok, ValueError> {
            $value
        }
    )*};
}

impl ser::Serializer for ValueSerializer {
    type Ok = Value;
    type Error = ValueError;
    type SerializeSeq = ListBuilder;
    type SerializeTuple = ListBuilder;
    type SerializeTupleStruct = ListBuilder;
    type SerializeTupleVariant = ListBuilder;
    type SerializeMap = MapBuilder;
    type SerializeStruct = MapBuilder;
    type SerializeStructVariant = MapBuilder;

    scalars! {
        serialize_bool: bool => |b| Ok(Value::Bool(b)),
        serialize_i8: i8 => |n| Ok(Value::Int(n.into())),
        serialize_i16: i16 => |n| Ok(Value::Int(n.into())),
        serialize_i32: i32 => |n| Ok(Value::Int(n.into())),
        serialize_i64: i64 => |n| Ok(Value::Int(n)),
        serialize_i128: i128 => |n| integer(n),
        serialize_u8: u8 => |n| Ok(Value::Int(n.into())),
        serialize_u16: u16 => |n| Ok(Value::Int(n.into())),
        serialize_u32: u32 => |n| Ok(Value::Int(n.into())),
        serialize_u64: u64 => |n| Ok(Value::from(n)),
        serialize_u128: u128 => |n| integer(n),
        serialize_f32: f32 => |x| Ok(Value::Float(widen(x))),
        serialize_f64: f64 => |x| Ok(Value::Float(x)),
        serialize_char: char => |c| Ok(Value::String(c.into())),
        serialize_str: &str => |text| Ok(Value::from(text)),
        serialize_bytes: &[u8] => |bytes| Ok(Value::Bytes(bytes.to_vec())),
        serialize_unit_struct: &'static str => |_| Ok(Value::Null),
    }

    fn serialize_none(self) -> Result<Value, ValueError> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, ValueError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, ValueError> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, ValueError> {
        Ok(Value::from(variant))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Value, ValueError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, ValueError> {
        let content = value.serialize(self.enter()?).map_err(|error| in_variant(error, Some(variant)))?;
        Ok(tagged(content, Some(variant)))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<ListBuilder, ValueError> {
        self.list(len.unwrap_or(0), None)
    }

    fn serialize_tuple(self, len: usize) -> Result<ListBuilder, ValueError> {
        self.list(len, None)
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<ListBuilder, ValueError> {
        self.list(len, None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<ListBuilder, ValueError> {
        self.list(len, Some(variant))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<MapBuilder, ValueError> {
        self.map(len.unwrap_or(0), None)
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<MapBuilder, ValueError> {
        self.map(len, None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<MapBuilder, ValueError> {
        self.map(len, Some(variant))
    }
}

struct ListBuilder {
    items: Vec<Value>,
    inner: ValueSerializer,
    variant: Option<&'static str>,
}

impl ListBuilder {
    fn push<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), ValueError> {
        let index = Segment::Index(self.items.len());
        let item = item.serialize(self.inner).map_err(|error| in_variant(error.inside(index), self.variant))?;
        self.items.push(item);
        Ok(())
    }
}

macro_rules! list_builder {
    ($($trait:ident::$method:ident),*) => {$(
        impl ser::$trait for ListBuilder {
            type Ok = Value;
            type Error = ValueError;

            fn $method<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), ValueError> {
                self.push(item)
            }

            fn end(self) -> Result<Value, ValueError> {
                Ok(tagged(Value::List(self.items), self.variant))
            }
        }
    )*};
}

list_builder! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
}

struct MapBuilder {
    /// As they come; to put them into a map one by one would move them about.
    entries: Vec<(String, Value)>,
    /// The key whose value comes next.
    key: Option<String>,
    inner: ValueSerializer,
    variant: Option<&'static str>,
}

impl MapBuilder {
    fn insert<T: Serialize + ?Sized>(&mut self, key: String, value: &T) -> Result<(), ValueError> {
        match value.serialize(self.inner) {
            Ok(value) => self.entries.push((key, value)),
            Err(error) => return Err(in_variant(error.inside(Segment::Key(key)), self.variant)),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Value, ValueError> {
        self.entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let Some(pair) = self.entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let twice = ValueError::DuplicateKey { path: Path::root() }.inside(Segment::Key(pair[0].0.clone()));
            return Err(in_variant(twice, self.variant));
        }
        Ok(tagged(Value::Map(BTreeMap::from_iter(self.entries)), self.variant))
    }
}

impl ser::SerializeMap for MapBuilder {
    type Ok = Value;
    type Error = ValueError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), ValueError> {
        self.key = Some(key_text(key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        let key = self.key.take().ok_or_else(|| ValueError::other("a value came before its key"))?;
        self.insert(key, value)
    }

    fn end(self) -> Result<Value, ValueError> {
        self.finish()
    }
}

macro_rules! struct_builder {
    ($($trait:ident),*) => {$(
        impl ser::$trait for MapBuilder {
            type Ok = Value;
            type Error = ValueError;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), ValueError> {
                self.insert(key.to_owned(), value)
            }

            fn end(self) -> Result<Value, ValueError> {
                self.finish()
            }
        }
    )*};
}

struct_builder!(SerializeStruct, SerializeStructVariant);

/// The text of a key; `value_de` turns the text back.
fn key_text<T: Serialize + ?Sized>(key: &T) -> Result<String, ValueError> {
    Ok(match key.serialize(ValueSerializer { room: MAX_DEPTH })? {
        Value::String(text) => text,
        Value::Bool(b) => b.to_string(),
        Value::Int(n) => n.to_string(),
        Value::UInt(n) => n.to_string(),
        other => return Err(ValueError::InvalidKey { path: Path::root(), found: other.kind() }),
    })
}

impl Serialize for Value {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(b) => serializer.serialize_bool(*b),
            Self::Int(n) => serializer.serialize_i64(*n),
            Self::UInt(n) => serializer.serialize_u64(*n),
            Self::Float(x) => serializer.serialize_f64(*x),
            Self::String(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Self::List(items) => serializer.collect_seq(items),
            Self::Map(entries) => serializer.collect_map(entries),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde::Serialize;

    use super::*;

    /// Random values up to a few levels deep; floats are whatever `floats` gives.
    pub(crate) fn values(floats: impl Strategy<Value = f64> + 'static) -> impl Strategy<Value = Value> {
        let key = prop_oneof![".{0,4}", r"\$*bytes", "[a-c]"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            floats.prop_map(Value::Float),
            prop_oneof![any::<String>(), "([0-9a-f]{2}){0,3}".boxed()].prop_map(Value::String),
            proptest::collection::vec(any::<u8>(), 0..9).prop_map(Value::Bytes),
        ];
        leaf.prop_recursive(4, 48, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
                proptest::collection::btree_map(key.clone(), inner, 0..4).prop_map(Value::Map),
            ]
        })
    }

    /// Lists inside one another.
    pub(crate) fn nested(depth: usize) -> Value {
        (1..depth).fold(Value::List(Vec::new()), |inner, _| Value::List(vec![inner]))
    }

    #[derive(Serialize)]
    enum Shape {
        Unit,
        Newtype(u8),
        Tuple(u8, u8),
        Struct { a: u8 },
    }

    /// Serializes as a map with these entries, duplicates and all.
    struct Entries<K, V>(Vec<(K, V)>);
    impl<K: Serialize, V: Serialize> Serialize for Entries<K, V> {
        fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
        }
    }

    fn list<const N: usize>(items: [i64; N]) -> Value {
        Value::List(items.map(Value::Int).into())
    }

    #[test]
    fn enums_are_tagged_from_outside() {
        assert_eq!(to_value(&Shape::Unit).unwrap(), Value::from("Unit"));
        assert_eq!(to_value(&Shape::Newtype(1)).unwrap(), Value::map([("Newtype", Value::Int(1))]));
        assert_eq!(to_value(&Shape::Tuple(1, 2)).unwrap(), Value::map([("Tuple", list([1, 2]))]));
        let fields = Value::map([("a", Value::Int(1))]);
        assert_eq!(to_value(&Shape::Struct { a: 1 }).unwrap(), Value::map([("Struct", fields)]));
    }

    #[test]
    fn integers_are_exact_or_refused() {
        for n in [i128::from(i64::MIN), -1, 0, i128::from(i64::MAX), i128::from(u64::MAX)] {
            let Ok(Value::Int(_) | Value::UInt(_)) = to_value(&n) else { panic!("{n} was refused") };
        }
        assert!(matches!(to_value(&7_u64).unwrap(), Value::Int(7)), "the one form of a number is used");
        assert!(matches!(to_value(&Value::UInt(7)).unwrap(), Value::Int(7)));
        for n in [i128::from(i64::MIN) - 1, i128::from(u64::MAX) + 1] {
            let error = to_value(&Entries(vec![("a", [0, n])])).unwrap_err();
            assert_eq!(error.to_string(), format!("at /a/1: the integer {n} does not fit 64 bits"));
        }
    }

    #[test]
    fn floats_keep_their_bits() {
        let bits = |value| match value {
            Ok(Value::Float(x)) => x.to_bits(),
            other => panic!("{other:?}"),
        };
        for x in [0.1_f32, -0.0, f32::INFINITY, f32::MIN_POSITIVE] {
            assert_eq!(bits(to_value(&x)), f64::from(x).to_bits());
        }
        assert_eq!(bits(to_value(&f32::from_bits(0xff80_0001))), 0xfff0_0000_2000_0000, "a signalling NaN");
        assert_eq!(bits(to_value(&f64::from_bits(0x7ff0_0000_0000_0001))), 0x7ff0_0000_0000_0001);
    }

    #[test]
    fn keys_become_text_or_are_refused() {
        fn key(key: impl Serialize) -> Result<Value, ValueError> {
            to_value(&Entries(vec![(key, ())]))
        }
        assert_eq!(key('ß').unwrap(), Value::map([("ß", Value::Null)]));
        assert_eq!(key(-3).unwrap(), Value::map([("-3", Value::Null)]));
        assert_eq!(key(u64::MAX).unwrap(), Value::map([(u64::MAX.to_string(), Value::Null)]));
        assert!(matches!(key(u128::MAX), Err(ValueError::OutOfRange { .. })));
        assert_eq!(key(Some("a")).unwrap(), Value::map([("a", Value::Null)]));
        assert_eq!(key(true).unwrap(), Value::map([("true", Value::Null)]));
        assert_eq!(key(Shape::Unit).unwrap(), Value::map([("Unit", Value::Null)]));
        assert_eq!(key(crate::Seq(4)).unwrap(), Value::map([("4", Value::Null)]));
        for refused in [key(1.0), key(()), key(None::<u8>), key([1]), key(Shape::Newtype(1)), key(Shape::Tuple(1, 1))] {
            assert!(matches!(refused, Err(ValueError::InvalidKey { .. })), "{refused:?}");
        }
        let error = to_value(&Entries(vec![("m", Entries(vec![(0.5, 1)]))])).unwrap_err();
        assert_eq!(error.path().to_string(), "/m");
    }

    #[test]
    fn duplicate_keys_are_refused() {
        let error = to_value(&[Entries(vec![("a", 1), ("a", 1)])]).unwrap_err();
        assert_eq!(error.to_string(), "at /0/a: the key occurs twice");
    }

    #[test]
    fn depth_is_limited() {
        assert!(to_value(&nested(MAX_DEPTH)).is_ok());
        let error = to_value(&nested(MAX_DEPTH + 1)).unwrap_err();
        assert!(matches!(&error, ValueError::TooDeep { path } if path.segments().len() == MAX_DEPTH), "{error}");
        // A variant with fields is two maps, not one.
        let in_lists = |depth| (0..depth).fold(to_value(&Shape::Tuple(1, 2)), |v, _| to_value(&[v?]));
        assert!(in_lists(MAX_DEPTH - 2).is_ok());
        assert!(in_lists(MAX_DEPTH - 1).is_err());
    }

    #[test]
    fn what_a_type_says_gets_its_place() {
        struct Stubborn;
        impl Serialize for Stubborn {
            fn serialize<S: ser::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(ser::Error::custom("no"))
            }
        }
        assert_eq!(to_value(&Stubborn).unwrap_err().to_string(), "no");
        let error = to_value(&Entries(vec![("a/b", [Some(Stubborn)])])).unwrap_err();
        assert_eq!(error.to_string(), "at /a~1b/0: no");
    }

    proptest! {
        #[test]
        fn a_value_serializes_to_itself(value in values(proptest::num::f64::ANY)) {
            prop_assert_eq!(to_value(&value).unwrap(), value);
        }
    }
}
