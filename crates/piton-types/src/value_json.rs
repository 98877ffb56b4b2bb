//! Values as JSON, for people and for programs that speak nothing else.
//!
//! This module owns the JSON form. Its invariant: `from_json` of a text that [`to_json`] gave is the
//! value it was given, exactly; and what JSON can't say, or what a text says ambiguously, is refused
//! instead of bent.
//!
//! Bytes, which JSON lacks, are written `{"$bytes": "00ff"}`, in lower-case hex. So that a real map of
//! that shape is not mistaken for bytes, the key of a map with one entry gets one more `$` in front if
//! it is `bytes` behind one or more `$`; reading takes it off again. A `$bytes` entry that doesn't hold
//! lower-case hex is read as the map it is.
//!
//! The reader is our own because `serde_json` without its global features rounds floats to within a
//! bit or so, makes floats of long integers, reads `-0` as a float, stops at 127 levels and says `:1:2`
//! but not `/a/b`. The tests hold the two against each other.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::path::{Path, Segment};
use crate::value::Value;
use crate::value_ser::MAX_DEPTH;

/// Why a text is not a value, or a value has no JSON form. Lines and columns count from 1, columns in
/// characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text is not JSON.
    #[error("line {line}, column {column}: {reason}")]
    Syntax {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
        /// What is wrong there.
        reason: &'static str,
    },
    /// An object in the text has the same key twice.
    #[error("line {line}, column {column}: the key {path} occurs twice")]
    DuplicateKey {
        /// The line of the second one.
        line: usize,
        /// The column of the second one.
        column: usize,
        /// The entry, key included.
        path: Path,
    },
    /// An integer in the text below `i64::MIN` or above `u64::MAX`, or a float too large for `f64`.
    #[error("line {line}, column {column}: the number {literal} does not fit 64 bits")]
    OutOfRange {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
        /// Where it is in the value.
        path: Path,
        /// The number as written, cut to 80 characters.
        literal: String,
    },
    /// The text has too many arrays and objects inside one another.
    #[error("line {line}, column {column}: nested more than {MAX_DEPTH} levels deep")]
    TooDeep {
        /// The line of the first one too many.
        line: usize,
        /// The column of the first one too many.
        column: usize,
    },
    /// The value has too many lists and maps inside one another.
    #[error("at {path}: nested more than {MAX_DEPTH} levels deep")]
    ValueTooDeep {
        /// The first list or map too many.
        path: Path,
    },
    /// The value has a NaN or an infinity, which JSON could only write as null.
    #[error("{}{float} has no JSON form", if path.segments().is_empty() { String::new() } else { format!("at {path}: ") })]
    NotFinite {
        /// Where it is.
        path: Path,
        /// The float, as Rust prints it.
        float: String,
    },
}

/// The JSON form of a value; see [`from_json`] for the way back.
///
/// ```
/// use piton_types::{Value, to_json};
/// let value = Value::map([("hash", Value::Bytes(vec![0, 255])), ("n", Value::from(1.0))]);
/// assert_eq!(to_json(&value)?.to_string(), r#"{"hash":{"$bytes":"00ff"},"n":1.0}"#);
/// assert!(to_json(&Value::Float(f64::NAN)).is_err());
/// # Ok::<(), piton_types::JsonError>(())
/// ```
///
/// # Errors
///
/// Refuses NaN and the infinities, and more than 128 lists and maps inside one another.
pub fn to_json(value: &Value) -> Result<Json, JsonError> {
    write(value, &mut Path::root())
}

