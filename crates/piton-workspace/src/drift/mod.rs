//! Drift: the repository moved under a run (D1 to D5).
//!
//! The user's repository is only read, by git's plumbing with everything switched off that a repository could make it
//! run; what is fetched goes into a private one beside the store. What is found is compared with the heads that were
//! known last, weighed by files and lines, and kept in the log of the run.

mod advice;
mod git;
mod overlap;
mod rebase;
mod repository;
mod tracker;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use serde::{Deserialize, Serialize};

pub use advice::{Advice, Preference, advise};
pub use overlap::Contested;
pub use rebase::Rebased;
pub use tracker::{DriftTracker, Known, Resolution, Tracked};

use crate::workspace::blocking;
use crate::{Workspace, WorkspaceError};
use git::{Asker, Stop};
use overlap::{Overlap, overlap, uncommitted};
use repository::{Follows, Mirror, Repository};

/// How often a long run is checked.
pub const CHECKED_EVERY: Duration = Duration::from_secs(600);

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftSeverity {
    /// Other files: go on, and rebase at the end.
    Low,
    /// The same files in other places: tell, and advise a rebase.
    Medium,
    /// The same lines, or rewritten history: pause until it is resolved.
    High,
}

impl std::fmt::Display for DriftSeverity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        })
    }
}

/// Something that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DriftEvent {
    /// Upstream has commits that aren't here.
    UpstreamChange {
        /// How many.
        commits_behind: u32,
        /// Files that both sides changed.
        conflicting_files: Vec<Contested>,
        /// The head that was known.
        old_head: Option<String>,
        /// The head now.
        new_head: String,
    },
    /// Something was committed or changed here from outside.
    LocalChange {
        /// The head that was known.
        old_head: Option<String>,
        /// The head now.
        new_head: Option<String>,
        /// How many files differ from what is committed.
        uncommitted: usize,
    },
    /// Upstream's history was written anew: what was known isn't part of it any more.
    ForcePush {
        /// The head that was known.
        old_head: String,
        /// The head now.
        new_head: String,
        /// How many commits of the old history are gone.
        commits_gone: u32,
    },
}

