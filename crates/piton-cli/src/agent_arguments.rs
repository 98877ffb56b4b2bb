//! The verbs for several agents in one folder, as they are written.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::file_arguments::parse_seconds;

/// Reserve files, so that several agents keep out of each other's way
///
/// A reservation is advice: it stops nobody who doesn't ask. A path has many readers or one writer, and a folder
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
    /// Whether the owner may write paths: exit code 4 if somebody else has reserved one
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
