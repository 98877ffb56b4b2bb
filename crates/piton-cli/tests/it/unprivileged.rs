//! Files that their user may not read or write. The superuser may do everything, so these run as the user `nobody`.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use piton_testing::strace::{self, KillAt};

use crate::world::{BINARY, World};

const NOBODY: &str = "65534";

fn as_nobody(world: &World, arguments: &[&str]) -> (Option<i32>, String, String) {
    let options = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", BINARY];
    let output = world.program("setpriv", options.iter().chain(arguments)).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A world that is to be given to the user `nobody`.
fn world() -> World {
    let world = World::new();
    std::fs::create_dir(world.root().join("home")).unwrap();
    world
}

fn give_away(world: &World) {
    let owner = format!("{NOBODY}:{NOBODY}");
    assert!(Command::new("chown").args(["-R", &owner]).arg(world.root()).status().unwrap().success());
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Promise 20: what can't be read is named, isn't captured, and is never deleted.
#[test]
fn unreadable_files_and_folders_are_named_and_left_alone() {
    let world = world();
    let work = world.work();
    world.write("plain", "0");
    world.write("secret", "0");
    std::fs::create_dir(work.join("closed")).unwrap();
    world.write("closed/inside", "0");
    give_away(&world);
    mode(&work.join("secret"), 0o000);
    mode(&work.join("closed"), 0o000);
    let (code, stdout, stderr) = as_nobody(&world, &["save"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("1 file, 1 byte, 2 not captured"), "{stdout}");
    let (_, stdout, _) = as_nobody(&world, &["status", "--excluded"]);
    assert!(stdout.contains("closed: unreadable") && stdout.contains("secret: unreadable"), "{stdout}");
    std::fs::write(work.join("plain"), "1").unwrap();
    let (code, _, stderr) = as_nobody(&world, &["restore", "@", "--exact", "--yes"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(std::fs::read_to_string(work.join("plain")).unwrap(), "0");
    assert_eq!(std::fs::read_to_string(work.join("closed/inside")).unwrap(), "0");
    assert_eq!(std::fs::read_to_string(work.join("secret")).unwrap(), "0");
    // As soon as they can be read, they are captured, though nothing else about them has changed.
    mode(&work.join("secret"), 0o600);
    mode(&work.join("closed"), 0o700);
    let (_, stdout, _) = as_nobody(&world, &["save"]);
    assert!(stdout.contains("3 files"), "{stdout}");
}

/// A file that became unreadable since is not overwritten, because no checkpoint would have it; and that is the reason
/// that is given.
#[test]
fn an_unreadable_file_is_not_overwritten() {
    let world = world();
    world.write("a", "0");
    give_away(&world);
    assert_eq!(as_nobody(&world, &["save"]).0, Some(0));
    std::fs::write(world.work().join("a"), "1").unwrap();
    mode(&world.work().join("a"), 0o000);
    let (code, _, stderr) = as_nobody(&world, &["restore", "@", "--yes"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("a: what is there can't be read, so no checkpoint has it, and it was left"), "{stderr}");
    assert_eq!(std::fs::read_to_string(world.work().join("a")).unwrap(), "1");
}

/// A folder that is read-only is written to all the same, and is read-only again afterwards.
#[test]
fn files_in_read_only_folders_come_back() {
    let world = world();
    let work = world.work();
    let folder = work.join("fixed");
    std::fs::create_dir(&folder).unwrap();
    world.write("fixed/changed", "0");
    world.write("fixed/gone", "0");
    give_away(&world);
    mode(&folder, 0o555);
    assert_eq!(as_nobody(&world, &["save"]).0, Some(0));
    std::fs::write(folder.join("changed"), "1").unwrap();
    std::fs::remove_file(folder.join("gone")).unwrap();
    std::fs::write(folder.join("new"), "1").unwrap();
    give_away(&world);
    let (code, _, stderr) = as_nobody(&world, &["restore", "@", "--exact", "--yes"]);
    assert_eq!(code, Some(0), "{stderr}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!((read("changed"), read("gone")), ("0".to_owned(), "0".to_owned()));
    assert!(!folder.join("new").exists());
    assert_eq!(folder.metadata().unwrap().mode() & 0o7777, 0o555);
    let (code, _, stderr) = as_nobody(&world, &["undo", "--yes"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!((read("changed"), read("new")), ("1".to_owned(), "1".to_owned()));
    assert_eq!(folder.metadata().unwrap().mode() & 0o7777, 0o555);
}

/// After a restore, an undo or a redo that could not be done whole the hint is pasted, and what was missing is done. Until the
/// cause is put right the same files are named again.
#[test]
fn the_hint_of_an_incomplete_restore_works_when_pasted() {
    for verb in ["restore", "undo", "redo"] {
        let world = world();
        let work = world.work();
        for folder in ["free", "locked"] {
            std::fs::create_dir(work.join(folder)).unwrap();
            world.write(&format!("{folder}/f"), "0");
            world.write(&format!("{folder}/other"), "0");
        }
        give_away(&world);
        let (_, saved, _) = as_nobody(&world, &["save"]);
        let id = saved.split_whitespace().next().unwrap();
        for folder in ["free", "locked"] {
            world.write(&format!("{folder}/f"), "1");
            world.write(&format!("{folder}/other"), "1");
        }
        give_away(&world);
        let done = |arguments: &[&str]| {
            let (code, _, stderr) = as_nobody(&world, arguments);
            assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
        };
        let restore = ["restore", id, "free/f", "locked/f", "--exact", "--yes"];
        match verb {
            "restore" => {}
            "undo" => done(&restore),
            _ => {
                done(&restore);
                done(&["undo", "--yes"]);
            }
        }
        let lock = |owner: &str| {
            let done = Command::new("chown").arg(owner).arg(work.join("locked")).status().unwrap();
            assert!(done.success());
        };
        lock("0:0");
        let command = if verb == "restore" { restore.to_vec() } else { vec![verb, "--yes"] };
        let (code, _, stderr) = as_nobody(&world, &command);
        assert_eq!(code, Some(1), "{verb}: {stderr}");
        assert!(stderr.contains("1 of 2 changes could not be made") && stderr.contains("locked/f"), "{stderr}");
        let hint = stderr.lines().find(|line| line.starts_with("hint: ")).unwrap();
        let (hint, _) = hint.split_once(" does what is missing").unwrap();
        let pasted = hint.split('`').nth(1).and_then(|line| line.strip_prefix("piton ")).unwrap();
        let paste = || {
            let line = format!("{BINARY} {pasted}");
            let options = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "sh", "-c", &line];
            world.program("setpriv", options).output().unwrap().status.code()
        };
        let wanted = if verb == "undo" { "1" } else { "0" };
        let read = |name: &str| std::fs::read_to_string(work.join(name)).unwrap();
        if verb == "restore" {
            assert_eq!((paste(), read("free/f"), read("locked/f")), (Some(1), wanted.into(), "1".into()));
        }
        lock(&format!("{NOBODY}:{NOBODY}"));
        assert_eq!(paste(), Some(0), "{pasted}");
        assert_eq!((read("free/f"), read("locked/f")), (wanted.into(), wanted.into()), "{verb}");
        assert_eq!((read("free/other"), read("locked/other")), ("1".into(), "1".into()), "{verb}: only what was named");
    }
}

/// Promise 16: a folder that is opened for a restore and swapped meanwhile for a link to another of the same user: that one keeps
/// its permissions. The negative control: by its path it loses them.
#[test]
fn a_folder_outside_is_not_opened_for_a_restore() {
    let world = world();
    let (work, outside) = (world.work(), world.root().join("outside"));
    let (folder, aside) = (work.join("fixed"), world.root().join("aside"));
    std::fs::create_dir(&outside).unwrap();
    std::fs::create_dir(&folder).unwrap();
    for n in 0..40 {
        world.write(&format!("fixed/{n}"), "0");
    }
    give_away(&world);
    let close = || [&folder, &outside].into_iter().for_each(|path| mode(path, 0o555));
    close();
    let (_, saved, _) = as_nobody(&world, &["save"]);
    let id = saved.split_whitespace().next().unwrap();
    let mut changed = 0;
    for _ in 0..8 {
        for n in 0..40 {
            world.write(&format!("fixed/{n}"), "1");
        }
        give_away(&world);
        close();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    // The restore may have taken the link away, or made the folder anew.
                    let _ = std::fs::rename(&folder, &aside);
                    let _ = std::os::unix::fs::symlink(&outside, &folder);
                    std::thread::yield_now();
                    let _ = std::fs::remove_file(&folder);
                    let _ = std::fs::rename(&aside, &folder);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
            // It may fail, or restore less: what counts is outside.
            as_nobody(&world, &["restore", id, "--exact", "--yes"]);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(outside.metadata().unwrap().mode() & 0o7777, 0o555);
        as_nobody(&world, &["save"]);
        let restored = |n: &i32| std::fs::read_to_string(folder.join(n.to_string())).is_ok_and(|text| text == "0");
        changed += (0..40).filter(restored).count();
        if aside.exists() {
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::rename(&aside, &folder).unwrap();
        }
        std::fs::create_dir_all(&folder).unwrap();
    }
    println!("{changed} files were restored meanwhile");
    std::os::unix::fs::symlink(&outside, &aside).unwrap();
    mode(&aside, 0o755);
    assert_eq!(outside.metadata().unwrap().mode() & 0o7777, 0o755);
}

/// Promise 17: a read-only folder that was opened for a restore which was then killed is read-only again after the next
/// command.
#[test]
fn a_folder_that_was_opened_for_a_killed_restore_is_closed_again() {
    let world = world();
    let work = world.work();
    let folder = work.join("fixed");
    std::fs::create_dir(&folder).unwrap();
    world.write("fixed/changed", "0");
    give_away(&world);
    mode(&folder, 0o555);
    let (code, saved, _) = as_nobody(&world, &["save"]);
    assert_eq!(code, Some(0));
    let id = saved.split_whitespace().next().unwrap();
    std::fs::write(folder.join("changed"), "1").unwrap();
    give_away(&world);
    let options = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", BINARY, "restore", id, "--exact", "--yes"];
    let command = world.program("setpriv", options);
    // The first exchange is refused; then the folder is widened, and the next one works. Only exchanges in this folder are
    // counted: calls are counted by thread, and other renames may have been done by the same thread or by another.
    let mut seen = 0;
    for when in 1..12 {
        let kill = KillAt { path: Some(folder.clone()), ..KillAt::new(&["renameat2"], when) };
        let killed = strace::run(&command, kill).killed();
        if !killed {
            break;
        }
        let widened = folder.metadata().unwrap().mode() & 0o7777 == 0o755;
        seen += usize::from(widened);
        let (code, _, stderr) = as_nobody(&world, &["save", "-q"]);
        assert_eq!(code, Some(0), "{stderr}");
        assert_eq!(folder.metadata().unwrap().mode() & 0o7777, 0o555, "killed at {when}");
        // Before its first exchange it hasn't begun.
        let finished = std::fs::read_to_string(folder.join("changed")).unwrap() == "0";
        assert!(finished || !widened, "killed at {when}: it was not finished");
        if finished {
            let (code, _, stderr) = as_nobody(&world, &["undo", "--yes"]);
            assert_eq!(code, Some(0), "{stderr}");
        }
    }
    assert!(seen > 0, "it was never killed while the folder was open");
}
