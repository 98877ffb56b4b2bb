//! What a resume needs (V1, V4, C6): the configuration that the run was begun with, and a whole checkpoint. And what one
//! damaged run means for the others.

use std::path::{Path, PathBuf};

use crate::world::{Said, World};

/// A question, and a program behind it.
const ASKS: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: ask, data: {type: human-input, prompt: 'Ship it?', variables: [{name: ok, type: boolean, required: true}]}}
  - {id: ship, data: {type: command, command: [sh, -c, 'echo x >> shipped']}}
  - {id: out, data: {type: end, outputs: []}}
edges: [{source: in, target: ask}, {source: ask, target: ship}, {source: ship, target: out}]
";

/// A run that was begun with a configuration and waits. Its audit file shows whether that is used.
fn waiting() -> World {
    let world = World::new();
    world.write("flow.yml", ASKS);
    world.write("piton.toml", "audit = \"audit.log\"\n");
    let asked = world.piton(["run", "flow.yml", "--id", "r", "--config", "piton.toml"]);
    assert_eq!(asked.code, Some(3), "{}", asked.whole());
    world
}

fn noted(world: &World) -> usize {
    world.lines("audit.log").len()
}

fn resume(world: &World, more: &[&str]) -> Said {
    world.piton([&["resume", "r"], more].concat())
}

/// A resume finds the configuration that the run was begun with; one that was changed is used only if the user says so.
#[test]
fn a_resume_finds_the_configuration_that_the_run_was_begun_with() {
    let world = waiting();
    let before = noted(&world);
    assert!(before > 0);
    let asked = resume(&world, &[]);
    assert_eq!(asked.code, Some(3), "{}", asked.whole());
    let found = noted(&world);
    assert!(found > before, "it was used: {}", asked.whole());
    world.write("piton.toml", "audit = \"audit.log\"\n# changed\n");
    let refused = resume(&world, &[]);
    assert_eq!((refused.code, noted(&world)), (Some(4), found), "{}", refused.whole());
    assert!(refused.stderr.contains("piton.toml was changed since the run was begun"), "{}", refused.whole());
    let explained = resume(&world, &["--explain"]);
    assert_eq!(explained.code, Some(4), "{}", explained.whole());
    assert!(explained.stdout.contains("danger: config: "), "{}", explained.whole());
    let forced = resume(&world, &["--force"]);
    assert_eq!(forced.code, Some(3), "{}", forced.whole());
    assert!(noted(&world) > found);
    let named = resume(&world, &["--config", "piton.toml"]);
    assert_eq!(named.code, Some(3), "{}", named.whole());
    std::fs::remove_file(world.work().join("piton.toml")).unwrap();
    let gone = resume(&world, &[]);
    assert_eq!(gone.code, Some(3), "nothing pending needs it: {}", gone.whole());
    assert!(gone.stderr.contains("can't be read now; `--config FILE` names another"), "{}", gone.whole());
}

/// V1: a run that branches off goes on with the configuration of the one that it comes from, in another folder too.
#[test]
fn a_branch_goes_on_with_the_configuration_of_its_parent() {
    let world = waiting();
    assert_eq!(world.piton(["save"]).code, Some(0));
    let asked = world.piton(["run", "flow.yml", "--files", "--id", "f", "--config", "piton.toml"]);
    assert_eq!(asked.code, Some(3), "{}", asked.whole());
    for fork in [&["fork", "r", "--id", "b"][..], &["fork", "f", "--id", "c", "--into", "../there"]] {
        let forked = world.piton(fork);
        assert_eq!(forked.code, Some(0), "{}", forked.whole());
    }
    for (resume, folder) in [(&["resume", "b"][..], "."), (&["-C", "../there", "resume", "c"], "../there")] {
        // The file that it names is in the folder that is worked in.
        let noted = || world.lines(&format!("{folder}/audit.log")).len();
        let before = noted();
        let asked = world.piton(resume);
        assert_eq!(asked.code, Some(3), "{}", asked.whole());
        assert!(noted() > before && !asked.stderr.contains("isn't one that you began"), "{}", asked.whole());
    }
}

