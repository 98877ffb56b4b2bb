//! A [`Value`] to any `Deserialize` type, and any self-describing format to a [`Value`].
//!
//! This module owns the reading half of the mapping between serde and [`Value`]; `value_ser` owns the
//! writing half. The invariant: what [`to_value`](crate::to_value) wrote for a type that serde derives
//! comes back equal, and nothing is dropped unseen: a value that does not fit its target is refused,
//! with its place.

use std::collections::{BTreeMap, btree_map};
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Unexpected, Visitor};

use crate::path::Segment;
use crate::value::Value;
use crate::value_ser::{MAX_DEPTH, ValueError, integer, widen};

/// The `T` that `value` stands for.
///
/// ```
/// use piton_types::{Value, from_value};
/// let value = Value::map([("xs", Value::from(vec![Value::from(1), Value::from(300)]))]);
/// let xs: std::collections::BTreeMap<String, Vec<u16>> = from_value(value.clone())?;
/// assert_eq!(xs["xs"], [1, 300]);
///
/// let error = from_value::<std::collections::BTreeMap<String, Vec<u8>>>(value).unwrap_err();
/// assert_eq!(error.path().to_string(), "/xs/1");
/// # Ok::<(), piton_types::ValueError>(())
/// ```
///
/// # Errors
///
/// If the value is not what `T` wants, or nests more than 128 lists and maps inside one another.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, ValueError> {
    T::deserialize(ValueDeserializer { value, room: MAX_DEPTH })
}

/// Reads one value; `room` is how many lists and maps it may still open inside one another.
struct ValueDeserializer {
    value: Value,
    room: usize,
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(b) => Unexpected::Bool(*b),
        Value::Int(n) => Unexpected::Signed(*n),
        Value::UInt(n) => Unexpected::Unsigned(*n),
        Value::Float(x) => Unexpected::Float(*x),
        Value::String(text) => Unexpected::Str(text),
        Value::Bytes(bytes) => Unexpected::Bytes(bytes),
        Value::List(_) => Unexpected::Seq,
        Value::Map(_) => Unexpected::Map,
    }
}

