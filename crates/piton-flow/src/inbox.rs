//! Questions to people, and how they get their answers.

use async_trait::async_trait;
use piton_types::{StepPath, Value};
use serde::{Deserialize, Serialize};

/// A question of a node to a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The node that asks, at its place in the run.
    pub step: StepPath,
    /// What people call the node.
    pub title: String,
    /// What is asked.
    pub prompt: String,
    /// The variables that the answer should have.
    pub fields: Vec<Field>,
    /// What was wrong with the last answer, if it is asked again.
    pub problem: Option<String>,
}

/// A variable of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it should be, as in `string`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether there is no answer without it.
    pub required: bool,
}

/// Gets answers. The engine has none of its own.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Waits for the answer to a question; `None` if there will be none.
    async fn ask(&self, question: Question) -> Option<Value>;
}
