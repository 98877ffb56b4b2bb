//! The verbs that work on files, as they are written.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use piton_app::references::Reference;

/// What a snapshot takes in.
#[derive(Debug, Args, Clone, Copy, Default)]
pub(crate) struct Capture {
    /// Capture what ignore files hide, too
    #[arg(long)]
    pub(crate) include_ignored: bool,
    /// Accept the home folder or the root of the file system, and ignore files that suddenly hide most of what was captured
    #[arg(long)]
    pub(crate) force: bool,
}

impl From<Capture> for piton_app::files::Capture {
    fn from(Capture { include_ignored, force }: Capture) -> Self {
        Self { include_ignored, force, new_rules: force, ..Self::default() }
    }
}

/// Checkpoint the files of this folder now
///
/// Everything but what ignore files hide; small hidden files such as .env are captured all the same. What was
/// seen and not captured is counted, and `piton status --excluded` names it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton save\n  piton save -m \"before the refactor\"\n  piton save --json | jq .id"
)]
pub(crate) struct Save {
    /// What it is for
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub(crate) message: String,
    #[command(flatten)]
    pub(crate) capture: Capture,
}

/// This folder: what changed, its newest checkpoint, its store
///
/// Nothing is stored.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton status\n  piton status --excluded\n  piton status --json")]
pub(crate) struct Status {
    /// Name what isn't captured, and why
    #[arg(long)]
    pub(crate) excluded: bool,
    #[command(flatten)]
    pub(crate) capture: Capture,
}

/// How to go about a change of files.
#[derive(Debug, Args, Clone)]
pub(crate) struct Change {
    /// Show the plan and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Don't ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// For a path that another writer changed too; `ask` on a terminal if nothing is said, else `merge`
    #[arg(long, value_name = "HOW", value_enum)]
    pub(crate) conflict: Option<Conflict>,
    /// Take back also what changed during an agent's turn, but in none of its tool calls: it may be yours
    #[arg(long)]
    pub(crate) unattributed: bool,
    /// The model for `--conflict resolve`, as PROVIDER or PROVIDER/NAME
    #[arg(long, value_name = "MODEL", requires = "config")]
    pub(crate) model: Option<String>,
    /// Where the providers of models are described: a .toml, .yml or .json file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) capture: Capture,
}

/// What becomes of a path that another agent or the user changed too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Conflict {
    /// Merge texts line by line; refuse if that doesn't work out
    Merge,
    /// Refuse
    Refuse,
    /// Take the checkpoint's
    Checkpoint,
    /// Leave what is there
    Current,
    /// Leave what is there, and write the checkpoint's beside it as NAME.checkpoint
    Beside,
    /// Merge texts, with markers where that doesn't work out
    Markers,
    /// Merge texts; where that doesn't work out, ask the model of --config, and show what it made of it
    Resolve,
    /// Ask for each
    Ask,
}

/// Take back the last step, session or restore, or a named one
///
/// Only what it did, in all its sessions if a run is named: what was changed before, since or by others stays, or the undo is refused and says why.
/// Everything that is overwritten is kept; `piton redo` takes the undo back.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton undo\n  piton undo --dry-run\n  piton undo RUN/step\n  piton undo RUN\n  piton undo RUN --both\n  piton undo -- src/main.rs"
)]
pub(crate) struct Undo {
    /// The step, run or checkpoint to take back; the last session or restore if none is named
    #[arg(value_name = "REF")]
    pub(crate) reference: Option<Reference>,
    /// Only in these files and folders
    #[arg(value_name = "PATH", last = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Take back also what changed while another run worked here, which can't be told apart
    #[arg(long)]
    pub(crate) both: bool,
    #[command(flatten)]
    pub(crate) change: Change,
}

/// Take back the last undo
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton redo\n  piton redo --dry-run")]
pub(crate) struct Redo {
    #[command(flatten)]
    pub(crate) change: Change,
}

/// Return files to a checkpoint
///
/// If an agent worked here since, only its work is taken back, and what you changed stays. Without that, the
/// files become as they were in the checkpoint. Either way everything that is overwritten is kept first, and
/// `piton undo` takes the restore back.
///
/// With --state the state of the run is put back instead, to any entry of its log. Nothing is deleted: the log says
/// that what lies between doesn't count any more. What steps did in the world stays. The run is paused then. With
/// --both the files are returned first, then the state.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton restore @-\n  piton restore @- src/ --dry-run\n  piton restore RUN@7 --not target\n  piton restore RUN@7 --into ../theirs\n  piton restore RUN@3 --state"
)]
pub(crate) struct Restore {
    /// The checkpoint
    #[arg(value_name = "REF")]
    pub(crate) reference: Reference,
    /// Only these files and folders
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// But not these; may be given again
    #[arg(long, value_name = "PATH")]
    pub(crate) not: Vec<PathBuf>,
    /// Write the files into a new or empty folder instead, also those of another folder, machine or member of the team
    #[arg(long, value_name = "DIR", conflicts_with_all = ["paths", "not", "exact", "times", "conflict", "state", "both", "dry_run"])]
    pub(crate) into: Option<PathBuf>,
    /// Make all files as they were in the checkpoint, your own changes included
    #[arg(long)]
    pub(crate) exact: bool,
    /// Put the times of files back too
    #[arg(long)]
    pub(crate) times: bool,
    /// The run's state, not the files
    #[arg(long, conflicts_with_all = ["paths", "not", "exact", "times", "conflict", "both"])]
    pub(crate) state: bool,
    /// The files, then the run's state
    #[arg(long)]
    pub(crate) both: bool,
    /// With the state, what it had used of tokens and money, too; otherwise what was spent stays counted
    #[arg(long)]
    pub(crate) usage: bool,
    /// Print a note for the agent about what was done to its files, to be put into its conversation
    #[arg(long)]
    pub(crate) note: bool,
    #[command(flatten)]
    pub(crate) change: Change,
}

