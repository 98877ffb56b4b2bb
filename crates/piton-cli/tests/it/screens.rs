//! What people see in a terminal: real pseudo terminals of 80 and 140 columns.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use unicode_width::UnicodeWidthStr as _;

use crate::terminal::open_terminal;
use crate::world::{BINARY, World};

/// What a command said at a terminal of its own, and how it ended.
struct Seen {
    code: Option<i32>,
    /// As the terminal got it.
    raw: String,
}

impl Seen {
    /// Its lines, without colours.
    fn lines(&self) -> Vec<String> {
        let colour = regex::Regex::new("\x1b\\[[0-9;]*m").unwrap();
        let text = colour.replace_all(&self.raw, "").replace('\r', "");
        assert!(!text.contains('\x1b'), "{text:?}");
        text.lines().map(str::to_owned).collect()
    }

    fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// Asserts that no line is wider than the terminal.
    fn fits(&self, columns: u16) -> &Self {
        for line in self.lines() {
            assert!(line.width() <= columns.into(), "{columns}: {line:?} in {}", self.raw);
        }
        self
    }
}

/// Runs a command whose three streams are a terminal of this size, at which the test types each answer once its
/// question is there.
fn at_terminal(mut command: Command, (columns, rows): (u16, u16), answers: &[(&str, &str)]) -> Seen {
    let (master, terminal) = open_terminal();
    let size = rustix::termios::Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    let stream = || Stdio::from(terminal.try_clone().unwrap());
    let mut child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
    drop((command, terminal));
    let mut typing = std::fs::File::from(master.try_clone().unwrap());
    let (send, heard) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        let (mut file, mut buffer) = (std::fs::File::from(master), [0; 4096]);
        // A terminal that no process has open any more is an error to read from.
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            send.send(buffer[..count].to_vec()).unwrap();
        }
    });
    let mut bytes = Vec::new();
    let mut hear = |bytes: &mut Vec<u8>| match heard.recv_timeout(Duration::from_secs(120)) {
        Ok(more) => {
            bytes.extend(more);
            true
        }
        Err(RecvTimeoutError::Disconnected) => false,
        Err(RecvTimeoutError::Timeout) => {
            child.kill().unwrap();
            panic!("it waits for something else: {}", String::from_utf8_lossy(bytes));
        }
    };
    let mut seen = 0;
    for (question, reply) in answers {
        while !String::from_utf8_lossy(&bytes[seen..]).contains(question) {
            assert!(hear(&mut bytes), "{question:?} was never asked: {}", String::from_utf8_lossy(&bytes));
        }
        seen = bytes.len();
        typing.write_all(reply.as_bytes()).unwrap();
    }
    while hear(&mut bytes) {}
    reading.join().unwrap();
    Seen { code: child.wait().unwrap().code(), raw: String::from_utf8(bytes).unwrap() }
}

/// A verb that only shows something.
fn look(world: &World, columns: u16, arguments: &[&str]) -> Seen {
    let seen = at_terminal(world.command(arguments), (columns, 50), &[]);
    assert_eq!(seen.code, Some(0), "{arguments:?}: {}", seen.raw);
    seen
}

const FLOW: &str = "
nodes:
  - {id: in, data: {type: start, variables: [{variable: topic, type: string, required: true}]}}
  - {id: work, data: {type: command, title: Read the page, command: [sh, -c, 'echo $1', sh, '{{#in.topic#}}']}}
  - {id: out, data: {type: end, outputs: [{variable: text, value_selector: [work, stdout]}]}}
edges: [{source: in, target: work}, {source: work, target: out}]
";

/// A folder in which an agent, its user and a workflow worked.
fn worked() -> World {
    let world = World::new();
    world.write("a", "one\ntwo\n");
    let agent = "sed -i s/one/ONE/ a; rm -f b; mkdir -p src; printf '1\\n2\\n' > src/new";
    assert_eq!(world.piton(["guard", "--", "sh", "-c", agent]).code, Some(0));
    std::fs::write(world.work().join("a"), "ONE\ntwo\nmine\n").unwrap();
    assert_eq!(world.piton(["save", "-m", "before lunch"]).code, Some(0));
    world.write("flow.yml", FLOW);
    assert_eq!(world.piton(["run", "flow.yml", "-i", "topic=bees"]).code, Some(0));
    world
}

