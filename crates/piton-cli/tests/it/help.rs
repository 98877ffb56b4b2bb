//! The help of every verb.

use crate::world::World;

#[test]
fn all_verbs() {
    let world = World::new();
    insta::assert_snapshot!(world.piton(["-h"]).whole(), @r"
    --- stdout
    Durable checkpoints for AI agents and workflows

    Usage: piton [OPTIONS] <COMMAND>

    Files:
      guard    Run any program under checkpoints
      save     Checkpoint the files of this folder now
      status   This folder: what changed, its newest checkpoint, its store
      undo     Take back the last step, session or restore, or a named one
      redo     Take back the last undo
      restore  Return files to a checkpoint
      drift    Did the repository move under us
      lease    Reserve files, so that several agents keep out of each other's way
      merge-file  Merge two versions of a file that began as one

    Look:
      ls       The runs of this folder, newest first
      log      What happened, newest first: of this folder, one run or a path
      show     A run, checkpoint, step or blob
      diff     What differs between two checkpoints
      events   What happens to a run, oldest first; -f to follow

    Run:
      run      Start a document; with --id create or resume
      resume   Go on with a run; never creates one
      answer   Reply to a question that a run waits for
      retry    Try a run again, from a step
      fork     Branch a new run off a checkpoint, with changes
      stop     Stop a run, to go on later
      cancel   Give a run up for good

    Documents:
      validate What is wrong with documents, and what they need
      graph    A document as a drawing
      test     Run cases as data: documents with what should come out

    Store:
      init     Set up the store of this folder and say where it is
      key      The key of an encrypted store
      check    Find damage, and what it affects; --repair
      gc       Give back the space of what needn't be kept
      copy     Copy runs from one store into another
      export   Write a run with all that belongs to it to stdout
      import   Take runs over that `piton export` wrote
      doctor   What this machine has of all that Piton can use, and how to mend it
      demo     See it work: files undone, an agent killed and gone on, a person asked

    Shell:
      completions  What a shell needs to complete commands of piton

    Options:
          --json             Print JSON: one object, or one per line for lists
          --store <URL>      The store to use, as in sqlite:/path/to/store.db
          --key-file <FILE>  The key file of an encrypted store
      -C <DIR>               Work as if started in DIR
      -q, --quiet            Say nothing but errors and warnings on stderr
      -v, --verbose          Say more on stderr
      -h, --help             Print help (see more with '--help')
      -V, --version          Print version

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
      piton diff --state @- @
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["init", "-h"]).whole(), @r"
    --- stdout
    Set up the store of this folder and say where it is

    Usage: piton init [OPTIONS]

    Options:
          --here        Keep the store in .piton/ inside the folder
          --encrypt     Encrypt the new store, with --key-file (made if it isn't there) or --passphrase
          --passphrase  Let a passphrase open the store
      -h, --help        Print help (see more with '--help')

    Options of every verb:
          --json             Print JSON: one object, or one per line for lists
          --store <URL>      The store to use, as in sqlite:/path/to/store.db
          --key-file <FILE>  The key file of an encrypted store
      -C <DIR>               Work as if started in DIR
      -q, --quiet            Say nothing but errors and warnings on stderr
      -v, --verbose          Say more on stderr

    Examples:
      piton init
      piton init --here
      piton init --store sqlite:/var/lib/team.db
      piton init --encrypt --key-file ~/piton.key
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["log", "-h"]).whole(), @r"
    --- stdout
    What happened, newest first: of this folder, one run or a path

    Usage: piton log [OPTIONS] [RUN|REF|PATH] [-- <PATH>...]

    Arguments:
      [RUN|REF|PATH]  A run, the checkpoint or step to go back from, or a path
      [PATH]...       Only where these files and folders changed

    Options:
      -n, --limit <N>    Show at most N [default: 50]
          --checkpoints  Only checkpoints
      -h, --help         Print help (see more with '--help')

    Options of every verb:
          --json             Print JSON: one object, or one per line for lists
          --store <URL>      The store to use, as in sqlite:/path/to/store.db
          --key-file <FILE>  The key file of an encrypted store
      -C <DIR>               Work as if started in DIR
      -q, --quiet            Say nothing but errors and warnings on stderr
      -v, --verbose          Say more on stderr

    Examples:
      piton log
      piton log RUN
      piton log RUN@7 -n 5
      piton log src/
      piton log RUN -- a.rs
      piton log --checkpoints --json
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["show", "-h"]).whole(), @r"
    --- stdout
    A run, checkpoint, step or blob

    Usage: piton show [OPTIONS] [REF]

    Arguments:
      [REF]  What to show [default: @]

    Options:
          --steps  Of a run: every attempt at every step too
      -h, --help   Print help (see more with '--help')

    Options of every verb:
          --json             Print JSON: one object, or one per line for lists
          --store <URL>      The store to use, as in sqlite:/path/to/store.db
          --key-file <FILE>  The key file of an encrypted store
      -C <DIR>               Work as if started in DIR
      -q, --quiet            Say nothing but errors and warnings on stderr
      -v, --verbose          Say more on stderr

    Examples:
      piton show
      piton show RUN --steps
      piton show RUN@7
      piton show RUN/fetch --json
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["diff", "-h"]).whole(), @r"
    --- stdout
    What differs between two checkpoints

    Usage: piton diff [OPTIONS] [A] [B]

    Arguments:
      [A]  The older one
      [B]  The newer one

    Options:
          --state  Compare their states, value by value
          --stat   Only count the lines of each file
      -h, --help   Print help (see more with '--help')

    Options of every verb:
          --json             Print JSON: one object, or one per line for lists
          --store <URL>      The store to use, as in sqlite:/path/to/store.db
          --key-file <FILE>  The key file of an encrypted store
      -C <DIR>               Work as if started in DIR
      -q, --quiet            Say nothing but errors and warnings on stderr
      -v, --verbose          Say more on stderr

    Examples:
      piton diff
      piton diff @- @ --stat
      piton diff --state RUN@3 RUN@7 --json
      piton diff RUN RUN
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["run", "-h"]).whole(), @r"
    --- stdout
    Start a document; with --id create or resume

    Usage: piton run [OPTIONS] <DOC>

    Arguments:
      <DOC>  The document: .yml, .yaml, .json or .toml

    Options:
      -i, --input <NAME=TEXT>  An input as text; may be given again
          --inputs <FILE>      Inputs as a JSON object; `-` reads stdin
          --id <RUN>           The run's id: resumed if there is such a run, else created
          --wait [<SECONDS>]   If another process drives the run, wait for it, at most so long
          --config <FILE>      Models, knowledge bases, credentials, limits: a .toml, .yml or .json file
      -h, --help               Print help (see more with '--help')

    Options of every verb:
          --json             Print JSON: one object, or one per line for lists
          --store <URL>      The store to use, as in sqlite:/path/to/store.db
          --key-file <FILE>  The key file of an encrypted store
      -C <DIR>               Work as if started in DIR
      -q, --quiet            Say nothing but errors and warnings on stderr
      -v, --verbose          Say more on stderr

    Examples:
      piton run flow.yml -i topic=bees
      piton run flow.yml --inputs inputs.json --id nightly-1
      piton run flow.yml --json | jq .outputs
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["resume", "-h"]).whole(), @r"
    --- stdout
    Go on with a run; never creates one

    Usage: piton resume [OPTIONS] <RUN>

    Arguments:
      <RUN>  The run, by its id or the unique beginning of it

    Options:
          --wait [<SECONDS>]     If another process drives the run, wait for it, at most so long
          --config <FILE>        Models, knowledge bases, credentials, limits: a .toml, .yml or .json
                                 file
          --explain              Only say what changed since the run was begun, and what that means
          --document <FILE>      With --explain: what this document would mean for what is done
          --force                Go on although something dangerous changed; every change is written to
                                 the audit log
          --on-modified <WHAT>   For files that were modified: use_current, use_checkpoint, merge, abort
          --on-deleted <WHAT>    For files that were deleted: restore, skip, abort
          --on-upstream <WHAT>   For new upstream commits: ignore, rebase (which permits it), abort
          --on-path <PATH=WHAT>  For one file or folder, as in src=use_current; may be given again
      -h, --help                 Print help (see more with '--help')

    Options of every verb:
          --json             Print JSON: one object, or one per line for lists
          --store <URL>      The store to use, as in sqlite:/path/to/store.db
          --key-file <FILE>  The key file of an encrypted store
      -C <DIR>               Work as if started in DIR
      -q, --quiet            Say nothing but errors and warnings on stderr
      -v, --verbose          Say more on stderr

    Examples:
      piton resume RUN
      piton resume nightly-1 --json
      piton resume RUN --explain
      piton resume RUN --explain --document changed.yml
    --- exit 0
    ");
}

#[test]
fn without_a_verb_the_help_is_an_error() {
    let said = World::new().piton::<&str>([]);
    assert_eq!(said.code, Some(2));
    assert!(said.stdout.is_empty() && said.stderr.contains("Usage: piton"));
}

#[test]
fn the_long_help_has_examples_and_exit_codes() {
    let world = World::new();
    let said = world.piton(["--help"]);
    assert_eq!(said.code, Some(0));
    for part in ["Examples:", "References:", "Exit codes:", "Look:", "Run:", "Store:"] {
        assert!(said.stdout.contains(part), "{part}");
    }
    assert_eq!(world.piton(["--version"]).code, Some(0));
}
