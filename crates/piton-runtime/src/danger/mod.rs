//! Which operations of an agent are dangerous, so that a checkpoint comes before them (C2).
//!
//! This is a net, not a wall: it decides when to save, and stops nothing. So it errs on the side of saving
//! once more: *what isn't known to be harmless is dangerous*. The default list:
//!
//! | kind | what |
//! |---|---|
//! | delete | `rm`, `rmdir`, `unlink`, `shred`, `truncate`, `find … -delete`, … |
//! | move | `mv`, `rename` |
//! | write | `>`, `>>`, `tee`, `cp`, `ln`, `dd`, `touch`, `mkdir`, `chmod`, `sed -i`, `sort -o`, `patch`, … |
//! | package | `apt`, `dnf`, `pip`, `uv`, `npm`, `cargo`, `go`, `gem`, `brew`, … whatever they are told to do |
//! | git | `git` unless it only looks (`status`, `log`, `diff`, `show`, …), `gh`, `hg`, `svn`, `jj` |
//! | network | `curl`, `wget`, `ssh`, `scp`, `rsync`, `nc`, `aws`, `kubectl`, `docker`, …; HTTP other than GET, HEAD, OPTIONS |
//! | shell | every other program that isn't on the list of harmless ones, scripts, what can't be read |
//!
//! Command lines are read as a shell reads them, so that nothing hides behind `sh -c '…'`, `eval`, variables in
//! front, `/usr/bin/` and other folders, `sudo`, `env`, `xargs`, `timeout` and the like, pipes, `&&`, `$(…)` and
//! backticks. A program at an unusual place (`./ls`) is not the one of that name.
//!
//! What it can't see: that a harmless program was replaced where it is installed or by an alias or function
//! defined elsewhere; what a repository's own configuration makes `git diff` or `git status` run; what a program
//! that the settings call harmless does. Here-documents and `case` are taken for dangerous unread.

mod classifier;
mod programs;
mod shell;

pub use classifier::{Classifier, DangerSettings};

use std::fmt;

use piton_types::{Trigger, Value};
use serde::{Deserialize, Serialize};

/// Something that an agent is about to do.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// A line for a shell.
    Shell(&'a str),
    /// A program and its arguments, without a shell between.
    Program(&'a [String]),
    /// A tool, by the name that the model knows it by.
    Tool {
        /// Its name.
        name: &'a str,
        /// What it is called with.
        input: &'a Value,
    },
    /// A file is written.
    Write(&'a str),
    /// A file is deleted.
    Delete(&'a str),
    /// A file is moved.
    Move(&'a str, &'a str),
    /// A request is sent.
    Http {
        /// Its method.
        method: &'a str,
        /// Where to.
        url: &'a str,
    },
}

/// What kind of harm an operation might do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DangerKind {
    /// Runs something that isn't known to be harmless.
    Shell,
    /// Writes.
    Write,
    /// Deletes.
    Delete,
    /// Moves.
    Move,
    /// Changes what is installed, or runs what was.
    Package,
    /// Changes a repository.
    Git,
    /// Sends something out.
    Network,
    /// What the settings or the application call dangerous.
    Custom,
}

impl fmt::Display for DangerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shell => "runs",
            Self::Write => "writes",
            Self::Delete => "deletes",
            Self::Move => "moves",
            Self::Package => "changes packages",
            Self::Git => "changes a repository",
            Self::Network => "sends",
            Self::Custom => "is declared dangerous",
        })
    }
}

/// Why an operation is dangerous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Danger {
    /// What kind of harm it might do.
    pub kind: DangerKind,
    /// What in it: a program, a file, a tool.
    pub what: String,
}

impl fmt::Display for Danger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.kind)
    }
}

/// What was found out about an operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Why it is dangerous, if it is.
    pub danger: Option<Danger>,
    /// Whether it talks to the outside.
    pub external: bool,
}

impl Verdict {
    /// The trigger that it pulls, if any.
    pub fn trigger(&self) -> Option<Trigger> {
        match (&self.danger, self.external) {
            (Some(_), _) => Some(Trigger::BeforeDangerous),
            (None, true) => Some(Trigger::BeforeExternal),
            (None, false) => None,
        }
    }

    fn dangerous(kind: DangerKind, what: impl Into<String>) -> Self {
        Self { danger: Some(Danger { kind, what: what.into() }), external: kind == DangerKind::Network }
    }

    /// Both together: the first danger counts, and one that goes out makes all go out.
    fn and(self, other: Self) -> Self {
        Self { danger: self.danger.or(other.danger), external: self.external || other.external }
    }
}