/// A line of the log is what a person means; the engine's own entries are there with `--all` only.
#[test]
fn the_log_says_who_did_what_and_how_much() {
    let world = worked();
    for columns in [80, 140] {
        let log = look(&world, columns, &["log"]);
        let lines = log.fits(columns).lines();
        let with = |words: &[&str]| lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count();
        assert_eq!(with(&["sh", "+3 −1 in 2 files", "sh -c sed"]), 1, "{lines:#?}");
        assert_eq!(with(&["you", "+1 −0 in 1 file", "before lunch"]), 1, "{lines:#?}");
        assert_eq!(with(&["workflow", "flow.yml completed"]), 1, "{lines:#?}");
        assert_eq!(with(&["session"]) + with(&["step"]) + with(&["intent"]), 0, "{lines:#?}");
        assert!(log.raw.contains("\x1b[32myou"), "{}", log.raw);
    }
    let all = look(&world, 140, &["log", "--all"]);
    assert!(all.text().contains("session begins") && all.text().contains("intent"), "{}", all.raw);
    let mut plain = world.command(["log"]);
    plain.env("NO_COLOR", "1");
    assert!(!at_terminal(plain, (80, 50), &[]).raw.contains('\x1b'));

    let cut = look(&world, 80, &["log", "-n", "1"]);
    assert!(cut.text().contains("these are the newest 1; `-n 4` shows more"), "{}", cut.raw);
    let count = |arguments: &[&str]| look(&world, 80, arguments).lines().len();
    assert_eq!(count(&["log", "--since", "1h"]), count(&["log"]));
    let of_guard = look(&world, 140, &["log", "--run", "guard-1"]).text();
    assert!(of_guard.contains("sed") && !of_guard.contains("lunch") && !of_guard.contains("flow.yml"), "{of_guard}");
    let steps = look(&world, 140, &["log", "flow-1"]).text();
    assert!(steps.contains("started flow.yml") && steps.lines().any(|line| line.ends_with("work")), "{steps}");
    let of_path = look(&world, 140, &["log", "--", "src"]).text();
    assert!(of_path.contains("A src/new") && !of_path.contains("lunch"), "{of_path}");
    let views = world.piton(["log", "--json"]).stdout;
    assert!(views.lines().all(|line| line.starts_with(r#"{"id":"#)), "in the order in which people read: {views}");
    assert!(views.contains(r#""who":"you","what":"before lunch","files":1,"added":1,"removed":0"#), "{views}");

    // What was taken back says so.
    assert_eq!(world.piton(["undo", "guard-1", "--yes"]).code, Some(0));
    let log = look(&world, 140, &["log"]).text();
    assert!(log.lines().any(|line| line.contains("sed") && line.ends_with("(undone)")), "{log}");
    assert!(log.contains("undo of "), "{log}");
    let id = world.piton(["show", "guard-1", "--json"]).json()["id"].as_str().unwrap().to_owned();
    for verb in [&["log", "--all"][..], &["status"]] {
        let shown = world.piton(verb).stdout;
        assert!(shown.contains("undo of guard-1@") && !shown.contains(&id), "{shown}");
    }
}

/// A list that doesn't fit goes through the user's pager; a program that isn't there is no failure.
#[test]
fn a_long_list_goes_through_the_pager() {
    let world = worked();
    let paged = |pager: &str, rows: u16| {
        let mut command = world.command(["log"]);
        command.env("PAGER", pager);
        let seen = at_terminal(command, (80, rows), &[]);
        assert_eq!(seen.code, Some(0), "{}", seen.raw);
        seen.text()
    };
    assert!(paged("sed s/^/paged:/", 4).lines().all(|line| line.starts_with("paged:")));
    assert!(!paged("sed s/^/paged:/", 50).contains("paged:"), "it fits");
    assert!(paged("no-such-pager", 4).contains("before lunch"));
    let mut command = world.command(["log"]);
    command.env("PAGER", "sed s/^/paged:/");
    assert!(!String::from_utf8(command.output().unwrap().stdout).unwrap().contains("paged:"), "there is no terminal");
}

/// A checkpoint is shown by what it changed; `diff` and `undo` take paths.
#[test]
fn changes_are_shown_compared_and_taken_back_by_path() {
    let world = worked();
    let shown = look(&world, 80, &["show", "guard-1@3"]);
    let text = shown.fits(80).text();
    assert!(text.contains("changed     +3 −1 in 2 files since guard-1@"), "{text}");
    assert!(text.contains("\n-one\n+ONE\n") && text.contains("A src/new"), "{text}");
    assert!(shown.raw.contains("\x1b[32m+ONE"), "{}", shown.raw);

    let diff = |paths: &[&str]| world.piton([&["diff", "guard-1@2", "guard-1@3", "--"], paths].concat()).stdout;
    assert!(diff(&["a"]).contains("+ONE") && !diff(&["a"]).contains("src/new"), "{}", diff(&["a"]));
    assert!(diff(&["src"]).contains("A src/new") && !diff(&["src"]).contains("ONE"), "{}", diff(&["src"]));
    assert_eq!(diff(&["none"]), "");

    let said = world.piton(["undo", "guard-1", "--yes", "--", "src"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let a = || std::fs::read_to_string(world.work().join("a")).unwrap();
    assert_eq!((a().as_str(), world.work().join("src/new").exists()), ("ONE\ntwo\nmine\n", false));
    // What was left of it can be taken back by its name.
    assert_eq!(world.piton(["undo", "guard-1", "--yes"]).code, Some(0));
    assert_eq!((a().as_str(), world.work().join("src/new").exists()), ("one\ntwo\nmine\n", false));
}

/// Runs with what they were started with, forks below their parents, states in colour.
#[test]
fn runs_are_listed_as_a_tree_with_inputs_and_states() {
    let world = worked();
    assert_eq!(world.piton(["fork", "flow-1@2", "--id", "other"]).code, Some(0));
    assert_eq!(world.piton(["resume", "other"]).code, Some(0));
    world.write("bad.yml", &FLOW.replace("echo $1", "exit 3"));
    assert_eq!(world.piton(["run", "bad.yml", "-i", "topic=flies"]).code, Some(1));
    for columns in [80, 140] {
        let seen = look(&world, columns, &["ls"]);
        let lines = seen.fits(columns).lines();
        let line = |start: &str| lines.iter().position(|line| line.starts_with(start)).expect(&seen.raw);
        assert_eq!(line("└ other "), line("flow-1 ") + 1, "{lines:#?}");
        assert!(lines[line("flow-1 ")].ends_with("flow.yml  topic=bees"), "{lines:#?}");
        assert!(lines[line("flow-2 ")].contains("failed") && lines[line("flow-2 ")].contains(" work "), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("files of")), "{lines:#?}");
        assert!(!seen.raw.contains("0.0000") && !lines[0].contains("COST"), "nothing was paid: {}", seen.raw);
        assert!(seen.raw.contains("\x1b[31mfailed") && seen.raw.contains("\x1b[32mcompleted"), "{}", seen.raw);
    }
    let mut plain = world.command(["ls"]);
    plain.env("NO_COLOR", "1");
    assert!(!at_terminal(plain, (80, 50), &[]).raw.contains('\x1b'));
    let listed = world.piton(["ls", "--json"]).stdout;
    let mut listed = listed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let listed = listed.find(|run| run["short"] == "flow-1").unwrap();
    assert_eq!(listed["inputs"]["topic"], "bees", "{listed}");
    assert!(listed["worked_ms"].as_u64() <= listed["duration_ms"].as_u64(), "{listed}");
}

const FORM: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: ask, data: {type: human-input, prompt: 'Book it?', resume_mode: form, variables: [{variable: who, type: string, required: true}, {variable: seats, type: number, required: true}, {variable: when, type: string, required: true}]}}
  - {id: out, data: {type: end, outputs: [{variable: who, value_selector: [ask, who]}, {variable: seats, value_selector: [ask, seats]}, {variable: when, value_selector: [ask, when]}]}}
edges: [{source: in, target: ask}, {source: ask, target: out}]
";

/// What was right isn't asked again, and a run at a terminal asks right there.
#[test]
fn a_person_is_asked_again_only_for_what_was_wrong() {
    let world = World::new();
    world.write("flow.yml", FORM);
    let answers =
        [("who: ", "Ada\n"), ("seats: ", "many\n"), ("seats: ", "\n"), ("seats: ", "3\n"), ("when: ", "noon\n")];
    let seen = at_terminal(world.command(["run", "flow.yml", "--id", "r"]), (80, 24), &answers);
    assert_eq!(seen.code, Some(0), "{}", seen.raw);
    assert_eq!(seen.raw.matches("who: ").count(), 1, "{}", seen.raw);
    let given = world.piton(["show", "r", "--json"]).json();
    assert_eq!(given["outputs"], serde_json::json!({"who": "Ada", "seats": 3, "when": "noon"}), "{given}");

    // A person who leaves it finds it again.
    let left = at_terminal(world.command(["run", "flow.yml", "--id", "later"]), (80, 24), &[("who: ", "\u{4}")]);
    assert_eq!(left.code, Some(3), "{}", left.raw);
    let answers = [("who: ", "Bob\n"), ("seats: ", "x\n"), ("seats: ", "1\n"), ("when: ", "dusk\n")];
    let seen = at_terminal(world.command(["answer", "later", "--resume"]), (80, 24), &answers);
    assert_eq!((seen.code, seen.raw.matches("who: ").count()), (Some(0), 1), "{}", seen.raw);
    // Nobody is asked where nobody is, or who wants it quiet.
    assert_eq!(world.piton(["run", "flow.yml", "--id", "alone"]).code, Some(3));
    assert_eq!(at_terminal(world.command(["run", "flow.yml", "-q"]), (80, 24), &[]).code, Some(3));
}

/// A person who is asked about a conflict can look at it first.
#[test]
fn a_conflict_shows_its_difference_on_demand() {
    let world = World::new();
    world.write("a", "before\n");
    assert_eq!(world.piton(["guard", "--", "sh", "-c", "echo agent > a"]).code, Some(0));
    world.write("a", "mine\n");
    let question = "or (r)efuse? ";
    let answers = [(question, "d\n"), (question, "c\n"), ("change 1 path? [y/N] ", "y\n")];
    let seen = at_terminal(world.command(["undo"]), (140, 24), &answers);
    assert_eq!(seen.code, Some(0), "{}", seen.raw);
    assert!(seen.text().contains("  -mine\n  +before\n"), "{}", seen.raw);
    assert_eq!(std::fs::read_to_string(world.work().join("a")).unwrap(), "before\n");
}

/// A document is drawn with boxes and lines, as a picture, or as Mermaid.
#[test]
fn documents_are_drawn() {
    let world = World::new();
    world.write("flow.yml", FLOW);
    for columns in [80, 140] {
        let seen = look(&world, columns, &["graph", "flow.yml"]);
        let text = seen.fits(columns).text();
        assert!(text.contains("│ Read the page │") && text.contains("┌ command") && text.contains('▼'), "{text}");
    }
    let svg = world.piton(["graph", "flow.yml", "--format", "svg"]).stdout;
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert_eq!((svg.matches("class=\"node\"").count(), svg.matches("class=\"edge\"").count()), (3, 2), "{svg}");
    let mut checked = world.program("python3", ["-c", "import sys, xml.dom.minidom as x; x.parse(sys.stdin)"]);
    let mut child = checked.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(svg.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "a reader of XML takes it");
    // Twenty branches side by side have no room in 80 columns.
    let nodes: String = (0..20)
        .map(|n| format!("  - {{id: branch-number-{n}, data: {{type: template-transform, template: x}}}}\n"))
        .collect();
    let edges: String = (0..20).map(|n| format!("{{source: in, target: branch-number-{n}}}, ")).collect();
    world.write("wide.yml", &format!("nodes:\n  - {{id: in, data: {{type: start}}}}\n{nodes}edges: [{edges}]\n"));
    let listed = look(&world, 80, &["graph", "wide.yml"]).text();
    assert!(listed.contains("  → branch-number-19") && listed.contains("too large to be drawn"), "{listed}");
}

/// The steps of a run go by their titles, outside a terminal too.
#[test]
fn steps_go_by_their_titles() {
    let world = World::new();
    world.write("flow.yml", FLOW);
    let said = world.piton(["run", "flow.yml", "-i", "topic=bees"]).stderr;
    assert!(said.contains("Read the page: started\nRead the page: finished"), "{said}");
}

/// The demo waits between its acts, and the commands that it ends with work when they are pasted.
#[test]
fn the_demo_waits_between_its_acts_and_its_hints_work() {
    let world = World::new();
    let folder = world.root().join("a demo");
    let (next, enter) = ("Enter for the next act", "\n");
    let command = world.command(["demo", "--into", folder.to_str().unwrap()]);
    let seen = at_terminal(command, (80, 50), &[(next, enter), (next, enter)]);
    assert_eq!(seen.code, Some(0), "{}", seen.raw);
    let lines = seen.lines();
    let begin = lines.iter().position(|line| line.contains("to look around in:")).expect(&seen.raw);
    let hints: Vec<&str> =
        lines[begin + 1..].iter().take_while(|line| line.starts_with("  ")).map(String::as_str).collect();
    assert!(hints.len() >= 4, "{hints:?}");
    // What follows a command in a wide gap says what it is for.
    let typed: Vec<&str> = hints.iter().map(|hint| hint.trim().split("     ").next().unwrap()).collect();
    let output = world.program("bash", ["-ec", &typed.join("\n")]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{typed:?}: {said}");
    assert!(said.contains("research: turn 7") || said.contains("research/turn-7"), "{said}");
    assert!(std::path::Path::new(BINARY).exists());
}

/// What would fail is found before it does: a home that can't be written to, and stores without a key.
#[test]
fn the_doctor_finds_what_then_fails() {
    let world = World::new();
    let findings = |command: &mut Command| {
        let output = command.output().unwrap();
        let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = view["findings"].as_array().unwrap().clone();
        (output.status.code(), move |check: &str| all.iter().find(|one| one["check"] == check).cloned())
    };
    // The superuser may write everywhere but where the disk says no.
    let closed = world.root().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    let options = ["--reuid", "65534", "--regid", "65534", "--clear-groups", BINARY, "doctor", "--json"];
    std::fs::set_permissions(world.root(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut doctor = world.program("setpriv", options);
    let (code, of) = findings(doctor.env("HOME", &closed));
    let home = of("home").expect("the home is looked at");
    assert_eq!((code, &home["status"]), (Some(1), &"problem".into()), "{home}");
    assert!(home["detail"].as_str().unwrap().contains("can't be written to"), "{home}");
    let mut save = world.program("setpriv", options[..6].iter().chain(&["save"]));
    assert_eq!(save.env("HOME", &closed).output().unwrap().status.code(), Some(1), "that is what would fail");

    let other = world.root().join("other");
    std::fs::create_dir(&other).unwrap();
    let init = world.piton_in(&other, ["init", "--encrypt", "--key-file", "../key"]);
    assert_eq!(init.code, Some(0), "{}", init.whole());
    let (code, of) = findings(&mut world.command(["doctor", "--json"]));
    let keys = of("keys").expect("the other store is found");
    assert_eq!((code, &keys["status"]), (Some(0), &"warning".into()), "{keys}");
    assert!(keys["detail"].as_str().unwrap().starts_with("1 store encrypted"), "{keys}");
    assert!(world.piton(["ls", "--all"]).stderr.contains("its runs aren't listed"));
    let (_, of) = findings(&mut world.command(["doctor", "--json", "--key-file", "../key"]));
    assert!(of("keys").is_none(), "the key opens it");
}

/// A question is told of once, and its step by what was answered.
#[test]
fn a_question_is_told_of_once_with_its_answer() {
    let world = World::new();
    let asks = "
nodes:
  - {id: in, data: {type: start}}
  - {id: ask, data: {type: human-input, prompt: 'Ship it?', variables: [{name: ok, type: boolean, required: true}]}}
  - {id: out, data: {type: end, outputs: []}}
edges: [{source: in, target: ask}, {source: ask, target: out}]
";
    world.write("asks.yml", asks);
    assert_eq!(world.piton(["run", "asks.yml", "--id", "r"]).code, Some(3));
    assert_eq!(world.piton(["answer", "r", "--set", "ok=true", "--resume"]).code, Some(0));
    let log = look(&world, 80, &["log", "r"]).text();
    assert_eq!(log.matches("asks: Ship it?").count(), 1, "{log}");
    let steps = look(&world, 80, &["show", "r", "--steps"]).text();
    assert!(
        steps.contains("RESULT") && steps.lines().any(|line| line.contains("ask") && line.contains(r#"{"ok":true}"#)),
        "{steps}"
    );
}