fn write(value: &Value, path: &mut Path) -> Result<Json, JsonError> {
    let is_container = matches!(value, Value::List(_) | Value::Map(_));
    if is_container && path.segments().len() >= MAX_DEPTH {
        return Err(JsonError::ValueTooDeep { path: path.clone() });
    }
    let mut write_in = |segment, inner| {
        path.push(segment);
        let json = write(inner, path)?;
        path.pop();
        Ok(json)
    };
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(n) => Json::from(*n),
        Value::UInt(n) => Json::from(*n),
        Value::Float(x) => match serde_json::Number::from_f64(*x) {
            Some(number) => Json::Number(number),
            None => return Err(JsonError::NotFinite { path: path.clone(), float: x.to_string() }),
        },
        Value::String(text) => Json::from(text.as_str()),
        Value::Bytes(bytes) => Json::Object([("$bytes".to_owned(), Json::String(hex(bytes)))].into_iter().collect()),
        Value::List(items) => Json::Array(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| write_in(Segment::Index(index), item))
                .collect::<Result<_, _>>()?,
        ),
        Value::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|(key, entry)| {
                    let escape = if entries.len() == 1 && is_marker(key) { "$" } else { "" };
                    Ok((format!("{escape}{key}"), write_in(Segment::Key(key.clone()), entry)?))
                })
                .collect::<Result<_, _>>()?,
        ),
    })
}

