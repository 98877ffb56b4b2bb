//! Second processes: this test binary once more, with a role.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::Durability;

use crate::faults::{rivals, saver};
use crate::support::{Line, block_on};
use crate::upgrades;

const ROLE: &str = "PITON_TEST_ROLE";
const STORE: &str = "PITON_TEST_STORE";

/// A process that is killed when it goes out of scope.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// The command that plays a role on a store.
pub(crate) fn command(role: &str, store: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child::entrance", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(STORE, store);
    command
}

impl Process {
    pub(crate) fn start(role: &str, store: &Path) -> Self {
        Self::spawn(&mut command(role, store))
    }

    pub(crate) fn start_as(user: u32, role: &str, store: &Path) -> Self {
        Self::spawn(command(role, store).uid(user).gid(user))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Waits for the next line that the process says, and gives what comes after the mark.
    pub(crate) fn hear(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some((_, said)) = line.split_once("said: ") {
                return Some(said.trim().to_owned());
            }
        }
    }

    /// Lets the process go on, which it waits for.
    pub(crate) fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[expect(clippy::print_stdout, reason = "a child process answers its parent so")]
pub(crate) fn say(text: impl std::fmt::Display) {
    println!("said: {text}");
}

/// Waits until the parent lets us go on; `false` if it never will.
pub(crate) fn wait() -> bool {
    std::io::stdin().lock().read_line(&mut String::new()).unwrap() > 0
}

/// What a second process does. Nothing, if this is the first.
#[test]
fn entrance() {
    let (Ok(role), Ok(path)) = (std::env::var(ROLE), std::env::var(STORE)) else { return };
    let open = || SqliteStore::open(&path, SqliteOptions::default());
    block_on(async {
        match role.as_str() {
            // Appends four entries and waits to be killed.
            "small" => {
                let store = open().unwrap();
                let mut line = Line::relaxed("second");
                line.durability = Durability::Durable;
                line.size = 40;
                line.grow(&store, 4).await;
                say("ready");
                wait();
            }
            // Appends until it is killed, and says each number once it is acknowledged.
            "append" => {
                let store = open().unwrap();
                let mut line = Line::relaxed("killed");
                line.durability = Durability::Durable;
                line.head = piton_store::Log::head(&store, &line.run).await.unwrap();
                loop {
                    line.append(&store).await.unwrap();
                    say(line.head.unwrap().seq);
                }
            }
            // Appends to a run of its own until it is killed.
            "busy" => {
                let store = open().unwrap();
                let mut line = Line { size: 3000, ..Line::relaxed(&format!("busy-{}", std::process::id())) };
                line.grow(&store, 1).await;
                say("ready");
                loop {
                    line.append(&store).await.unwrap();
                }
            }
            // Races for the entries of one run with others.
            "race" => {
                let store = open().unwrap();
                let mut line = Line::relaxed("raced");
                say("ready");
                wait();
                let mut won = 0;
                for _ in 0..200 {
                    line.head = piton_store::Log::head(&store, &line.run).await.unwrap();
                    match line.append(&store).await {
                        Ok(()) => won += 1,
                        Err(piton_store::StoreError::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                say(won);
            }
            // Stages a pack and waits to be killed.
            "stage" => {
                let store = open().unwrap();
                let blob = piton_types::BlobId::new([7; 32]);
                let pack = piton_store::stage(&store, "staged".into(), &[blob], piton_store::Pin::new()).await.unwrap();
                say(pack);
                wait();
            }
            // Opens the store and says how that went, and whether it can be written to.
            "look" => match open() {
                Err(error) => say(format!("{error:?}")),
                Ok(store) => {
                    let runs = piton_store::Store::usage(&store).await.map(|usage| usage.runs);
                    say(format!("{runs:?}, then {:?}", Line::relaxed("new").append(&store).await));
                }
            },
            // Fills the file system, frees it and goes on.
            "fill" => {
                let ballast = Path::new(&path).with_file_name("ballast");
                std::fs::write(&ballast, vec![1; 300_000]).unwrap();
                let store = open().unwrap();
                let mut line = Line::relaxed("filling");
                line.durability = Durability::Durable;
                line.size = 9000;
                let error = loop {
                    if let Err(error) = line.append(&store).await {
                        break error;
                    }
                };
                let full = matches!(error, piton_store::StoreError::Full { .. });
                let readable = piton_store::Log::head(&store, &line.run).await.unwrap() == line.head;
                std::fs::remove_file(ballast).unwrap();
                let (before, again) = (line.head.unwrap().seq.0, line.append(&store).await);
                say(format!("full {full}, readable {readable}, {} entries, again {again:?}", before > 3));
            }
            // Upgrades the store to a format that there isn't yet, and says when it is done.
            "upgrade" => match upgrades::open(Path::new(&path)) {
                Ok(store) => {
                    piton_store::Store::close(&store).await.unwrap();
                    say("upgraded");
                }
                Err(error) => say(format!("{error:?}")),
            },
            "save" => saver::save(Path::new(&path)).await,
            "contend" => rivals::contend(Path::new(&path)).await,
            "hold" => rivals::hold(Path::new(&path)).await,
            role => panic!("no such role: {role}"),
        }
    });
}
