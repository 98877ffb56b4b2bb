//! What there is to see, as typed structures: the one place for the JSON of every verb, on the command line, over HTTP
//! and in bindings. Field names are promised; `docs/reference/output.md` shows each.
//!
//! Views hold texts as they are stored. A shell that writes to a terminal takes control characters out of them first.

pub mod debug;
pub mod documents;
pub mod entry;
pub mod files;
pub mod page;
pub mod run;
pub mod store;

use std::fmt::Display;

use piton_types::{Timestamp, Value, to_json};
use serde::Serializer;
use serde_json::Value as Json;

/// A value as JSON. What JSON can't say (NaN, infinities) becomes text, so that looking never fails.
pub fn value_json(value: &Value) -> Json {
    to_json(value).unwrap_or_else(|_| match value {
        Value::Float(float) => Json::String(float.to_string()),
        Value::List(items) => Json::Array(items.iter().map(value_json).collect()),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|(key, value)| (key.clone(), value_json(value))).collect())
        }
        other => Json::String(format!("{other:?}")),
    })
}

/// What an entry says, with its own times as they are written everywhere else. Values that the run brought along
/// (inputs, outputs, answers) are left as they are.
pub fn told(body: Value) -> Value {
    let Value::Map(fields) = body else { return body };
    let told = fields.into_iter().map(|(name, value)| {
        let value = match value {
            Value::Int(millis) if name == "at" || name.ends_with("_at") => {
                Value::from(Timestamp::from_millis(millis).to_string())
            }
            Value::Map(_) if matches!(name.as_str(), "state" | "retry" | "deadline") => told(value),
            other => other,
        };
        (name, value)
    });
    Value::Map(told.collect())
}

/// Serialises as the text that people see: ids, references, times.
pub(crate) fn text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// The same for what may not be there.
pub(crate) fn text_or_null<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// So many milliseconds.
pub(crate) fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_record_are_written_as_times_and_values_of_others_are_not() {
        let inner = Value::map([("started_at", Value::from(0)), ("input", Value::map([("at", Value::from(0))]))]);
        let body = Value::map([("at", Value::from(0)), ("state", inner), ("attempt", Value::from(1))]);
        assert_eq!(
            value_json(&told(body)).to_string(),
            r#"{"at":"1970-01-01T00:00:00.000Z","attempt":1,"state":{"input":{"at":0},"started_at":"1970-01-01T00:00:00.000Z"}}"#
        );
    }

    #[test]
    fn looking_at_a_value_never_fails() {
        let value =
            Value::map([("a", Value::from(vec![Value::Float(f64::NAN), Value::from(1.5)])), ("b", Value::Null)]);
        assert_eq!(value_json(&value).to_string(), r#"{"a":["NaN",1.5],"b":null}"#);
    }
}
