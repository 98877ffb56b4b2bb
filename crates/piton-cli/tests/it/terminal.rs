//! What is only there on a terminal, and for one: progress, and completion by the shell.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use unicode_width::UnicodeWidthChar as _;

use crate::world::{BINARY, World};

/// Runs a command whose stderr is a terminal; what it said there.
fn on_a_terminal(command: Command) -> String {
    let (said, success) = on_a_terminal_of(command, None);
    assert!(success, "{said}");
    said
}

/// The same on a terminal of this many columns and rows, and whether it ended well.
fn on_a_terminal_of(mut command: Command, size: Option<(u16, u16)>) -> (String, bool) {
    let (master, terminal) = open_terminal();
    if let Some((ws_col, ws_row)) = size {
        let size = rustix::termios::Winsize { ws_col, ws_row, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::from(terminal)).spawn().unwrap();
    // The command still holds the other end, which would never be closed.
    drop(command);
    let reader = std::thread::spawn(move || read_to_hang_up(master));
    let success = child.wait().unwrap().success();
    (reader.join().unwrap(), success)
}

/// Runs a command at a terminal where the test types as a person does: each answer once its question is there. Gives
/// what was on the terminal, and the exit code.
fn asked(mut command: Command, answers: &[(&str, &str)]) -> (String, Option<i32>) {
    let (master, terminal) = open_terminal();
    command.stdin(Stdio::from(terminal.try_clone().unwrap())).stdout(Stdio::null()).stderr(Stdio::from(terminal));
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut typing = std::fs::File::from(master.try_clone().unwrap());
    let (send, heard) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        let (mut file, mut buffer) = (std::fs::File::from(master), [0; 4096]);
        // A terminal that no process has open any more is an error to read from.
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            send.send(String::from_utf8_lossy(&buffer[..count]).into_owned()).unwrap();
        }
    });
    let (mut said, mut seen) = (String::new(), 0);
    let mut hear = |said: &mut String| match heard.recv_timeout(Duration::from_secs(60)) {
        Ok(more) => {
            said.push_str(&more);
            true
        }
        Err(RecvTimeoutError::Disconnected) => false,
        Err(RecvTimeoutError::Timeout) => {
            child.kill().unwrap();
            panic!("it waits for something else: {said}");
        }
    };
    for (question, reply) in answers {
        while !said[seen..].contains(question) {
            assert!(hear(&mut said), "{question:?} was never asked: {said}");
        }
        seen = said.len();
        typing.write_all(reply.as_bytes()).unwrap();
    }
    while hear(&mut said) {}
    reading.join().unwrap();
    (said, child.wait().unwrap().code())
}

/// F13: a chat answers what the user asks, which is said on the command line or at the terminal.
#[test]
fn a_chat_needs_a_question_and_asks_for_it_on_a_terminal() {
    const CHAT: &str = "
app: {mode: advanced-chat, name: parrot}
kind: app
version: 0.1.5
workflow:
  graph:
    nodes:
    - {id: in, data: {type: start, variables: []}}
    - {id: say, data: {type: answer, answer: 'You said {{#sys.query#}}, {{#sys.dialogue_count#}} {{#sys.workflow_id#}}.'}}
    edges: [{source: in, target: say}]
";
    let world = World::new();
    world.write("chat.yml", CHAT);
    world.write("note.txt", "A note.");
    let refused = world.piton(["run", "chat.yml"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("there is no question") && refused.stderr.contains("piton run chat.yml"),
        "{}",
        refused.stderr
    );
    assert_eq!(world.piton(["run", "chat.yml", " "]).code, Some(1), "a question that says nothing is none");
    assert!(!world.state().exists(), "a refusal leaves nothing behind");
    let answer = |arguments: &[&str]| {
        let said = world.piton([&["run", "chat.yml", "--json"], arguments].concat());
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        serde_json::from_str::<serde_json::Value>(said.stdout.lines().last().unwrap()).unwrap()["outputs"]["answer"]
            .clone()
    };
    assert_eq!(answer(&["hello"]), "You said hello, 1 parrot.");
    assert_eq!(answer(&["--query", "hi", "--file", "note.txt"]), "You said hi, 1 parrot.");
    let (said, code) = asked(world.command(["run", "chat.yml"]), &[("ask?", "good morning\n")]);
    assert_eq!(code, Some(0), "{said}");
}

/// F1: the limits of a run are said on the command line.
#[test]
fn limits_are_said_on_the_command_line() {
    let world = World::new();
    world.write(
        "flow.yml",
        "
nodes:
- {id: in, data: {type: start}}
- {id: one, data: {type: command, command: [sh, -c, 'echo x >> busy; sleep 0.2; cat busy; sleep 0.2; : > busy']}}
- {id: two, data: {type: command, command: [sh, -c, 'echo x >> busy; sleep 0.2; cat busy; sleep 0.2; : > busy']}}
- {id: out, data: {type: end, outputs: [{variable: one, value_selector: [one, stdout]}, {variable: two, value_selector: [two, stdout]}]}}
edges: [{source: in, target: one}, {source: in, target: two}, {source: one, target: out}, {source: two, target: out}]
",
    );
    let failed = |arguments: &[&str], word: &str| {
        let said = world.piton([&["run", "flow.yml"], arguments].concat());
        assert_eq!(said.code, Some(1), "{}", said.whole());
        assert!(said.stderr.contains(word), "{}", said.stderr);
    };
    failed(&["--max-steps", "2", "--id", "few"], "Max steps exceeded");
    failed(&["--max-time", "0", "--id", "short"], "Max execution time exceeded");
    // With more time the same run goes on.
    assert_eq!(world.piton(["resume", "short", "--max-time", "600"]).code, Some(0));
    assert_eq!(world.piton(["run", "flow.yml", "--max-concurrency", "0"]).code, Some(2));
    let one_by_one = world.piton(["run", "flow.yml", "--max-concurrency", "1", "--json"]);
    let ended: serde_json::Value = serde_json::from_str(one_by_one.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&ended["outputs"]["one"], &ended["outputs"]["two"]),
        (&"x\n".into(), &"x\n".into()),
        "never both at once"
    );
}

