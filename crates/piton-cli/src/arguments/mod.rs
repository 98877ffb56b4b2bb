//! The command line as it is written: verbs, options, help.
//!
//! Everything is parsed strictly here, ids and references included, so that a verb never sees a text
//! that could be a path or a piece of SQL.

pub(crate) mod agents;
pub(crate) mod debug;
pub(crate) mod files;
pub(crate) mod first_use;
pub(crate) mod hook;
pub(crate) mod scale;
pub(crate) mod store;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use piton_flow::Limits;
use piton_runtime::recovery::{DeletedPolicy, ModifiedPolicy, PathPolicy, UpstreamPolicy};
use piton_types::{RunId, RunKind, StepPath, Value, from_json, from_value};

use agents::{Drift, Lease};
use debug::Debug;
use files::{Checkpoint, DriftWatch, Guard, MergeFile, Redo, Restore, Save, Status, Undo};
use first_use::{Demo, Doctor, ReferenceBook};
use hook::Hook;
use piton_app::references::{InvalidReference, Reference};
use scale::{Mcp, Serve, Submit, Worker, WorkerAction};
use store::{Check, Copy, Export, Gc, Import, Stores};

/// The verbs in the groups of the help. A test holds it against the verbs that exist.
pub(crate) const GROUPS: &str = "\
Files:
  guard        Run any program under checkpoints
  hook         Install, remove or show the hooks of a coding agent
  save         Checkpoint the files of this folder now
  status       This folder: what changed, its newest checkpoint, its store
  undo         Take back the last step, session or restore, or a named one
  redo         Take back the last undo
  restore      Return files to a checkpoint
  drift        Did the repository move under us
  lease        Reserve files, so that several agents keep out of each other's way
  merge-file   Merge two versions of a file that began as one

Look:
  ls           The runs of this folder, newest first
  log          What happened, newest first: of this folder, one run or a path
  show         A run, checkpoint, step or blob
  diff         What differs between two checkpoints
  events       What happens to a run, oldest first; -f to follow

Run:
  run          Start a document; with --id create or resume
  resume       Go on with a run; never creates one
  answer       Reply to a question that a run waits for
  retry        Try a run again, from a step
  fork         Branch a new run off a checkpoint, with changes
  stop         Stop a run, to go on later
  cancel       Give a run up for good
  debug        Step through a run: break, look, set variables, go back

Documents:
  validate     What is wrong with documents, and what they need
  graph        A document as a drawing
  test         Run cases as data: documents with what should come out

Scale:
  submit       Put the run of a document into the queue, for a worker to drive
  worker       Drive runs that wait in the queue
  serve        Look at runs and steer them from a browser or over HTTP
  mcp          Give an agent what this command line can, as tools of the Model Context Protocol

Store:
  init         Set up the store of this folder and say where it is
  key          The key of an encrypted store
  check        Find damage, and what it affects; --repair
  gc           Give back the space of what needn't be kept
  store        The stores of your folders: list them, remove one, give one to another folder
  copy         Copy runs from one store into another
  export       Write a run with all that belongs to it to stdout
  import       Take runs over that `piton export` wrote
  doctor       What this machine has of all that Piton can use, and how to mend it
  demo         See it work: files undone, an agent killed and gone on, a person asked

Shell:
  completions  What a shell needs to complete commands of piton";

const TEMPLATE: &str = "{about}\n\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";

pub(crate) const AFTER: &str = "\
References:
  @                  the newest checkpoint of this folder's files
  @-  @--  @~3       the one before, the second, the third before it
  RUN                a run, by its name (guard-3), its id, or the unique beginning of that
  RUN@  RUN@7        the newest checkpoint of a run, its entry number 7
  RUN/step           a step
  REF:path           a file in the checkpoint REF

Exit codes:
  0 done   1 you can fix it   2 wrong usage   3 waiting for an answer
  4 refused for safety   70 a fault in piton   130, 143 stopped by a signal

Examples:
  piton run flow.yml -i topic=bees
  piton log
  piton show @
  piton diff --state @- @
  piton guard -- claude
  piton undo";

