//! The verbs for users who see Piton for the first time.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What this machine has of all that Piton can use, and how to mend it
///
/// Looks at the store of this folder, SQLite, git, Python, the sandbox, the disk and the rights on files. Nothing is
/// changed. The exit code is 1 if Piton can't work here.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton doctor\n  piton doctor --json")]
pub(crate) struct Doctor {}

/// See it work: files undone, an agent killed and gone on, a person asked
///
/// Takes under a minute, needs no key and no network, and touches nothing but a new folder, which it leaves for you
/// to look around in. Every figure is measured while you watch.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton demo\n  piton demo --into /tmp/piton-demo")]
pub(crate) struct Demo {
    /// The folder to make; without it, a new one among the temporary ones
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}

/// The reference of the book, made from the code: `scripts/reference` writes it into `docs/reference`
#[derive(Debug, Args)]
#[command(
    hide = true,
    after_help = "Examples:\n  piton reference commands\n  piton reference schema > piton.schema.json"
)]
pub(crate) struct ReferenceBook {
    /// Which part
    #[arg(value_enum)]
    pub(crate) part: Part,
}

/// A part of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Every verb with its help
    Commands,
    /// Every option of the configuration
    Configuration,
    /// The JSON schema of the configuration
    Schema,
}
