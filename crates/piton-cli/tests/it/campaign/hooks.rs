//! What a coding agent tells by its hooks, as no agent would tell it: cut, doubled, out of order, from several processes,
//! killed. The agent always goes on, and a tool call that is told properly afterwards is taken back to the byte.

use std::path::PathBuf;
use std::time::Duration;

use piton_testing::SeededRandom;
use piton_testing::process::{Ending, Finished, Running};
use serde_json::{Value as Json, json};

use super::player::{PATIENCE, Player, binary, is_one_of};
use super::{Counts, finds, play};

#[test]
fn hooks() {
    play("hooks", (1, 3), |random, counts| round(random, counts, false));
}

/// A Piton that misses the beginning of a tool call.
#[test]
fn hooks_find_a_call_that_is_not_taken_back() {
    finds(5, &["is none of what it may be"], |random, counts| round(random, counts, true));
}

const EVENTS: [&str; 8] = [
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "Stop",
    "SessionEnd",
    "SessionStart",
    "SomethingNew",
];

const TOOLS: [&str; 8] = ["Bash", "Write", "Edit", "Read", "mcp__x__y", "../../x", "\u{1b}[2J", ""];

/// An event that an agent could have sent, with fields that are missing, wrong or too large now and then.
fn event(random: &SeededRandom, session: &str) -> String {
    let mut event = json!({
        "session_id": session,
        "hook_event_name": EVENTS[random.below(EVENTS.len())],
        "prompt": "do it\nplease",
        "tool_name": TOOLS[random.below(TOOLS.len())],
        "tool_input": {"command": "make", "file_path": "f1"},
        "tool_use_id": format!("t{}", random.below(4)),
        "tool_response": {"success": true},
    });
    let fields = event.as_object_mut().unwrap();
    let names: Vec<String> = fields.keys().cloned().collect();
    for _ in 0..[0, 0, 1, 3][random.below(4)] {
        let name = names[random.below(names.len())].clone();
        let wrong = match random.below(8) {
            0 => Json::Null,
            1 => json!(1e308),
            2 => json!("x".repeat(1 << random.below(21))),
            3 => json!({"a": [1, {"b": null}]}),
            4 => json!("../../../etc/passwd"),
            5 => json!("\u{0}\u{7f}\u{202e}"),
            6 => json!([[[[]]]]),
            _ => {
                fields.remove(&name);
                continue;
            }
        };
        fields.insert(name, wrong);
    }
    let mut text = event.to_string();
    match random.below(10) {
        0 => text.truncate((0..=random.below(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap()),
        1 => text = format!("{}{text}", "[".repeat(1 << random.below(16))),
        2 => text.push_str(&text.clone()),
        _ => {}
    }
    text
}

struct Agent<'a> {
    player: Player<'a>,
    counts: &'a Counts,
    told: std::cell::Cell<usize>,
}

impl Agent<'_> {
    /// The hook that is given this text, as it was when the agent started it.
    fn start(&self, text: &str) -> Running {
        self.told.set(self.told.get() + 1);
        let file: PathBuf = self.player.world().root().join(format!("event-{}", self.told.get()));
        std::fs::write(&file, text).unwrap();
        let line = r#"exec "$0" hook call claude-code < "$1""#;
        let words = ["-c", line, &binary(), file.to_str().unwrap()];
        Running::spawn(&mut self.player.world().program("sh", words))
    }

    /// An end that would stop the agent, or words that it would take for a decision, are a finding.
    fn goes_on(&self, said: &Finished) {
        let is_silent = said.stdout.is_empty();
        let tells_user = || {
            let told: Json = serde_json::from_str(&said.stdout).unwrap_or_default();
            told.as_object().is_some_and(|told| told.len() == 1 && told["systemMessage"].is_string())
        };
        let is_well = said.ending == Ending::Code(0) && (is_silent || tells_user());
        assert!(is_well && !said.stderr.contains("panicked"), "a hook stops the agent: {said:?}");
        assert!(!said.stdout.contains("fault in piton"), "{said:?}");
        self.counts.add(if is_silent { "hooks, silent" } else { "hooks, the user is told" });
    }

    fn tell(&self, event: Json) {
        let said = self.start(&event.to_string()).wait(PATIENCE);
        self.goes_on(&said);
        assert!(said.stdout.is_empty(), "{event}: {said:?}");
    }

    /// Events of all kinds, some killed, some at once, with files that change between them.
    fn chaos(&self, session: &str) {
        let (player, random) = (&self.player, self.player.random);
        for _ in 0..4 {
            let texts: Vec<_> = (0..=random.below(3)).map(|_| event(random, session)).collect();
            let started: Vec<_> = texts.iter().map(|text| self.start(text)).collect();
            for hook in started {
                if random.one_in(3) {
                    let killed = hook.kill_after(Duration::from_millis(random.below(30).try_into().unwrap())).killed();
                    self.counts.add_many("hooks killed", usize::from(killed));
                } else {
                    self.goes_on(&hook.wait(PATIENCE));
                }
            }
            player.scribble();
        }
    }

    /// A tool call that is told as it should be, which may also hide and remove files; then it is taken back.
    fn call(&self, session: &str, misses: bool) {
        let (player, random) = (&self.player, self.player.random);
        let id = format!("call-{}", self.told.get());
        let of = |name: &str| {
            json!({"session_id": session, "hook_event_name": name, "prompt": "x", "tool_name": "Bash",
                "tool_input": {"command": "make"}, "tool_use_id": id,
                "tool_response": {}})
        };
        self.tell(of("UserPromptSubmit"));
        let before = player.tree();
        if !misses {
            self.tell(of("PreToolUse"));
        }
        player.scribble();
        player.world().write("touched", &random.next_u64().to_string());
        match random.below(4) {
            0 => player.world().write(".gitignore", "*\n"),
            1 => player.world().write(".pitonignore", "f*\nsub/\n"),
            2 => std::fs::create_dir_all(player.work().join(".piton-tmp-1/x")).unwrap(),
            _ => {}
        }
        self.tell(of("PostToolUse"));
        let _ = std::fs::remove_dir_all(player.work().join(".piton-tmp-1"));
        let after = player.tree();
        // Under a name of its own if the session had ended before.
        let log = player.does(["log", "--all", "--json", "-n", "20"]).stdout;
        let entries = log.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
        let text = |entry: &Json, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let newest = entries
            .filter(|entry| text(entry, "label").contains("bash-"))
            .map(|step| (text(&step, "run"), text(&step, "label")));
        let newest = newest.map(|(run, label)| format!("{run}/{label}")).next();
        let step = newest.unwrap_or_else(|| "none".to_owned());
        let said = player.piton(["undo", &step, "--yes"]);
        is_one_of(&player.tree(), &[&before], &format!("the undo of {step}, {said:?},"));
        player.does(["redo", "--yes"]);
        is_one_of(&player.tree(), &[&after], &format!("the redo of {step}"));
        // What a session begins with is the user's to judge: the next one shall not begin with an agent's rules.
        for name in [".gitignore", ".pitonignore"] {
            let _ = std::fs::remove_file(player.work().join(name));
        }
        self.counts.add("tool calls taken back and again");
    }
}

fn round(random: &SeededRandom, counts: &Counts, misses: bool) {
    let agent = Agent { player: Player::new(random), counts, told: 0.into() };
    agent.player.scribble();
    agent.player.world().write("touched", "0");
    for turn in 0..3 {
        agent.chaos("hostile");
        // In a session of its own, or in the very one that was told nonsense.
        agent.call(&if random.one_in(2) { "hostile".to_owned() } else { format!("good-{turn}") }, misses);
    }
    agent.player.does(["check", "--deep"]);
}
