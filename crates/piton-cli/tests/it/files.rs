//! The verbs that work on files, as a user meets them.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use piton_testing::strace::{self, CHANGING, KillAt};
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{World, without_ages};

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
        r#"[{"action":"write","path":"a.txt"},{"action":"delete","path":"b.txt"}]"#
    );
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
        &["show"],
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
        names.iter().map(|path| path.display().to_string()).collect()
    };
    assert_eq!(opened(&["save"]), Vec::<String>::new());
    world.write("d1/1", "changed");
    std::fs::remove_file(world.work().join("d2/2")).unwrap();
    assert_eq!(opened(&["restore", "@", "--yes"]), ["d1/1"], "only what is overwritten is read, for the backup");
}

const RESTORE: [&str; 5] = ["restore", "--yes", "--exact", "-q", "@~0"];

/// A world with a checkpoint and a folder that differs from it in every way, kept to begin again from.
struct Stage {
    world: World,
    copy: PathBuf,
    then: BTreeMap<PathBuf, (u32, Vec<u8>)>,
    now: BTreeMap<PathBuf, (u32, Vec<u8>)>,
}

impl Stage {
    fn new() -> Self {
        let world = World::new();
        let work = world.work();
        for (name, text) in [("same", "0"), ("changed", "0"), ("gone", "0"), ("d/gone", "0"), ("kind", "0")] {
            std::fs::create_dir_all(work.join(name).parent().unwrap()).unwrap();
            world.write(name, text);
        }
        symlink("same", work.join("link")).unwrap();
        assert_eq!(world.piton(["save"]).code, Some(0));
        let then = look(&work);
        world.write("changed", "1");
        std::fs::remove_file(work.join("gone")).unwrap();
        std::fs::remove_dir_all(work.join("d")).unwrap();
        std::fs::remove_file(work.join("link")).unwrap();
        symlink("changed", work.join("link")).unwrap();
        std::fs::remove_file(work.join("kind")).unwrap();
        std::fs::create_dir(work.join("kind")).unwrap();
        world.write("kind/new", "1");
        let now = look(&work);
        let copy = world.root().join("copy");
        let stage = Self { world, copy, then, now };
        stage.copy(&stage.world.root().join("work"), "work");
        stage.copy(&stage.world.root().join("home"), "home");
        stage
    }

    fn copy(&self, from: &Path, name: &str) {
        std::fs::create_dir_all(&self.copy).unwrap();
        let done = Command::new("cp").arg("-a").arg(from).arg(self.copy.join(name)).status().unwrap();
        assert!(done.success());
    }

    /// Puts everything back.
    fn reset(&self) {
        for name in ["work", "home"] {
            let place = self.world.root().join(name);
            std::fs::remove_dir_all(&place).unwrap();
            assert!(Command::new("cp").arg("-a").arg(self.copy.join(name)).arg(&place).status().unwrap().success());
        }
    }

    /// The points to kill at: every call that changes something in the folder or the store.
    fn points(&self) -> Vec<KillAt> {
        self.reset();
        let trace = strace::trace(&self.world.command(RESTORE), CHANGING, 0);
        assert!(trace.finished.success(), "{}", trace.finished.stderr);
        assert_eq!(look(&self.world.work()), self.then);
        let found = trace.kill_points(&self.world.root());
        assert!(found.points.len() > 40, "{} points", found.points.len());
        found.points
    }

    /// Kills at a point, lets the next command find it, and says what the folder is then.
    fn after_kill(&self, point: &KillAt, recover: bool) -> Option<BTreeMap<PathBuf, (u32, Vec<u8>)>> {
        self.reset();
        if !strace::run(&self.world.command(RESTORE), point.clone()).killed() {
            return None;
        }
        if !recover {
            // The negative control: nobody knows that there was a restore.
            let mark = Command::new("find").arg(self.world.state()).args(["-name", "restoring", "-delete"]).status();
            assert!(mark.unwrap().success());
        }
        let said = self.world.piton(["status", "-q"]);
        assert_eq!(said.code, Some(0), "{point:?}: {}", said.stderr);
        Some(look(&self.world.work()))
    }
}

fn sampled(points: Vec<KillAt>) -> Vec<KillAt> {
    let most = match std::env::var("PITON_TEST").as_deref() {
        Ok("full") => usize::MAX,
        Ok("quick") => 12,
        _ => 60,
    };
    let step = points.len().div_ceil(most).max(1);
    points.into_iter().step_by(step).collect()
}

/// Promise 17: killed at any system call, a restore is finished or hasn't begun, and is undone to the byte.
#[test]
fn a_restore_killed_anywhere_is_finished_by_the_next_command_and_can_be_undone() {
    let stage = Stage::new();
    let (mut killed, mut finished) = (0, 0);
    for point in sampled(stage.points()) {
        let Some(found) = stage.after_kill(&point, true) else { continue };
        killed += 1;
        if found == stage.then {
            finished += 1;
            let said = stage.world.piton(["undo", "--yes"]);
            assert_eq!(said.code, Some(0), "{point:?}: {}", said.stderr);
            assert_eq!(look(&stage.world.work()), stage.now, "{point:?}: undone");
        } else {
            assert_eq!(found, stage.now, "{point:?}: neither the old nor the new");
        }
    }
    println!("{killed} kills, {finished} of them finished afterwards");
    assert!(killed > 8 && finished > 0 && finished < killed, "{killed} kills, {finished} finished");
}

/// The negative control of the test above: without the mark, it finds trees that are neither.
#[test]
fn the_same_kills_are_found_if_nobody_recovers() {
    let stage = Stage::new();
    let points = sampled(stage.points());
    let torn = points
        .iter()
        .filter_map(|point| stage.after_kill(point, false))
        .filter(|found| *found != stage.then && *found != stage.now);
    assert!(torn.count() > 0, "the harness can't tell a torn restore from a whole one");
}
