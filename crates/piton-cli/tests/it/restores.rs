//! Restores, undos and redos that are cut short: by a kill at any system call, by a kill of the recovery, and by
//! the power. Promise 17. And the undo of a session that was killed.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use piton_testing::level::by_level;
use piton_testing::power::{Names, Recording};
use piton_testing::strace::{self, CHANGING, KillAt};

use crate::files::look;
use crate::world::{World, wait_until};

type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

const RESTORE: &[&str] = &["restore", "--yes", "--exact", "-q", "@~0"];
const UNDO: &[&str] = &["undo", "--yes", "-q"];
const REDO: &[&str] = &["redo", "--yes", "-q"];

/// Whatever command comes next that changes something; it finishes what was left.
const NEXT: &[&str] = &["save", "-q"];

/// A folder and its store just before a command that changes files, kept to begin again from.
struct Stage {
    world: World,
    command: &'static [&'static str],
    /// What takes the command back.
    inverse: &'static [&'static str],
    before: Tree,
    after: Tree,
}

impl Stage {
    /// A checkpoint, and a folder that differs from it in every way.
    fn new() -> Self {
        let world = World::new();
        let work = world.work();
        // A power cut leaves new files readable by their owner only, and so are all of them here.
        let make = |name: &str, text: &str| {
            let path = work.join(name);
            let folder = path.parent().unwrap();
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(&path, text).unwrap();
            let mode =
                |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            mode(&path, 0o600);
            mode(folder, 0o700);
        };
        for name in ["same", "changed", "gone", "d/gone", "kind"] {
            make(name, "0");
        }
        // More than one block, so that a power cut can leave some of it.
        make("long", &"0123456789abcdef".repeat(2_000));
        symlink("same", work.join("link")).unwrap();
        assert_eq!(world.piton(["save"]).code, Some(0));
        let after = look(&work);
        make("changed", "1");
        make("long", "1");
        std::fs::remove_file(work.join("gone")).unwrap();
        std::fs::remove_dir_all(work.join("d")).unwrap();
        std::fs::remove_file(work.join("link")).unwrap();
        symlink("changed", work.join("link")).unwrap();
        std::fs::remove_file(work.join("kind")).unwrap();
        make("kind/new", "1");
        let before = look(&work);
        let stage = Self { world, command: RESTORE, inverse: UNDO, before, after };
        stage.keep("start");
        stage
    }

    /// The stage after this one's command has been done: before the command that takes it back.
    fn next(self) -> Self {
        self.reset("start");
        self.does(self.command, &self.after);
        let inverse = if self.inverse == UNDO { REDO } else { UNDO };
        let stage = Self { command: self.inverse, inverse, before: self.after, after: self.before, world: self.world };
        stage.keep("start");
        stage
    }

    /// Runs a command, after which the folder must be this.
    fn does(&self, command: &[&str], expected: &Tree) {
        let said = self.world.piton(command);
        assert_eq!(said.code, Some(0), "{command:?}: {}", said.stderr);
        assert_eq!(look(&self.world.work()), *expected, "{command:?}");
    }

    fn copy(from: &Path, to: &Path) {
        if to.exists() {
            std::fs::remove_dir_all(to).unwrap();
        }
        assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
    }

    /// Keeps folder and store as they are under this name.
    fn keep(&self, name: &str) {
        let place = self.world.root().join("kept").join(name);
        std::fs::create_dir_all(&place).unwrap();
        for part in ["work", "home"] {
            Self::copy(&self.world.root().join(part), &place.join(part));
        }
    }

    /// Puts back what was kept.
    fn reset(&self, name: &str) {
        for part in ["work", "home"] {
            Self::copy(&self.world.root().join("kept").join(name).join(part), &self.world.root().join(part));
        }
    }

    /// Every call of a command that changes something in the folder or the store.
    fn points(&self, kept: &str, command: &[&str]) -> Vec<KillAt> {
        self.reset(kept);
        let trace = strace::trace(&self.world.command(command), CHANGING, 0);
        assert!(trace.finished.success(), "{}", trace.finished.stderr);
        assert_eq!(look(&self.world.work()), self.after);
        trace.kill_points(&self.world.root()).points
    }

    /// Kills the command at a point; false if it got to its end.
    fn kill(&self, kept: &str, command: &[&str], point: &KillAt) -> bool {
        self.reset(kept);
        strace::run(&self.world.command(command), point.clone()).killed()
    }

    /// What the next command makes of it is the old or the new, and the new can be taken back; true if it is the
    /// new.
    fn is_whole(&self, what: &str) -> bool {
        let said = self.world.piton(NEXT);
        assert_eq!(said.code, Some(0), "{what}: {}", said.stderr);
        let found = look(&self.world.work());
        if found != self.after {
            assert_eq!(found, self.before, "{what}: neither the old nor the new");
            return false;
        }
        self.does(self.inverse, &self.before);
        true
    }

