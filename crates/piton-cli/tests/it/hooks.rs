//! The hooks of a coding agent, with events as it sends them, called as it calls them: by the command that its
//! settings name, in a shell. W7.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use crate::world::{Said, World};

const SESSION: &str = "8c35adc1-5b7e-4a39-9f0c-2d1f6a7b8c9d";

/// The agent.
pub(crate) struct Claude<'a> {
    world: &'a World,
    /// What its settings say, event by event.
    settings: Json,
}

impl<'a> Claude<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        let text = std::fs::read_to_string(world.work().join(".claude/settings.json")).unwrap();
        Self { world, settings: serde_json::from_str(&text).unwrap() }
    }

    /// The command of an event, about to be given it.
    fn command(&self, event: &str) -> Command {
        let command = self.settings["hooks"][event][0]["hooks"][0]["command"].as_str().unwrap();
        let mut shell = self.world.shell(command);
        // The agent may be in any folder of the project by then.
        shell.current_dir("/").env("CLAUDE_PROJECT_DIR", self.world.work()).stdin(Stdio::piped());
        shell
    }

    /// Sends an event with these fields beside those that all have.
    pub(crate) fn tell(&self, event: &str, fields: Json) -> Said {
        give(self.world, self.command(event), event, fields)
    }

    /// One call of a tool, with its two events around it.
    pub(crate) fn tool(&self, name: &str, id: &str, input: Json, work: impl FnOnce()) {
        let fields = json!({"tool_name": name, "tool_input": input, "tool_use_id": id});
        silent(&self.tell("PreToolUse", fields.clone()));
        work();
        let mut after = fields;
        after["tool_response"] = json!({"success": true});
        silent(&self.tell("PostToolUse", after));
    }
}

fn give(world: &World, mut command: Command, event: &str, fields: Json) -> Said {
    let mut payload = json!({
        "session_id": SESSION,
        "transcript_path": "/home/ada/.claude/projects/work/x.jsonl",
        "cwd": world.work(),
        "permission_mode": "default",
        "hook_event_name": event,
    });
    payload.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // One that has ended by now reads nothing.
    let _ = stdin.write_all(payload.to_string().as_bytes());
    drop(stdin);
    world.wait(child)
}

/// What is on stdout would go to the model, or be taken for a decision.
pub(crate) fn silent(said: &Said) {
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(0), "", ""));
}

pub(crate) fn installed() -> World {
    let world = World::new();
    world.write("notes.txt", "one\ntwo\nthree\n");
    let said = world.wait(world.shell("piton hook install claude-code --yes").spawn().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    world
}

fn read(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.work().join(name)).unwrap_or_default()
}

/// A session of several tool calls: each is a step, and can be taken back by its name, the whole turn too; what the user
/// typed meanwhile stays.
#[test]
fn a_session_of_a_coding_agent_is_taken_back_step_by_step() {
    let world = installed();
    let claude = Claude::new(&world);
    silent(&claude.tell("UserPromptSubmit", json!({"prompt": "Make the notes better\nplease"})));
    claude.tool("Read", "toolu_01", json!({"file_path": "notes.txt"}), || {});
    claude.tool("Bash", "toolu_02", json!({"command": "sed -i 's/one/ONE/' notes.txt"}), || {
        world.write("notes.txt", "ONE\ntwo\nthree\n");
    });
    world.write("mine.txt", "typed while it thought");
    claude.tool("Write", "toolu_03", json!({"file_path": "made.txt", "content": "made"}), || {
        world.write("made.txt", "made");
    });
    silent(&claude.tell("Stop", json!({"stop_hook_active": false})));

    let steps = world.piton(["show", "claude-8c", "--steps"]);
    let named: Vec<&str> = steps.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(named.ends_with(&["turn-1/bash-1", "turn-1/write-1", "turn-1"]), "{}", steps.stdout);
    let step = world.piton(["show", "claude-8c/turn-1/bash-1", "--json"]).json();
    assert_eq!(step["input"]["command"], "sed -i 's/one/ONE/' notes.txt", "{step}");

    assert_eq!(world.piton(["undo", "claude-8c/turn-1/bash-1", "--yes"]).code, Some(0));
    assert_eq!((read(&world, "notes.txt"), read(&world, "made.txt")), ("one\ntwo\nthree\n".into(), "made".into()));
    assert_eq!(world.piton(["redo", "--yes"]).code, Some(0));
    assert_eq!(world.piton(["undo", "claude-8c/turn-1", "--yes"]).code, Some(0));
    assert_eq!((read(&world, "notes.txt"), read(&world, "made.txt")), ("one\ntwo\nthree\n".into(), String::new()));
    assert_eq!(read(&world, "mine.txt"), "typed while it thought");

    // Decision 12: what was typed during the turn is named, and goes only if the user says so.
    let plan = world.piton(["undo", "claude-8c/turn-1", "--dry-run", "--json"]).json();
    assert_eq!(plan["unattributed"], json!(["mine.txt"]), "{plan}");
    let history = world.piton(["log", "mine.txt", "--json"]).json();
    assert_eq!(history["made_by"], "unattributed", "{history}");
    let diff = world.piton(["diff", "claude-8c@4", "claude-8c@5", "--json"]).json();
    assert_eq!(diff["changes"][0]["unattributed"], true, "{diff}");
    let said = world.piton(["undo", "claude-8c/turn-1", "--yes", "--unattributed"]);
    assert_eq!((said.code, world.work().join("mine.txt").exists()), (Some(0), false), "{}", said.stderr);
    assert_eq!(world.piton(["redo", "--yes"]).code, Some(0));
    assert_eq!(read(&world, "mine.txt"), "typed while it thought");

    silent(&claude.tell("UserPromptSubmit", json!({"prompt": "And more"})));
    world.write("again.txt", "typed");
    let status = world.piton(["status", "--json"]).json();
    assert_eq!((&status["made_by"], &status["changes"][0]["path"]), (&json!("unattributed"), &json!("again.txt")));
    silent(&claude.tell("SessionEnd", json!({"reason": "exit"})));
    let listed = world.piton(["ls", "--json"]).stdout;
    assert!(listed.contains(&format!("claude-{SESSION}")) && listed.contains("completed"), "{listed}");
}

