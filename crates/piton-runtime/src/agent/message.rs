//! What a conversation is made of. These are stored: fields may be added, with a default.

use piton_types::Value;
use serde::{Deserialize, Serialize};

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who said it: `user`, `assistant`, `system`, `tool`, or what the model's wire format calls it.
    pub role: String,
    /// What: text, or whatever the wire format has.
    pub content: Value,
    /// That the content is a summary, and of what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summarised: Option<Summarised>,
}

/// What a tool gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The tool.
    pub tool: String,
    /// What it was called with.
    pub input: Value,
    /// What it gave.
    pub output: Value,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// That input and output are a summary, and of what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summarised: Option<Summarised>,
}

/// Something that was decided, so that it needn't be decided again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What.
    pub what: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Stands with a summary, and leads to the full text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summarised {
    /// Where the whole of it is: `blob://` and its hash. [`AgentContext::full`](crate::AgentContext::full)
    /// loads it.
    pub full: String,
    /// Who summarised it.
    pub by: String,
    /// How many bytes of text the whole has.
    pub bytes: u64,
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<Value>) -> Self {
        Self { role: role.into(), content: content.into(), summarised: None }
    }

    /// What the user said.
    pub fn user(content: impl Into<Value>) -> Self {
        Self::new("user", content)
    }

    /// What the model said.
    pub fn assistant(content: impl Into<Value>) -> Self {
        Self::new("assistant", content)
    }
}

impl ToolOutput {
    /// What a tool gave.
    pub fn new(tool: impl Into<String>, input: impl Into<Value>, output: impl Into<Value>) -> Self {
        Self { tool: tool.into(), input: input.into(), output: output.into(), error: None, summarised: None }
    }
}

/// How many bytes of text and other content a value has, roughly what its JSON would take.
pub(super) fn weight(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => 8,
        Value::String(text) => text.len() as u64 + 2,
        Value::Bytes(bytes) => bytes.len() as u64 + 2,
        Value::List(items) => items.iter().map(|item| weight(item) + 1).sum::<u64>() + 2,
        Value::Map(entries) => entries.iter().map(|(key, value)| key.len() as u64 + 4 + weight(value)).sum::<u64>() + 2,
    }
}

/// A value as text, for the summariser.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Value::List(items) => items.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        Value::Map(entries) => {
            entries.iter().map(|(key, value)| format!("{key}: {}", text_of(value))).collect::<Vec<_>>().join("\n")
        }
        Value::Bool(flag) => flag.to_string(),
        Value::Int(n) => n.to_string(),
        Value::UInt(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
    }
}
