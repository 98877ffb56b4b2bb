//! Every command that a message names works when it is pasted: in that moment, in that folder, with the options that are needed.
//!
//! The hints are found in the sources: texts with `piton …` between backticks. Each is either shown by a scene below, and then all
//! that it names is run as it stands there, or is in [`NOT_SHOWN`] with the reason. So a new hint without a scene fails the test.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::time::{Duration, Instant};

use regex::Regex;

use crate::world::{THREE_NODES, World};

/// Texts that no scene shows: a part of the text, and why.
const NOT_SHOWN: &[(&str, &str)] = &[
    // Told by others, or where no command is meant.
    ("Files:\n  guard", "the help"),
    ("# Commands", "the reference"),
    ("quit, q", "the help of the debugger"),
    ("In a project of your own", "the demo, whose hints screens.rs follows"),
    ("`piton doctor` may say why", "the demo, if it fails"),
    ("Answers have the JSON", "the description of the server"),
    ("What the commands of `piton debug` say", "the description of the server"),
    ("`piton serve` prints a link", "the server to a stranger"),
    ("`piton serve --host NAME`", "the server to a stranger"),
    ("it may be what the servers died of", "the server; serve.rs"),
    ("`piton stop {}` stops it.", "the server"),
    ("`piton mcp` is started by an agent", "at a terminal only; mcp.rs"),
    ("write it to a file: `piton export RUN > run.piton`.", "at a terminal only"),
    ("a case runs no program", "a finding of a case; cases.rs"),
    // Followed by tests that make what they tell of.
    ("`mkdir -p {}`", "files.rs: a_program_that_deletes_its_folder_is_told_of"),
    ("go to where it is now", "files.rs: a_program_that_deletes_its_folder_is_told_of"),
    ("its store was inside it", "files.rs: a_program_that_deletes_its_folder_is_told_of"),
    ("`piton drift --run {} --resolve user-handled` lets it go on", "together.rs: a program that stands still"),
    ("the same lines changed upstream, and the program", "together.rs: a program that stands still"),
    ("`piton drift --undo-rebase`", "together.rs: a_rebase_needs_permission_and_a_passing_test"),
    ("the repository moved meanwhile", "together.rs: drift while a program runs"),
    ("end it there, or with `kill", "hooks.rs: a_reported_session_is_not_asked_to_stop"),
    ("a restore of this folder was cut short", "restores.rs: killed anywhere in a restore"),
    ("nothing was written by this command, and no byte", "restores.rs: killed anywhere in a restore"),
    ("some files are changed, and no byte is lost", "restores.rs: killed anywhere in a restore"),
    ("worked here at the same time", "guard.rs: what_two_guards_did_at_once"),
    ("may have done there, too", "guard.rs: what_two_guards_did_at_once"),
    ("the store is on a server", "postgres.rs: a_check_reads_the_logs"),
    ("another `?schema=NAME` is the right one", "postgres.rs: what_cannot_be_opened"),
    ("Everyone who uses the store names the same place", "postgres.rs: large_packs_go_to_a_bucket"),
    ("another prefix is the right one", "objects.rs: what_is_wrong_is_said"),
    ("or name a store elsewhere with `--store URL`; `piton gc` frees some", "damage.rs: a full disk"),
    ("Make room; then `piton ls`", "damage.rs: a full disk"),
    ("what the log has is safe", "damage.rs: a failing write"),
    ("`piton check` says what is damaged and what is whole", "first_use.rs: what the doctor finds"),
    ("run {} was stopped; what finished is kept", "people.rs: a run that is ended at once"),
    ("the files are as the program left them", "files.rs: a_guard_whose_last_checkpoint_failed"),
    ("`piton log` shows what this folder's store holds", "what goes from a store while it is read"),
    (
        "nothing was changed. Make a copy of the store before anything else; `piton check` says what is damaged, `",
        "damage to all of a run",
    ),
    ("uses the one of that folder", "a folder in the home folder, which has a store"),
    // What takes another machine's time, a lost race or a mount.
    ("Try again in a moment; `piton ls`", "a store that doesn't answer"),
    ("another process wrote to this run first", "a lost race"),
    ("protects what is on another file system", "a mount"),
    ("write more of the name; `piton store ls`", "stores whose names begin alike, by chance"),
    ("the ignore files that held so far", "a checkpoint that retention removed"),
    ("the rules for what is kept are lost", "a repair of a store with rules of its own"),
];