/// Durable checkpoints for AI agents and workflows.
///
/// A run is a log of what was done; a checkpoint is an entry of it that carries the run's state. `run` gets
/// work finished, whatever kills it on the way; `log`, `show` and `diff` look at what happened.
#[derive(Debug, Parser)]
#[command(
    name = "piton",
    version,
    help_template = TEMPLATE,
    before_help = GROUPS,
    before_long_help = GROUPS,
    after_help = AFTER,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Global {
    /// Print JSON: one object, or one per line for lists
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The store to use, as in sqlite:/path/to/store.db
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The key file of an encrypted store
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Work as if started in DIR
    #[arg(short = 'C', global = true, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Say nothing but errors and warnings on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more on stderr
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

/// What to do. The options of a verb are put together when it is the one that is called: for all of them that would be a
/// tenth of what a short command takes.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Verb {
    Guard(Guard),
    Hook(Hook),
    Save(Save),
    Status(Status),
    Undo(Undo),
    Redo(Redo),
    Restore(Restore),
    Drift(Drift),
    Lease(Lease),
    MergeFile(MergeFile),
    Checkpoint(Checkpoint),
    Init(Init),
    Key(KeyArguments),
    Doctor(Doctor),
    Demo(Demo),
    #[command(name = "reference")]
    ReferenceBook(ReferenceBook),
    Ls(Ls),
    Log(Log),
    Show(Show),
    Diff(Diff),
    Events(Events),
    Run(Run),
    Resume(Resume),
    Answer(Answer),
    Retry(Retry),
    Fork(Fork),
    Stop(Stop),
    Cancel(Cancel),
    Debug(Debug),
    Validate(Validate),
    Graph(Graph),
    Test(Test),
    Submit(Submit),
    Worker(Worker),
    Serve(Serve),
    Mcp(Mcp),
    Gc(Gc),
    Store(Stores),
    Check(Check),
    Copy(Copy),
    Export(Export),
    Import(Import),
    Completions(Completions),
}

impl Verb {
    /// The configuration that it is given.
    pub(crate) fn config(&self) -> Option<&Path> {
        let config = match self {
            Self::Run(run) => &run.start.config,
            Self::Submit(submit) => &submit.start.config,
            Self::Debug(debug) => &debug.start.config,
            Self::Resume(resume) => &resume.config,
            Self::Answer(answer) => &answer.config,
            Self::Retry(retry) => &retry.config,
            Self::Fork(fork) => &fork.config,
            Self::Serve(serve) => &serve.config,
            Self::Mcp(mcp) => &mcp.config,
            Self::Worker(Worker { action: WorkerAction::Run { config, .. } }) => config,
            _ => return None,
        };
        config.as_deref()
    }

    /// Whether it is about the very folder in which it is called, also if that is inside one that has a store.
    pub(crate) const fn is_of_this_folder(&self) -> bool {
        matches!(self, Self::Init(_))
    }

    /// Whether it drives runs, whose steps may have work for more than one thread.
    pub(crate) const fn drives(&self) -> bool {
        matches!(
            self,
            Self::Run(_)
                | Self::Resume(_)
                | Self::Answer(_)
                | Self::Retry(_)
                | Self::Fork(_)
                | Self::Debug(_)
                | Self::Test(_)
                | Self::Worker(_)
                | Self::Serve(_)
                | Self::Mcp(_)
                | Self::Guard(_)
                | Self::Demo(_)
        )
    }
}

/// What verbs take that change something for good.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Consent {
    /// Don't ask
    #[arg(long)]
    pub(crate) yes: bool,
    /// Say what would be done, and do nothing
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