impl DriftEvent {
    /// In words.
    pub fn as_words(&self) -> String {
        let short = |head: &str| head.chars().take(10).collect::<String>();
        let commits = |count: u32| if count == 1 { "1 commit".to_owned() } else { format!("{count} commits") };
        match self {
            Self::UpstreamChange { commits_behind, new_head, .. } => {
                format!("upstream has {} that aren't here, up to {}", commits(*commits_behind), short(new_head))
            }
            Self::LocalChange { old_head, new_head, uncommitted } => match (old_head, new_head) {
                (Some(old), Some(new)) if old != new => {
                    format!("the branch moved from {} to {}", short(old), short(new))
                }
                _ => format!("{uncommitted} files differ from what is committed"),
            },
            Self::ForcePush { old_head, new_head, commits_gone } => format!(
                "upstream was rewritten: {} became {}, and {} of it are gone",
                short(old_head),
                short(new_head),
                commits(*commits_gone)
            ),
        }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DriftReport {
    /// The top of the repository.
    pub top: PathBuf,
    /// The commit that is checked out.
    pub head: Option<String>,
    /// The branch that is checked out.
    pub branch: Option<String>,
    /// Upstream's head.
    pub upstream: Option<String>,
    /// Why there is no upstream, or why it wasn't asked: then what was known last stands for it.
    pub unasked: Option<String>,
    /// Commits that only upstream has.
    pub behind: u32,
    /// Commits that only this branch has.
    pub ahead: u32,
    /// Files that differ from what is committed, from the top.
    pub uncommitted: Vec<String>,
    /// Files that both sides changed.
    pub contested: Vec<Contested>,
    /// How many files were read to compare their lines.
    pub compared: usize,
    /// How bad it is; `None` if upstream has nothing new.
    pub severity: Option<DriftSeverity>,
    /// What is new since it was looked at last.
    pub events: Vec<DriftEvent>,
}

impl DriftReport {
    /// Whether upstream's history was written anew.
    pub fn is_rewritten(&self) -> bool {
        self.events.iter().any(|event| matches!(event, DriftEvent::ForcePush { .. }))
    }

    /// What is known from now on.
    pub fn known(&self) -> Known {
        Known { head: self.head.clone(), upstream: self.upstream.clone(), uncommitted: self.uncommitted.len() }
    }
}

/// How to look.
#[derive(Debug, Clone, Copy)]
pub struct DriftOptions {
    /// Ask upstream; otherwise what the repository knows of it is all.
    pub fetch: bool,
    /// How long upstream may take.
    pub patience: Duration,
}

impl Default for DriftOptions {
    fn default() -> Self {
        Self { fetch: true, patience: Duration::from_secs(60) }
    }
}

/// Why drift can't be told, or something be done about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriftError {
    /// There is no git.
    #[error("git isn't installed here")]
    NoGit,
    /// The folder isn't in a repository.
    #[error("{} is in no repository that git can use: {why}", folder.display())]
    NoRepository {
        /// The folder.
        folder: PathBuf,
        /// What git said.
        why: String,
    },
    /// git failed.
    #[error("git {command} failed with {code}: {said}")]
    Git {
        /// What was asked.
        command: String,
        /// Its exit code.
        code: i32,
        /// What it said.
        said: String,
    },
    /// git took too long.
    #[error("git {command} took longer than {} s", limit.as_secs())]
    TimedOut {
        /// What was asked.
        command: String,
        /// How long it had.
        limit: Duration,
    },
    /// A file of the private repository failed.
    #[error("can't write {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// To rebase, or to take it back, might do harm. Nothing was done.
    #[error("{why}")]
    Refused {
        /// Why.
        why: String,
    },
    /// The test command failed after the rebase, which was taken back.
    #[error("the test command ended with {code} after the rebase, which was taken back")]
    TestFailed {
        /// Its exit code.
        code: i32,
    },
    /// The workspace failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl From<piton_store::StoreError> for DriftError {
    fn from(error: piton_store::StoreError) -> Self {
        Self::Workspace(error.into())
    }
}

impl Workspace {
    /// Looks whether the repository of this folder moved since `known` (D1, D2). The repository is not written.
    #[boxed]
    pub async fn check_drift(&self, known: Option<&Known>, options: DriftOptions) -> Result<DriftReport, DriftError> {
        let (root, state) = (self.root().to_owned(), self.0.options.state.clone());
        let (known, hashing) = (known.cloned(), self.store().hashing().clone());
        work(move |stop| {
            let repository = Repository::find(&root, stop)?;
            let mirror = Mirror::open(&state, &hashing, &repository)?;
            check(&repository, &mirror, known.as_ref(), options)
        })
        .await
    }
}

/// Does work that waits for git on a thread of its own. If the caller stops waiting for it, git is ended.
async fn work<T: Send + 'static>(
    work: impl FnOnce(&Stop) -> Result<T, DriftError> + Send + 'static,
) -> Result<T, DriftError> {
    let stop = Stop::default();
    let _asker = Asker(stop.clone());
    blocking(move || Ok(work(&stop))).await?
}

/// What upstream is, as far as it can be known.
struct Asked {
    head: Option<String>,
    /// What was known of it before.
    before: Option<String>,
    /// Why it wasn't asked.
    unasked: Option<String>,
}

