//! What may have changed since a checkpoint, and what is done about it (V2).

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::Whole;

/// Something that isn't as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// A file has another content.
    FileModified {
        /// Which.
        path: String,
    },
    /// A file is gone.
    FileDeleted {
        /// Which.
        path: String,
    },
    /// The repository that this one follows has new commits.
    UpstreamCommits {
        /// How many.
        commits: u32,
        /// The newest.
        head: String,
    },
}

/// What can be done about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// Go on with the file as it is.
    UseCurrent,
    /// Put the file back.
    UseCheckpoint,
    /// Put both together.
    Merge,
    /// Put the deleted file back.
    Restore,
    /// Go on without the file.
    Skip,
    /// Go on as if nothing were.
    Ignore,
    /// Move the work onto the new commits.
    Rebase,
    /// Don't go on.
    Abort,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UseCurrent => "use current",
            Self::UseCheckpoint => "use checkpoint",
            Self::Merge => "merge",
            Self::Restore => "restore",
            Self::Skip => "skip",
            Self::Ignore => "ignore",
            Self::Rebase => "rebase",
            Self::Abort => "abort",
        })
    }
}

impl Change {
    /// What can be done about it.
    pub const fn choices(&self) -> &'static [Choice] {
        match self {
            Self::FileModified { .. } => &[Choice::UseCurrent, Choice::UseCheckpoint, Choice::Merge, Choice::Abort],
            Self::FileDeleted { .. } => &[Choice::Restore, Choice::Skip, Choice::Abort],
            Self::UpstreamCommits { .. } => &[Choice::Ignore, Choice::Rebase, Choice::Abort],
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileModified { path } => write!(f, "the file {path:?} was modified since the checkpoint"),
            Self::FileDeleted { path } => write!(f, "the file {path:?} was deleted since the checkpoint"),
            Self::UpstreamCommits { commits: 1, head } => write!(f, "upstream has a new commit, {head}"),
            Self::UpstreamCommits { commits, head } => write!(f, "upstream has {commits} new commits, up to {head}"),
        }
    }
}

/// What is done about a modified file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of `Choice`")]
pub enum ModifiedPolicy {
    #[default]
    Ask,
    UseCurrent,
    UseCheckpoint,
    Merge,
    Abort,
}

/// What is done about a deleted file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of `Choice`")]
pub enum DeletedPolicy {
    #[default]
    Ask,
    Restore,
    Skip,
    Abort,
}

/// What is done about new upstream commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of `Choice`")]
pub enum UpstreamPolicy {
    #[default]
    Ask,
    Ignore,
    Rebase,
    Abort,
}

/// What is done about a file or folder, and all that is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PathPolicy {
    /// Which.
    pub path: String,
    /// If it was modified; as for the others, if nothing is said.
    #[serde(default)]
    pub modified: Option<ModifiedPolicy>,
    /// If it was deleted; as for the others, if nothing is said.
    #[serde(default)]
    pub deleted: Option<DeletedPolicy>,
}

impl PathPolicy {
    fn covers(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.path.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// What is done about each kind of change. By default everything is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ChangePolicies {
    /// Modified files.
    pub modified: ModifiedPolicy,
    /// Deleted files.
    pub deleted: DeletedPolicy,
    /// New upstream commits.
    pub upstream: UpstreamPolicy,
    /// Paths for which something else holds; the last that fits counts.
    pub paths: Vec<PathPolicy>,
    /// A run whose newest entries are damaged goes on from the newest whole checkpoint.
    pub fallback: bool,
}

impl ChangePolicies {
    /// What the policy says about a change; `None` to ask.
    pub fn choice(&self, change: &Change) -> Option<Choice> {
        match change {
            Change::FileModified { path } => {
                let own =
                    self.paths.iter().rev().filter(|policy| policy.covers(path)).find_map(|policy| policy.modified);
                match own.unwrap_or(self.modified) {
                    ModifiedPolicy::Ask => None,
                    ModifiedPolicy::UseCurrent => Some(Choice::UseCurrent),
                    ModifiedPolicy::UseCheckpoint => Some(Choice::UseCheckpoint),
                    ModifiedPolicy::Merge => Some(Choice::Merge),
                    ModifiedPolicy::Abort => Some(Choice::Abort),
                }
            }
            Change::FileDeleted { path } => {
                let own =
                    self.paths.iter().rev().filter(|policy| policy.covers(path)).find_map(|policy| policy.deleted);
                match own.unwrap_or(self.deleted) {
                    DeletedPolicy::Ask => None,
                    DeletedPolicy::Restore => Some(Choice::Restore),
                    DeletedPolicy::Skip => Some(Choice::Skip),
                    DeletedPolicy::Abort => Some(Choice::Abort),
                }
            }
            Change::UpstreamCommits { .. } => match self.upstream {
                UpstreamPolicy::Ask => None,
                UpstreamPolicy::Ignore => Some(Choice::Ignore),
                UpstreamPolicy::Rebase => Some(Choice::Rebase),
                UpstreamPolicy::Abort => Some(Choice::Abort),
            },
        }
    }
}

/// An error of the port that looks for changes or carries a choice out.
pub type PortError = Box<dyn std::error::Error + Send + Sync>;

/// Who knows what changed, and can do something about it.
#[async_trait]
pub trait Changes: Send + Sync {
    /// What changed since the checkpoint. Changes nothing.
    async fn since(&self, checkpoint: &Whole) -> Result<Vec<Change>, PortError>;

    /// Whether it can carry out a choice. Every port can abort.
    fn can(&self, choice: Choice) -> bool;

    /// Carries a choice out. Called only once all changes of all ports are settled and none is to abort; to
    /// repeat it must do no harm.
    async fn carry_out(&self, change: &Change, choice: Choice) -> Result<(), PortError>;
}
