//! Language models: one vocabulary, two wire formats.
//!
//! A [`Model`] answers requests: a program's own, or a [`Remote`] one behind an endpoint. A [`Provider`] is such an
//! endpoint with its key. [`Provider::chat`] sends a [`ChatRequest`] and gives a
//! [`ChatStream`], which is pulled: a reader that is slow to take the next piece makes the sender wait, and
//! dropping the stream closes the connection. [`ChatStream::finish`] gives the whole [`ChatAnswer`], whether
//! it came in pieces or at once.
//!
//! Whatever a server sends, memory and time are bounded by the policy of the HTTP client.

mod anthropic;
mod error;
mod model;
mod openai;
mod provider;
mod stream;

use std::collections::BTreeMap;
use std::time::Duration;

use piton_types::{JsonError, Value, from_json};
use serde::{Deserialize, Serialize};

pub use error::ChatError;
pub use model::{Model, Remote};
pub use provider::{Price, Provider, Providers, Wire};
pub use stream::{ChatStream, Delta};

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The application, which sets the rules.
    System,
    /// The user, who asks.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
    Tool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: Vec<Content>,
}

impl Message {
    /// A message of text alone.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, content: vec![Content::Text { text: text.into() }] }
    }

    /// Its text, without pictures and tools.
    pub fn plain(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            Content::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text.
    Text {
        /// It.
        text: String,
    },
    /// A picture, as a URL; `data:` for one that is sent along.
    Image {
        /// Where it is.
        url: String,
        /// How closely to look: `low`, `high`, `auto`.
        detail: Option<String>,
    },
    /// The model calls a tool.
    ToolCall(ToolCall),
    /// What the tool gave.
    ToolResult {
        /// Which call this answers.
        id: String,
        /// What came out.
        text: String,
        /// Whether it failed.
        is_error: bool,
    },
}

/// A call of a tool, as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// What the result must name.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// The arguments as text, which should be a JSON object and needn't be.
    pub arguments: String,
}

impl ToolCall {
    /// The arguments; no text at all is an empty map.
    ///
    /// # Errors
    ///
    /// If the model didn't write JSON.
    pub fn parsed(&self) -> Result<Value, JsonError> {
        if self.arguments.trim().is_empty() {
            return Ok(Value::Map(BTreeMap::new()));
        }
        from_json(self.arguments.as_bytes())
    }
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON schema of its arguments.
    pub schema: Value,
}

/// What form the answer must have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Format {
    /// Any text.
    #[default]
    Text,
    /// A JSON object.
    Json,
    /// JSON that fits a schema.
    Schema {
        /// What the form is called.
        name: String,
        /// The JSON schema.
        schema: Value,
    },
}

/// What a model is asked.
#[derive(Debug, Clone, Default)]
pub struct ChatRequest {
    /// Which model; the provider's default without one.
    pub model: Option<String>,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// What it may call.
    pub tools: Vec<ToolSpec>,
    /// What form the answer must have.
    pub format: Format,
    /// Whether the answer comes in pieces.
    pub stream: bool,
    /// How many tokens it may have.
    pub max_tokens: Option<u64>,
    /// More parameters of the model (`temperature`, `top_p`, `stop`, …), sent as they are.
    pub parameters: BTreeMap<String, Value>,
    /// How long it may take, if that is less than the policy allows.
    pub timeout: Option<Duration>,
    /// Sent as `Idempotency-Key`: the same if the request is made again because its outcome wasn't recorded.
    pub key: Option<String>,
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It was done.
    Stop,
    /// It had no more tokens.
    Length,
    /// It waits for tools.
    ToolCalls,
    /// Something else, in the provider's words.
    Other(String),
}

/// How many tokens went in and out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent.
    pub input: u64,
    /// Tokens received.
    pub output: u64,
}

impl Usage {
    /// All of them.
    pub const fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input = self.input.saturating_add(more.input);
        self.output = self.output.saturating_add(more.output);
    }
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatAnswer {
    /// The text.
    pub text: String,
    /// What it thought before, where the provider tells.
    pub reasoning: String,
    /// The tools that it calls.
    pub tool_calls: Vec<ToolCall>,
    /// Why it stopped, if the provider said.
    pub finish: Option<Finish>,
    /// The tokens, if the provider counted them.
    pub usage: Option<Usage>,
    /// The model, in the provider's words.
    pub model: Option<String>,
}

impl ChatAnswer {
    /// An answer of text alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), finish: Some(Finish::Stop), ..Self::default() }
    }
}