/// The value that a JSON text stands for.
///
/// A number without fraction and exponent is an integer, any other a float: `1` differs from `1.0` and
/// `1e0`. `{"$bytes": "00ff"}` is bytes.
///
/// ```
/// use piton_types::{Value, from_json};
/// assert_eq!(from_json(br#"{"a": [1, 1.0]}"#)?.get(&"/a/1".parse().unwrap()), Some(&Value::Float(1.0)));
/// assert_eq!(from_json(br#"{"$bytes": "00ff"}"#)?, Value::Bytes(vec![0, 255]));
///
/// let error = from_json(b"[0,\n 99999999999999999999]").unwrap_err();
/// assert_eq!(error.to_string(), "line 2, column 2: the number 99999999999999999999 does not fit 64 bits");
/// # Ok::<(), piton_types::JsonError>(())
/// ```
///
/// # Errors
///
/// Refuses what is not JSON (in UTF-8, with nothing behind it), duplicate keys, integers outside
/// `i64::MIN..=u64::MAX`, floats too large for `f64`, and more than 128 lists and maps inside one
/// another.
pub fn from_json(bytes: &[u8]) -> Result<Value, JsonError> {
    let (text, is_utf8) = match str::from_utf8(bytes) {
        Ok(text) => (text, true),
        Err(error) => (str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(), false),
    };
    let mut reader = Reader { text, at: 0, path: Path::root() };
    if !is_utf8 {
        return reader.fail(text.len(), "this is not UTF-8");
    }
    let value = reader.value(0)?;
    if reader.peek_token().is_some() {
        return reader.fail(reader.at, "the text should end here");
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    /// The byte that is read next.
    at: usize,
    /// Of the value being read.
    path: Path,
}

impl<'a> Reader<'a> {
    /// The value that comes next, which lies in `depth` arrays and objects.
    fn value(&mut self, depth: usize) -> Result<Value, JsonError> {
        match self.peek_token() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                let rest = &self.text[self.at..];
                let words = [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))];
                let Some((word, value)) = words.into_iter().find(|(word, _)| rest.starts_with(word)) else {
                    return self.fail(self.at, "a value should be here");
                };
                self.at += word.len();
                Ok(value)
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, JsonError> {
        if depth >= MAX_DEPTH {
            return self.too_deep(self.at);
        }
        self.at += 1;
        let mut items = Vec::new();
        if self.take_token(b']') {
            return Ok(Value::List(items));
        }
        loop {
            self.path.push(Segment::Index(items.len()));
            items.push(self.value(depth + 1)?);
            self.path.pop();
            if self.take_token(b']') {
                return Ok(Value::List(items));
            }
            if !self.take_token(b',') {
                return self.fail(self.at, "',' or ']' should be here");
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, JsonError> {
        let start = self.at;
        // One level more than the value may have: it may turn out to be bytes.
        if depth > MAX_DEPTH {
            return self.too_deep(start);
        }
        self.at += 1;
        let mut entries = BTreeMap::new();
        if !self.take_token(b'}') {
            loop {
                self.entry(&mut entries, depth)?;
                if self.take_token(b'}') {
                    break;
                }
                if !self.take_token(b',') {
                    return self.fail(self.at, "',' or '}' should be here");
                }
            }
        }
        match unmark(entries) {
            Value::Map(_) if depth >= MAX_DEPTH => self.too_deep(start),
            value => Ok(value),
        }
    }

    fn entry(&mut self, entries: &mut BTreeMap<String, Value>, depth: usize) -> Result<(), JsonError> {
        if self.peek_token() != Some(b'"') {
            return self.fail(self.at, "a key in quotes should be here");
        }
        let start = self.at;
        let key = self.string()?;
        self.path.push(Segment::Key(key.clone()));
        if entries.contains_key(&key) {
            let (line, column) = self.position(start);
            return Err(JsonError::DuplicateKey { line, column, path: self.path.clone() });
        }
        if !self.take_token(b':') {
            return self.fail(self.at, "':' should be here");
        }
        entries.insert(key, self.value(depth + 1)?);
        self.path.pop();
        Ok(())
    }

    fn string(&mut self) -> Result<String, JsonError> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(plain) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') else {
                return self.fail(start, "this string has no end");
            };
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                _ => return self.fail(self.at, "a control character in a string must be escaped"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let start = self.at;
        self.at += 2;
        Ok(match self.text.as_bytes().get(start + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let mut units = vec![self.utf16_unit(start)?];
                if (0xd800..0xdc00).contains(&units[0]) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    units.push(self.utf16_unit(start)?);
                }
                match char::decode_utf16(units).collect::<Result<Vec<_>, _>>().as_deref() {
                    Ok(&[c]) => c,
                    _ => return self.fail(start, "half a surrogate pair is not a character"),
                }
            }
            _ => return self.fail(start, "there is no such escape"),
        })
    }

    /// The four hex digits that come next; `escape` is where the error is put.
    fn utf16_unit(&mut self, escape: usize) -> Result<u16, JsonError> {
        let digits = self.text.get(self.at..self.at + 4).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|text| u16::from_str_radix(text, 16).ok()) {
            Some(unit) => {
                self.at += 4;
                Ok(unit)
            }
            None => self.fail(escape, "four hex digits should follow '\\u'"),
        }
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let start = self.at;
        self.take(|b| b == b'-');
        if !self.take(|b| b == b'0') {
            self.digits()?;
        }
        let mut is_float = self.take(|b| b == b'.');
        if is_float {
            self.digits()?;
        }
        if self.take(|b| matches!(b, b'e' | b'E')) {
            is_float = true;
            self.take(|b| matches!(b, b'+' | b'-'));
            self.digits()?;
        }
        let literal = &self.text[start..self.at];
        let value = if is_float {
            literal.parse().ok().filter(|x: &f64| x.is_finite()).map(Value::Float)
        } else {
            literal.parse().ok().map(Value::Int).or_else(|| literal.parse().ok().map(Value::UInt))
        };
        value.ok_or_else(|| {
            let (line, column) = self.position(start);
            let literal = literal.chars().take(80).collect();
            JsonError::OutOfRange { line, column, path: self.path.clone(), literal }
        })
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        if !self.take(|b| b.is_ascii_digit()) {
            return self.fail(self.at, "a digit should be here");
        }
        while self.take(|b| b.is_ascii_digit()) {}
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is not white space.
    fn peek_token(&mut self) -> Option<u8> {
        while self.take(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')) {}
        self.peek()
    }

    /// Steps over the next byte if it is wanted; only ASCII may be.
    fn take(&mut self, wanted: impl FnOnce(u8) -> bool) -> bool {
        let taken = self.peek().is_some_and(wanted);
        self.at += usize::from(taken);
        taken
    }

    fn take_token(&mut self, token: u8) -> bool {
        self.peek_token();
        self.take(|b| b == token)
    }

    /// Line and column of a byte.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.bytes().filter(|b| *b == b'\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    fn fail<T>(&self, at: usize, reason: &'static str) -> Result<T, JsonError> {
        let (line, column) = self.position(at);
        Err(JsonError::Syntax { line, column, reason })
    }

    fn too_deep<T>(&self, at: usize) -> Result<T, JsonError> {
        let (line, column) = self.position(at);
        Err(JsonError::TooDeep { line, column })
    }
}

/// Whether the key is `bytes` behind one or more `$`.
fn is_marker(key: &str) -> bool {
    key.strip_suffix("bytes").is_some_and(|sigils| !sigils.is_empty() && sigils.bytes().all(|b| b == b'$'))
}