/// Decision 14: a run that came from elsewhere says nothing about which configuration is used.
#[test]
fn the_configuration_of_a_run_from_elsewhere_is_not_used() {
    let world = waiting();
    let other = format!("sqlite:{}", world.root().join("other.db").display());
    let moved =
        world.shell(&format!("piton export r > r.piton && piton import r.piton --store {other}")).output().unwrap();
    assert!(moved.status.success(), "{moved:?}");
    let before = noted(&world);
    let asked = world.piton(["resume", "r", "--store", &other]);
    assert_eq!((asked.code, noted(&world)), (Some(3), before), "{}", asked.whole());
    assert!(asked.stderr.contains("isn't one that you began here"), "{}", asked.whole());
    // Nor is it if the user's own record is lost.
    std::fs::remove_dir_all(world.state().join(".configured")).unwrap();
    let asked = resume(&world, &[]);
    assert_eq!((asked.code, noted(&world)), (Some(3), before), "{}", asked.whole());
}

/// Three checkpoints and a failure, in a store of plain files.
fn failed(world: &World, store: &str, id: &str) {
    let nodes = "
nodes:
  - {id: in, data: {type: start}}
  - {id: one, data: {type: command, checkpoint: true, command: [sh, -c, 'echo 1 >> done']}}
  - {id: two, data: {type: command, checkpoint: true, command: [sh, -c, 'echo 2 >> done']}}
  - {id: three, data: {type: command, command: [sh, -c, 'echo 3 >> done; test -e go']}}
  - {id: out, data: {type: end, outputs: []}}
edges: [{source: in, target: one}, {source: one, target: two}, {source: two, target: three}, {source: three, target: out}]
";
    world.write("long.yml", nodes);
    let ran = world.piton(["run", "long.yml", "--id", id, "--store", store]);
    assert_eq!(ran.code, Some(1), "{}", ran.whole());
}

/// The files of a run's entries, oldest first.
fn entries(world: &World, run: &str) -> Vec<PathBuf> {
    let folder = world.root().join("store/runs").join(run).join("entries");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    std::fs::write(path, bytes).unwrap();
}

/// V1: with its newest entries damaged, a run goes on from its newest whole checkpoint, as a new run, if that is wanted. The
/// damaged one stays.
#[test]
fn a_resume_goes_on_past_damage_if_that_is_wanted() {
    let world = World::new();
    let store = format!("file:{}", world.root().join("store").display());
    failed(&world, &store, "r");
    let all = entries(&world, "r");
    all[all.len() - 3..].iter().for_each(|path| damage(path));
    world.write("go", "");
    let refused = world.piton(["resume", "r", "--store", &store]);
    assert_eq!(refused.code, Some(4), "{}", refused.whole());
    assert!(refused.stderr.contains("damaged") && refused.stderr.contains("--fallback"), "{}", refused.whole());
    let kept: Vec<_> = entries(&world, "r").iter().map(|path| std::fs::read(path).unwrap()).collect();
    let done = world.lines("done");
    let went = world.piton(["resume", "r", "--store", &store, "--fallback", "--json"]);
    assert_eq!(went.code, Some(0), "{}", went.whole());
    assert!(went.stderr.contains("the log of run r is damaged behind r@"), "{}", went.whole());
    assert!(world.lines("done").len() > done.len() && world.lines("done").last().unwrap() == "3");
    assert_eq!(world.lines("done").iter().filter(|line| *line == "1").count(), 1, "what is whole isn't done again");
    let after: Vec<_> = entries(&world, "r").iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(kept, after, "the damaged run stays as it is");
}

/// One damaged run is listed as such; the others go on.
#[test]
fn one_damaged_run_is_in_no_other_runs_way() {
    let world = World::new();
    let store = format!("file:{}", world.root().join("store").display());
    failed(&world, &store, "r");
    failed(&world, &store, "whole");
    entries(&world, "r").iter().for_each(|path| damage(path));
    let piton = |verb: &[&str]| world.piton(["--store", &store].iter().chain(verb));
    for verb in [&["ls"][..], &["ls", "--failed"], &["status"]] {
        let said = piton(verb);
        assert_eq!(said.code, Some(0), "{verb:?}: {}", said.whole());
    }
    let listed = piton(&["ls"]);
    assert!(listed.stdout.lines().any(|line| line.starts_with("r ") && line.contains("damaged")), "{}", listed.whole());
    assert!(
        listed.stdout.lines().any(|line| line.starts_with("whole") && line.contains("failed")),
        "{}",
        listed.whole()
    );
    world.write("go", "");
    assert_eq!(piton(&["resume", "whole"]).code, Some(0));
    assert_ne!(piton(&["show", "r"]).code, Some(0), "the control");
}