/// The runs of this folder, newest first
///
/// A run that is in progress though no process drives it is shown as stalled; `piton resume RUN` goes on with it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton ls\n  piton ls --waiting\n  piton ls --failed --json\n  piton ls --all -n 20"
)]
pub(crate) struct Ls {
    /// Only runs with this in their name or id
    #[arg(value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Only of this kind: workflow, guard, steps, embedded or workspace
    #[arg(long, value_name = "KIND", value_parser = parse_policy::<RunKind>)]
    pub(crate) kind: Option<RunKind>,
    /// Only runs with this label; with several, all of them
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,
    /// Only runs that were active in this time: a number and s, m, h, d or w
    #[arg(long, value_name = "AGE", value_parser = store::age)]
    pub(crate) since: Option<Duration>,
    /// Only runs that wait for an answer, with their questions
    #[arg(long)]
    pub(crate) waiting: bool,
    /// Only failed runs, with their errors
    #[arg(long, conflicts_with = "waiting")]
    pub(crate) failed: bool,
    /// Only runs that no process drives any more; those of other hosts are watched for half a minute
    #[arg(long, conflicts_with_all = ["waiting", "failed"])]
    pub(crate) stalled: bool,
    /// The runs of all folders
    #[arg(long, conflicts_with = "store")]
    pub(crate) all: bool,
    /// Show at most N of each folder
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

/// What happens to a run, oldest first; -f to follow
///
/// Following ends when the run is completed, failed or cancelled.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton events RUN\n  piton events RUN -f --json")]
pub(crate) struct Events {
    /// The run, by its id or the unique beginning of it
    #[arg(value_name = "RUN")]
    pub(crate) run: RunId,
    /// Wait for more
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// Reply to a question that a run waits for
///
/// The answer is an object of what --set gives, checked against what the question asks for; what the question
/// doesn't name is read as JSON if it is some, else as text. On a terminal, without --set, every field is asked for.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton answer RUN\n  piton answer RUN --set approved=true --resume\n  piton answer RUN --node review --set 'note=looks good'\n  piton answer RUN --value 42"
)]
pub(crate) struct Answer {
    /// The run, by its id or the unique beginning of it
    #[arg(value_name = "RUN")]
    pub(crate) run: RunId,
    /// A field of the answer; may be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_input)]
    pub(crate) set: Vec<(String, String)>,
    /// The whole answer
    #[arg(long, value_name = "VALUE", conflicts_with = "set", value_parser = parse_value)]
    pub(crate) value: Option<Value>,
    /// Which question, if there are several: the node that asks, its place in the run, or the question's token
    #[arg(long, value_name = "NODE", alias = "question")]
    pub(crate) node: Option<String>,
    /// Who answers, for the log; the user of this system if nothing is said
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Go on with the run at once
    #[arg(long)]
    pub(crate) resume: bool,
    /// For --resume: models, knowledge bases, credentials, limits: a .toml, .yml or .json file
    #[arg(long, value_name = "FILE", requires = "resume")]
    pub(crate) config: Option<PathBuf>,
}

/// Try a run again, from a step
///
/// Without --from, only what failed is tried again. With it, that step and everything after it is done anew; what
/// they did in the world stays, and is listed first.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton retry RUN\n  piton retry RUN --from fetch\n  piton retry RUN --from fetch --dry-run\n  piton retry RUN --from fetch --set topic=wasps"
)]
pub(crate) struct Retry {
    /// The run, by its id or the unique beginning of it
    #[arg(value_name = "RUN")]
    pub(crate) run: RunId,
    /// The first step to do again
    #[arg(long, value_name = "STEP")]
    pub(crate) from: Option<StepPath>,
    /// What is to be different from there on, as `fork --set`: a new run branches off and goes on
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, requires = "from")]
    pub(crate) set: Vec<(String, Value)>,
    #[command(flatten)]
    pub(crate) consent: Consent,
    /// Models, knowledge bases, credentials, limits: a .toml, .yml or .json file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Branch a new run off a checkpoint, with changes