/// What the entries of an object stand for: bytes, or a map whose key may have been escaped.
fn unmark(mut entries: BTreeMap<String, Value>) -> Value {
    if entries.len() == 1
        && let Some(entry) = entries.first_entry()
        && is_marker(entry.key())
    {
        let escaped = entry.key().strip_prefix('$').filter(|key| is_marker(key)).map(str::to_owned);
        match (escaped, entry.get()) {
            (Some(key), _) => return Value::map([(key, entry.remove())]),
            (None, Value::String(text)) => {
                if let Some(bytes) = unhex(text) {
                    return Value::Bytes(bytes);
                }
            }
            _ => {}
        }
    }
    Value::Map(entries)
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| DIGITS.iter().position(|digit| *digit == b).and_then(|value| u8::try_from(value).ok());
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::value_ser::tests::{nested, values};

    fn round_trip(value: &Value) -> Value {
        let text = to_json(value).unwrap().to_string();
        from_json(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn read(text: &str) -> Result<Value, JsonError> {
        from_json(text.as_bytes())
    }

    fn error(text: &str) -> String {
        match read(text) {
            Ok(value) => panic!("{text} was read as {value:?}"),
            Err(error) => error.to_string(),
        }
    }

    proptest! {
        #[test]
        fn values_survive_a_round_trip(value in values(any::<f64>().prop_filter("finite", |x| x.is_finite()))) {
            prop_assert_eq!(round_trip(&value), value);
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            let _ = from_json(&bytes);
        }

        /// Texts that are nearly JSON: we take what `serde_json` takes, but for what we refuse on purpose.
        #[test]
        fn agrees_with_serde_json(tokens in proptest::collection::vec(token(), 0..12)) {
            let text = tokens.concat();
            let (ours, theirs) = (read(&text), serde_json::from_str::<Json>(&text));
            match ours {
                Ok(_) => prop_assert!(theirs.is_ok(), "only we take {text}"),
                Err(JsonError::Syntax { .. }) => prop_assert!(theirs.is_err(), "only serde_json takes {text}"),
                Err(_) => {}
            }
        }

        #[test]
        fn strings_are_read_as_serde_json_reads_them(inner in r#"("|\\["\\/bfnrtux]|\\u[dD][89a-fA-F][0-9a-f]{2}|\\u00[0-9a-f]{2}|[a\nß😀]){0,5}"#) {
            let text = format!("\"{inner}\"");
            let theirs = serde_json::from_str::<String>(&text).ok().map(Value::String);
            prop_assert_eq!(read(&text).ok(), theirs, "{}", text);
        }
    }

    fn token() -> impl Strategy<Value = &'static str> {
        proptest::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\"", "\"a\":", "\"b\":", "null", "true", "false", " ", "\n",
            "0", "1", "-", "+", ".", "e", "E", "\"", "\\", "[]", "{}", "nul", "\u{a0}",
        ])
    }

    #[test]
    fn numbers_are_exact_or_refused() {
        for (text, value) in [
            ("0", Value::Int(0)),
            ("-0", Value::Int(0)),
            ("-0.0", Value::Float(-0.0)),
            ("1.0", Value::Float(1.0)),
            ("1e3", Value::Float(1000.0)),
            ("-9223372036854775808", Value::Int(i64::MIN)),
            ("18446744073709551615", Value::UInt(u64::MAX)),
            ("1e-999", Value::Float(0.0)),
        ] {
            assert_eq!(read(text).unwrap(), value, "{text}");
        }
        for text in ["-9223372036854775809", "18446744073709551616", "1e999", "-1e999"] {
            assert!(matches!(read(text), Err(JsonError::OutOfRange { .. })), "{text}");
        }
        assert!(matches!(read(&"9".repeat(1000)), Err(JsonError::OutOfRange { literal, .. }) if literal.len() == 80));
        let Err(JsonError::OutOfRange { line, column, path, .. }) = read("{\"ß\":\n [1, 99999999999999999999]}")
        else {
            panic!("it was read")
        };
        assert_eq!((line, column, path.to_string().as_str()), (2, 6, "/ß/1"));
        for text in ["01", "1.", ".1", "-", "+1", "1e", "1e+", "0x1", "NaN", "Infinity", "--1"] {
            assert!(matches!(read(text), Err(JsonError::Syntax { .. })), "{text}");
        }
    }

    #[test]
    fn malformed_texts_are_refused_with_their_place() {
        assert_eq!(error(""), "line 1, column 1: a value should be here");
        assert_eq!(error("[1,\n  2 3]"), "line 2, column 5: ',' or ']' should be here");
        assert_eq!(error("{\"ä\" 1}"), "line 1, column 6: ':' should be here");
        assert_eq!(error("{\"a\": 1,}"), "line 1, column 9: a key in quotes should be here");
        assert_eq!(error("{} {}"), "line 1, column 4: the text should end here");
        assert_eq!(error("[\"a"), "line 1, column 2: this string has no end");
        assert_eq!(error(r#"["\ud800"]"#), "line 1, column 3: half a surrogate pair is not a character");
        assert_eq!(error("\u{feff}1"), "line 1, column 1: a value should be here");
        assert_eq!(from_json(b"[\"\xff\"]").unwrap_err().to_string(), "line 1, column 3: this is not UTF-8");
    }

    #[test]
    fn surrogate_pairs_are_joined_to_the_last() {
        assert_eq!(read(r#""\ud800\udc00\udbff\udfff""#).unwrap(), Value::from("\u{10000}\u{10ffff}"));
    }

    #[test]
    fn duplicate_keys_are_refused() {
        assert_eq!(error("[{\"a\": 1,\n \"\\u0061\": 1}]"), "line 2, column 2: the key /0/a occurs twice");
    }

    #[test]
    fn depth_is_limited() {
        let deep = nested(MAX_DEPTH);
        assert_eq!(round_trip(&deep), deep);
        assert!(matches!(to_json(&nested(MAX_DEPTH + 1)), Err(JsonError::ValueTooDeep { .. })));
        for open in ["[", "{\"a\":"] {
            assert!(matches!(read(&open.repeat(1_000_000)), Err(JsonError::TooDeep { .. })));
        }
        // Bytes are an object in JSON but don't count as a level.
        let around = |leaf| (0..MAX_DEPTH).fold(leaf, |inner, _| Value::List(vec![inner]));
        let bytes = around(Value::Bytes(vec![1]));
        assert_eq!(round_trip(&bytes), bytes);
        let objects = format!("{}{{}}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert_eq!(read(&objects), Err(JsonError::TooDeep { line: 1, column: MAX_DEPTH + 1 }));
    }

    #[test]
    fn floats_without_a_json_form_are_refused() {
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let value = Value::map([("a", Value::List(vec![Value::Null, Value::Float(x)]))]);
            assert_eq!(to_json(&value).unwrap_err().to_string(), format!("at /a/1: {x} has no JSON form"));
        }
        assert_eq!(to_json(&Value::Float(f64::NAN)).unwrap_err().to_string(), "NaN has no JSON form");
    }

    #[test]
    fn bytes_and_maps_that_look_like_them_are_told_apart() {
        let map = |key: &str, value: &str| Value::map([(key, Value::from(value))]);
        assert_eq!(to_json(&Value::Bytes(vec![0, 0xaf])).unwrap().to_string(), r#"{"$bytes":"00af"}"#);
        assert_eq!(to_json(&map("$bytes", "00")).unwrap().to_string(), r#"{"$$bytes":"00"}"#);
        assert_eq!(to_json(&map("bytes", "00")).unwrap().to_string(), r#"{"bytes":"00"}"#);
        let two = Value::map([("$bytes", Value::from("00")), ("b", Value::Null)]);
        assert_eq!(to_json(&two).unwrap().to_string(), r#"{"$bytes":"00","b":null}"#);
        for value in [map("$bytes", "00"), map("$$bytes", "00"), map("$bytes", "x"), map("$", ""), two] {
            assert_eq!(round_trip(&value), value);
        }
        for not_hex in ["0", "0g", "AF", "é"] {
            assert_eq!(read(&format!(r#"{{"$bytes": "{not_hex}"}}"#)).unwrap(), map("$bytes", not_hex));
        }
        assert_eq!(read(r#"{"$bytes": ""}"#).unwrap(), Value::Bytes(Vec::new()));
    }
}