/// A guarded secret: what looks like one is said once, with the way to guard it.
#[test]
fn a_save_says_once_which_files_look_like_secrets() {
    let world = World::new();
    let key = "OPENAI_API_KEY=sk-proj-4fXq9ZkL2mNpR7sTuVwY1aBcDeFgHiJkLmNoPqRsTuVwXyZ0\n";
    std::fs::create_dir(world.work().join("app")).unwrap();
    world.write("app/.env", key);
    world.write("notes.txt", key);
    let saved = world.piton(["save"]);
    assert_eq!(saved.code, Some(0), "{}", saved.whole());
    assert!(saved.stderr.contains("there is a secret in app/.env"), "{}", saved.whole());
    assert!(!saved.stderr.contains("notes.txt"), "only what is made for secrets is looked at: {}", saved.whole());
    for way in ["--encrypt", ".pitonignore", "PITON_SECRETS"] {
        assert!(saved.stderr.contains(way), "{way}: {}", saved.whole());
    }
    world.write("app/.env", &format!("{key}MODE=fast\n"));
    let again = world.piton(["save"]);
    assert_eq!((again.code, again.stderr.contains("secret")), (Some(0), false), "{}", again.whole());
    world.write(
        "deploy.pem",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq0Vd1p9n5\n-----END RSA PRIVATE KEY-----\n",
    );
    let other = world.piton(["save"]);
    assert!(other.stderr.contains("deploy.pem") && !other.stderr.contains("app/.env"), "{}", other.whole());
    let quiet = World::new();
    quiet.write(".env", key);
    let said = quiet.command(["save"]).env("PITON_SECRETS", "capture").output().unwrap();
    assert!(said.status.success() && !String::from_utf8_lossy(&said.stderr).contains("secret"), "{said:?}");
}

/// C5: a run that completes is thinned at once, by the rules of its store; one that can still go on isn't.
#[test]
fn the_checkpoints_of_a_run_are_thinned_when_it_completes() {
    let world = World::new();
    let node = |n: u32| format!("  - {{id: n{n}, data: {{type: command, checkpoint: true, command: ['true']}}}}\n");
    let nodes: String = (0..8).map(node).collect();
    let last = "  - {id: last, data: {type: command, command: [sh, -c, 'test -e go']}}\n  - {id: out, data: {type: end, outputs: []}}\n";
    let names: Vec<String> = (0..8).map(|n| format!("n{n}")).collect();
    let all: Vec<&str> = ["in"].into_iter().chain(names.iter().map(String::as_str)).chain(["last", "out"]).collect();
    let edges: Vec<String> =
        all.windows(2).map(|pair| format!("{{source: {}, target: {}}}", pair[0], pair[1])).collect();
    let start = "nodes:\n  - {id: in, data: {type: start}}\n";
    world.write("flow.yml", &format!("{start}{nodes}{last}edges: [{}]\n", edges.join(", ")));
    assert_eq!(world.piton(["save"]).code, Some(0));
    assert_eq!(world.piton(["gc", "--per-run", "3", "--remember", "--yes"]).code, Some(0));
    let removed = || {
        let listed = world.piton(["log", "r", "--all", "--json"]).stdout;
        let lines: Vec<serde_json::Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.iter().filter(|line| line["removed"] == true).count()
    };
    assert_eq!(world.piton(["run", "flow.yml", "--id", "r"]).code, Some(1));
    assert_eq!(removed(), 0, "it can still be retried from any of them");
    world.write("go", "");
    let done = world.piton(["resume", "r"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert!(removed() >= 5, "{}", world.piton(["log", "r"]).whole());
}
