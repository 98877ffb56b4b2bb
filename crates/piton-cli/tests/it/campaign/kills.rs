//! Verbs that are killed at any moment. The next verb finishes or drops what was begun: the folder is the old or the new to
//! the byte, every checkpoint that was told of can be restored, and no node that was told of as finished begins again.

use std::collections::BTreeMap;

use piton_testing::SeededRandom;
use piton_testing::strace::{self, KillAt};
use serde_json::Value as Json;

use super::player::{Player, Tree, delete_all, is_one_of};
use super::{Counts, finds, play};

#[test]
fn kills() {
    play("kills", (1, 3), |random, counts| {
        files(random, counts, false);
        guarded(random, counts);
        workflow(random, counts, false);
    });
}

/// A Piton that forgets a restore which was cut short, and one that forgets its runs.
#[test]
fn kills_find_what_is_forgotten() {
    finds(20, &["is none of what it may be", "there is nothing to"], |random, counts| files(random, counts, true));
    finds(5, &["began again"], |random, counts| workflow(random, counts, true));
}

/// Verbs that lie in the way of what is unfinished, too.
const NEXT: [&[&[&str]]; 5] = [
    &[&["save", "-q"]],
    &[&["status"], &["save", "-q"]],
    &[&["gc", "--yes"], &["save", "-q"]],
    &[&["check"], &["log"], &["save", "-q"]],
    &[&["lease", "take", "f1"], &["save", "-q"]],
];

struct Kills<'a> {
    player: Player<'a>,
    counts: &'a Counts,
    forgets: bool,
}

impl Kills<'_> {
    /// Kills a verb that makes `after` of `before`, then lets another verb find it, which may be killed too.
    fn cut(&self, verb: &[&str], before: &Tree, after: &Tree) {
        let player = &self.player;
        // The control needs a restore that is cut in the middle, however slow the machine is.
        let killed = if self.forgets && verb[0] == "restore" {
            strace::run(&player.command(verb), KillAt::new(&["renameat2"], [2, 3, 4, 5, 6, 7][player.random.below(6)]))
                .killed()
        } else {
            player.kill(verb).killed()
        };
        self.counts.add(format!("{}{}", verb[0], if killed { " killed" } else { " ended before its kill" }));
        if self.forgets {
            delete_all(&player.world().state(), "restoring");
        }
        if killed && player.random.one_in(3) && player.kill(&["save", "-q"]).killed() {
            self.counts.add("recoveries killed");
        }
        for next in NEXT[player.random.below(NEXT.len())] {
            player.does(*next);
        }
        let found = is_one_of(&player.tree(), &[before, after], &format!("{verb:?}"));
        self.counts.add(["found undone", "found done"][found]);
        // What wasn't done is done now.
        if found == 0 && before != after {
            player.does(verb);
            is_one_of(&player.tree(), &[after], &format!("{verb:?}, again"));
        }
    }
}

fn files(random: &SeededRandom, counts: &Counts, forgets: bool) {
    let kills = Kills { player: Player::new(random), counts, forgets };
    let player = &kills.player;
    player.scribble();
    let mut saved = vec![(player.save(), player.tree())];
    for _ in 0..3 {
        player.scribble();
        let target = player.tree();
        kills.cut(&["save"], &target, &target);
        saved.push((player.save(), target));
        player.scribble();
        let before = player.tree();
        let (id, target) = saved[random.below(saved.len())].clone();
        kills.cut(&["restore", &id, "--exact", "--yes"], &before, &target);
        if before != target {
            kills.cut(&["undo", "--yes"], &target, &before);
            kills.cut(&["redo", "--yes"], &before, &target);
        }
        kills.cut(&["gc", "--yes"], &target, &target);
        player.does(["check", "--deep"]);
        let (id, target) = &saved[random.below(saved.len())];
        player.does(["restore", id, "--exact", "--yes"]);
        is_one_of(&player.tree(), &[target], "a restore");
        counts.add("checkpoints restored to the byte");
    }
}