/// A terminal: the end that a person has, and the end that a program has.
pub(crate) fn open_terminal() -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let terminal = rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap();
    (master, terminal)
}

/// A terminal that no process has open any more is an error to read from.
fn read_to_hang_up(master: OwnedFd) -> String {
    let (mut file, mut said, mut buffer) = (std::fs::File::from(master), Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = file.read(&mut buffer) {
        said.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(said).unwrap()
}

/// The binary with its first call of this kind held up, for longer than a user should wait without a word.
fn held_up(world: &World, call: &str, arguments: &[&str]) -> Command {
    let trace = world.root().join("trace");
    let inject = format!("inject={call}:delay_enter=1200000:when=1");
    let strace =
        ["-f", "--quiet=all", "-o", trace.to_str().unwrap(), "-e", &inject, "-e", &format!("trace={call}"), BINARY];
    world.program("strace", strace.iter().chain(arguments))
}

/// Anything over half a second shows how far it has come, and takes that away when it is done.
#[test]
fn long_work_shows_its_progress_on_a_terminal() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.write(name, name);
    }
    let said = on_a_terminal(held_up(&world, "pwrite64", &["save"]));
    assert!(said.contains("3 files read, 3 bytes") || said.contains("looking at the files"), "save: {said:?}");
    assert!(said.ends_with("\r\u{1b}[K"), "save: {said:?}");
    world.write("a", "changed");
    std::fs::remove_file(world.work().join("b")).unwrap();
    let said = on_a_terminal(held_up(&world, "syncfs", &["restore", "@", "--yes"]));
    assert!(said.contains("1 file read, 2 written"), "restore: {said:?}");
    world.write("a", "changed again");
    let said = on_a_terminal(held_up(&world, "syncfs", &["restore", "@", "--yes", "-q"]));
    assert_eq!(said, "", "not if nobody wants to know");
}

/// A folder in which an agent changed three files and the user two of them afterwards, in the same lines.
fn contested() -> World {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.write(name, "before\n");
    }
    let work = "for file in a b c; do echo agent > $file; done";
    assert_eq!(world.piton(["guard", "--", "sh", "-c", work]).code, Some(0));
    world.write("a", "mine\n");
    world.write("b", "mine\n");
    world
}

fn read(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.work().join(name)).unwrap_or_default()
}

