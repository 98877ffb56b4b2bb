//! What an agent tells of, in the same words for every agent.

use piton_types::{Value, from_json};
use serde_json::Value as Json;

use crate::danger::{Classifier, Operation};

/// The largest answer of a tool that is kept, in bytes of JSON. Some repeat the whole file.
const MAX_OUTPUT: usize = 10 << 10;

/// One event of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Which of its sessions it is about, by the agent's own id.
    pub session: String,
    /// What happened.
    pub happening: Happening,
}

/// What happened in a session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Happening {
    /// The user asked for something.
    TurnBegins {
        /// In these words.
        prompt: String,
    },
    /// A tool is about to be called.
    ToolBegins {
        /// Its name.
        tool: String,
        /// The agent's id of the call, if it gives one.
        call: Option<String>,
        /// What it is called with.
        input: Value,
    },
    /// A tool was called.
    ToolEnded {
        /// Its name.
        tool: String,
        /// The agent's id of the call, if it gives one.
        call: Option<String>,
        /// What it was called with.
        input: Value,
        /// Its answer, as far as it is kept, or what went wrong.
        outcome: Result<Value, String>,
    },
    /// What the user asked for is done.
    TurnEnded,
    /// The session is over.
    SessionEnded,
    /// Something that has nothing to do with files.
    Other {
        /// The agent's name for it.
        name: String,
    },
}

impl Report {
    /// Whether files may have changed or may be about to. A tool call that only reads needs no checkpoint, and most
    /// calls are of that kind.
    pub fn needs_checkpoint(&self, classifier: &Classifier) -> bool {
        match &self.happening {
            Happening::ToolBegins { tool, input, .. } | Happening::ToolEnded { tool, input, .. } => {
                classifier.classify(Operation::Tool { name: tool, input }).is_dangerous()
            }
            Happening::Other { .. } => false,
            Happening::TurnBegins { .. } | Happening::TurnEnded | Happening::SessionEnded => true,
        }
    }
}

/// Why an event can't be understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// It doesn't look like one of this agent.
    #[error("the event is none of {agent}'s")]
    Foreign {
        /// The agent's name, as people write it.
        agent: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// A JSON value as ours.
pub(crate) fn value(json: &Json) -> Value {
    // What is beyond our numbers is kept as text.
    from_json(json.to_string().as_bytes()).unwrap_or_else(|_| Value::from(json.to_string()))
}

/// What is kept of a tool's answer.
pub(crate) fn kept(json: &Json) -> Value {
    let text = json.to_string();
    if text.len() <= MAX_OUTPUT { value(json) } else { Value::from(format!("{} bytes, not kept", text.len())) }
}