///
/// The new run has done what the old one had by then, and goes on differently; the old one isn't touched. NAME is
/// an input or a variable, STEP.NAME a field of what a finished step gave. VALUE is read as JSON if it is some,
/// else as text.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton fork RUN@3 --set model=x\n  piton fork RUN --id second\n  piton fork RUN@3 --set fetch.stdout=nothing --json\n  piton fork RUN --document changed.yml\n  piton fork RUN@3 --only summarise --set fetch.stdout=nothing\n  piton fork RUN@3 --into ../try"
)]
pub(crate) struct Fork {
    /// The checkpoint or entry to branch off; of a run, its newest entry
    #[arg(value_name = "RUN|REF")]
    pub(crate) reference: Reference,
    /// What is to be different; may be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub(crate) set: Vec<(String, Value)>,
    /// The new run's id
    #[arg(long, value_name = "RUN")]
    pub(crate) id: Option<RunId>,
    /// Another document: what finished and isn't affected by the change stays done, the rest is done again
    #[arg(long, value_name = "FILE")]
    pub(crate) document: Option<PathBuf>,
    /// Only try this step of a workflow on that data, in memory: no run is made, nothing is recorded
    #[arg(long, value_name = "STEP", conflicts_with = "id")]
    pub(crate) only: Option<StepPath>,
    /// Try it in the folder itself; without this, a step that may run programs is tried in a copy of the files
    #[arg(long, requires = "only")]
    pub(crate) in_place: bool,
    /// Models, knowledge bases, credentials, limits for --only and --document: a .toml, .yml or .json file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// With the files of the checkpoint, in this new folder; the run goes into the folder's own store
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
    /// Copy what ignore files hide along, as it is now
    #[arg(long, requires = "into")]
    pub(crate) include_ignored: bool,
}

/// Stop a run, to go on later
///
/// Steps that run get some time to end; what they finish is kept. `piton resume RUN` goes on.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton stop RUN\n  piton stop RUN --grace 5\n  piton stop RUN --now")]
pub(crate) struct Stop {
    /// The run, by its id or the unique beginning of it
    #[arg(value_name = "RUN")]
    pub(crate) run: RunId,
    /// How long steps that run may take to end
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) grace: u64,
    /// Cut them short at once
    #[arg(long, conflicts_with = "grace")]
    pub(crate) now: bool,
    /// Why, for people who look at it later
    #[arg(short = 'm', long, value_name = "TEXT", default_value = "stopped from the command line")]
    pub(crate) message: String,
}

/// Give a run up for good
///
/// It can't be resumed; `piton fork RUN` can still branch off it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton cancel RUN\n  piton cancel RUN -m 'no longer needed' --yes")]
pub(crate) struct Cancel {
    /// The run, by its id or the unique beginning of it
    #[arg(value_name = "RUN")]
    pub(crate) run: RunId,
    /// Why, for people who look at it later
    #[arg(short = 'm', long, value_name = "TEXT", default_value = "cancelled from the command line")]
    pub(crate) message: String,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

/// Set up the store of this folder and say where it is
///
/// The store is kept outside the folder, so that `git clean -fdx` or `rm -rf` doesn't take it away. If
/// there is one already it is left as it is.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton init\n  piton init --here\n  piton init --adopt\n  piton init --store sqlite:/var/lib/team.db\n  piton init --encrypt --key-file ~/piton.key"
)]
pub(crate) struct Init {
    /// Keep the store in .piton/ inside the folder
    #[arg(long, conflicts_with = "store")]
    pub(crate) here: bool,
    /// Make a .piton/ that came with the folder your own: shows what it holds, and drops what is unfinished in it
    #[arg(long, conflicts_with_all = ["store", "here", "encrypt"])]
    pub(crate) adopt: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
    /// Encrypt the new store, with --key-file (made if it isn't there) or --passphrase
    #[arg(long)]
    pub(crate) encrypt: bool,
    /// Let a passphrase open the store
    #[arg(long, requires = "encrypt", conflicts_with = "key_file")]
    pub(crate) passphrase: bool,
}

/// The key of an encrypted store
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton key rotate --new-key-file next.key")]
pub(crate) struct KeyArguments {
    #[command(subcommand)]
    pub(crate) verb: KeyVerb,
}

/// What to do about the key.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    Rotate(RotateKey),
}

