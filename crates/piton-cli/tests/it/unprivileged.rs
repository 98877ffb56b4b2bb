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
    assert!(stdout.contains("1 file, 1 bytes, 2 not captured"), "{stdout}");
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
    // The first exchange is refused; then the folder is widened, and the next one works.
    let mut seen = 0;
    for when in 1..12 {
        let killed = strace::run(&command, KillAt::new(&["renameat2"], when)).killed();
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
