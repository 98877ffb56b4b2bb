//! The agents that are known, each with its adapter.

use piton_types::{RunId, Value};
use serde_json::json;

use crate::claude_code;
use crate::report::{Report, ReportError};

/// The field of a run's input that says which of an agent's own sessions it is: a run with it is reported by hooks.
pub const SESSION: &str = "session_id";

/// An agent whose hooks are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Agent {
    /// Claude Code.
    ClaudeCode,
}

/// What settings have of ours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hooks {
    /// The events.
    pub events: Vec<&'static str>,
    /// The commands, each once.
    pub commands: Vec<String>,
}

/// Settings that can't be edited, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub(crate) String);

impl Agent {
    /// Every agent.
    pub const ALL: [Self; 1] = [Self::ClaudeCode];

    /// As it is written in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
        }
    }

    /// What the names of its sessions begin with.
    pub const fn short(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude",
        }
    }

    /// As people write it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
        }
    }

    /// Its settings in a folder: those that the project shares, then those that are the user's alone.
    pub const fn files(self) -> [&'static str; 2] {
        match self {
            Self::ClaudeCode => claude_code::FILES,
        }
    }

    /// The events that Piton wants to be told of.
    pub fn events(self) -> Vec<&'static str> {
        match self {
            Self::ClaudeCode => claude_code::settings::EVENTS.iter().map(|event| event.name).collect(),
        }
    }

    /// What a hook runs, by the program's name or its path quoted for a shell.
    pub fn command(self, program: &str) -> String {
        match self {
            Self::ClaudeCode => claude_code::command(program),
        }
    }

    /// What settings have of ours.
    pub fn found(self, settings: &str) -> Result<Hooks, SettingsError> {
        match self {
            Self::ClaudeCode => claude_code::settings::found(settings),
        }
    }

    /// The settings with our hooks, each once; everything else stays as it is, to the byte.
    pub fn installed(self, settings: &str, command: &str) -> Result<String, SettingsError> {
        match self {
            Self::ClaudeCode => claude_code::settings::installed(settings, command),
        }
    }

    /// The settings without our hooks: `None` if there are none, and an inner `None` if nothing else is left.
    pub fn removed(self, settings: &str) -> Result<Option<Option<String>>, SettingsError> {
        match self {
            Self::ClaudeCode => claude_code::settings::removed(settings),
        }
    }

    /// What one of its events says.
    pub fn report(self, event: &str) -> Result<Report, ReportError> {
        match self {
            Self::ClaudeCode => claude_code::report(event),
        }
    }

    /// An answer to an event by which the agent shows its user a message, and goes on.
    pub fn notice(self, message: &str) -> serde_json::Value {
        match self {
            Self::ClaudeCode => json!({ "systemMessage": message }),
        }
    }

    /// The run of one of its sessions, and the run's input.
    pub fn run(self, session: &str) -> (RunId, Value) {
        let name = format!("{}-{session}", self.short());
        let run = RunId::for_foreign(&name, |name| *blake3::hash(name).as_bytes());
        (run, Value::Map([(SESSION.to_owned(), Value::from(session))].into()))
    }
}
