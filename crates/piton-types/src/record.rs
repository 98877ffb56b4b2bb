//! The body of a checkpoint's entry (C1): why it was made, where the run stood, and what going on from it
//! needs. The state itself is in the entry's parts; what happens after a checkpoint is later entries, never
//! a change of this one.
//!
//! It is stored: fields may be added, with a default, and are never given another meaning. What is absent
//! costs nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{BlobId, CheckpointKind, StepRef, Trigger, Value};

/// What is known about a checkpoint beside its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// What caused it.
    pub trigger: Trigger,
    /// What it was made for.
    pub kind: CheckpointKind,
    /// What it is, for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What the application wants to find again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    /// The step that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepRef>,
    /// The agent or node at work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// How often the loop went round.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub iteration: u32,
    /// How much is done, from 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The files that changed since the checkpoint before.
    #[serde(default, skip_serializing_if = "FileChanges::is_empty")]
    pub file_changes: FileChanges,
    /// What going on from here needs.
    #[serde(default, skip_serializing_if = "RecoveryInfo::is_empty")]
    pub recovery: RecoveryInfo,
    /// What the surroundings were like, as the program that drives the run describes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Value>,
    /// How what led here ended.
    #[serde(default, skip_serializing_if = "Outcome::is_success")]
    pub outcome: Outcome,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl CheckpointRecord {
    /// A record of a checkpoint of this kind, with nothing else to it.
    pub fn new(trigger: Trigger, kind: CheckpointKind) -> Self {
        Self {
            trigger,
            kind,
            description: String::new(),
            metadata: BTreeMap::new(),
            step: None,
            current: None,
            iteration: 0,
            progress: None,
            file_changes: FileChanges::default(),
            recovery: RecoveryInfo::default(),
            fingerprint: None,
            outcome: Outcome::Success,
            error: None,
        }
    }

    /// A record of a checkpoint that this trigger caused.
    ///
    /// ```
    /// use piton_types::{CheckpointKind, CheckpointRecord, Trigger};
    /// assert_eq!(CheckpointRecord::by(Trigger::Manual).kind, CheckpointKind::Manual);
    /// assert_eq!(CheckpointRecord::by(Trigger::BeforeDangerous).kind, CheckpointKind::PreTool);
    /// ```
    pub fn by(trigger: Trigger) -> Self {
        let kind = match trigger {
            Trigger::Manual => CheckpointKind::Manual,
            Trigger::BeforeDangerous | Trigger::BeforeExternal => CheckpointKind::PreTool,
            _ => CheckpointKind::Auto,
        };
        Self::new(trigger, kind)
    }

    /// The same, described.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// How much is done: a number from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Progress(u8);

impl Progress {
    /// So many per cent; more than 100 count as 100.
    pub const fn percent(percent: u8) -> Self {
        Self(if percent > 100 { 100 } else { percent })
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Progress {
    type Error = &'static str;

    fn try_from(percent: u8) -> Result<Self, Self::Error> {
        if percent > 100 { Err("progress is a number from 0 to 100") } else { Ok(Self(percent)) }
    }
}

impl From<Progress> for u8 {
    fn from(progress: Progress) -> Self {
        progress.0
    }
}

/// How far a run has come, as its program says while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgressReport {
    /// The agent or node at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// How often its loop went round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u32>,
    /// How much is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What was done last, for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl ProgressReport {
    /// What was done last, in words.
    pub fn of(summary: impl Into<String>) -> Self {
        Self { summary: Some(summary.into()), ..Self::default() }
    }
}

/// How what led to a checkpoint ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Well.
    #[default]
    Success,
    /// Badly.
    Failed,
    /// Not yet.
    Pending,
}

impl Outcome {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    const fn is_success(&self) -> bool {
        matches!(self, Self::Success)
    }
}

/// Files that came, changed and went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FileChanges {
    /// New files.
    pub created: Vec<String>,
    /// Changed files.
    pub modified: Vec<String>,
    /// Deleted files.
    pub deleted: Vec<String>,
}

impl FileChanges {
    /// Whether no file changed.
    pub const fn is_empty(&self) -> bool {
        self.created.is_empty() && self.modified.is_empty() && self.deleted.is_empty()
    }
}

/// What going on from a checkpoint needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryInfo {
    /// Where to go on: a step, a node, or words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_point: Option<String>,
    /// Which parts and variables must be there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_context: Vec<String>,
    /// What the surroundings must have.
    #[serde(skip_serializing_if = "Requirements::is_empty")]
    pub requirements: Requirements,
    /// The working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
}

impl RecoveryInfo {
    /// Whether nothing is needed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What the surroundings of a run must have (C6).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Requirements {
    /// Files that must be there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<RequiredFile>,
    /// Programs that must be there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<RequiredProgram>,
    /// Environment variables that must be set. Their contents are never stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// How many bytes must be free where the working directory is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Hosts that must answer, as `HOST:PORT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl Requirements {
    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A file that must be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredFile {
    /// Where; relative to the working directory.
    pub path: String,
    /// The BLAKE3 hash that its content had; without one any content will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<BlobId>,
}

/// A program that must be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredProgram {
    /// Its name, as it is found on the search path.
    pub name: String,
    /// The version that it must at least have, as in `2.40`; without one any will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{from_value, to_value};

    fn full() -> CheckpointRecord {
        CheckpointRecord {
            description: "before the refactor".into(),
            metadata: [("ticket".to_owned(), Value::from(7))].into(),
            step: Some(StepRef { path: "fetch".parse().unwrap(), index: 3 }),
            current: Some("planner".into()),
            iteration: 2,
            progress: Some(Progress::percent(40)),
            file_changes: FileChanges { created: vec!["a".into()], ..FileChanges::default() },
            recovery: RecoveryInfo {
                resume_point: Some("write".into()),
                required_context: vec!["conversation".into()],
                requirements: Requirements {
                    files: vec![RequiredFile { path: "a".into(), hash: Some(BlobId::new([7; 32])) }],
                    programs: vec![RequiredProgram { name: "git".into(), version: Some("2.40".into()) }],
                    variables: vec!["HOME".into()],
                    disk_bytes: Some(1 << 30),
                    hosts: vec!["example.org:443".into()],
                },
                working_directory: Some("/work".into()),
            },
            fingerprint: Some(Value::from("strict")),
            outcome: Outcome::Failed,
            error: Some("no".into()),
            ..CheckpointRecord::by(Trigger::Manual)
        }
    }

    /// C1: every field survives being stored, and a record that has none of them costs two words.
    #[test]
    fn records_survive_a_round_trip_and_say_only_what_there_is() {
        let value = to_value(&full()).unwrap();
        assert_eq!(from_value::<CheckpointRecord>(value).unwrap(), full());
        let bare = to_value(&CheckpointRecord::by(Trigger::Timer)).unwrap();
        assert_eq!(bare, Value::map([("trigger", Value::from("timer")), ("kind", Value::from("auto"))]));
        assert_eq!(from_value::<CheckpointRecord>(bare).unwrap(), CheckpointRecord::by(Trigger::Timer));
    }

    #[test]
    fn progress_ends_at_a_hundred() {
        assert_eq!(Progress::percent(250).get(), 100);
        assert!(from_value::<Progress>(Value::from(101)).is_err());
    }
}