/// What stands for something that only the user knows, and what this user says.
const SAID: &[(&str, &str)] = &[
    ("PROGRAM", "true"),
    ("DOC", "flow.yml"),
    ("URL", "sqlite:../home/new.db"),
    ("FILE", "made"),
    ("STEP", "work"),
    ("RUN", "first"),
    ("A", "first@4"),
    ("B", "first@4"),
];

/// A text of the sources that names a command.
#[derive(Debug)]
struct Text {
    /// With `{}` for what is filled in.
    text: String,
    pattern: Regex,
}

impl Text {
    fn new(literal: &str) -> Self {
        let text = literal.replace(r#"\""#, "\"").replace(r"\n", "\n").replace("{{", "\u{1}").replace("}}", "\u{2}");
        let text =
            Regex::new(r"\{[^}]*\}").unwrap().replace_all(&text, "{}").replace('\u{1}', "{").replace('\u{2}', "}");
        let parts: Vec<_> = text.split("{}").map(regex::escape).collect();
        let parts: Vec<_> =
            parts.iter().map(|part| part.replace("`piton ", "`piton (?:(?:-C|--store|--key-file) [^ ]+ )*")).collect();
        Self { pattern: Regex::new(&parts.join("[^\n]*?")).unwrap(), text }
    }
}

/// The folder with all crates.
fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && path.file_name().unwrap() != "tests.rs"
        {
            found.push(path);
        }
    }
}

/// Every text in the code that names a command of piton. The descriptions of routes are none that a person pastes from.
fn texts() -> Vec<Text> {
    let (continued, literal) = (Regex::new(r"\\\n\s*").unwrap(), Regex::new(r#""((?:[^"\\]|\\.)*)""#).unwrap());
    let mut files = Vec::new();
    for entry in fs::read_dir(crates()).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|file| !file.ends_with("routes/table.rs")) {
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let lines: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = continued.replace_all(&lines.join("\n"), "").into_owned();
        found.extend(literal.captures_iter(&code).map(|one| one[1].to_owned()).filter(|text| text.contains("`piton ")));
    }
    found.iter().map(|literal| Text::new(literal)).collect()
}

/// What a scene has shown so far.
#[derive(Default)]
struct Shown {
    texts: Vec<Text>,
    seen: BTreeSet<usize>,
    wrong: Vec<String>,
}

/// One folder in which messages are shown and followed.
struct Scene<'a> {
    world: World,
    shown: &'a mut Shown,
    /// What this user says here for what only they know.
    said: &'static [(&'static str, &'static str)],
    /// What else is at work, and must not lose its files when everything is brought back.
    is_shared: bool,
}

