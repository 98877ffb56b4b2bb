//! The verbs for several agents in one folder, and for a repository that moves, as they are written.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use piton_types::RunId;

use crate::arguments::Consent;
use crate::arguments::files::parse_seconds;

/// Reserve files, so that several agents keep out of each other's way
///
/// A reservation is advice: it stops no program that doesn't ask. A path has many readers or one writer, and a folder
/// stands for all that is in it. It ends when it is dropped, after five minutes unless it is taken again, or with the
/// process that it was bound to.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton lease take src/a.rs\n  piton lease take src doc/index.md --wait 30 --owner builder\n  piton lease check src/a.rs\n  piton lease drop\n  piton lease ls"
)]
pub(crate) struct Lease {
    #[command(subcommand)]
    pub(crate) action: LeaseAction,
}

/// Who reserves.
#[derive(Debug, Args)]
pub(crate) struct Owner {
    /// On whose behalf; PITON_RUN if that is set, as under `piton guard`, else USER
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
}

/// What to do with reservations.
#[derive(Debug, Subcommand)]
pub(crate) enum LeaseAction {
    /// Reserve paths: all of them, or none
    Take {
        /// Which
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// For reading, so that they don't change; others may read too
        #[arg(long)]
        read: bool,
        /// For how long
        #[arg(long = "for", value_name = "SECONDS", default_value = "300", value_parser = parse_seconds)]
        lasting: Duration,
        /// How long to wait for others
        #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
        wait: Option<Duration>,
        /// End them with this process
        #[arg(long, value_name = "PID")]
        pid: Option<u32>,
        #[command(flatten)]
        owner: Owner,
    },
    /// Give paths back; all of the owner's if none is named
    Drop {
        /// Which
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        owner: Owner,
    },
    /// Whether the owner may write paths: exit code 4 if another owner has reserved one
    Check {
        /// Which
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        owner: Owner,
    },
    /// What is reserved
    Ls,
}

/// Did the repository move under us
///
/// Looks for upstream commits, rewritten history and local changes, by git's plumbing; the repository isn't written, and
/// what is fetched stays in a private place. Says how much of it is in the way of what was changed here, and what is
/// best done. The exit code is 4 if that is to pause: a git hook can use it. What was found is in the log of the
/// run, or of the folder.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton drift\n  piton drift --no-fetch --json\n  piton drift --resolve user-handled\n  piton drift --rebase --test 'cargo test'\n  piton drift --undo-rebase"
)]
pub(crate) struct Drift {
    /// Don't ask upstream; go by what the repository knows of it
    #[arg(long)]
    pub(crate) no_fetch: bool,
    /// How long upstream may take
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    pub(crate) patience: Duration,
    /// The run in whose log it is kept; the folder's own if none is named
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<RunId>,
    /// How far the work is, from 0 to 100
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) progress: Option<u8>,
    /// What you would rather do if the same lines changed
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) prefer: Option<Prefer>,
    /// End with 4 for any drift
    #[arg(long)]
    pub(crate) strict: bool,
    /// Say what became of the drift that was found
    #[arg(long, value_name = "HOW", value_enum, conflicts_with_all = ["rebase", "undo_rebase"])]
    pub(crate) resolve: Option<Resolve>,
    /// Move the branch onto upstream: the one thing that writes your git
    #[arg(long, conflicts_with = "undo_rebase")]
    pub(crate) rebase: bool,
    /// A shell command that must succeed after the rebase, or it is taken back; PITON_TEST_COMMAND if that is set
    #[arg(long, value_name = "COMMAND", requires = "rebase")]
    pub(crate) test: Option<String>,
    /// Take the last rebase back
    #[arg(long)]
    pub(crate) undo_rebase: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

/// What a user would rather do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prefer {
    /// Begin anew
    Restart,
    /// Merge and go on
    Merge,
}

/// What became of a drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Resolve {
    /// Nothing was done
    Ignored,
    /// The work was rebased
    Rebased,
    /// The work began anew
    Restarted,
    /// You saw to it
    UserHandled,
}
