//! The verbs that work on files, as a user meets them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_testing::strace;
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{BINARY, World, without_ages};

/// Everything below a folder, as it is: the bytes of a file, where a link leads, the mode.
pub(crate) fn look(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    fn below(root: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let bytes = if metadata.is_symlink() {
                std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if metadata.is_dir() {
                below(root, &path, found);
                Vec::new()
            } else {
                std::fs::read(&path).unwrap()
            };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), (metadata.mode(), bytes));
        }
    }
    let mut found = BTreeMap::new();
    below(root, root, &mut found);
    found
}

fn git(world: &World, arguments: &[&str]) {
    let mut command = world.program("git", arguments);
    command.env("GIT_AUTHOR_NAME", "a").env("GIT_AUTHOR_EMAIL", "a@a");
    let said = command.env("GIT_COMMITTER_NAME", "a").env("GIT_COMMITTER_EMAIL", "a@a").output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

/// A repository with sources, secrets and things that are hidden.
fn repository() -> World {
    let world = World::new();
    std::fs::create_dir_all(world.work().join("src")).unwrap();
    std::fs::create_dir_all(world.work().join("target")).unwrap();
    world.write(".gitignore", "target/\n.env\n");
    world.write(".env", "SECRET=1\n");
    world.write("src/main.rs", "fn main() {}\n");
    world.write("target/out", "built\n");
    git(&world, &["init", "-q"]);
    git(&world, &["add", "."]);
    git(&world, &["commit", "-qm", "first"]);
    world
}

#[test]
fn save_status_diff_and_restore() {
    let world = World::new();
    world.write("a.txt", "one\ntwo\n");
    world.write(".pitonignore", "hidden\n");
    world.write("hidden", "x");
    let saved = world.piton(["save", "-m", "before"]);
    assert!(saved.stdout.ends_with("@1  2 files, 15 bytes, 1 not captured\n"), "{}", saved.whole());
    world.write("a.txt", "one\n2\n");
    world.write("b.txt", "new\n");
    let status = world.piton(["status", "--excluded", "--json"]).json();
    assert_eq!(
        status["changes"].to_string(),
        r#"[{"kind":"modified","path":"a.txt"},{"kind":"created","path":"b.txt"}]"#
    );
    assert_eq!(status["excluded"].to_string(), r#"[{"path":"hidden","reason":"pitonignore"}]"#);
    insta::assert_snapshot!(world.piton(["diff"]).whole(), @r"
    --- stdout
    M a.txt
    @@ -1,2 +1,2 @@
     one
    -two
    +2
    A b.txt
    @@ -0,0 +1 @@
    +new
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["diff", "--stat", "@"]).whole(), @r"
    --- stdout
    M a.txt  +1 -1
    A b.txt  +1 -0
    --- exit 0
    ");
    let plan = world.piton(["restore", "@", "--dry-run", "--json"]).json();
    assert_eq!(
        plan["changes"].to_string(),
        r#"[{"action":"write","added":1,"path":"a.txt","removed":1},{"action":"delete","added":0,"path":"b.txt","removed":1}]"#
    );
    let plan = world.piton(["restore", "@", "--dry-run"]).stdout;
    assert!(plan.ends_with(" in [ROOT]/work:\n  write   a.txt  +1 -1\n  delete  b.txt  +0 -1\n"), "{plan}");
    let before = look(&world.work());
    assert_eq!(world.piton(["restore", "@", "a.txt", "-q"]).code, Some(0));
    assert_eq!(std::fs::read_to_string(world.work().join("a.txt")).unwrap(), "one\ntwo\n");
    assert!(world.work().join("b.txt").exists());
    let undone = world.piton(["undo"]);
    assert_eq!(undone.code, Some(0), "{}", undone.stderr);
    assert_eq!(look(&world.work()), before);
    let list = world.piton(["checkpoint", "list", "--json"]);
    assert_eq!(list.stdout.lines().count(), 5);
    assert_eq!(world.piton(["checkpoint", "restore", "1"]).code, Some(0));
    assert!(!world.work().join("b.txt").exists());
    let unknown = world.piton(["checkpoint", "restore", "99"]);
    insta::assert_snapshot!(unknown.whole(), @r#"
    --- stderr
    error: there is no checkpoint "99" of this folder; /checkpoint list shows them
    --- exit 1
    "#);
    for looking in [&["ls"][..], &["ls", "--all"], &["log"], &["events", "--json", "@"]] {
        let said = world.piton(looking);
        assert!(!said.stderr.contains("damaged"), "{looking:?}: {}", said.whole());
    }
    let listed = world.piton(["ls"]);
    assert_eq!(listed.code, Some(0), "{}", listed.whole());
}

/// Decision 10: the user's git is never written, whatever the verb.
#[test]
fn the_repository_is_byte_identical_after_every_verb() {
    let world = repository();
    let before = look(&world.work().join(".git"));
    for arguments in [
        &["save"][..],
        &["status", "--excluded"],
        &["guard", "--", "sh", "-c", "echo x > src/main.rs; echo y > new"],
        &["diff"],
        &["diff", "@-", "@"],
        &["undo"],
        &["redo"],
        &["undo"],
        &["restore", "@~3", "--exact", "--yes"],
        &["checkpoint", "create", "x"],
        &["checkpoint", "list"],
        &["log"],
        &["log", "src/main.rs"],
        &["show"],
        &["ls"],
    ] {
        let said = world.piton(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.stderr);
        assert_eq!(look(&world.work().join(".git")), before, "{arguments:?}");
    }
}

/// An agent that runs `git clean -fdx` and `rm -rf` is undone completely; what no checkpoint had is named.
#[test]
fn cleaning_and_removing_is_undone() {
    let world = repository();
    let captured = |tree: BTreeMap<PathBuf, (u32, Vec<u8>)>| -> BTreeMap<_, _> {
        tree.into_iter().filter(|(path, _)| !path.starts_with(".git") && !path.starts_with("target")).collect()
    };
    let before = captured(look(&world.work()));
    let said = world.piton(["guard", "-q", "--", "sh", "-c", "git clean -qfdx; rm -rf src .gitignore; exit 3"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(3), ""));
    assert!(captured(look(&world.work())).is_empty());
    let plan = world.piton(["undo", "--dry-run", "--json"]).json();
    assert_eq!(
        plan["left"].to_string(),
        r#"[{"path":"target","reason":"it is gone, and was not captured: an ignored folder"}]"#
    );
    let said = world.piton(["undo"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(captured(look(&world.work())), before);
}

#[test]
fn a_guarded_program_has_its_exit_code_and_its_output() {
    let world = World::new();
    world.write("a", "0");
    let said = world.piton(["guard", "--", "sh", "-c", "echo out; echo err >&2; echo 1 > a; exit 7"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(7), "out\n"));
    let said_of_us = without_ages(&said.stderr);
    assert!(said_of_us.starts_with("err\npiton: 1 file changed\n  M a\npiton: `piton undo "), "{said_of_us}");
    assert_eq!(world.piton(["guard", "--", "sh", "-c", "kill -TERM $$"]).code, Some(143));
    let missing = world.piton(["guard", "--", "no-such-program"]);
    assert!(missing.code == Some(1) && missing.stderr.contains("can't start no-such-program"), "{}", missing.stderr);
    let said =
        world.piton(["guard", "--rollback-on-failure", "--json", "--", "sh", "-c", "echo 2 > a; echo x > b; false"]);
    assert_eq!((said.code, said.json()["rolled_back"].as_bool()), (Some(1), Some(true)));
    assert_eq!(std::fs::read_to_string(world.work().join("a")).unwrap(), "1\n");
    assert!(!world.work().join("b").exists());
}

#[test]
fn a_signal_is_passed_on() {
    let world = World::new();
    let script = "trap 'exit 9' TERM; echo ready > ready; while :; do sleep 0.05; done";
    let child = world.command(["guard", "-q", "--", "sh", "-c", script]).spawn().unwrap();
    while !world.work().join("ready").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(world.wait(child).code, Some(9));
    let said = world.piton(["status", "--json"]).json();
    assert_eq!(said["changes"].to_string(), "[]", "the last checkpoint was made all the same");
}

#[test]
fn a_folder_that_is_too_much_is_refused() {
    let world = World::new();
    let home = world.root().join("home");
    std::fs::create_dir_all(&home).unwrap();
    let said = world.piton_in(&home, ["save"]);
    assert_eq!(said.code, Some(4), "{}", said.stderr);
    assert!(said.stderr.contains("is your home folder"), "{}", said.stderr);
}

/// The user's own ignore rules are found where git finds them, whichever of its files names them.
#[test]
fn the_users_own_rules_are_those_of_git() {
    let world = repository();
    let home = world.root().join("home");
    std::fs::create_dir_all(home.join(".config/git")).unwrap();
    for (name, rule) in [(".config/git/ignore", "usual"), ("mine", "named"), ("other", "local"), ("third", "only")] {
        std::fs::write(home.join(name), format!("{rule}/\n")).unwrap();
        std::fs::create_dir(world.work().join(rule)).unwrap();
        world.write(&format!("{rule}/file"), "x");
    }
    let hidden = |variables: &[(&str, &Path)]| -> (Vec<&str>, i64) {
        let with = |mut command: std::process::Command| command.envs(variables.iter().copied()).output().unwrap();
        let ignored = |rule: &&str| {
            let said = with(world.program("git", ["check-ignore", "-q", &format!("{rule}/file")]));
            said.status.success()
        };
        let by_git = ["usual", "named", "local", "only"].into_iter().filter(ignored).collect();
        let said = with(world.command(["save", "--json"]));
        let saved: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        // Besides `.git` and `target`.
        (by_git, saved["excluded"].as_i64().unwrap() - 2)
    };
    assert_eq!(hidden(&[]), (vec!["usual"], 1));
    std::fs::write(home.join(".config/git/config"), "[core]\n\texcludesFile = ~/third\n").unwrap();
    assert_eq!(hidden(&[]), (vec!["only"], 1));
    std::fs::write(home.join(".gitconfig"), "[core] excludesfile = \"~/mine\" # ours\n").unwrap();
    assert_eq!(hidden(&[]), (vec!["named"], 1));
    assert_eq!(hidden(&[("GIT_CONFIG_GLOBAL", &home.join(".config/git/config"))]), (vec!["only"], 1));
    git(&world, &["config", "core.excludesFile", home.join("other").to_str().unwrap()]);
    assert_eq!(hidden(&[]), (vec!["local"], 1));
    git(&world, &["config", "core.excludesFile", ""]);
    assert_eq!(hidden(&[]), (vec![], 0));
}

/// What a repository says of the user's rules may lead anywhere; the command neither waits there nor reads without end.
#[test]
fn rules_that_are_no_file_are_none() {
    let world = repository();
    let fifo = world.root().join("fifo");
    assert!(world.program("mkfifo", [&fifo]).status().unwrap().success());
    for path in [&*fifo, Path::new("/dev/zero"), &world.root(), &world.root().join("missing")] {
        git(&world, &["config", "core.excludesFile", path.to_str().unwrap()]);
        let said = world.program("timeout", ["20", BINARY, "save"]).output().unwrap();
        assert_eq!(said.status.code(), Some(0), "{}: {}", path.display(), String::from_utf8_lossy(&said.stderr));
    }
}

/// No unchanged file is opened, neither by a save nor by a restore.
#[test]
fn unchanged_files_are_not_opened() {
    let world = World::new();
    for n in 0..40 {
        std::fs::create_dir_all(world.work().join(format!("d{}", n % 4))).unwrap();
        world.write(&format!("d{}/{n}", n % 4), "same");
    }
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(world.piton(["save"]).code, Some(0));
    let opened = |arguments: &[&str]| -> Vec<String> {
        let trace = strace::trace(&world.command(arguments), &["openat", "openat2", "open"], 0);
        assert!(trace.finished.success(), "{}", trace.finished.stderr);
        let files = trace.calls.iter().filter_map(|call| call.opened.as_ref()).map(|opened| opened.path.clone());
        let inside = files.filter_map(|path| path.strip_prefix(world.work()).ok().map(Path::to_owned));
        let mut names: Vec<_> = inside.filter(|path| world.work().join(path).is_file()).collect();
        names.sort();
        names.dedup();
        names.iter().map(|path| path.display().to_string()).collect()
    };
    assert_eq!(opened(&["save"]), Vec::<String>::new());
    world.write("d1/1", "changed");
    std::fs::remove_file(world.work().join("d2/2")).unwrap();
    assert_eq!(opened(&["restore", "@", "--yes"]), ["d1/1", "d2/2"], "for the backup and the cache");
}

#[test]
fn the_log_of_a_path_has_the_checkpoints_in_which_it_changed() {
    let world = repository();
    world.piton(["save", "-m", "first"]);
    world.write("src/other.rs", "x\n");
    world.piton(["save", "-m", "other"]);
    let guarded = world.piton(["guard", "--json", "--", "sh", "-c", "echo y > src/main.rs; echo x > new"]).json();
    std::fs::remove_file(world.work().join("src/main.rs")).unwrap();
    world.piton(["save", "-m", "gone"]);
    let log = |arguments: &[&str]| -> Vec<(String, String)> {
        let said = world.piton([&["log", "--json"], arguments].concat());
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        let entries = said.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        entries.map(|entry| (text(&entry["label"]), entry["changes"].to_string())).collect()
    };
    let change = |kind: &str| format!(r#"[{{"kind":"{kind}","path":"src/main.rs"}}]"#);
    let entry = |label: &str, kind: &str| (label.to_owned(), change(kind));
    let all = [entry("gone", "deleted"), entry("session ended", "modified"), entry("first", "created")];
    assert_eq!(log(&["--", "src/main.rs"]), all, "it is gone, so it has to stand behind the dashes");
    assert_eq!(log(&["-n", "1", "--", "src/main.rs"]), all[..1]);
    let run = guarded["run"].as_str().unwrap();
    assert_eq!(log(&[run, "--", "src/main.rs"]), all[1..2]);
    assert_eq!(log(&["src/other.rs"]).len(), 1, "a path that reads like a step of a run");
    assert_eq!(log(&["src/"]).len(), 4, "a folder: all that changed in it");
    assert_eq!(log(&["./src", "--", "new"]).len(), 4);
    let said = world.piton(["log", "src/none.rs"]);
    assert_eq!(said.code, Some(1), "{}", said.whole());
    let table = world.piton(["log", "src"]).stdout;
    assert!(table.contains("A src/other.rs") && table.contains("D src/main.rs"), "{table}");
}

/// A path that is nowhere is a slip of the pen, and not a success.
#[test]
fn a_path_that_is_nowhere_is_not_restored() {
    let world = World::new();
    world.write("a.txt", "one");
    assert_eq!(world.piton(["save"]).code, Some(0));
    world.write("new.txt", "new");
    for arguments in [&["restore", "@", "a.tx", "--yes"][..], &["restore", "@", "a.txt", "a.tx", "--dry-run"]] {
        let said = world.piton(arguments);
        assert_eq!(said.code, Some(1), "{}", said.whole());
        assert!(said.stderr.contains("nor the folder has a.tx\n"), "{}", said.stderr);
    }
    std::fs::remove_file(world.work().join("a.txt")).unwrap();
    for path in ["a.txt", "new.txt", "."] {
        let said = world.piton(["restore", "@", path, "--yes"]);
        assert_eq!(said.code, Some(0), "{path}: {}", said.whole());
    }
    assert_eq!(std::fs::read_to_string(world.work().join("a.txt")).unwrap(), "one");
}

/// A program that deletes the folder in which it runs: that is said, with the way back. If it makes it again, what is in
/// it then is what it left.
#[test]
fn a_program_that_deletes_its_folder_is_told_of() {
    let world = World::new();
    world.write("a.txt", "one");
    let shown = world.work().display().to_string();
    let gone = world.piton(["guard", "--", "rm", "-rf", &shown]);
    assert_eq!(gone.code, Some(0), "{}", gone.whole());
    assert!(
        gone.stderr.contains("error: the program deleted [ROOT]/work, the folder that it ran in"),
        "{}",
        gone.stderr
    );
    assert!(gone.stderr.contains("`piton -C [ROOT]/work restore "), "{}", gone.stderr);
    std::fs::create_dir(world.work()).unwrap();
    let run = world.piton(["ls", "--json"]).json();
    assert_eq!(run["status"], "failed");
    let restored = world.piton(["restore", &format!("{}@2", run["id"].as_str().unwrap()), "--yes"]);
    assert_eq!(restored.code, Some(0), "{}", restored.whole());
    assert_eq!(std::fs::read_to_string(world.work().join("a.txt")).unwrap(), "one");

    let script = format!("echo two > a.txt; mv {shown} {shown}-now");
    let moved = world.piton(["guard", "--", "sh", "-c", &script]);
    assert_eq!(moved.code, Some(0), "{}", moved.whole());
    assert!(moved.stderr.contains("error: the program moved [ROOT]/work, the folder"), "{}", moved.stderr);
    let now = world.root().join("work-now");
    let (_, checkpoint) = moved.stderr.split_once("`piton restore ").unwrap();
    let restored = world.piton_in(&now, ["restore", checkpoint.split('`').next().unwrap(), "--yes"]);
    assert_eq!(restored.code, Some(0), "{}", restored.whole());
    std::fs::rename(now, world.work()).unwrap();
    assert_eq!(std::fs::read_to_string(world.work().join("a.txt")).unwrap(), "one");

    let script = format!("cd / && rm -rf {shown} && mkdir {shown} && echo two > {shown}/b.txt");
    let replaced = world.piton(["guard", "--json", "--", "sh", "-c", &script]);
    assert_eq!(replaced.code, Some(0), "{}", replaced.whole());
    assert_eq!(replaced.json()["changes"].as_array().unwrap().len(), 2);
    assert_eq!(world.piton(["undo", "--yes"]).code, Some(0));
    assert_eq!(std::fs::read_to_string(world.work().join("a.txt")).unwrap(), "one");
    assert!(!world.work().join("b.txt").exists());

    let world = World::new();
    assert_eq!(world.piton(["init", "--here"]).code, Some(0));
    let gone = world.piton(["guard", "--", "rm", "-rf", world.work().to_str().unwrap()]);
    assert!(gone.code == Some(0) && gone.stderr.contains("its store was inside it"), "{}", gone.whole());
    std::fs::create_dir(world.work()).unwrap();
    assert_eq!(world.piton(["init", "--here"]).code, Some(0));
    let script = format!("cd / && rm -rf {0} && mkdir {0}", world.work().display());
    let replaced = world.piton(["guard", "--", "sh", "-c", &script]);
    assert!(replaced.code == Some(0) && replaced.stderr.contains("its store was inside it"), "{}", replaced.whole());
    assert_eq!(std::fs::read_dir(world.work()).unwrap().count(), 0, "nothing is left in the new one");
}

/// A living guard obeys `stop`: its program is told to end, killed if it doesn't, and the last checkpoint is made.
#[test]
fn a_guarded_program_is_stopped_with_its_run() {
    for (trap, grace, code) in [("exit 9", "60", 9), ("", "0", 137)] {
        let world = World::new();
        let script = format!("trap '{trap}' TERM; echo ready > ready; while :; do sleep 0.05; done");
        let child = world.command(["guard", "--json", "--", "sh", "-c", &script]).spawn().unwrap();
        while !world.work().join("ready").exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let run = world.piton(["ls", "--json"]).json()["run"].as_str().unwrap().to_owned();
        let said = world.piton(["stop", &run, "--grace", grace, "--json"]);
        assert_eq!(said.json()["request"], "asked", "{}", said.stderr);
        let guarded = world.wait(child);
        assert_eq!((guarded.code, &guarded.json()["status"]), (Some(code), &"paused".into()), "{}", guarded.stderr);
        let shown = world.piton(["show", &run, "--json"]).json();
        assert_eq!(shown["status"], "paused", "{shown}");
        let said = world.piton(["status", "--json"]).json();
        assert_eq!(said["changes"].to_string(), "[]", "the last checkpoint was made");
    }
}

/// The program's exit code is its own, whether or not a checkpoint could be made of what it left behind.
#[test]
fn a_guard_whose_last_checkpoint_failed_says_so_and_ends_as_its_program_did() {
    for json in [false, true] {
        let world = World::new();
        world.write("a", "0");
        let script = format!(
            "cd '{}'/*/store.db-files/.. && rm -rf store.db-files && : > store.db-files; exit 7",
            world.state().display()
        );
        let mut words = vec!["guard"];
        words.extend(json.then_some("--json"));
        words.extend(["--", "sh", "-c", &script]);
        let said = world.piton(words);
        assert_eq!(said.code, Some(7), "{}", said.stderr);
        assert!(said.stderr.contains("the last checkpoint could not be made"), "{}", said.stderr);
        if json {
            assert_eq!(said.json()["exit_code"], 7);
        }
    }
}