impl Scene<'_> {
    fn run(&self, line: &str) -> Output {
        // Into files: what is left running may keep a pipe open.
        let file = |name: &str| self.world.root().join(name);
        let mut command = self.world.shell(line);
        command.stdout(fs::File::create(file("stdout")).unwrap()).stderr(fs::File::create(file("stderr")).unwrap());
        let mut child = command.spawn().unwrap();
        let began = Instant::now();
        // What serves others runs until it is ended, and has begun well by then.
        let serves = line.starts_with("piton worker run") || line.starts_with("piton serve");
        let patience = Duration::from_secs(if serves { 3 } else { 60 });
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if began.elapsed() > patience => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    assert!(serves, "{line}: it waits for something");
                    break ExitStatus::default();
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        Output { status, stdout: fs::read(file("stdout")).unwrap(), stderr: fs::read(file("stderr")).unwrap() }
    }

    /// Runs a line, which must do what it says.
    fn works(&mut self, line: &str) -> &mut Self {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {output:?}");
        self
    }

    /// Runs a line and follows every hint in what it says.
    fn shows(&mut self, line: &str) -> &mut Self {
        self.shows_with(line, &[])
    }

    /// The same, where following one ends with another code than 0 or 3: what is asked for is refused, or fails as before.
    fn shows_with(&mut self, line: &str, codes: &[(&str, i32)]) -> &mut Self {
        let output = self.run(line);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let named: BTreeSet<String> =
            said.split('`').skip(1).step_by(2).filter(|code| code.starts_with("piton ")).map(str::to_owned).collect();
        if named.is_empty() {
            self.shown.wrong.push(format!("{line}: it names no command: {said}"));
        }
        for (place, text) in self.shown.texts.iter().enumerate() {
            if text.pattern.is_match(&said) {
                self.shown.seen.insert(place);
            }
        }
        // What was exported holds for what is pasted, too.
        let exported = line.split_once("; ").map(|(first, _)| first).filter(|first| first.starts_with("export "));
        for command in named {
            let mut typed = command.clone();
            for (word, value) in self.said.iter().chain(SAID) {
                let word = Regex::new(&format!(r"(^|[\s=]){}($|[\s@])", regex::escape(word))).unwrap();
                typed = word
                    .replace_all(&typed, |at: &regex::Captures<'_>| format!("{}{value}{}", &at[1], &at[2]))
                    .into_owned();
            }
            let expected = codes.iter().find(|(part, _)| format!("{command}`").contains(part)).map(|(_, code)| *code);
            let typed = exported.map_or(typed.clone(), |exported| format!("{exported}; {typed}"));
            self.follow(line, &typed, expected);
        }
        self
    }

    /// Runs a hint, and brings everything back to how it was.
    fn follow(&mut self, line: &str, hint: &str, expected: Option<i32>) {
        let saved = tempfile::tempdir().unwrap();
        let copy = |from: &Path, to: &Path| {
            let done = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
            assert!(done.success());
        };
        let kept: &[&str] = if self.is_shared { &[] } else { &["work", "home"] };
        for name in kept {
            if self.world.root().join(name).exists() {
                copy(&self.world.root().join(name), saved.path());
            }
        }
        let mut output = self.run(hint);
        if String::from_utf8_lossy(&output.stderr).contains("`--yes` goes on without asking") {
            output = self.run(&format!("{hint} --yes"));
        }
        let code = output.status.code();
        let is_right = match expected {
            Some(expected) => code == Some(expected),
            None => matches!(code, Some(0 | 3)),
        };
        if !is_right {
            let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let said: String = format!("{stdout}{stderr}").chars().take(600).collect();
            self.shown.wrong.push(format!("{line}: `{hint}` ends with {code:?}: {said}"));
        }
        for name in kept {
            let folder = self.world.root().join(name);
            let _ = fs::remove_dir_all(&folder);
            if saved.path().join(name).exists() {
                copy(&saved.path().join(name), &self.world.root());
            }
        }
    }
}

/// A document that runs by itself.
const PLAIN: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: work, data: {type: command, checkpoint: true, command: [sh, -c, 'echo x >> done; test ! -e hold || sleep 600; test ! -e broken']}}
  - {id: out, data: {type: end, outputs: [{variable: text, value_selector: [work, stdout]}]}}
edges: [{source: in, target: work}, {source: work, target: out}]
";

/// Two questions at once, and a program behind them.
const ASKS: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: ask, data: {type: human-input, prompt: 'Ship it?', variables: [{name: ok, type: boolean, required: true}]}}
  - {id: say, data: {type: human-input, prompt: 'Which?', variables: [{name: which, type: string, required: true}]}}
  - {id: ship, data: {type: command, command: [sh, -c, 'echo x >> shipped']}}
  - {id: out, data: {type: end, outputs: []}}
