//! Entries of a run's log.

use std::collections::BTreeMap;

use piton_log::SealedEntry;
use piton_types::{BlobId, CheckpointRef, EntryKind, PartName, RunId, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::files::FilesDiffView;
use super::text;

/// The name of an entry.
pub fn entry_id(run: &RunId, entry: &SealedEntry) -> CheckpointRef {
    CheckpointRef { run: run.clone(), seq: entry.seq }
}

/// An entry without its body and state.
#[derive(Debug, Clone, Serialize)]
pub struct EntryView {
    /// Its name.
    #[serde(serialize_with = "text")]
    pub id: CheckpointRef,
    /// The run.
    pub run: RunId,
    /// Its place in the log.
    pub seq: u32,
    /// What it records.
    pub kind: EntryKind,
    /// What to show in a list.
    pub label: String,
    /// When it was written.
    #[serde(serialize_with = "text")]
    pub created_at: Timestamp,
    /// Whether it carries the state of the run.
    pub checkpoint: bool,
    /// The state that it carries, by part.
    pub parts: BTreeMap<PartName, PartView>,
}

/// A part of a checkpoint's state.
#[derive(Debug, Clone, Serialize)]
pub struct PartView {
    /// The name of its schema.
    pub schema: String,
    /// The version of its schema.
    pub version: u32,
    /// The id of its value.
    #[serde(serialize_with = "text")]
    pub root: BlobId,
}

impl EntryView {
    /// What there is to see of an entry.
    pub fn of(run: &RunId, entry: &SealedEntry) -> Self {
        let parts = entry.parts.iter().map(|(name, part)| {
            let view = PartView { schema: part.schema.clone(), version: part.version, root: part.root };
            (name.clone(), view)
        });
        Self {
            id: entry_id(run, entry),
            run: run.clone(),
            seq: entry.seq.0,
            kind: entry.kind,
            label: entry.label.clone(),
            created_at: entry.at,
            checkpoint: !entry.parts.is_empty(),
            parts: parts.collect(),
        }
    }
}

/// An entry in a list.
#[derive(Debug, Clone, Serialize)]
pub struct LoggedEntry {
    /// The entry.
    #[serde(flatten)]
    pub entry: EntryView,
    /// Whether it is a checkpoint that was removed.
    #[serde(skip_serializing_if = "is_false")]
    pub removed: bool,
    /// Whether the run was put back to before it, so that it counts no more.
    #[serde(skip_serializing_if = "is_false")]
    pub undone: bool,
}

/// An entry with what it says.
#[derive(Debug, Clone, Serialize)]
pub struct EventView {
    /// The entry.
    #[serde(flatten)]
    pub entry: EntryView,
    /// What it says.
    pub body: Json,
}

/// An entry with all that belongs to it.
#[derive(Debug, Clone, Serialize)]
pub struct WholeEntry {
    /// The entry.
    #[serde(flatten)]
    pub entry: EntryView,
    /// Its hash.
    pub hash: String,
    /// Whether the run was put back to before it, so that it counts no more.
    #[serde(skip_serializing_if = "is_false")]
    pub undone: bool,
    /// What it says.
    pub body: Json,
    /// The state of the run, by part.
    pub state: Map<String, Json>,
    /// What it changed in the files, if it is a checkpoint of some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<FilesDiffView>,
}

/// A value by its id.
#[derive(Debug, Clone, Serialize)]
pub struct BlobView {
    /// Its id.
    #[serde(serialize_with = "text")]
    pub id: BlobId,
    /// The value.
    pub value: Json,
}

/// What differs between two things, each by its name.
#[derive(Debug, Clone, Serialize)]
pub struct DiffView {
    /// The older one.
    pub from: String,
    /// The newer one.
    pub to: String,
    /// What differs.
    pub changes: Vec<ValueChange>,
}

/// A value that differs. A side that has nothing there is left out: null is a value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ValueChange {
    /// Where.
    pub path: String,
    /// What it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Json>,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Json>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_told_from_nothing() {
        let added = ValueChange { path: "/a".to_owned(), old: None, new: Some(Json::Null) };
        assert_eq!(serde_json::to_string(&added).unwrap(), r#"{"path":"/a","new":null}"#);
    }
}