/// Under `piton guard` the agent's calls are steps of the guarded session, so that no second agent seems to be at work.
#[test]
fn hooks_under_a_guard_are_steps_of_its_session() {
    let world = installed();
    let claude = Claude::new(&world);
    let command = claude.settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"].as_str().unwrap();
    let event = |name: &str| {
        json!({"session_id": SESSION, "hook_event_name": name, "tool_name": "Bash", "tool_use_id": "toolu_1",
            "tool_input": {"command": "rm notes.txt"}, "tool_response": {}})
    };
    world.write("before.json", &event("PreToolUse").to_string());
    world.write("after.json", &event("PostToolUse").to_string());
    world.write("agent.sh", &format!("({command}) < before.json\nrm notes.txt\n({command}) < after.json\ntouch end\n"));
    let mut guard = world.shell("piton guard --json -- sh agent.sh");
    guard.env("CLAUDE_PROJECT_DIR", world.work());
    let said = world.wait(guard.spawn().unwrap());
    let run = said.json()["run"].as_str().unwrap().to_owned();
    assert_eq!(world.piton(["ls", "--json"]).stdout.lines().count(), 1, "no run of its own");
    let steps = world.piton(["show", &run, "--steps"]).stdout;
    assert!(steps.contains("bash-"), "{steps}");
    assert_eq!(world.piton(["undo", &run, "--yes"]).code, Some(0));
    assert!(!read(&world, "notes.txt").is_empty() && !world.work().join("end").exists());
}

/// Whatever is wrong, the agent goes on, and its user is told.
#[test]
fn a_hook_never_stops_the_agent() {
    let world = installed();
    let claude = Claude::new(&world);
    let told = |said: &Said| {
        assert_eq!(said.code, Some(0));
        assert!(
            said.json()["systemMessage"].as_str().unwrap().starts_with("piton made no checkpoint"),
            "{}",
            said.stdout
        );
    };
    let call = json!({"tool_name": "Write", "tool_input": {"file_path": "x"}, "tool_use_id": "toolu_1"});
    let with = |variable: &str, value: &str| {
        let mut command = claude.command("PreToolUse");
        command.env(variable, value);
        give(&world, command, "PreToolUse", call.clone())
    };
    told(&with("PITON_STORE", "sqlite:/proc/nowhere/store.db"));
    told(&with("PITON_STORE", "nothing://here"));
    told(&with("PITON_BUDGET", "1"));
    // The program itself can't start, is another, or isn't there.
    assert_eq!(with("CLAUDE_PROJECT_DIR", "/nowhere").code, Some(0));
    assert_eq!(with("PITON_BUDGET", "many").code, Some(0));
    assert_eq!(with("PATH", "/usr/bin:/bin").code, Some(0));
    // What is no event at all.
    for text in ["", "null", "[]", "{}", "\u{0}", "{\"session_id\": 3, \"hook_event_name\": \"Stop\"}"] {
        let mut child = claude.command("Stop").spawn().unwrap();
        // One that has ended by now reads nothing.
        let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
        told(&world.wait(child));
    }
    // Names that lead elsewhere, numbers beyond ours, events that piton doesn't know.
    silent(&claude.tell("Stop", json!({"session_id": "../../x'; DROP TABLE runs"})));
    silent(&claude.tell("PreToolUse", json!({"tool_name": "../../\u{1b}[2J\n", "tool_input": {"n": 1e308}})));
    silent(&claude.tell("Stop", json!({"hook_event_name": "SomethingNew"})));
    assert_eq!(world.piton(["log"]).code, Some(0));
    assert_eq!(world.piton(["check"]).code, Some(0));
}