edges: [{source: in, target: ask}, {source: in, target: say}, {source: ask, target: ship}, {source: say, target: ship}, {source: ship, target: out}]
";

const CHAT: &str = "
app: {mode: advanced-chat, name: parrot}
kind: app
version: 0.1.5
workflow:
  graph:
    nodes:
    - {id: in, data: {type: start, variables: []}}
    - {id: ask, data: {type: human-input, prompt: 'Well?', variables: [{name: ok, type: boolean, required: true}]}}
    - {id: say, data: {type: answer, answer: '{{#sys.query#}}'}}
    edges: [{source: in, target: ask}, {source: ask, target: say}]
";

/// Nothing is there yet.
fn nothing(mut scene: Scene<'_>) {
    for line in ["piton log", "piton show x", "piton check", "piton --store sqlite:none.db log", "piton store ls"] {
        scene.shows(line);
    }
    scene.shows("piton init --adopt").shows("PITON_STORE=sqlite:x.db piton init --here");
    scene.works("piton --store sqlite:../home/e.db init --encrypt --key-file k");
    scene.shows("piton status --store sqlite:../home/one.db");
    scene.shows("piton save --key-file k").works("piton init").shows("piton show @").shows("piton undo --yes");
    scene.shows("piton status").shows("piton status --key-file k").shows("piton key rotate --new-key-file n");
    scene.works("mkdir ../enc && piton -C ../enc init --encrypt --key-file ../work/k").shows("piton doctor");
    scene.shows_with("PATH=$(dirname $(command -v piton)) piton doctor", &[("drift", 1)]);
    scene.works("mkdir ../two && piton -C ../two init").shows("piton store mv . ../two");
    scene.works("piton --store sqlite:../home/one.db run flow.yml --id first");
    scene.works("piton --store sqlite:../home/two.db run flow.yml");
    scene.shows("piton copy sqlite:../home/one.db sqlite:../home/two.db --to-key-file k");
    scene.shows("piton store rm nosuch --yes");
}

/// What is there, and what isn't.
fn looking(mut scene: Scene<'_>) {
    scene.works("piton run flow.yml --id first").works("piton run flow.yml --id second");
    scene.shows("piton show nosuch").shows("piton show first@99").shows("piton show first@~9");
    scene.shows("piton restore first --state --yes").shows("piton show first@4:done").shows("piton diff first@4 @");
    scene
        .shows("piton fork first --into ../there")
        .shows_with("piton fork first@2 --only work --in-place", &[("undo", 1)]);
    scene.said = &[("first@N", "first@4")];
    scene.works("piton save -m one").works("echo two > a && piton save -m two");
    scene.shows("piton show @~9").shows("piton show @:nosuch").shows("piton show first/nosuch").shows("piton log @:a");
    scene.shows("piton log $(piton show first@4 --json | grep -o '[0-9a-f]\\{64\\}' | head -1)");
    scene.shows(&format!("piton show {}", "0".repeat(64))).shows("piton restore @- nosuchfile --yes");
    scene.shows("piton restore first@4 --into ../there").shows("piton undo first --yes");
    scene.shows("piton retry first").shows("piton cancel first --yes").shows("piton retry first --from nosuch");
    scene.shows("piton answer first --set ok=true").shows("piton fork first --set nosuch=1");
    scene.shows("piton fork first --only nosuch").shows("piton fork first@1 --only out");
    scene.shows("piton worker drain nosuch").shows("piton import flow.yml").shows("piton run chat.yml");
    scene.shows("piton run flow.yml --config bad.toml").shows("piton run flow.yml --config wrong.toml");
    scene.shows_with("piton run broken.yml", &[("validate", 1)]).shows("piton run asks.yml --id first");
    scene.shows_with("piton drift", &[]).shows("PITON_BUDGET=1 piton gc --yes");
    scene.works("piton run greet.yml -i name=Ada --id greet").shows("piton fork greet --set name=Bob");
    scene.works("piton submit flow.yml --id queued").shows("piton worker ls");
    scene.shows("piton stop queued").shows("piton submit flow.yml --every nonsense");
    scene.works("mkdir ../other && echo x > ../other/x").works("piton -C ../other --store sqlite:../home/s.db save");
    let other = "PITON_STORE=sqlite:../home/s.db";
    scene.world.write("shared", "");
    scene.shows(&format!("export {other}; piton show @"));
    scene.shows(&format!("export {other}; piton check $(piton log --checkpoints --json | sed 's/.*\"id\":\"\\([^\"]*\\)\".*/\\1/' | head -1)"));
}

