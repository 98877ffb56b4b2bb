//! What can go wrong with a workspace. Each variant says what it means for the files; what to do about it
//! is the shell's part to add.

use std::path::PathBuf;

use piton_runtime::RunError;
use piton_store::StoreError;
use piton_types::RunId;

use crate::RelPath;

/// A tree or a list of contents that isn't what was ever written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TreeError(pub(crate) &'static str);

/// An error of a workspace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),

    /// The run of a session could not be driven.
    #[error(transparent)]
    Run(Box<RunError>),

    /// The folder isn't as it was when the restore was planned: its files changed, or a checkpoint was made. Nothing
    /// was written.
    #[error("{} changed since the restore was planned", root.display())]
    Outdated {
        /// The folder.
        root: PathBuf,
    },

    /// The system refused something; no file was changed unless the message says so.
    #[error("can't {what} {}", path.display())]
    File {
        /// What was attempted, as in "read".
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// A folder that can't be a workspace as it is.
    #[error("{} is {reason}", root.display())]
    Root {
        /// The folder.
        root: PathBuf,
        /// Why not.
        reason: &'static str,
    },

    /// A snapshot that is damaged, or has what no snapshot may have. Nothing was written.
    #[error("a snapshot can't be used: {detail}")]
    Snapshot {
        /// How it shows.
        detail: TreeError,
    },

    /// Another process is saving or restoring this folder.
    #[error("another process is at work on {}", root.display())]
    Busy {
        /// The folder.
        root: PathBuf,
    },

    /// A restore that was cut short is still to be finished.
    #[error("an earlier restore of {} was cut short", root.display())]
    Unfinished {
        /// The folder.
        root: PathBuf,
    },

    /// Another process works on the folder, for longer than the caller wants to wait.
    #[error("another process works on {}, for more than {} s", root.display(), waited.as_secs())]
    Waited {
        /// The folder.
        root: PathBuf,
        /// How long the caller waited.
        waited: std::time::Duration,
    },

    /// Paths that another writer changed too. Nothing was written.
    #[error("{} {} changed by another program too", conflicts.len(), if conflicts.len() == 1 { "path was" } else { "paths were" })]
    Conflicts {
        /// Each with the reason.
        conflicts: Vec<crate::Conflict>,
    },

    /// There is nothing that could be taken back, or again.
    #[error("there is nothing to {what}")]
    Nothing {
        /// `undo` or `redo`.
        what: &'static str,
    },

    /// A checkpoint whose files were given up.
    #[error("{checkpoint} was removed: what it had is not kept any more")]
    Removed {
        /// Its name.
        checkpoint: String,
    },

    /// An entry that has no files.
    #[error("{checkpoint} has no snapshot of files")]
    NoFiles {
        /// Its name.
        checkpoint: String,
    },

    /// A run whose files are elsewhere.
    #[error("run {run} belongs to {}", folder.as_deref().map_or("no folder".to_owned(), |folder| format!("the folder {folder}")))]
    OtherFolder {
        /// The run.
        run: RunId,
        /// Its folder.
        folder: Option<String>,
    },

    /// A difference that doesn't fit the text that it is applied to. Nothing was changed.
    #[error("hunk {hunk} doesn't fit at line {line}")]
    DoesNotFit {
        /// Which one, counted from 1.
        hunk: usize,
        /// The line of the text, counted from 1.
        line: usize,
    },

    /// The store has reached its budget.
    #[error("the store takes {used} bytes, and its budget is {budget}")]
    OverBudget {
        /// Bytes on disk.
        used: u64,
        /// The budget.
        budget: u64,
    },

    /// A restore that began to change files and could not be finished. What it replaced is in a checkpoint, and the next
    /// process that uses the workspace finishes it.
    #[error("the restore of {} began, and could not be finished", root.display())]
    Begun {
        /// The folder.
        root: PathBuf,
        /// Why.
        source: Box<Self>,
    },

    /// Some files could not be put back; the others were, and the restore can be repeated or undone.
    #[error("{} of {planned} changes could not be made", failed.len())]
    Incomplete {
        /// Which, and why.
        failed: Vec<(RelPath, String)>,
        /// How many were planned.
        planned: usize,
        /// What the restore was for.
        restore: crate::RestoreKind,
        /// What was written to a path while it was replaced, and where that was kept.
        rescued: Vec<crate::Rescued>,
    },
}

impl WorkspaceError {
    /// Whether the store moved on between a look and a commit: another writer was first, or what is shared with older
    /// snapshots is gone. Nothing was written, and a new look finds what there is now.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::PackGone { .. } | StoreError::NotFound { .. } | StoreError::Conflict { .. })
        )
    }

    /// Whether a snapshot or a content can't be had, now or later.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Snapshot { .. } | Self::Store(StoreError::NotFound { .. } | StoreError::Corrupt { .. }))
    }

    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>, error: impl Into<std::io::Error>) -> Self {
        Self::File { what, path: path.into(), source: error.into() }
    }
}

impl From<TreeError> for WorkspaceError {
    fn from(detail: TreeError) -> Self {
        Self::Snapshot { detail }
    }
}

impl From<RunError> for WorkspaceError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Store(error) => Self::Store(error),
            other => Self::Run(Box::new(other)),
        }
    }
}