    /// Kills the command at some of its points; what was begun is finished afterwards.
    fn kills(&self, most: usize) {
        let points = self.points("start", self.command);
        assert!(points.len() > 40, "{} points", points.len());
        let (mut killed, mut finished) = (0, 0);
        for point in sampled(points, most) {
            if self.kill("start", self.command, &point) {
                killed += 1;
                finished += usize::from(self.is_whole(&format!("{:?} at {point:?}", self.command)));
            }
        }
        assert!(
            killed > 4 && finished > 0 && finished < killed,
            "{:?}: {killed} kills, {finished} finished",
            self.command
        );
    }
}

fn sampled(points: Vec<KillAt>, most: usize) -> Vec<KillAt> {
    let step = points.len().div_ceil(most).max(1);
    points.into_iter().step_by(step).collect()
}

#[test]
fn a_restore_killed_anywhere_is_finished_by_the_next_command_and_can_be_undone() {
    Stage::new().kills(by_level(12, 40, usize::MAX));
}

#[test]
fn an_undo_and_a_redo_killed_anywhere_are_finished_by_the_next_command() {
    let undo = Stage::new().next();
    undo.kills(by_level(8, 16, usize::MAX));
    undo.next().kills(by_level(8, 16, usize::MAX));
}

/// The recovery is killed too, at any of its calls, and again.
#[test]
fn a_recovery_killed_anywhere_is_finished_by_the_one_after() {
    let stage = Stage::new();
    let renames = stage.points("start", RESTORE).into_iter().filter(|point| point.syscalls == ["renameat2"]);
    let renames: Vec<_> = renames.collect();
    let middle = &renames[renames.len() / 2];
    assert!(stage.kill("start", RESTORE, middle));
    let torn = look(&stage.world.work());
    assert!(torn != stage.before && torn != stage.after, "{middle:?} isn't in the middle");
    stage.keep("torn");
    let mut killed = 0;
    for point in sampled(stage.points("torn", NEXT), by_level(8, 24, usize::MAX)) {
        if !stage.kill("torn", NEXT, &point) {
            continue;
        }
        killed += 1;
        // And once more in the middle of the next, if it gets there.
        let _ = strace::run(&stage.world.command(NEXT), KillAt::new(&["renameat2"], 1));
        assert!(stage.is_whole(&format!("recovery at {point:?}")), "{point:?}: what was begun was given up");
    }
    println!("{killed} kills of a recovery");
    assert!(killed > 4, "{killed} kills");
}

/// The negative control of the tests above: if the next command doesn't know that there was a restore, they find torn
/// trees.
#[test]
fn the_same_kills_are_found_if_nobody_recovers() {
    let stage = Stage::new();
    // What tears a tree are kills between two renames: whichever of all points the others sample, here are some.
    let renames = stage.points("start", RESTORE).into_iter().filter(|point| point.syscalls == ["renameat2"]).collect();
    let torn = sampled(renames, by_level(12, 40, usize::MAX)).into_iter().filter(|point| {
        let killed = stage.kill("start", RESTORE, point);
        let mark = Command::new("find").arg(stage.world.state()).args(["-name", "restoring", "-delete"]).status();
        assert!(mark.unwrap().success());
        assert_eq!(stage.world.piton(NEXT).code, Some(0));
        let found = look(&stage.world.work());
        killed && found != stage.before && found != stage.after
    });
    assert!(torn.count() > 0, "the harness can't tell a torn restore from a whole one");
}

/// The power fails at any moment of a restore: after the next command the folder is the old or the new, and the
/// new if the restore had said that it was done.
#[test]
fn a_power_cut_during_a_restore_leaves_the_old_or_the_new() {
    let stage = Stage::new();
    let root = stage.world.root();
    // The copy to begin again from is no part of the disk.
    std::fs::remove_dir_all(root.join("kept")).unwrap();
    let mut recording = Recording::record(&stage.world.command(RESTORE), &root);
    assert!(recording.finished.success(), "{}", recording.finished.stderr);
    let count = by_level(16, 48, usize::MAX).min(4 * recording.steps());
    let (mut old, mut new) = (0, 0);
    for names in [Names::DirectorySync, Names::Journal] {
        recording = recording.with_names(names);
        for (cut, seed) in recording.cuts(count / 2, 20_261_116) {
            let image = recording.materialise(cut, seed);
            for part in ["work", "home"] {
                Stage::copy(&image.dir.path().join(part), &root.join(part));
            }
            reboot(&stage.world.state());
            let is_new = stage.is_whole(&format!("{names:?}, cut {cut}, seed {seed}, after {}", image.last));
            *(if is_new { &mut new } else { &mut old }) += 1;
            assert!(is_new || image.acknowledged.is_empty(), "cut {cut}, seed {seed}: it had said that it was done");
        }
    }
    println!("{count} cuts over {} steps and {} syncs: {old} old, {new} new", recording.steps(), recording.syncs());
    assert!(old > 0 && new > 0, "{old} old, {new} new");
}

