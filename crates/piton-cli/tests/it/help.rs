//! The short help. The long one of every verb is held by `docs/reference/commands.md`.

use crate::world::World;

#[test]
fn all_verbs() {
    let world = World::new();
    insta::assert_snapshot!(world.piton(["-h"]).whole(), @r"
    --- stdout
    Durable checkpoints for AI agents and workflows

    Usage: piton [OPTIONS] <COMMAND>

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
      piton undo
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["run", "-h"]).whole(), @r#"
    --- stdout
    Start a document; with --id create or resume

    Usage: piton run [OPTIONS] <DOC> [QUESTION]

    Arguments:
      <DOC>       The document: .yml, .yaml, .json or .toml
      [QUESTION]  What the user asks, for a chat: the variable `sys.query`

    Options:
          --query <TEXT>           The same, by name
          --file <PATH>            A file that comes with the question, in `sys.files`; may be given
                                   again
      -i, --input <NAME=TEXT>      An input as text, or a file as `@PATH`; several of one name are a
                                   list
          --inputs <FILE>          Inputs as a JSON object; `-` reads stdin
          --id <RUN>               The run's id: resumed if there is such a run, else created. Of a
                                   chat, the conversation's: another question is its next turn
          --turn <N>               Which turn of the conversation the question is, from 1; without it,
                                   another question is the next one
          --label <LABEL>          What the run is found by beside its name; may be given again
          --config <FILE>          Models, knowledge bases, credentials, limits: a .toml, .yml or .json
                                   file
          --wait [<SECONDS>]       If another process drives the run, wait for it, at most so long
          --force                  Go on with a run of that id although its document or something else
                                   dangerous changed; the run keeps the document
          --files                  Checkpoint the folder's files with the run: `piton undo RUN` takes
                                   back what it did to them, and `piton resume` finds what others
                                   changed meanwhile
          --max-steps <N>          How many nodes may run, in each graph by itself; the run fails at the
                                   next one
          --max-time <SECONDS>     How long the run may take in all, while it is at work
          --max-concurrency <N>    How many nodes of a graph may run at once: 16 if nothing is said
          --drift-every <SECONDS>  With the files of a run: look this often whether the repository
                                   moved; 0 for never [default: 600]
          --pause-on-drift         With the files of a run: stop it, to be resumed, when the same lines
                                   changed upstream
      -h, --help                   Print help (see more with '--help')

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
      piton run chat.yml "How do bees find their way?"
    --- exit 0
    "#);
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