/// Put another key in the place of the present one
///
/// The records stay as they are: only the key that they are encrypted with is wrapped anew.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("new_key").required(true), after_help = "Examples:\n  piton key rotate --key-file old.key --new-key-file new.key")]
pub(crate) struct RotateKey {
    /// The new key; made if it isn't there
    #[arg(long, value_name = "FILE", group = "new_key")]
    pub(crate) new_key_file: Option<PathBuf>,
    /// Let a passphrase open the store from now on
    #[arg(long, group = "new_key")]
    pub(crate) new_passphrase: bool,
}

/// What happened, newest first: of this folder, one run or a path
///
/// One line for what a person means: what you changed, what an agent or tool was told and changed, saves, undos, how
/// runs ended and what they asked. From a reference such as RUN@7 it goes back from there. Of files and folders it shows
/// the checkpoints in which they changed; behind `--` come paths only, also those that are gone. On a terminal a long list
/// goes through $PAGER.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton log\n  piton log RUN\n  piton log --since 2h\n  piton log src/\n  piton log RUN -- a.rs\n  piton log --all RUN@7 -n 5\n  piton log --checkpoints --json"
)]
pub(crate) struct Log {
    /// A run, the checkpoint or step to go back from, or a path
    #[arg(value_name = "RUN|REF|PATH")]
    pub(crate) subject: Option<Subject>,
    /// Only where these files and folders changed
    #[arg(value_name = "PATH", last = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Only of this run
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<Reference>,
    /// Only what happened in this time: a number and s, m, h, d or w
    #[arg(long, value_name = "AGE", value_parser = store::age)]
    pub(crate) since: Option<Duration>,
    /// Show at most N
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Every entry of the log, those that the engine makes for itself too
    #[arg(long, conflicts_with = "since")]
    pub(crate) all: bool,
    /// Only the entries that are checkpoints
    #[arg(long, conflicts_with = "since")]
    pub(crate) checkpoints: bool,
}

/// What the log of is wanted.
#[derive(Debug, Clone)]
pub(crate) enum Subject {
    /// A run, an entry or a step; or a path that reads like one, if there is no such run.
    Reference(Reference),
    /// What can only be a path: no reference begins with a dot or a slash.
    Path(PathBuf),
}

impl std::str::FromStr for Subject {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        match text.starts_with(['.', '/']) {
            true => Ok(Self::Path(PathBuf::from(text))),
            false => text.trim_end_matches('/').parse().map(Self::Reference),
        }
    }
}

/// What a shell needs to complete commands of piton
///
/// Prints a script; put it where the shell looks for such.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton completions bash > ~/.local/share/bash-completion/completions/piton\n  piton completions zsh > ~/.zfunc/_piton\n  piton completions fish > ~/.config/fish/completions/piton.fish"
)]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// A run, checkpoint, step or blob
///
/// Finds out what it was given.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton show\n  piton show RUN --steps\n  piton show RUN@7\n  piton show RUN/fetch --json"
)]
pub(crate) struct Show {
    /// What to show
    #[arg(value_name = "REF", default_value = "@")]
    pub(crate) reference: Reference,
    /// Of a run: every attempt at every step too
    #[arg(long)]
    pub(crate) steps: bool,
}

/// What differs between two checkpoints
///
/// Of their files, or with --state of their states. Without B, A is compared with the folder as it is now; without
/// A, the newest checkpoint is. Of two runs of steps or workflows, what their steps gave is compared; of two guarded
/// sessions, the files of their newest checkpoints.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton diff\n  piton diff @- @ --stat\n  piton diff @- @ -- src/\n  piton diff --state RUN@3 RUN@7 --json\n  piton diff RUN RUN"
)]
pub(crate) struct Diff {
    /// Compare their states, value by value
    #[arg(long, conflicts_with = "stat", requires = "to")]
    pub(crate) state: bool,
    /// Only count the lines of each file
    #[arg(long)]
    pub(crate) stat: bool,
    /// The older one
    #[arg(value_name = "A")]
    pub(crate) from: Option<Reference>,
    /// The newer one
    #[arg(value_name = "B")]
    pub(crate) to: Option<Reference>,
    /// Only these files and folders
    #[arg(value_name = "PATH", last = true, conflicts_with = "state")]
    pub(crate) paths: Vec<PathBuf>,
}

