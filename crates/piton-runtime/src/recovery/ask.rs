//! Asking a person, as a port: a terminal, a page, a test, or no one.

use async_trait::async_trait;
use serde::Serialize;

use super::Choice;

/// Something that only a person can decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Question {
    /// What it is about.
    pub text: String,
    /// What can be chosen; the last one is always to stop.
    pub choices: Vec<Choice>,
}

/// Asks a person.
#[async_trait]
pub trait Ask: Send + Sync {
    /// The choice, one of those that the question has; `None` if there is no one to ask.
    async fn ask(&self, question: &Question) -> Option<Choice>;
}

/// There is no one to ask.
#[derive(Debug, Clone, Copy, Default)]
pub struct CannotAsk;

#[async_trait]
impl Ask for CannotAsk {
    async fn ask(&self, _question: &Question) -> Option<Choice> {
        None
    }
}
