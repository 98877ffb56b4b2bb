//! The body of an entry that carries a snapshot: who made it and why, and how it belongs to others. It is
//! stored: fields may be added, with a default, and are never given another meaning.

use piton_types::{BlobId, CheckpointKind, CheckpointRef, RunId, StepPath, Value, to_value};
use serde::{Deserialize, Serialize};

use crate::GitMove;

/// Why a checkpoint of files was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What it was made for.
    pub kind: CheckpointKind,
    /// What it is in the history of the folder.
    pub role: Role,
    /// Its place in the history of the folder: one more than that of any checkpoint before it, whatever their runs. The
    /// writer sets it under the folder's lock; 0 until then.
    #[serde(default)]
    pub moment: u64,
    /// The run that caused it, in whose log it is; the folder's own if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The step that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<StepPath>,
    /// The tool that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What the agent itself calls the tool call, so that its end can be told to belong to its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Who is behind it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// What the user says of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The tree whose ignore files held, if it weren't those in the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<BlobId>,
    /// How git's names moved since the checkpoint of the folder before it. The writer sets it under the folder's lock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub git: Vec<GitMove>,
}

/// What the name of a turn begins with.
pub(crate) const TURN: &str = "turn-";

impl Record {
    /// Whether it is about a turn: a prompt, and all that the agent did about it.
    pub(crate) fn is_turn(&self) -> bool {
        self.tool.is_none() && self.path.as_ref().is_some_and(|path| path.as_str().starts_with(TURN))
    }

    /// The tree whose ignore files hold for what follows a checkpoint with this record and `tree`: while a run is at work,
    /// those that it began with.
    pub(crate) fn rules_after(&self, tree: BlobId) -> Option<BlobId> {
        self.rules.or_else(|| self.run.is_some().then_some(tree))
    }
}

/// What a checkpoint is in the history of the folder.
///
/// Between a checkpoint that opens a bracket and the one that closes it, what changes is the agent's.
/// Outside of brackets it is the user's; during a turn of an agent it is unattributed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Role {
    /// The files as they were.
    Saved,
    /// An agent, or one of its tools, is about to begin.
    Opened,
    /// It has ended.
    Closed {
        /// The checkpoint that opened the bracket.
        since: CheckpointRef,
        /// Its tree.
        before: BlobId,
    },
    /// It came to nothing: its bracket ended where it had begun.
    Dropped {
        /// The checkpoint that opened the bracket.
        since: CheckpointRef,
    },
    /// A restore is about to begin: everything that it will overwrite is here.
    Backup {
        /// The tree that it is to lead to.
        result: BlobId,
        /// What kind of restore, for when it is cut short.
        restore: RestoreKind,
    },
    /// A restore has ended.
    Restored {
        /// The checkpoint made just before.
        backup: CheckpointRef,
        /// Its tree.
        before: BlobId,
        /// What kind of restore.
        restore: RestoreKind,
    },
}

/// What a restore was for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RestoreKind {
    /// Back to a checkpoint.
    To {
        /// Which.
        checkpoint: CheckpointRef,
        /// Whether only some of the files were to go back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        partial: bool,
    },
    /// An operation was taken back.
    Undo {
        /// The entry that ended it; of a session that was killed, the one that began it.
        operation: CheckpointRef,
        /// Whether what is unattributed in it was taken back too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unattributed: bool,
        /// Whether all sessions of its run up to this one were taken back with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        whole_run: bool,
        /// Whether what other runs may have done at the same time was taken back too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shared: bool,
    },
    /// An undo was taken back.
    Redo {
        /// The entry of the undo.
        undo: CheckpointRef,
    },
}

impl Record {
    /// A checkpoint by hand.
    pub fn manual(description: impl Into<String>) -> Self {
        Self::new(CheckpointKind::Manual, Role::Saved, description)
    }

    /// A record with nothing else to it.
    pub fn new(kind: CheckpointKind, role: Role, description: impl Into<String>) -> Self {
        Self {
            kind,
            role,
            moment: 0,
            run: None,
            path: None,
            tool: None,
            call: None,
            author: None,
            rules: None,
            git: Vec::new(),
            description: description.into(),
        }
    }

    /// What to show in a list.
    pub fn label(&self) -> String {
        if let Some(path) = self.path.as_ref().filter(|_| matches!(self.role, Role::Closed { .. })) {
            return path.to_string();
        }
        if !self.description.is_empty() {
            return self.description.clone();
        }
        match (&self.role, self.kind) {
            (Role::Opened, CheckpointKind::Session) => "session begins".to_owned(),
            (Role::Closed { .. }, CheckpointKind::Session) => "session ended".to_owned(),
            (Role::Opened, _) => format!("before {}", self.tool.as_deref().unwrap_or("a tool")),
            (Role::Closed { .. }, _) => format!("after {}", self.tool.as_deref().unwrap_or("a tool")),
            (Role::Dropped { since }, _) => match &self.path {
                Some(path) => format!("{path} came to nothing"),
                None => format!("{since} came to nothing"),
            },
            (Role::Backup { restore, .. }, _) => format!("before {}", restore.as_words()),
            (Role::Restored { restore, .. }, _) => restore.as_words(),
            (Role::Saved, CheckpointKind::Auto) => "files changed".to_owned(),
            (Role::Saved, _) => String::new(),
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        to_value(self).expect("numbers and texts are values")
    }
}

impl RestoreKind {
    /// In words, as in "undo of a@7".
    pub fn as_words(&self) -> String {
        match self {
            Self::To { checkpoint, .. } => format!("restore of {checkpoint}"),
            Self::Undo { operation, whole_run: true, .. } => format!("undo of run {}", operation.run),
            Self::Undo { operation, .. } => format!("undo of {operation}"),
            Self::Redo { undo } => format!("redo of {undo}"),
        }
    }
}