/// Start a document; with --id create or resume
///
/// Finished steps are recorded as they end: whatever kills the run, `piton resume RUN` goes on after the
/// last of them. A node with `checkpoint: true` in its data makes a checkpoint: what every node gave so far.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton run flow.yml -i topic=bees\n  piton run flow.yml --inputs inputs.json --id nightly-1\n  piton run flow.yml --json | jq .outputs\n  piton run chat.yml \"How do bees find their way?\""
)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) start: Start,
    /// If another process drives the run, wait for it, at most so long
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "86400")]
    pub(crate) wait: Option<u64>,
    /// Go on with a run of that id although its document or something else dangerous changed; the run keeps the document
    #[arg(long, requires = "id")]
    pub(crate) force: bool,
    /// Checkpoint the folder's files with the run: `piton undo RUN` takes back what it did to them, and `piton resume`
    /// finds what others changed meanwhile
    #[arg(long)]
    pub(crate) files: bool,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    #[command(flatten)]
    pub(crate) drift: DriftWatch,
}

/// What a run is begun with.
#[derive(Debug, Args)]
pub(crate) struct Start {
    /// The document: .yml, .yaml, .json or .toml
    #[arg(value_name = "DOC")]
    pub(crate) document: PathBuf,
    /// What the user asks, for a chat: the variable `sys.query`
    #[arg(value_name = "QUESTION", conflicts_with = "query")]
    pub(crate) question: Option<String>,
    /// The same, by name
    #[arg(long, value_name = "TEXT")]
    pub(crate) query: Option<String>,
    /// A file that comes with the question, in `sys.files`; may be given again
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<PathBuf>,
    /// An input as text, or a file as `@PATH`; several of one name are a list
    #[arg(short, long = "input", value_name = "NAME=TEXT", value_parser = parse_input)]
    pub(crate) input: Vec<(String, String)>,
    /// Inputs as a JSON object; `-` reads stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) inputs: Option<PathBuf>,
    /// The run's id: resumed if there is such a run, else created. Of a chat, the conversation's: another question is its
    /// next turn
    #[arg(long, value_name = "RUN")]
    pub(crate) id: Option<RunId>,
    /// Which turn of the conversation the question is, from 1; without it, another question is the next one
    #[arg(long, value_name = "N", requires = "id")]
    pub(crate) turn: Option<u32>,
    /// What the run is found by beside its name; may be given again
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,
    /// Models, knowledge bases, credentials, limits: a .toml, .yml or .json file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// How far a workflow may go.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct LimitFlags {
    /// How many nodes may run, in each graph by itself; the run fails at the next one
    #[arg(long, value_name = "N")]
    pub(crate) max_steps: Option<u64>,
    /// How long the run may take in all, while it is at work
    #[arg(long, value_name = "SECONDS")]
    pub(crate) max_time: Option<u64>,
    /// How many nodes of a graph may run at once: 16 if nothing is said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_concurrency: Option<u32>,
}

impl From<LimitFlags> for Limits {
    fn from(flags: LimitFlags) -> Self {
        let standard = Self::default();
        Self {
            max_steps: flags.max_steps,
            max_time: flags.max_time.map(Duration::from_secs),
            concurrency: flags.max_concurrency.map_or(standard.concurrency, |most| most as usize),
            ..standard
        }
    }
}