/// W6, W11: on a terminal each conflict is asked about, once, before anything is written; then the plan is agreed to.
#[test]
fn conflicts_are_asked_about_one_by_one_on_a_terminal() {
    let world = contested();
    let question = "or (r)efuse? ";
    let answers = [(question, "what?\n"), (question, "c\n"), (question, "b\n"), ("change 3 paths? [y/N] ", "y\n")];
    let (said, code) = asked(world.command(["undo"]), &answers);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches(question).count(), 3, "each once, and the first again after nonsense: {said}");
    assert!(!said.contains("re(s)olver"), "there is none: {said}");
    let texts = ["a", "b", "b.checkpoint", "c"].map(|name| read(&world, name));
    assert_eq!(texts, ["before\n", "mine\n", "before\n", "before\n"]);
    assert_eq!(world.piton(["redo", "--yes"]).code, Some(0));
    assert_eq!((read(&world, "a"), read(&world, "c")), ("mine\n".into(), "agent\n".into()));
}

/// A user who refuses, says no, or leaves has changed nothing.
#[test]
fn nothing_is_written_unless_every_question_was_answered() {
    let question = "or (r)efuse? ";
    let plan = "[y/N] ";
    for (answers, code) in [
        (&[(question, "r\n"), (question, "c\n")][..], 4),
        (&[(question, "c\n"), (question, "c\n"), (plan, "n\n")][..], 1),
        // The end of what is typed.
        (&[(question, "c\n"), (question, "\u{4}")][..], 4),
        (&[(question, "c\n"), (question, "t\n"), (plan, "\u{4}")][..], 1),
    ] {
        let world = contested();
        let (said, ended) = asked(world.command(["undo"]), answers);
        assert_eq!(ended, Some(code), "{said}");
        assert_eq!(["a", "b", "c"].map(|name| read(&world, name)), ["mine\n", "mine\n", "agent\n"], "{answers:?}");
    }
}

/// V2: what others changed while a run stood still is asked about on a terminal, file by file.
#[test]
fn changes_outside_are_asked_about_on_a_terminal_before_a_run_goes_on() {
    let world = World::new();
    world.write("a", "1\n");
    world.write("b", "1\n");
    world.write(
        "flow.yml",
        "nodes:\n  - {id: in, data: {type: start}}\n  - {id: ask, data: {type: human-input, prompt: 'Go on?', \
         variables: [{variable: x, type: string, required: true}]}}\n  - {id: out, data: {type: end, outputs: []}}\n\
         edges: [{source: in, target: ask}, {source: ask, target: out}]\n",
    );
    assert_eq!(world.piton(["run", "flow.yml", "--id", "r", "--files"]).code, Some(3));
    assert_eq!(world.piton(["answer", "r", "--set", "x=y"]).code, Some(0));
    world.write("a", "mine\n");
    std::fs::remove_file(world.work().join("b")).unwrap();
    let (said, code) = asked(world.command(["resume", "r"]), &[("abort? ", "abort\n")]);
    assert_eq!(code, Some(4), "{said}");
    assert_eq!((read(&world, "a"), world.work().join("b").exists()), ("mine\n".into(), false));
    let answers = [("abort? ", "hm\n"), ("abort? ", "use cu\n"), ("abort? ", "restore\n")];
    let (said, code) = asked(world.command(["resume", "r"]), &answers);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!((read(&world, "a"), read(&world, "b")), ("mine\n".into(), "1\n".into()));
}

/// A command that waits for another one says so.
#[test]
fn waiting_for_another_command_is_said() {
    let world = World::new();
    world.write("a", "0");
    assert_eq!(world.piton(["save"]).code, Some(0));
    let mut locks = Vec::new();
    for path in walk(&world.state()) {
        if path.file_name().is_some_and(|name| name == "lock") {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.lock().unwrap();
            locks.push(file);
        }
    }
    assert_eq!(locks.len(), 1);
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        drop(locks);
    });
    let said = on_a_terminal(world.command(["save"]));
    release.join().unwrap();
    assert!(said.contains("waiting for another piton"), "{said:?}");
}

