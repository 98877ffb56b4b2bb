//! What a checkpoint is: the roots of a run's state at one entry of its log, and what they mean (C1).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{BlobId, InvalidId, RunId, Seq, StepPath};

/// The name of a checkpoint: its run and the sequence number of the entry that carries it. It doesn't
/// depend on content, so it stays the same in a copy of the run in another store.
///
/// ```
/// use piton_types::CheckpointRef;
/// let name: CheckpointRef = "nightly@7".parse().unwrap();
/// assert_eq!((name.run.as_str(), name.seq.0), ("nightly", 7));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CheckpointRef {
    /// The run.
    pub run: RunId,
    /// The entry.
    pub seq: Seq,
}

impl fmt::Display for CheckpointRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.run, self.seq)
    }
}

impl FromStr for CheckpointRef {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = |reason| InvalidId { kind: "checkpoint id", text: text.chars().take(80).collect(), reason };
        let (run, seq) = text.split_once('@').ok_or_else(|| invalid("RUN@NUMBER is wanted"))?;
        let number = seq.parse().ok().filter(|n: &u32| n.to_string() == seq);
        Ok(Self { run: run.parse()?, seq: Seq(number.ok_or_else(|| invalid("a number is wanted after '@'"))?) })
    }
}

impl TryFrom<String> for CheckpointRef {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<CheckpointRef> for String {
    fn from(name: CheckpointRef) -> Self {
        name.to_string()
    }
}

/// A part of a run's state: the engine's own, or one that an application adds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartName(pub String);

impl PartName {
    /// The workflow engine's position.
    pub const ENGINE: &str = "engine";
    /// Variables.
    pub const VARIABLES: &str = "variables";
    /// Messages, tool outputs, decisions.
    pub const CONVERSATION: &str = "conversation";
    /// Tokens and cost.
    pub const USAGE: &str = "usage";
    /// The snapshot of the working directory.
    pub const WORKSPACE: &str = "workspace";
    /// The full text of what was trimmed from the conversation.
    pub const ARCHIVE: &str = "archive";
    /// The application's own value.
    pub const APP: &str = "app";
    /// Where a workflow is, in full: for stores that keep nothing but the newest checkpoint.
    pub const CHECKPOINT: &str = "checkpoint";
}

impl From<&str> for PartName {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

/// One part of the state, as of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which shape the value has, as in `piton.conversation`.
    pub schema: String,
    /// The version of that shape.
    pub version: u32,
    /// The root of the value. Equal values have equal roots.
    pub root: BlobId,
}

/// The parts of a state by name. An entry that has any is a checkpoint.
pub type Parts = BTreeMap<PartName, Part>;

/// What a checkpoint was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointKind {
    /// By a trigger.
    Auto,
    /// By hand.
    Manual,
    /// Before a tool call.
    PreTool,
    /// At the start of a session.
    Session,
    /// After or before a workflow node.
    Node,
}

/// The step that a checkpoint or an entry belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRef {
    /// Its place in the run.
    pub path: StepPath,
    /// How many steps were begun before it.
    pub index: u32,
}

/// Tokens and money used so far.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// Tokens sent.
    pub input: u64,
    /// Tokens received.
    pub output: u64,
    /// Cost in the currency of the price list.
    pub cost: f64,
}

impl TokenUsage {
    /// All tokens.
    pub const fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Whether nothing was used.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl std::ops::AddAssign for TokenUsage {
    fn add_assign(&mut self, more: Self) {
        self.input = self.input.saturating_add(more.input);
        self.output = self.output.saturating_add(more.output);
        self.cost += more.cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_names_parse_strictly() {
        assert_eq!("r@7".parse::<CheckpointRef>().unwrap().to_string(), "r@7");
        for bad in ["r", "r@", "@7", "r@-1", "r@07", "r@+7", "r@4294967296", "../x@1", "r@7@8"] {
            assert!(bad.parse::<CheckpointRef>().is_err(), "{bad:?} was accepted");
        }
    }
}
