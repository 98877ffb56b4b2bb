//! Values as the document formats see them: as text, as numbers, as true or false.

use piton_types::{Value, to_json};

/// A value as a template shows it: texts as they are, nothing for null, JSON for the rest.
pub(crate) fn to_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(b) => b.to_string(),
        Value::Int(n) => n.to_string(),
        Value::UInt(n) => n.to_string(),
        Value::Float(x) => float(*x),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::List(_) | Value::Map(_) => to_json(value).map(|json| json.to_string()).unwrap_or_default(),
    }
}

fn float(x: f64) -> String {
    // As JSON has it: 2.0 stays 2.0.
    format!("{x:?}")
}

/// The number that a text is.
pub(crate) fn number(text: &str) -> Option<Value> {
    let text = text.trim();
    let integer = text.parse().map(Value::Int).ok();
    integer.or_else(|| text.parse().ok().filter(|x: &f64| x.is_finite()).map(Value::Float))
}

/// A value as a number, also if a text is one.
pub(crate) fn as_f64(value: &Value) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::UInt(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        Value::Bool(b) => Some(f64::from(u8::from(*b))),
        Value::String(text) => text.trim().parse().ok().filter(|x: &f64| x.is_finite()),
        _ => None,
    }
}

/// Whether there is nothing in it.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
        _ => false,
    }
}

/// About how many bytes a value takes.
pub(crate) fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.iter().map(weight).sum(),
        Value::Map(entries) => entries.iter().map(|(key, value)| key.len() + weight(value)).sum(),
        _ => 0,
    };
    size_of::<Value>() + inside
}
