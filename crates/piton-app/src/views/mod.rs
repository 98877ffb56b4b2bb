//! Runs, entries and values as they are shown: JSON with stable field names, and text.

use piton_store::SealedEntry;
use piton_types::{CheckpointRef, EntryKind, RunId, RunState, RunSummary, Timestamp, Value, to_json};
use serde_json::{Map, Value as Json, json};

use crate::words::clean;

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

/// A value on one line.
pub fn value_line(value: &Value) -> String {
    clean(&value_json(value).to_string())
}

/// A value on as many lines as it takes.
pub fn value_text(value: &Value) -> String {
    let text = format!("{:#}", value_json(value));
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

/// What people call an entry of this kind.
pub fn kind_word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Created => "created",
        EntryKind::Claimed => "started",
        EntryKind::StateChanged => "state",
        EntryKind::StepDone => "step",
        EntryKind::EffectIntent => "intent",
        EntryKind::EffectReceipt => "receipt",
        EntryKind::Answer => "answer",
        EntryKind::Checkpoint => "checkpoint",
        EntryKind::Restored => "restored",
        EntryKind::Asked => "question",
        EntryKind::Requested => "request",
        EntryKind::Logged => "log",
        EntryKind::Removed => "removed",
        EntryKind::FilesRestored => "files restored",
    }
}

/// The name of an entry.
pub fn entry_id(run: &RunId, entry: &SealedEntry) -> CheckpointRef {
    CheckpointRef { run: run.clone(), seq: entry.seq }
}

/// An entry without its body and state.
pub fn entry_json(run: &RunId, entry: &SealedEntry) -> Map<String, Json> {
    let parts = entry.parts.iter().map(|(name, part)| {
        let shown = json!({"schema": part.schema, "version": part.version, "root": part.root.to_string()});
        (name.0.clone(), shown)
    });
    object([
        ("id", json!(entry_id(run, entry).to_string())),
        ("run", json!(run.as_str())),
        ("seq", json!(entry.seq.0)),
        ("kind", json!(entry.kind)),
        ("label", json!(entry.label)),
        ("created_at", time_json(entry.at)),
        ("checkpoint", json!(!entry.parts.is_empty())),
        ("parts", Json::Object(parts.collect())),
    ])
}

/// What the index knows of a run.
pub fn run_json(run: &RunSummary) -> Map<String, Json> {
    object([
        ("id", json!(run.id.as_str())),
        ("run", json!(run.id.as_str())),
        ("name", json!(run.name)),
        ("kind", json!(run.kind)),
        ("status", json!(run.status)),
        ("created_at", time_json(run.created_at)),
        ("updated_at", time_json(run.updated_at)),
        ("parent", json!(run.parent.as_ref().map(ToString::to_string))),
        ("folder", json!(run.folder)),
    ])
}

/// What a run gave, and why it failed: both null while it is neither.
pub fn result_json(state: &RunState) -> [(&'static str, Json); 2] {
    let (outputs, error) = match state {
        RunState::Completed(done) => (value_json(&done.output), Json::Null),
        RunState::Failed(failed) => (Json::Null, json!(failed.message)),
        _ => (Json::Null, Json::Null),
    };
    [("outputs", outputs), ("error", error)]
}

/// A time, RFC 3339.
pub fn time_json(at: Timestamp) -> Json {
    Json::String(at.to_string())
}

/// An object of these fields.
pub fn object<const N: usize>(fields: [(&str, Json); N]) -> Map<String, Json> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_record_are_written_as_times_and_values_of_others_are_not() {
        let inner = Value::map([("started_at", Value::from(0)), ("input", Value::map([("at", Value::from(0))]))]);
        let body = Value::map([("at", Value::from(0)), ("state", inner), ("attempt", Value::from(1))]);
        assert_eq!(
            value_line(&told(body)),
            r#"{"at":"1970-01-01T00:00:00.000Z","attempt":1,"state":{"input":{"at":0},"started_at":"1970-01-01T00:00:00.000Z"}}"#
        );
    }

    #[test]
    fn looking_at_a_value_never_fails() {
        let value =
            Value::map([("a", Value::from(vec![Value::Float(f64::NAN), Value::from(1.5)])), ("b", Value::Null)]);
        assert_eq!(value_line(&value), r#"{"a":["NaN",1.5],"b":null}"#);
        assert_eq!(value_text(&Value::from("\x1b[2J\u{9b}\u{202e}")), r#""\u001b[2J\u{9b}\u{202e}""#);
    }
}
