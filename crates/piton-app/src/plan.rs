//! What a change for good will do. The app makes the plan, the shell shows it and asks, the app carries it out.

use serde::Serialize;

/// What will be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// In one line.
    #[serde(rename = "plan")]
    pub what: String,
    /// What it entails, one thing a line.
    #[serde(rename = "entails")]
    pub lines: Vec<String>,
    /// Whether it was done: a plan that is shown wasn't.
    done: bool,
}

impl Plan {
    /// A plan that entails nothing yet.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), lines: Vec::new(), done: false }
    }

    /// Adds one thing that it entails.
    pub fn line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }
}