/// An agent that calls several tools at once has several hooks at once.
#[test]
fn hooks_that_come_at_once_wait_for_each_other() {
    let world = installed();
    let claude = Claude::new(&world);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let claude = &claude;
            scope.spawn(move || {
                let fields = json!({"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": format!("t{number}")});
                silent(&claude.tell("PreToolUse", fields.clone()));
                claude.world.write(&format!("file-{number}"), "made");
                silent(&claude.tell("PostToolUse", fields));
            });
        }
    });
    let steps = world.piton(["show", "claude-8c", "--steps"]).stdout;
    let mut names: Vec<&str> =
        steps.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| name.contains("bash-")).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 8, "{steps}");
}

/// The settings are the user's: what isn't ours stays to the byte, a second time changes nothing, and removing leaves
/// what was there before.
#[test]
fn settings_are_edited_and_left_as_they_were() {
    let world = World::new();
    let file = world.work().join(".claude/settings.json");
    let shell = |line: &str| world.wait(world.shell(line).spawn().unwrap());
    assert_eq!(shell("piton hook install claude-code").code, Some(4), "nobody can be asked");
    assert_eq!(shell("piton hook install claude-code --dry-run").code, Some(0));
    assert!(!file.exists());
    let own = "{\n  \"permissions\": { \"allow\": [ \"Bash(ls:*)\" ] },\n  \"hooks\": {\n    \"Stop\": [\n      { \"hooks\": [ { \"type\": \"command\", \"command\": \"say done\" } ] }\n    ]\n  }\n}";
    for before in [Some(own), None] {
        match before {
            Some(text) => {
                std::fs::create_dir(world.work().join(".claude")).unwrap();
                std::fs::write(&file, text).unwrap();
            }
            None => std::fs::remove_dir_all(world.work().join(".claude")).unwrap(),
        }
        assert_eq!(shell("piton hook install claude-code --yes --json").json()["changed"], true);
        let with = std::fs::read_to_string(&file).unwrap();
        assert_eq!(shell("piton hook install claude-code --yes --json").json()["changed"], false);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), with);
        assert_eq!(shell("piton hook remove claude-code --yes --json").json()["changed"], true);
        assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), before);
        assert_eq!(shell("piton hook remove claude-code --yes --json").json()["changed"], false);
    }
    assert!(!world.work().join(".claude").exists());
    // Settings of one's own, a link, and what can't be read.
    assert_eq!(shell("piton hook install claude-code --yes --local").code, Some(0));
    let shown = shell("piton hook show --json").stdout;
    assert!(shown.lines().nth(1).unwrap().contains("\"installed\":\"yes\"") && !file.exists(), "{shown}");
    std::fs::write(world.work().join("elsewhere.json"), "{}").unwrap();
    std::os::unix::fs::symlink("../elsewhere.json", &file).unwrap();
    assert_eq!(shell("piton hook install claude-code --yes").code, Some(0));
    assert!(file.is_symlink() && read(&world, "elsewhere.json").contains("hook call"));
    std::fs::write(world.work().join("elsewhere.json"), "{\"hooks\": [}").unwrap();
    for verb in ["install claude-code --yes", "remove claude-code --yes", "show"] {
        let said = shell(&format!("piton hook {verb}"));
        assert_eq!(said.code, Some(1), "{verb}");
        assert!(said.stderr.contains(".claude/settings.json can't be read"), "{}", said.stderr);
    }
    assert_eq!(read(&world, "elsewhere.json"), "{\"hooks\": [}");
}

/// Another process has the folder's lock and doesn't give it back: the hook ends, says so, and the agent goes on.
#[test]
fn a_hook_does_not_wait_for_long() {
    let world = World::new();
    world.write("a", "0");
    assert_eq!(world.piton(["save"]).code, Some(0));
    let found = Command::new("find").arg(world.state()).args(["-name", "lock"]).output().unwrap();
    let path = String::from_utf8(found.stdout).unwrap();
    let held = std::fs::File::options().write(true).open(path.trim()).unwrap();
    held.lock().unwrap();
    let event = r#"{"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "tidy up"}"#;
    // The negative control is the test's own patience: without a bound the hook waits for ever.
    let said = world.shell(&format!("echo '{event}' | timeout 60 piton hook call claude-code")).output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(said.status.success() && text.contains("another process works on"), "{text}");
}

/// No process takes requests for a session that hooks report, so none is made: the user is told what works.
#[test]
fn a_reported_session_is_not_asked_to_stop() {
    let world = installed();
    let claude = Claude::new(&world);
    silent(&claude.tell("UserPromptSubmit", json!({"prompt": "change it"})));
    let listed = world.piton(["ls", "claude-", "--kind", "guard", "--since", "1h", "--json"]).json();
    let run = listed["id"].as_str().unwrap();
    for verb in [&["stop"][..], &["cancel", "--yes"]] {
        let said = world.piton(verb.iter().chain(&[run]));
        assert_eq!(said.code, Some(4), "{}", said.stderr);
        assert!(said.stderr.contains("takes no requests, and goes on"), "{}", said.stderr);
        assert!(said.stderr.contains(&format!("`kill {}`", std::process::id())), "{}", said.stderr);
    }
    // Nothing stands in the log that a later process would obey.
    silent(&claude.tell("Stop", json!({"stop_hook_active": false})));
    assert_eq!(world.piton(["show", run, "--json"]).json()["status"], "in_progress");
}
