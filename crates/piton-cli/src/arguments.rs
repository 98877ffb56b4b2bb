//! The command line as it is written: verbs, options, help.
//!
//! Everything is parsed strictly here, ids and references included, so that a verb never sees a text
//! that could be a path or a piece of SQL.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use piton_types::RunId;

use crate::file_arguments::{Checkpoint, Guard, Redo, Restore, Save, Status, Undo};
use crate::reference::Reference;

/// The verbs in the groups of the help. A test holds it against the verbs that exist.
const GROUPS: &str = "\
Files:
  guard    Run any program under checkpoints
  save     Checkpoint the files of this folder now
  status   This folder: what changed, its newest checkpoint, its store
  undo     Take back the last step, session or restore, or a named one
  redo     Take back the last undo
  restore  Return files to a checkpoint

Look:
  log      What happened, newest first: of this folder or one run
  show     A run, checkpoint, step or blob
  diff     What differs between two checkpoints

Run:
  run      Start a document; with --id create or resume
  resume   Go on with a run; never creates one

Store:
  init     Set up the store of this folder and say where it is";

const TEMPLATE: &str = "{about}\n\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";

const AFTER: &str = "\
References:
  @                  the newest checkpoint here
  @-  @--  @~3       its parent, the one before, the third before it
  RUN                a run, by its id or the unique beginning of it
  RUN@  RUN@7        the newest checkpoint of a run, its entry number 7
  RUN/step           a step

Exit codes:
  0 done   1 you can fix it   2 wrong usage   3 waiting for an answer
  4 refused for safety   70 a fault in piton   130, 143 stopped by a signal

Examples:
  piton run flow.yml -i topic=bees
  piton log
  piton show @
  piton diff --state @- @";

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
    arg_required_else_help = true,
    disable_help_subcommand = true
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

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Guard(Guard),
    Save(Save),
    Status(Status),
    Undo(Undo),
    Redo(Redo),
    Restore(Restore),
    Checkpoint(Checkpoint),
    Init(Init),
    Log(Log),
    Show(Show),
    Diff(Diff),
    Run(Run),
    Resume(Resume),
}

/// Set up the store of this folder and say where it is
///
/// The store is kept outside the folder, so that `git clean -fdx` or `rm -rf` doesn't take it away. If
/// there is one already it is left as it is.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton init\n  piton init --here\n  piton init --store sqlite:/var/lib/team.db")]
pub(crate) struct Init {
    /// Keep the store in .piton/ inside the folder
    #[arg(long, conflicts_with = "store")]
    pub(crate) here: bool,
}

/// What happened, newest first: of this folder or one run
///
/// Shows the entries of the log; those that carry state are checkpoints. From a reference such as RUN@7
/// it goes back from there.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton log\n  piton log RUN\n  piton log RUN@7 -n 5\n  piton log --checkpoints --json"
)]
pub(crate) struct Log {
    /// A run, or the checkpoint or step to go back from
    #[arg(value_name = "RUN|REF")]
    pub(crate) reference: Option<Reference>,
    /// Show at most N
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Only checkpoints
    #[arg(long)]
    pub(crate) checkpoints: bool,
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
/// A, the newest checkpoint is. Of two runs, their newest checkpoints are compared.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton diff\n  piton diff @- @ --stat\n  piton diff --state RUN@3 RUN@7 --json")]
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
}

/// Start a document; with --id create or resume
///
/// Finished steps are recorded as they end: whatever kills the run, `piton resume RUN` goes on after the
/// last of them. A node with `checkpoint: true` in its data makes a checkpoint: what every node gave so far.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton run flow.yml -i topic=bees\n  piton run flow.yml --inputs inputs.json --id nightly-1\n  piton run flow.yml --json | jq .outputs"
)]
pub(crate) struct Run {
    /// The document: .yml, .yaml, .json or .toml
    #[arg(value_name = "DOC")]
    pub(crate) document: PathBuf,
    /// An input as text; may be given again
    #[arg(short, long = "input", value_name = "NAME=TEXT", value_parser = parse_input)]
    pub(crate) input: Vec<(String, String)>,
    /// Inputs as a JSON object; `-` reads stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) inputs: Option<PathBuf>,
    /// The run's id: resumed if there is such a run, else created
    #[arg(long, value_name = "RUN")]
    pub(crate) id: Option<RunId>,
}

/// Go on with a run; never creates one
///
/// Steps that the log has are not run again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  piton resume RUN\n  piton resume nightly-1 --json")]
pub(crate) struct Resume {
    /// The run, by its id or the unique beginning of it
    #[arg(value_name = "RUN")]
    pub(crate) run: RunId,
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

    #[test]
    fn the_definition_is_sound_and_every_verb_is_in_the_help() {
        Arguments::command().debug_assert();
        for verb in Arguments::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
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
        for verb in Arguments::command().get_subcommands() {
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
    }
}