/// What a terminal of so many columns shows after all that was written to it, line by line without the space behind.
/// It knows what the live view uses, and nothing else: anything else is a test that fails.
fn screen(said: &str, columns: usize) -> Vec<String> {
    let (mut rows, mut row, mut column, mut wraps) = (vec![vec![' '; columns]], 0, 0, true);
    let mut characters = said.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                if row == rows.len() {
                    rows.push(vec![' '; columns]);
                }
            }
            '\x1b' => {
                assert_eq!(characters.next(), Some('['), "{said:?}");
                let mut parameter = String::new();
                while let Some(c) = characters.next_if(|c| c.is_ascii_digit() || matches!(c, ';' | '?')) {
                    parameter.push(c);
                }
                match (characters.next(), parameter.as_str()) {
                    (Some('A'), up) => row = row.checked_sub(up.parse().unwrap()).expect("it goes up too far"),
                    (Some('J'), "") => {
                        rows.truncate(row + 1);
                        rows[row][column..].fill(' ');
                    }
                    (Some('m'), _) => {}
                    (Some('l'), "?7") => wraps = false,
                    (Some('h'), "?7") => wraps = true,
                    other => panic!("{other:?} in {said:?}"),
                }
            }
            c => {
                assert!(!c.is_control(), "{c:?} in {said:?}");
                let width = c.width().unwrap_or(0);
                if column + width > columns {
                    assert!(wraps, "a line that is drawn again is too long: {said:?}");
                    (row, column) = (row + 1, 0);
                    if row == rows.len() {
                        rows.push(vec![' '; columns]);
                    }
                }
                if width > 0 {
                    rows[row][column] = c;
                    // The other half of a wide character.
                    rows[row][column + 1..column + width].fill('\0');
                    column += width;
                }
            }
        }
    }
    let shown = |row: &Vec<char>| row.iter().filter(|c| **c != '\0').collect::<String>().trim_end().to_owned();
    let mut lines: Vec<String> = rows.iter().map(shown).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

const SLOW: &str = r#"
nodes:
  - {id: in, data: {type: start}}
  - {id: wide, data: {type: command, title: 日本語の題名, command: [sleep, '0.3']}}
  - {id: bad, data: {type: command, title: "\e]0;owned\a\e[2J\u202e", command: [sleep, '0.4']}}
  - {id: fails, data: {type: command, command: ['false'], error_strategy: default-value}}
  - {id: out, data: {type: end, outputs: []}}
edges: [{source: in, target: wide}, {source: in, target: bad}, {source: in, target: fails}, {source: wide, target: out}, {source: bad, target: out}, {source: fails, target: out}]
"#;

/// Nodes with their states and durations while they run, and nothing left of it but what ended. Titles
/// are a document's, and control neither the terminal nor the layout, whatever its size.
#[test]
fn a_run_is_shown_live_on_a_terminal() {
    let world = World::new();
    world.write("flow.yml", SLOW);
    for (columns, rows) in [(80, 24), (40, 10), (20, 3), (8, 2)] {
        let mut command = world.command(["run", "flow.yml", "--id", &format!("r{columns}")]);
        command.env("TERM", "xterm");
        let (said, success) = on_a_terminal_of(command, Some((columns, rows)));
        assert!(success, "{said}");
        let lines = screen(&said, columns.into());
        let begin = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
        assert_eq!((begin("✓"), begin("✗"), begin("●")), (4, 1, 0), "{columns}: {lines:#?}");
        // With two rows there is room for the sum only.
        assert!((said.contains('●') || rows == 2) && said.contains("\x1b[?7l"), "{said:?}");
        assert!(!said.contains("\x1b]") && !said.contains('\u{7}') && !said.contains('\u{202e}'), "{said:?}");
        if columns == 80 {
            // How many run at that moment depends on how busy the machine is.
            assert!(said.contains(" done, 1 failed"), "{said:?}");
            assert!(
                lines.iter().any(|line| line.starts_with("✓ 日本語の題名  ") && line.ends_with("  wide")),
                "{lines:#?}"
            );
            assert!(lines.iter().any(|line| line.contains(r"\u{1b}]0;owned\u{7}")), "{lines:#?}");
            assert_eq!(lines.last().map(String::as_str), Some("run r80 completed, although one node failed"));
        }
    }
}

/// A model that speaks slowly: longer between its pieces than the view takes to draw. Where it is.
fn slow_model(pieces: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
                .unwrap();
            for piece in pieces {
                let content = serde_json::json!({"choices": [{"delta": {"content": piece}}]});
                stream.write_all(format!("data: {content}\n\n").as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(400));
            }
            let end = serde_json::json!({
                "choices": [{"delta": {}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1200, "completion_tokens": 34, "total_tokens": 1234},
            });
            stream.write_all(format!("data: {end}\n\ndata: [DONE]\n\n").as_bytes()).unwrap();
        }
    });
    address
}