/// Run any program under checkpoints
///
/// The files are checkpointed before it starts, whenever they have changed and come to rest, every ten seconds while
/// they change without rest, when git moves HEAD, its index or a ref, and when it has ended. The program has the terminal, the signals and the exit code to itself; what changed and how to undo
/// it is said at the end.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton guard -- claude\n  piton guard --rollback-on-failure -- make -C site deploy"
)]
pub(crate) struct Guard {
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<std::ffi::OsString>,
    /// Take back what it did if it fails
    #[arg(long)]
    pub(crate) rollback_on_failure: bool,
    /// Once it has ended well, check its work with this shell command; more than one check may be given. What they come to is
    /// kept with the run, and piton ends with 1 if one fails
    #[arg(long, value_name = "CMD")]
    pub(crate) verify: Vec<String>,
    /// Checkpoint this long after the last change
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds)]
    pub(crate) quiet_for: Duration,
    /// Checkpoint at least this often while something changes, though never for more than a tenth of the time
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    pub(crate) at_least: Duration,
    /// Look this often whether the repository moved; 0 for never
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = parse_interval)]
    pub(crate) drift_every: Duration,
    /// Let the program stand still while the same lines changed upstream, until `piton drift --run RUN --resolve
    /// user-handled` says that it was seen to
    #[arg(long)]
    pub(crate) pause_on_drift: bool,
    /// Let the program go on if piton itself is killed; without this it is ended then
    #[arg(long)]
    pub(crate) outlive: bool,
    #[command(flatten)]
    pub(crate) capture: Capture,
}

/// For runs whose files are checkpointed.
#[derive(Debug, Args, Clone, Copy)]
pub(crate) struct DriftWatch {
    /// With the files of a run: look this often whether the repository moved; 0 for never
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = parse_interval)]
    pub(crate) drift_every: Duration,
    /// With the files of a run: stop it, to be resumed, when the same lines changed upstream
    #[arg(long)]
    pub(crate) pause_on_drift: bool,
}

impl From<DriftWatch> for piton_app::runs::drive::DriftWatch {
    fn from(watch: DriftWatch) -> Self {
        Self { every: watch.drift_every, pauses: watch.pause_on_drift }
    }
}

impl Default for DriftWatch {
    fn default() -> Self {
        Self { drift_every: piton_workspace::CHECKED_EVERY, pause_on_drift: false }
    }
}

/// Merge two versions of a file that began as one
///
/// OURS becomes the merged text, with markers where both sides changed the same lines. Ends as git merge-file does:
/// with the number of conflicts (127 for more), or 255 if the files can't be merged. As a merge driver of git:
/// `driver = piton merge-file -L %X -L %S -L %Y --marker-size %L %A %O %B`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton merge-file OURS BASE THEIRS\n  piton merge-file -p --diff3 a.rs a.base.rs a.theirs.rs\n  piton merge-file --union CHANGELOG.md base.md theirs.md"
)]
pub(crate) struct MergeFile {
    /// Our version, which becomes the merged one
    pub(crate) ours: PathBuf,
    /// The version before
    pub(crate) base: PathBuf,
    /// Their version
    pub(crate) theirs: PathBuf,
    /// What the markers call a version: ours, then the one before, then theirs
    #[arg(short = 'L', value_name = "LABEL")]
    pub(crate) label: Vec<String>,
    /// Print the merged text instead of writing it
    #[arg(short = 'p', long)]
    pub(crate) stdout: bool,
    /// Show the version before in conflicts, too
    #[arg(long, conflicts_with = "zdiff3")]
    pub(crate) diff3: bool,
    /// As --diff3, without lines that both sides begin or end with
    #[arg(long)]
    pub(crate) zdiff3: bool,
    /// Take our lines where both changed the same ones
    #[arg(long = "ours", id = "favour_ours", group = "favour")]
    pub(crate) favour_ours: bool,
    /// Take their lines
    #[arg(long = "theirs", id = "favour_theirs", group = "favour")]
    pub(crate) favour_theirs: bool,
    /// Take both
    #[arg(long, group = "favour")]
    pub(crate) union: bool,
    /// How many signs a marker has
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) marker_size: u16,
}

/// For chat front ends: checkpoint create, list, restore
#[derive(Debug, Args)]
#[command(
    hide = true,
    after_help = "Examples:\n  piton checkpoint create \"before the refactor\"\n  piton checkpoint list\n  piton checkpoint restore 7"
)]
pub(crate) struct Checkpoint {
    #[command(subcommand)]
    pub(crate) action: CheckpointAction,
}

/// What to do with checkpoints.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointAction {
    /// Checkpoint the files now
    Create {
        /// What it is for
        description: Vec<String>,
    },
    /// The checkpoints of this folder
    List,
    /// Return files to a checkpoint
    Restore {
        /// Its id, as the list shows it
        id: String,
    },
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { parse_seconds(text) }
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds from 0.05 to 86400 is wanted".to_owned()),
    }
}
