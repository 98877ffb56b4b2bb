//! What is only there on a terminal, and for one: progress, and completion by the shell.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::world::{BINARY, World};

/// Runs a command whose stderr is a terminal; what it said there.
fn on_a_terminal(mut command: Command) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let terminal =
        rustix::fs::open(&name, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY, rustix::fs::Mode::empty())
            .unwrap();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::from(terminal)).spawn().unwrap();
    // The command still holds the other end, which would never be closed.
    drop(command);
    let reader = std::thread::spawn(move || read_to_hang_up(master));
    assert!(child.wait().unwrap().success());
    reader.join().unwrap()
}

/// A terminal that nobody has open any more is an error to read from.
fn read_to_hang_up(master: OwnedFd) -> String {
    let (mut file, mut said, mut buffer) = (std::fs::File::from(master), Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = file.read(&mut buffer) {
        said.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(said).unwrap()
}

/// The binary with its first call of this kind held up, for longer than anybody should wait without a word.
fn held_up(world: &World, call: &str, arguments: &[&str]) -> Command {
    let trace = world.root().join("trace");
    let inject = format!("inject={call}:delay_enter=1200000:when=1");
    let strace =
        ["-f", "--quiet=all", "-o", trace.to_str().unwrap(), "-e", &inject, "-e", &format!("trace={call}"), BINARY];
    world.program("strace", strace.iter().chain(arguments))
}

/// Anything over half a second shows how far it has come, and takes that away when it is done.
#[test]
fn long_work_shows_its_progress_on_a_terminal() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.write(name, name);
    }
    let said = on_a_terminal(held_up(&world, "pwrite64", &["save"]));
    assert!(said.contains("3 files read, 3 bytes") || said.contains("looking at the files"), "save: {said:?}");
    assert!(said.ends_with("\r\u{1b}[K"), "save: {said:?}");
    world.write("a", "changed");
    std::fs::remove_file(world.work().join("b")).unwrap();
    let said = on_a_terminal(held_up(&world, "syncfs", &["restore", "@", "--yes"]));
    assert!(said.contains("1 files read, 2 written"), "restore: {said:?}");
    world.write("a", "changed again");
    let said = on_a_terminal(held_up(&world, "syncfs", &["restore", "@", "--yes", "-q"]));
    assert_eq!(said, "", "not if nobody wants to know");
}

/// Whoever waits for another command says so.
#[test]
fn waiting_for_another_command_is_said() {
    let world = World::new();
    world.write("a", "0");
    assert_eq!(world.piton(["save"]).code, Some(0));
    let mut locks = Vec::new();
    for path in walk(&world.state()) {
        if path.file_name().is_some_and(|name| name == "lock") {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.lock().unwrap();
            locks.push(file);
        }
    }
    assert_eq!(locks.len(), 1);
    let release = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(1500));
        drop(locks);
    });
    let said = on_a_terminal(world.command(["save"]));
    release.join().unwrap();
    assert!(said.contains("waiting for another piton"), "{said:?}");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn a_shell_can_complete_verbs_and_options() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = world.piton(["completions", shell]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        for word in ["restore", "dry-run", "rollback-on-failure"] {
            assert!(said.stdout.contains(word), "{shell} lacks {word}");
        }
    }
    assert_eq!(world.piton(["completions", "cmd"]).code, Some(2));
    // The script does what it says in a shell that is there.
    let script = "source <($0 completions bash); COMP_WORDS=(piton re); COMP_CWORD=1; _piton piton re piton; \
                  echo ${COMPREPLY[@]}";
    let output = world.program("bash", ["-c", script, BINARY]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "redo restore reference resume retry\n");
}