impl<'de> de::Deserializer<'de> for ValueDeserializer {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(b),
            Value::Int(n) => visitor.visit_i64(n),
            Value::UInt(n) => visitor.visit_u64(n),
            Value::Float(x) => visitor.visit_f64(x),
            Value::String(text) => visitor.visit_string(text),
            Value::Bytes(bytes) => visitor.visit_byte_buf(bytes),
            Value::List(items) => {
                let (len, room) = (items.len(), ValueError::enter(self.room)?);
                let mut access = ListAccess { items: items.into_iter(), len, room };
                let out = visitor.visit_seq(&mut access)?;
                if access.items.len() > 0 {
                    return Err(de::Error::invalid_length(len, &"fewer items"));
                }
                Ok(out)
            }
            Value::Map(entries) => {
                let (len, room) = (entries.len(), ValueError::enter(self.room)?);
                let mut access = EntryAccess { entries: entries.into_iter(), next: None, room };
                let out = visitor.visit_map(&mut access)?;
                if access.entries.len() > 0 {
                    return Err(de::Error::invalid_length(len, &"fewer entries"));
                }
                Ok(out)
            }
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.value {
            // The inverse of `widen`: a cast may change the bits of a NaN.
            Value::Float(x) if x.is_nan() => {
                let bits = x.to_bits();
                let narrow = (bits >> 63) << 31 | 0xff << 23 | (bits >> 29) & 0x007f_ffff;
                let narrow = f32::from_bits(u32::try_from(narrow).expect("32 bits"));
                // A NaN whose payload lies in the low bits only would turn into an infinity.
                visitor.visit_f32(if narrow.is_nan() { narrow } else { f32::NAN })
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.value {
            Value::String(variant) => visitor.visit_enum(VariantAccess { variant, content: None }),
            Value::Map(mut entries) if entries.len() == 1 => {
                let room = ValueError::enter(self.room)?;
                let (variant, value) = entries.pop_first().expect("the length is 1");
                visitor.visit_enum(VariantAccess { variant, content: Some(Self { value, room }) })
            }
            other => Err(de::Error::invalid_type(unexpected(&other), &"a variant's name or a map with just that key")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier
    }
}

struct ListAccess {
    items: std::vec::IntoIter<Value>,
    len: usize,
    room: usize,
}

impl<'de> de::SeqAccess<'de> for &mut ListAccess {
    type Error = ValueError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ValueError> {
        let index = self.len - self.items.len();
        let Some(value) = self.items.next() else { return Ok(None) };
        let item = seed.deserialize(ValueDeserializer { value, room: self.room });
        item.map(Some).map_err(|error| error.inside(Segment::Index(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct EntryAccess {
    entries: btree_map::IntoIter<String, Value>,
    /// The entry whose key was read and whose value comes next.
    next: Option<(String, Value)>,
    room: usize,
}

impl<'de> de::MapAccess<'de> for &mut EntryAccess {
    type Error = ValueError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ValueError> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        match seed.deserialize(KeyDeserializer(&key)) {
            Ok(out) => {
                self.next = Some((key, value));
                Ok(Some(out))
            }
            Err(error) => Err(error.inside(Segment::Key(key))),
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ValueError> {
        let (key, value) = self.next.take().ok_or_else(|| de::Error::custom("a value was read before its key"))?;
        let out = seed.deserialize(ValueDeserializer { value, room: self.room });
        out.map_err(|error| error.inside(Segment::Key(key)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

/// Reads a key back from its text, as whatever the target wants.
struct KeyDeserializer<'a>(&'a str);

macro_rules! parsed_keys {
    ($($method:ident: $type:ty => $visit:ident),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
            // "01" and "+1" are not how 1 was written; to take them would let two keys become one.
            match self.0.parse::<$type>().ok().filter(|key| key.to_string() == self.0) {
                Some(key) => visitor.$visit(key),
                None => visitor.visit_str(self.0),
            }
        }
    )*};
}

impl<'de> de::Deserializer<'de> for KeyDeserializer<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_str(self.0)
    }

    parsed_keys! {
        deserialize_bool: bool => visit_bool,
        deserialize_i8: i64 => visit_i64,
        deserialize_i16: i64 => visit_i64,
        deserialize_i32: i64 => visit_i64,
        deserialize_i64: i64 => visit_i64,
        deserialize_i128: i128 => visit_i128,
        deserialize_u8: u64 => visit_u64,
        deserialize_u16: u64 => visit_u64,
        deserialize_u32: u64 => visit_u64,
        deserialize_u64: u64 => visit_u64,
        deserialize_u128: u128 => visit_u128,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    serde::forward_to_deserialize_any! {
        f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

struct VariantAccess {
    variant: String,
    content: Option<ValueDeserializer>,
}

impl VariantAccess {
    /// What `read` makes of the variant's content.
    fn content<T>(
        self,
        wanted: &'static str,
        read: impl FnOnce(ValueDeserializer) -> Result<T, ValueError>,
    ) -> Result<T, ValueError> {
        match self.content {
            Some(content) => read(content).map_err(|error| error.inside(Segment::Key(self.variant))),
            None => Err(de::Error::invalid_type(Unexpected::UnitVariant, &wanted)),
        }
    }
}

impl<'de> de::EnumAccess<'de> for VariantAccess {
    type Error = ValueError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), ValueError> {
        Ok((seed.deserialize(KeyDeserializer(&self.variant))?, self))
    }
}

impl<'de> de::VariantAccess<'de> for VariantAccess {
    type Error = ValueError;

    fn unit_variant(self) -> Result<(), ValueError> {
        if self.content.is_none() { Ok(()) } else { self.content("a unit variant", <()>::deserialize) }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, ValueError> {
        self.content("a newtype variant", |content| seed.deserialize(content))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, ValueError> {
        self.content("a tuple variant", |content| de::Deserializer::deserialize_tuple(content, len, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.content("a struct variant", |content| de::Deserializer::deserialize_struct(content, "", fields, visitor))
    }
}

/// Reads a value from any self-describing format. For JSON text use [`from_json`](crate::from_json):
/// `serde_json` itself makes floats of the integers that don't fit, before they get here.
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ValueVisitor { room: MAX_DEPTH }.deserialize(deserializer)
    }
}

/// Builds a value; `room` is how many lists and maps it may still open inside one another.
#[derive(Clone, Copy)]
struct ValueVisitor {
    room: usize,
}

impl ValueVisitor {
    fn enter<E: de::Error>(self) -> Result<Self, E> {
        Ok(Self { room: ValueError::enter(self.room).map_err(E::custom)? })
    }
}

impl<'de> DeserializeSeed<'de> for ValueVisitor {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! visits {
    ($($method:ident: $type:ty => |$name:ident| $value:expr),* $(,)?) => {$(
        fn $method<E: de::Error>(self, $name: $type) -> Result<Value, E> {
            $value
        }
    )*};
}

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    visits! {
        visit_bool: bool => |b| Ok(Value::Bool(b)),
        visit_i64: i64 => |n| Ok(Value::Int(n)),
        visit_i128: i128 => |n| integer(n).map_err(E::custom),
        visit_u64: u64 => |n| Ok(Value::from(n)),
        visit_u128: u128 => |n| integer(n).map_err(E::custom),
        visit_f32: f32 => |x| Ok(Value::Float(widen(x))),
        visit_f64: f64 => |x| Ok(Value::Float(x)),
        visit_str: &str => |text| Ok(Value::from(text)),
        visit_string: String => |text| Ok(Value::String(text)),
        visit_bytes: &[u8] => |bytes| Ok(Value::Bytes(bytes.to_vec())),
        visit_byte_buf: Vec<u8> => |bytes| Ok(Value::Bytes(bytes)),
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_newtype_struct<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.enter()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.enter()?;
        let mut entries = BTreeMap::new();
        while let Some(key) = access.next_key::<String>()? {
            if entries.contains_key(&key) {
                return Err(de::Error::custom(format_args!("the key {key:?} occurs twice")));
            }
            entries.insert(key, access.next_value_seed(inner)?);
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Serialize;

    use super::*;
    use crate::to_value;
    use crate::value_ser::tests::{nested, values};

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    enum Colour {
        Red,
        Green,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Unit,
        Newtype(Option<i8>),
        Tuple(u64, char),
        Struct { a: String, b: Vec<bool> },
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "type")]
    enum Tagged {
        One { value: Value },
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Wrapper(i128);

    #[derive(Debug, Clone, PartialEq)]
    struct Blob(Vec<u8>);
    impl Serialize for Blob {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&self.0)
        }
    }
    impl<'de> Deserialize<'de> for Blob {
        fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct BlobVisitor;
            impl Visitor<'_> for BlobVisitor {
                type Value = Blob;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("bytes")
                }
                fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Blob, E> {
                    Ok(Blob(bytes))
                }
            }
            deserializer.deserialize_byte_buf(BlobVisitor)
        }
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Everything {
        signed: i64,
        unsigned: u64,
        wide: Wrapper,
        single: f32,
        double: f64,
        text: String,
        letter: char,
        blob: Blob,
        unit: (),
        maybe: Option<u16>,
        pair: (i8, u32),
        shapes: Vec<Shape>,
        by_number: BTreeMap<i32, Colour>,
        by_flag: BTreeMap<bool, u8>,
        by_colour: BTreeMap<Colour, u8>,
        by_letter: BTreeMap<char, u8>,
        tagged: Tagged,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    }

    fn shape() -> impl Strategy<Value = Shape> {
        prop_oneof![
            Just(Shape::Unit),
            any::<Option<i8>>().prop_map(Shape::Newtype),
            any::<(u64, char)>().prop_map(|(n, c)| Shape::Tuple(n, c)),
            any::<(String, Vec<bool>)>().prop_map(|(a, b)| Shape::Struct { a, b }),
        ]
    }

    fn colour() -> impl Strategy<Value = Colour> {
        prop_oneof![Just(Colour::Red), Just(Colour::Green)]
    }

    fn everything() -> impl Strategy<Value = Everything> {
        use proptest::collection::{btree_map, vec};
        // `PartialEq` of the struct can't see NaNs; `values` below covers them.
        let numbers = (
            any::<(i64, u64)>(),
            prop_oneof![any::<i64>().prop_map(i128::from), any::<u64>().prop_map(i128::from)],
            any::<(f32, f64)>(),
        );
        let texts = any::<(String, char, Vec<u8>, Option<u16>, (i8, u32))>();
        let maps = (
            btree_map(any::<i32>(), colour(), 0..4),
            btree_map(any::<bool>(), any::<u8>(), 0..3),
            btree_map(colour(), any::<u8>(), 0..3),
            btree_map(any::<char>(), any::<u8>(), 0..4),
        );
        let any_value = || values(proptest::num::f64::ANY);
        (numbers, texts, vec(shape(), 0..4), maps, any_value(), btree_map("extra[a-z]{0,3}", any_value(), 0..3))
            .prop_map(|((ints, wide, floats), (text, letter, blob, maybe, pair), shapes, maps, value, rest)| {
                Everything {
                    signed: ints.0,
                    unsigned: ints.1,
                    wide: Wrapper(wide),
                    single: floats.0,
                    double: floats.1,
                    text,
                    letter,
                    blob: Blob(blob),
                    unit: (),
                    maybe,
                    pair,
                    shapes,
                    by_number: maps.0,
                    by_flag: maps.1,
                    by_colour: maps.2,
                    by_letter: maps.3,
                    tagged: Tagged::One { value },
                    rest,
                }
            })
    }

    proptest! {
        #[test]
        fn everything_survives_a_round_trip(before in everything()) {
            let after: Everything = from_value(to_value(&before).unwrap()).unwrap();
            prop_assert_eq!(after, before);
        }

        #[test]
        fn values_survive_a_round_trip(value in values(proptest::num::f64::ANY)) {
            prop_assert_eq!(from_value::<Value>(value.clone()).unwrap(), value);
        }
    }

    #[test]
    fn single_floats_keep_their_bits() {
        for bits in [0x3dcc_cccd_u32, 0x8000_0000, 0x7f80_0000, 0x7fc0_0000, 0xffc1_2345, 0x7f80_0001] {
            let value = to_value(&f32::from_bits(bits)).unwrap();
            assert_eq!(from_value::<f32>(value).unwrap().to_bits(), bits);
        }
        assert!(from_value::<f32>(Value::Float(f64::from_bits(0x7ff0_0000_0000_0001))).unwrap().is_nan());
    }

    #[test]
    fn integers_convert_when_they_fit() {
        assert_eq!(from_value::<u8>(Value::Int(255)), Ok(255));
        assert_eq!(from_value::<i8>(Value::UInt(5)), Ok(5));
        assert_eq!(from_value::<u128>(Value::UInt(u64::MAX)), Ok(u64::MAX.into()));
        for (value, why) in [(Value::Int(256), "`256`"), (Value::Int(-1), "`-1`"), (Value::Float(1.0), "`1.0`")] {
            assert!(from_value::<u8>(value).unwrap_err().to_string().contains(why));
        }
        assert!(matches!(from_value::<Value>(Value::UInt(5)), Ok(Value::Int(5))));
    }

    #[test]
    fn errors_say_where() {
        fn error<T: DeserializeOwned + fmt::Debug>(value: Value) -> String {
            from_value::<T>(value).unwrap_err().to_string()
        }
        let in_list = |value| Value::List(vec![Value::from("Unit"), value]);
        assert_eq!(
            error::<Vec<Shape>>(in_list(Value::map([("Tuple", Value::List(vec![1.into(), 2.into()]))]))),
            "at /1/Tuple/1: invalid type: integer `2`, expected a character"
        );
        assert_eq!(
            error::<Vec<Shape>>(in_list(Value::map([("Struct", Value::map([("a", Value::from("x"))]))]))),
            "at /1/Struct: missing field `b`"
        );
        assert_eq!(
            error::<Vec<Colour>>(Value::List(vec!["Blue".into()])),
            "at /0: unknown variant `Blue`, expected `Red` or `Green`"
        );
        assert_eq!(
            error::<BTreeMap<u8, ()>>(Value::map([("01", Value::Null)])),
            "at /01: invalid type: string \"01\", expected u8"
        );
        assert_eq!(error::<(u8,)>(Value::List(vec![1.into(), 2.into()])), "invalid length 2, expected fewer items");
        assert_eq!(
            error::<Colour>(Value::Int(3)),
            "invalid type: integer `3`, expected a variant's name or a map with just that key"
        );
        assert!(from_value::<Shape>(Value::from("Newtype")).is_err());
        assert!(from_value::<Shape>(Value::map([("Unit", Value::Int(1))])).is_err());
        assert_eq!(from_value::<Shape>(Value::map([("Unit", Value::Null)])), Ok(Shape::Unit));
    }

    #[test]
    fn depth_is_limited() {
        assert!(from_value::<Value>(nested(MAX_DEPTH)).is_ok());
        assert!(matches!(from_value::<Value>(nested(MAX_DEPTH + 1)), Err(ValueError::TooDeep { .. })));
        let text = "[".repeat(MAX_DEPTH + 1) + &"]".repeat(MAX_DEPTH + 1);
        assert!(serde_json::from_str::<Value>(&text).is_err());
    }

    #[test]
    fn other_formats_can_be_read() {
        let value: Value =
            serde_json::from_str(r#"{"a": [1, -1, 18446744073709551615, 0.5, null, true, "x"]}"#).unwrap();
        let items = [1.into(), (-1).into(), u64::MAX.into(), 0.5.into(), Value::Null, true.into(), "x".into()];
        assert_eq!(value, Value::map([("a", Value::from(items.to_vec()))]));
        let error = serde_json::from_str::<Value>(r#"{"a": 1, "a": 1}"#).unwrap_err();
        assert!(error.to_string().starts_with(r#"the key "a" occurs twice"#));
    }
}