/// Guards a script that makes a file and goes on, kills the guard as soon as `is_time`, and then the script. The newest
/// checkpoint by then.
fn guard_and_kill(world: &World, file: &str, quiet_for: &str, is_time: impl Fn(&serde_json::Value) -> bool) -> String {
    let script = format!("echo $$ > ../pid; echo agent > {file}; exec sleep 60");
    let mut guard =
        world.command(["guard", "-q", "--quiet-for", quiet_for, "--", "sh", "-c", &script]).spawn().unwrap();
    let status = || world.piton(["status", "--json"]).json();
    wait_until(|| world.work().join(file).exists() && is_time(&status()));
    guard.kill().unwrap();
    guard.wait().unwrap();
    let pid = std::fs::read_to_string(world.root().join("pid")).unwrap();
    assert!(world.program("kill", ["-KILL", pid.trim()]).status().unwrap().success());
    status()["checkpoint"].as_str().unwrap().to_owned()
}

/// A guard that was killed has closed nothing. Its session is the newest all the same, and the first to be taken back;
/// what came after its last checkpoint stays.
#[test]
fn the_session_of_a_guard_that_was_killed_is_undone_before_an_older_one() {
    let world = World::new();
    let has = |name: &str| world.work().join(name).exists();
    world.write("base", "0");
    assert_eq!(world.piton(["guard", "-q", "--", "sh", "-c", "echo one > older"]).code, Some(0));
    let last = guard_and_kill(&world, "killed", "0.1", |status| status["changes"] == serde_json::json!([]));
    world.write("mine", "1");
    let planned = world.piton(["undo", "--dry-run"]);
    assert!(planned.stdout.contains("delete  killed") && !planned.stdout.contains("mine"), "{}", planned.stdout);
    let said = world.piton(["undo", "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let shown = last.split_once('@').map(|(_, number)| format!("guard-2@{number}")).unwrap();
    assert!(said.stderr.contains(&format!("up to its last checkpoint, {shown}, is taken back")), "{}", said.stderr);
    assert!(!has("killed") && has("older") && has("mine"));
    assert_eq!(world.piton(["undo", "--yes"]).code, Some(0));
    assert!(!has("older") && has("mine"), "the older one is the next");
    for _ in 0..2 {
        assert_eq!(world.piton(["redo", "--yes"]).code, Some(0));
    }
    assert!(has("killed") && has("older"));
    let (run, _) = last.split_once('@').unwrap();
    assert_eq!(world.piton(["undo", run, "--yes"]).code, Some(0));
    assert!(!has("killed") && has("older"), "by its run");
}

/// If a guard is killed before its first checkpoint, piton doesn't know what the agent changed. It says so, and takes
/// no older session back in its place.
#[test]
fn a_guard_that_was_killed_without_a_checkpoint_is_named_and_nothing_is_undone() {
    let world = World::new();
    let has = |name: &str| world.work().join(name).exists();
    world.write("base", "0");
    assert_eq!(world.piton(["guard", "-q", "--", "sh", "-c", "echo one > older"]).code, Some(0));
    let start = guard_and_kill(&world, "killed", "60", |_| true);
    let (run, number) = start.split_once('@').unwrap();
    for arguments in [&["undo", "--yes"][..], &["undo", run, "--yes"], &["undo", &start, "--yes"]] {
        let said = world.piton(arguments);
        assert_eq!(said.code, Some(4), "{}", said.stderr);
        assert!(said.stderr.contains(&format!("`piton restore guard-2@{number}` takes back all")), "{}", said.stderr);
        assert!(has("killed") && has("older"));
    }
    assert_eq!(world.piton(["restore", &start, "--yes"]).code, Some(0));
    assert!(!has("killed") && has("older"));
    assert_eq!(world.piton(["undo", "--yes"]).code, Some(0));
    assert!(has("killed") && has("older"), "the restore is the newest now");
}

/// After a power cut the machine is started again: what the store noted is from another boot.
fn reboot(state: &Path) {
    for place in std::fs::read_dir(state).unwrap() {
        let path = place.unwrap().path().join("store.db-lock");
        if let Ok(mut mark) = std::fs::read(&path) {
            mark.iter_mut().take(16).for_each(|byte| *byte ^= 0xff);
            std::fs::write(path, mark).unwrap();
        }
    }
}