/// Runs that wait, fail, are stopped, and go on.
fn steering(mut scene: Scene<'_>) {
    // At a terminal it asks; what is pasted elsewhere must say the answer.
    let at_a_terminal = [("piton answer asks`", 2), ("piton answer dbg`", 2)];
    scene.shows("piton run asks.yml --id asks").shows("piton status");
    scene.shows_with("piton answer asks --node ask --set ok=true", &at_a_terminal);
    scene.shows("piton answer asks --node say --set which=x");
    scene.said = &[("STEP", "ask")];
    scene.shows("piton retry asks").shows("piton show asks@1:a");
    scene.shows("piton restore asks@2 --state --yes");
    scene.shows_with("printf 'continue\nquit\n' | piton debug asks.yml --id dbg", &at_a_terminal);
    scene.shows("echo quit | piton debug flow.yml --id dbg2");
    scene.shows("piton run chat.yml --id c one").shows("piton run chat.yml --id c two");
    scene.works("echo 'audit = \"log\"' > c.toml; piton run asks.yml --id conf --config c.toml; echo '#' >> c.toml");
    scene.shows("piton resume conf").shows_with("piton resume conf --explain", &[("resume", 4)]);
    scene.works("piton save && piton run asks.yml --files --id ff; true").shows("piton fork ff --into ../there");
    scene.shows("touch hold; timeout -s INT 2 piton run flow.yml --id st; rm hold");
    scene.works("touch hold; timeout -s KILL 2 piton run flow.yml --id dead; rm hold; true");
    scene.shows("piton ls").shows("piton stop dead");
    scene.world.write("broken", "");
    let fails = [("resume", 1), ("retry", 1)];
    scene.shows_with("piton run flow.yml --id failed", &fails).shows_with("piton stop failed", &fails);
    scene.shows("piton status");
    scene.said = &[("FILE", "flow2.yml"), ("RUN@N", "failed@0")];
    scene.works("sed 's/echo x/echo y/' flow.yml > flow2.yml");
    scene.shows("piton resume failed --explain --document flow2.yml");
    scene
        .works("rm broken; sed 's/work/other/g' flow.yml > flow2.yml")
        .shows("piton resume failed --document flow2.yml --force");
    scene.is_shared = true;
    scene.works("touch hold; (piton run flow.yml --id held > held.log 2>&1 &)");
    scene.works("until grep -q 'work: started' held.log; do sleep 0.1; done").shows("piton resume held");
}

/// A folder, and who works in it.
fn files(mut scene: Scene<'_>) {
    scene.works("git init -q; mkdir f; for n in $(seq 60); do echo $n > f/$n; done; mkfifo pipe; piton save");
    // What it did is in no checkpoint, so it isn't taken back.
    scene.works("piton guard -- sh -c 'echo q > q; kill -9 $PPID'; true").shows("piton undo --yes");
    scene.shows_with("piton ls", &[("undo", 4)]).works("piton save -m on");
    scene.works("piton guard -- sh -c 'echo z > z; sleep 3; kill -9 $PPID'; true").shows("piton ls");
    scene.shows("piton status").shows("piton guard -- sh -c 'echo x > new'").shows("piton resume guard-1");
    scene.shows("piton undo --yes").shows("piton redo --yes");
    scene.shows("piton guard --rollback-on-failure -- sh -c 'echo y > new; exit 1'");
    scene.shows("piton guard -- rm -r f").works("piton undo --yes");
    scene.works("rm -r f").shows("piton save").works("piton restore @- --yes");
    scene.works("for n in $(seq 60); do echo more >> f/$n; done").shows("piton status").shows("piton check @");
    scene.works("piton save").works("echo f/ > .gitignore").shows("piton save").works("rm .gitignore");
    scene
        .works("echo 'OPENAI_API_KEY=sk-proj-4fXq9ZkL2mNpR7sTuVwY1aBcDeFgHiJkLmNoPqRsTuVwXyZ0' > .env")
        .shows("piton save");
    scene.works("piton init --here && rm -r ../home/.local/state/piton").shows("piton ls");
}

