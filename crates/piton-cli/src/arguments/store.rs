//! The command line of the verbs that look after a store.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use piton_types::Retention;
use piton_types::RunId;

use crate::arguments::Consent;
use piton_app::references::Reference;

/// Give back the space of what needn't be kept
///
/// Completed runs are kept for 7 days, failed ones for 30, unfinished ones for ever. Of one run 20 checkpoints are kept,
/// of a folder's files 50: the first, the last, those with a name, and others evenly spread over the time between. The
/// plan comes first. What is condemned is deleted an hour later, by the next command; --now doesn't wait.
///
/// Other rules hold for this once, or with --remember for the store from now on, also for what commands do in passing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton gc --dry-run\n  piton gc --yes\n  piton gc --now --yes\n  piton gc \
                        --completed 30d --failed 90d --per-folder 200 --remember --yes")]
pub(crate) struct Gc {
    /// Keep completed and cancelled runs for so long: a number and s, m, h, d or w
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) completed: Option<Duration>,
    /// Keep failed runs for so long
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) failed: Option<Duration>,
    /// Keep so many checkpoints of a run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) per_run: Option<u32>,
    /// Keep so many checkpoints of a folder's files
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) per_folder: Option<u32>,
    /// Let these be the store's rules from now on
    #[arg(long)]
    pub(crate) remember: bool,
    /// Delete at once what would have to wait; a command that reads it at the moment may have to begin again
    #[arg(long)]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

impl Gc {
    /// The store's rules with what the command line says instead.
    pub(crate) fn rules(&self, store: Retention) -> Retention {
        Retention {
            completed: self.completed.unwrap_or(store.completed),
            failed: self.failed.unwrap_or(store.failed),
            per_run: self.per_run.unwrap_or(store.per_run),
            per_workspace: self.per_folder.unwrap_or(store.per_workspace),
        }
    }
}

/// A time such as `30d`.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let wrong = || "it is a number and one of s, m, h, d and w, as in 30d".to_owned();
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 60 * 60,
        Some('d') => 24 * 60 * 60,
        Some('w') => 7 * 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(wrong)
}

/// Find damage, and what it affects; --repair
///
/// Reads everything and holds it against its hashes. Of a checkpoint, it also says whether this machine has what going
/// on from there needs, and which files of the folder differ from it. --repair keeps all that is whole in a new store and sets the damaged one aside.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton check\n  piton check --deep\n  piton check RUN@7\n  piton check --repair")]
pub(crate) struct Check {
    /// Only this run or checkpoint
    #[arg(value_name = "RUN|REF")]
    pub(crate) reference: Option<Reference>,
    /// Read and hash everything; of a store on a server only the logs are read without it
    #[arg(long)]
    pub(crate) deep: bool,
    /// Keep what is whole in a new store, and set the damaged one aside
    #[arg(long, conflicts_with = "reference")]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

/// Copy runs from one store into another
///
/// What is there already is left out, so a copy that was cut short goes on where it ended. TO is made if there is none.
/// Either may be encrypted: to encrypt what is there, make a new store with `piton init --store TO --encrypt` first.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton copy sqlite:old.db sqlite:new.db\n  piton copy sqlite:a.db sqlite:b.db --run nightly\n  piton copy sqlite:plain.db sqlite:secret.db --to-key-file KEY"
)]
pub(crate) struct Copy {
    /// The store to copy from
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// The store to copy into
    #[arg(value_name = "TO")]
    pub(crate) to: String,
    /// The key of TO, if it is another than that of FROM
    #[arg(long, value_name = "FILE")]
    pub(crate) to_key_file: Option<PathBuf>,
    /// Only this run; may be given again
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Vec<RunId>,
}

/// Write a run with all that belongs to it to stdout
///
/// What comes out is a store of its own with that run in it, readable by every person who has the file: it isn't encrypted, even
/// if the store is.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton export RUN > run.piton\n  piton export RUN | ssh host piton import -")]
pub(crate) struct Export {
    /// The runs, by their ids or the unique beginnings of them
    #[arg(value_name = "RUN", required = true)]
    pub(crate) run: Vec<RunId>,
}

/// Take runs over that `piton export` wrote
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton import run.piton\n  piton import - < run.piton")]
pub(crate) struct Import {
    /// The file; - for stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// The stores of your folders: list them, remove one, give one to another folder
///
/// Each folder has a store of its own, and the folders below it have the same, up to the nearest one with a store of theirs.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton store ls\n  piton store rm 3fa94c01 --dry-run\n  piton store mv /mnt/old/project ."
)]
pub(crate) struct Stores {
    #[command(subcommand)]
    pub(crate) action: StoreAction,
}

/// What to do with stores.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreAction {
    /// The stores of all folders, with what they take
    Ls,
    /// Remove a store with everything in it; the plan comes first
    Rm {
        /// Its name or the beginning of it, its URL, or its folder
        #[arg(id = "kept", value_name = "STORE")]
        store: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Make a store that of another folder, as after the folder came to another disk
    Mv {
        /// Its name or the beginning of it, its URL, or its folder
        #[arg(id = "kept", value_name = "STORE")]
        store: String,
        /// The folder; the one in which this is called if none is named
        #[arg(id = "to", value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
}