/// Asks upstream if that is wanted and possible.
fn ask_upstream(
    repository: &Repository,
    mirror: &Mirror,
    known: Option<&Known>,
    options: DriftOptions,
) -> Result<Asked, DriftError> {
    let last = known.and_then(|known| known.upstream.clone());
    Ok(match repository.follows()? {
        Err(why) => Asked { head: None, before: last, unasked: Some(why) },
        Ok(Follows::Local { head }) => Asked { head: Some(head), before: last, unasked: None },
        Ok(Follows::Remote { name, url, branch, tracking }) => {
            let before = last.or_else(|| tracking.clone());
            if !options.fetch {
                // What we fetched ourselves may be newer than what the repository knows.
                let head = match (&before, tracking) {
                    (Some(last), Some(tracking)) if mirror.has(last)? && mirror.is_ancestor(&tracking, last)? => {
                        before.clone()
                    }
                    (_, tracking) => tracking,
                };
                return Ok(Asked { head, before, unasked: Some(format!("{name} wasn't asked")) });
            }
            match mirror.fetch(repository, &url, &branch, options.patience) {
                Ok(head) => Asked { head: Some(head), before, unasked: None },
                Err(error @ (DriftError::Git { .. } | DriftError::TimedOut { .. })) => {
                    let unasked = Some(format!("{name} could not be asked: {error}"));
                    Asked { head: before.clone().or(tracking), before, unasked }
                }
                Err(error) => return Err(error),
            }
        }
    })
}

fn check(
    repository: &Repository,
    mirror: &Mirror,
    known: Option<&Known>,
    options: DriftOptions,
) -> Result<DriftReport, DriftError> {
    let Asked { head: upstream, before, unasked } = ask_upstream(repository, mirror, known, options)?;
    let changed = uncommitted(repository)?;
    let mut report = DriftReport {
        top: repository.top.clone(),
        head: repository.head.clone(),
        branch: repository.branch.clone(),
        upstream: upstream.clone(),
        unasked,
        behind: 0,
        ahead: 0,
        uncommitted: changed.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
        contested: Vec::new(),
        compared: 0,
        severity: None,
        events: Vec::new(),
    };
    if let Some(upstream) = &upstream {
        weigh(&mut report, repository, mirror, upstream, before.as_deref(), &changed)?;
    }
    let moved = |known: &Known| known.head != report.head || known.uncommitted != report.uncommitted.len();
    if let Some(known) = known.filter(|known| moved(known)) {
        report.events.push(DriftEvent::LocalChange {
            old_head: known.head.clone(),
            new_head: report.head.clone(),
            uncommitted: report.uncommitted.len(),
        });
    }
    Ok(report)
}

/// What upstream did, and how much that is in the way.
fn weigh(
    report: &mut DriftReport,
    repository: &Repository,
    mirror: &Mirror,
    upstream: &str,
    before: Option<&str>,
    changed: &BTreeSet<Vec<u8>>,
) -> Result<(), DriftError> {
    let Some(head) = repository.head.as_deref() else {
        // Nothing is committed here: nothing can be in the way but files.
        return Ok(());
    };
    (report.ahead, report.behind) = mirror.apart(head, upstream)?;
    if let Some(old) = before.filter(|old| *old != upstream)
        && mirror.has(old)?
        && !mirror.is_ancestor(old, upstream)?
    {
        let (commits_gone, _) = mirror.apart(old, upstream)?;
        report.events.push(DriftEvent::ForcePush {
            old_head: old.to_owned(),
            new_head: upstream.to_owned(),
            commits_gone,
        });
        report.severity = Some(DriftSeverity::High);
    }
    if report.behind == 0 {
        return Ok(());
    }
    match mirror.common(head, upstream)? {
        Some(base) => {
            let Overlap { contested, compared } = overlap(repository, mirror, &base, upstream, changed)?;
            let worst = contested.iter().map(|file| file.severity).max().unwrap_or(DriftSeverity::Low);
            (report.contested, report.compared) = (contested, compared);
            report.severity = report.severity.max(Some(worst));
        }
        // No common history, or it lies behind where a shallow clone ends.
        None => report.severity = Some(DriftSeverity::High),
    }
    if before != Some(upstream) {
        report.events.push(DriftEvent::UpstreamChange {
            commits_behind: report.behind,
            conflicting_files: report.contested.clone(),
            old_head: before.map(str::to_owned),
            new_head: upstream.to_owned(),
        });
    }
    Ok(())
}