/// What is damaged.
fn damaged(mut scene: Scene<'_>) {
    let with = |line: &str| format!("export PITON_STORE=file:$(realpath ../home)/store; {line}");
    let damage = |run: &str| {
        let newest = format!("f=$(ls ../home/store/runs/{run}/entries/* | tail -1)");
        format!("{newest}; printf XXXX | dd of=$f bs=1 seek=$(($(stat -c %s $f) / 2)) conv=notrunc 2>&1")
    };
    // One that has a whole checkpoint behind the damage, and one that has none.
    scene.works("sed 's/broken/hold/; s/test ! -e hold || sleep 600; //' flow.yml > whole.yml; mkdir -p ../home");
    scene.works(&with("piton run whole.yml --id whole")).works(&damage("whole"));
    let broken = [("piton check`", 1), ("piton check first`", 1), ("resume", 4)];
    scene.shows(&with("piton resume whole"));
    scene.works(&with("touch broken; piton run flow.yml --id first; true")).works(&damage("first"));
    for line in
        ["piton ls", "piton resume first", "piton check", "piton check first", "piton show first", "piton log first"]
    {
        scene.shows_with(&with(line), &broken);
    }
}

fn scene(shown: &mut Shown) -> Scene<'_> {
    let world = World::new();
    world.write("flow.yml", PLAIN);
    world.write("asks.yml", ASKS);
    world.write("chat.yml", CHAT);
    world.write("greet.yml", THREE_NODES);
    world.write("broken.yml", "nodes: [{id: a, data: {type: nosuch}}]\n");
    world.write("bad.toml", "nosuch = 1\n");
    world.write("wrong.toml", "= =\n");
    Scene { world, shown, said: &[], is_shared: false }
}

/// Every text that names a command is shown, and every command works as it stands.
#[test]
fn every_hint_works_when_pasted() {
    let mut shown = Shown { texts: texts(), ..Shown::default() };
    std::thread::scope(|threads| {
        let plays = [nothing, looking, steering, files, damaged].map(|play| {
            threads.spawn(move || {
                let mut shown = Shown { texts: texts(), ..Shown::default() };
                play(scene(&mut shown));
                shown
            })
        });
        for one in plays.map(|play| play.join().unwrap()) {
            shown.seen.extend(one.seen);
            shown.wrong.extend(one.wrong);
        }
    });
    let mut unused: Vec<&str> = NOT_SHOWN.iter().map(|(part, _)| *part).collect();
    unused.retain(|part| !shown.texts.iter().any(|text| text.text.contains(part)));
    shown.wrong.extend(unused.iter().map(|part| format!("no text of the sources has {part:?}")));
    let excused = |text: &str| NOT_SHOWN.iter().any(|(part, _)| text.contains(part));
    let mut missing = Vec::new();
    for (place, text) in shown.texts.iter().enumerate() {
        match (shown.seen.contains(&place), excused(&text.text)) {
            (false, false) => missing.push(&text.text),
            (true, true) => shown.wrong.push(format!("it is shown, and listed as one that isn't: {}", text.text)),
            _ => {}
        }
    }
    assert!(missing.is_empty() && shown.wrong.is_empty(), "not shown: {missing:#?}\n\nwrong: {:#?}", shown.wrong);
}