/// What a model says is seen as it comes, and what it used when it is done. What it says doesn't control the
/// terminal.
#[test]
fn streamed_text_is_seen_as_it_comes() {
    let world = World::new();
    let model = slow_model(&["Bees ", "\u{1b}]0;owned\u{7}\u{1b}[2J", "hum."]);
    world.write("models.toml", &format!("[providers.openai]\nbase_url = \"{model}/v1\"\napi_key = \"k\"\n"));
    world.write("flow.yml", "nodes:\n  - {id: in, data: {type: start}}\n  - {id: ask, data: {type: llm, model: {provider: openai, name: m}, prompt_template: [{role: user, text: go}]}}\n  - {id: out, data: {type: end, outputs: [{variable: text, value_selector: [ask, text]}]}}\nedges: [{source: in, target: ask}, {source: ask, target: out}]\n");
    let mut command = world.command(["run", "flow.yml", "--config", "models.toml", "--id", "r"]);
    command.env("TERM", "xterm");
    let (said, success) = on_a_terminal_of(command, Some((80, 24)));
    assert!(success, "{said}");
    // Each drawing begins by switching off that lines wrap.
    let drawings: Vec<&str> = said.split("\x1b[?7l").skip(1).collect();
    let with = |text: &str| drawings.iter().position(|drawing| drawing.contains(text));
    let (first, last) = (with("Bees").expect(&said), with("hum.").expect(&said));
    assert!(first < last, "{drawings:#?}");
    assert!(!said.contains("\x1b]") && !said.contains('\u{7}') && !said.contains("\x1b[2J"), "{said:?}");
    let lines = screen(&said, 80);
    assert!(lines.iter().any(|line| line.starts_with("✓ ask") && line.contains("1200 + 34 tokens")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("Bees")), "it was shown while it came: {lines:#?}");
}

#[test]
fn colours_and_the_live_view_can_be_refused() {
    let world = World::new();
    world.write("flow.yml", SLOW);
    let run = |id: &str, name: &str, value: &str, more: &[&str]| {
        let mut command = world.command(["run", "flow.yml", "--id", id].iter().chain(more));
        command.env("TERM", "xterm").env(name, value);
        on_a_terminal(command)
    };
    let coloured = run("a", "LANG", "C", &[]);
    assert!(coloured.contains("\x1b[32m✓\x1b[0m"), "{coloured:?}");
    let plain = run("b", "NO_COLOR", "1", &[]);
    assert!(plain.contains("✓ ") && !plain.contains("m✓"), "{plain:?}");
    for (id, name, value, more) in [("c", "TERM", "dumb", &[][..]), ("d", "LANG", "C", &["--json"])] {
        let lines = run(id, name, value, more);
        assert!(!lines.contains('\x1b'), "{lines:?}");
        assert!(lines.contains("日本語の題名: started") && lines.contains("日本語の題名: finished"), "{lines:?}");
    }
    assert_eq!(run("e", "LANG", "C", &["-q"]), "");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn a_shell_can_complete_verbs_and_options() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = world.piton(["completions", shell]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        for word in ["restore", "dry-run", "rollback-on-failure"] {
            assert!(said.stdout.contains(word), "{shell} lacks {word}");
        }
    }
    assert_eq!(world.piton(["completions", "cmd"]).code, Some(2));
    // The script does what it says in a shell that is there.
    let script = "source <($0 completions bash); COMP_WORDS=(piton re); COMP_CWORD=1; _piton piton re piton; \
                  echo ${COMPREPLY[@]}";
    let output = world.program("bash", ["-c", script, BINARY]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "redo restore reference resume retry\n");
}

/// R7: on a terminal the debugger asks for each command, and a run that is left is gone on with.
#[test]
fn the_debugger_asks_for_commands_on_a_terminal() {
    let world = World::new();
    world.write(
        "flow.yml",
        "nodes: [{id: in, data: {type: start}}, {id: out, data: {type: end}}]\nedges: [{source: in, target: out}]\n",
    );
    let command = world.command(["debug", "flow.yml", "--id", "r"]);
    let (said, code) = asked(
        command,
        &[("piton> ", "help\n"), ("piton> ", "to ou\n"), ("piton> ", "to out\n"), ("piton> ", "quit\n")],
    );
    assert_eq!(code, Some(0), "{said}");
    for part in ["to before this node", "did you mean \"out\"?", "run r is paused", "`piton debug r` goes on with it"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (said, code) = asked(world.command(["debug", "r"]), &[("piton> ", "continue\n"), ("piton> ", "\u{4}")]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("run r completed"), "{said}");
}