/// Go on with a run; never creates one
///
/// Steps that the log has are not run again. First the newest whole checkpoint is found and its surroundings are
/// checked; what changed is asked about on a terminal, and without one nothing is done and the exit code is 4.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton resume RUN\n  piton resume nightly-1 --json\n  piton resume RUN --explain\n  piton resume RUN --explain --document changed.yml\n  piton resume RUN --document changed.yml --force"
)]
pub(crate) struct Resume {
    /// The run, by its id or the unique beginning of it
    #[arg(value_name = "RUN")]
    pub(crate) run: RunId,
    /// If another process drives the run, wait for it, at most so long
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "86400")]
    pub(crate) wait: Option<u64>,
    /// Models, knowledge bases, credentials, limits: a .toml, .yml or .json file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Only say what changed since the run was begun, and what that means
    #[arg(long)]
    pub(crate) explain: bool,
    /// Go on with this document instead of the run's own, which --force permits; with --explain, say what it would mean
    #[arg(long, value_name = "FILE")]
    pub(crate) document: Option<PathBuf>,
    /// Go on although something dangerous changed; every change is written to the audit log
    #[arg(long, conflicts_with = "explain")]
    pub(crate) force: bool,
    /// If the newest entries of the run are damaged, go on from its newest whole checkpoint, as a new run
    #[arg(long, conflicts_with = "explain")]
    pub(crate) fallback: bool,
    /// Where a merge of files is in its own way, have a model of the configuration put the two together
    #[arg(long)]
    pub(crate) resolve: bool,
    #[command(flatten)]
    pub(crate) changes: ChangeFlags,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    #[command(flatten)]
    pub(crate) drift: DriftWatch,
}

/// What is done about files and commits that changed while a run stood still; what isn't said is asked.
#[derive(Debug, Default, Args)]
pub(crate) struct ChangeFlags {
    /// For files that were modified: use_current, use_checkpoint, merge, abort
    #[arg(long, value_name = "WHAT", value_parser = parse_policy::<ModifiedPolicy>)]
    pub(crate) on_modified: Option<ModifiedPolicy>,
    /// For files that were deleted: restore, skip, abort
    #[arg(long, value_name = "WHAT", value_parser = parse_policy::<DeletedPolicy>)]
    pub(crate) on_deleted: Option<DeletedPolicy>,
    /// For new upstream commits: ignore, rebase (which permits it), abort
    #[arg(long, value_name = "WHAT", value_parser = parse_policy::<UpstreamPolicy>)]
    pub(crate) on_upstream: Option<UpstreamPolicy>,
    /// For one file or folder, as in src=use_current; may be given again
    #[arg(long, value_name = "PATH=WHAT", value_parser = parse_path_policy)]
    pub(crate) on_path: Vec<PathPolicy>,
}

fn parse_policy<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    from_value(Value::from(text.replace('-', "_"))).map_err(|error| error.to_string())
}

fn parse_path_policy(text: &str) -> Result<PathPolicy, String> {
    let (path, what) = text.rsplit_once('=').ok_or("PATH=WHAT is wanted, as in src=use_current")?;
    let (modified, deleted) = (parse_policy(what).ok(), parse_policy(what).ok());
    if path.is_empty() || modified.is_none() && deleted.is_none() {
        return Err("WHAT is one of use_current, use_checkpoint, merge, restore, skip, ask, abort".to_owned());
    }
    Ok(PathPolicy { path: path.to_owned(), modified, deleted })
}

/// JSON if it is some, else text.
fn parse_value(text: &str) -> Result<Value, String> {
    Ok(from_json(text.as_bytes()).unwrap_or_else(|_| Value::from(text)))
}

pub(crate) fn parse_setting(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the name is missing in front of '='".to_owned()),
        Some((name, value)) => Ok((name.to_owned(), parse_value(value)?)),
        None => Err("NAME=VALUE is wanted, as in approved=true".to_owned()),
    }
}

/// What is wrong with documents, and what they need
///
/// Tells every problem at once, with file, line, node and field. What a document needs (models, tools,
/// programs) is listed apart: it is no mistake. Ends with 1 if a document is not valid.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton validate flow.yml\n  piton validate *.yml --json")]
pub(crate) struct Validate {
    /// The documents: .yml, .yaml, .json or .toml
    #[arg(value_name = "FILE", required = true)]
    pub(crate) documents: Vec<PathBuf>,
}

/// A document as a drawing
///
/// As boxes and lines in the terminal, as a picture, or as a Mermaid flowchart, which many viewers show.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton graph flow.yml\n  piton graph flow.yml --format svg > flow.svg\n  piton graph flow.yml --format mermaid"
)]
pub(crate) struct Graph {
    /// The document
    #[arg(value_name = "DOC")]
    pub(crate) document: PathBuf,
    /// How to draw it
    #[arg(long, value_enum, default_value_t = Drawing::Boxes)]
    pub(crate) format: Drawing,
}