/// A guard that is killed with its program, or alone: what the program did is there, and is taken back by file.
fn guarded(random: &SeededRandom, counts: &Counts) {
    let player = Player::new(random);
    player.scribble();
    let start = player.save();
    let before = player.tree();
    let lines = (0..6).map(|_| {
        let name = ["made", "f1", "f2", "sub/f3"][random.below(4)];
        format!("mkdir -p sub; [ -d {name} ] || [ -h {name} ] || echo {} > {name}; sleep 0.03;", random.next_u64())
    });
    let script: String = lines.collect();
    let killed = player.kill(&["guard", "-q", "--quiet-for", "0.05", "--", "sh", "-c", &script]).killed();
    counts.add(if killed { "guard killed" } else { "guard ended before its kill" });
    let after = player.tree();
    player.does(["save", "-q"]);
    is_one_of(&player.tree(), &[&after], "a save behind a killed guard");
    let undone = player.piton(["undo", "--yes", "--conflict", "current"]).success();
    counts.add(if undone { "sessions taken back" } else { "sessions without anything to take back" });
    for (path, found) in player.tree() {
        let known = [&before, &after].iter().any(|tree| tree.get(&path) == Some(&found));
        assert!(known, "{} is neither as it was before the program nor as it left it", path.display());
    }
    player.does(["restore", &start, "--exact", "--yes"]);
    is_one_of(&player.tree(), &[&before], "a restore of what was before the guard");
    player.does(["check", "--deep"]);
}

/// Commands one after the other and side by side, each of which leaves a line when it begins.
const FLOW: &str = r#"
nodes:
  - {id: in, data: {type: start, variables: [{variable: topic, required: true}]}}
  - id: one
    data: {type: command, checkpoint: true, command: [sh, -c, 'echo one >> begun; sleep 0.02; echo "about $1"', sh, '{{#in.topic#}}']}
  - {id: two, data: {type: command, command: [sh, -c, 'echo two >> begun; sleep 0.02; echo two']}}
  - {id: three, data: {type: command, command: [sh, -c, 'echo three >> begun; sleep 0.01; echo three']}}
  - id: join
    data: {type: template-transform, template: '{{ a }}+{{ b }}', variables: [{variable: a, value_selector: [two, stdout]}, {variable: b, value_selector: [three, stdout]}]}
  - {id: four, data: {type: command, checkpoint: true, command: [sh, -c, 'echo four >> begun; echo "$1"', sh, '{{#join.output#}}']}}
  - {id: out, data: {type: end, outputs: [{variable: text, value_selector: [four, stdout]}, {variable: about, value_selector: [one, stdout]}]}}
edges:
  - {source: in, target: one}
  - {source: one, target: two}
  - {source: one, target: three}
  - {source: two, target: join}
  - {source: three, target: join}
  - {source: join, target: four}
  - {source: four, target: out}
"#;

const COMMANDS: [&str; 4] = ["one", "two", "three", "four"];

fn workflow(random: &SeededRandom, counts: &Counts, forgets: bool) {
    let player = Player::new(random);
    player.world().write("flow.yml", FLOW);
    let run = ["run", "flow.yml", "-i", "topic=bees", "--id", "x", "--json"];
    let begun = |node: &str| player.world().lines("begun").iter().filter(|line| *line == node).count();
    // How often a command had begun when it was told of as finished.
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    let outcome = (0..30).find_map(|round| {
        // By its document or by its id, which exists from some moment on.
        let resume = round > 3 && random.one_in(2);
        let arguments = if resume { &["resume", "x", "--json"][..] } else { &run };
        let said = if round < 20 && !forgets { player.kill(arguments) } else { player.piton(arguments) };
        counts.add(if said.killed() { "runs killed" } else { "runs that ended" });
        for node in COMMANDS {
            if said.stderr.lines().any(|line| line == format!("{node}: finished")) {
                told.entry(node).or_insert_with(|| begun(node));
            }
        }
        for (node, count) in &told {
            assert_eq!(begun(node), *count, "{node} was told of as finished and began again");
        }
        if forgets {
            // There may be none yet.
            let _ = std::fs::remove_dir_all(player.world().root().join("home"));
        }
        // One that forgets is asked once more.
        (said.success() && !(forgets && round == 0)).then_some(said.stdout)
    });
    let outcome: Json = serde_json::from_str(&outcome.expect("it gets on every time")).unwrap();
    assert_eq!(outcome["outputs"], serde_json::json!({"text": "two\n+three\n\n", "about": "about bees\n"}));
    counts.add_many("commands told of as finished, none begun again", told.len());
    player.does(["check", "--deep"]);
}