/// How a document is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Drawing {
    /// Boxes and lines of characters; a list if there is no room for them
    #[value(alias = "text")]
    Boxes,
    /// A line for each node, with where it leads
    List,
    /// A picture
    Svg,
    /// A Mermaid flowchart
    Mermaid,
}

/// Run cases as data: documents with what should come out
///
/// A case is a folder: the document, its inputs, mock servers and what should come out. Nothing outside is
/// touched and no model is paid. Ends with `N passed, N failed`, and with 1 if any failed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton test cases/\n  piton test cases/refund --json\n  piton test cases/ --jobs 4 --junit report.xml\n  piton test cases/ --kill-everywhere --budget 60"
)]
pub(crate) struct Test {
    /// Cases, or folders of cases
    #[arg(value_name = "CASE", required = true)]
    pub(crate) cases: Vec<PathBuf>,
    /// Also write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// How many cases run at once; as many as there are processors if not given
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    /// Let cases run programs and use the network for real. Without it, what a case doesn't answer itself is refused
    #[arg(long)]
    pub(crate) outside: bool,
    /// Kill each case at every step boundary and store call, resume it, and demand the same outcome
    #[arg(long)]
    pub(crate) kill_everywhere: bool,
    /// How many seconds to kill for, in all; without it, until every moment has been tried
    #[arg(long, value_name = "SECONDS", requires = "kill_everywhere")]
    pub(crate) budget: Option<u64>,
    /// Chooses which moments come first, and where resumes are killed
    #[arg(long, value_name = "N", requires = "kill_everywhere", default_value_t = 1)]
    pub(crate) seed: u64,
    /// For the process that is to be killed: the file of its store
    #[arg(long, value_name = "FILE", hide = true, requires = "die_at")]
    pub(crate) die_in: Option<PathBuf>,
    /// The call of the store at which it kills itself
    #[arg(long, value_name = "N", hide = true, requires = "die_in")]
    pub(crate) die_at: Option<u64>,
    /// When the call has been performed
    #[arg(long, hide = true, requires = "die_in")]
    pub(crate) die_after: bool,
    /// Where the HTTP server of the case is
    #[arg(long, value_name = "URL", hide = true, requires = "die_in")]
    pub(crate) base_url: Option<String>,
}

fn parse_input(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the name is missing in front of '='".to_owned()),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("NAME=TEXT is wanted, as in topic=bees".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// All verbs, put together.
    fn verbs() -> Vec<clap::Command> {
        let mut command = Arguments::command();
        command.build();
        command.get_subcommands().filter(|verb| verb.get_name() != "help").cloned().collect()
    }

    #[test]
    fn the_definition_is_sound_and_every_verb_is_in_the_help() {
        Arguments::command().debug_assert();
        for verb in verbs().iter().filter(|verb| !verb.is_hide_set()) {
            let about = verb.get_about().unwrap().to_string();
            assert!(
                GROUPS
                    .lines()
                    .any(|line| line.split_whitespace().next() == Some(verb.get_name()) && line.ends_with(&about)),
                "{} isn't in the help, or with other words",
                verb.get_name()
            );
        }
    }

    #[test]
    fn every_verb_has_an_example_of_itself() {
        for verb in verbs() {
            let example = format!("Examples:\n  piton {}", verb.get_name());
            let after = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.starts_with(&example), "{}: {after}", verb.get_name());
        }
    }

    #[test]
    fn inputs_are_split_at_the_first_equals_sign() {
        assert_eq!(parse_input("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(parse_input("a="), Ok(("a".to_owned(), String::new())));
        assert!(parse_input("a").is_err() && parse_input("=a").is_err());
        assert_eq!(parse_setting("a=true"), Ok(("a".to_owned(), Value::from(true))));
        assert_eq!(parse_setting("a=yes=no"), Ok(("a".to_owned(), Value::from("yes=no"))));
        assert!(parse_setting("a").is_err() && parse_setting("=1").is_err());
    }
}
