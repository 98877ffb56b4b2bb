//! A world to play in: the binary started, killed, and its endings judged; files written at random; trees compared.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use piton_testing::SeededRandom;
use piton_testing::process::{Ending, Finished, Running};

use super::variable;
use crate::files::look;
use crate::world::{BINARY, World};

/// How long a verb may take before it is said to hang.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The share of a circle that spreads any number of points evenly over it.
const SPREAD: f64 = 0.618_033_988_75;

pub(super) type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// The binary that is tried.
pub(super) fn binary() -> String {
    std::env::var("PITON_BINARY").unwrap_or_else(|_| BINARY.to_owned())
}

/// A home and a folder, kept for a look if a round with a seed of the user's has a finding.
pub(super) struct Player<'a> {
    world: Option<World>,
    pub(super) random: &'a SeededRandom,
    /// How long each verb took when it wasn't killed.
    took: std::cell::RefCell<BTreeMap<String, Duration>>,
    kills: std::cell::Cell<u32>,
}

impl<'a> Player<'a> {
    pub(super) fn new(random: &'a SeededRandom) -> Self {
        // Without syncs to wait for, unless the user says where.
        let memory = Path::new("/dev/shm");
        let is_free = variable("PITON_CAMPAIGN").is_none() && memory.is_dir();
        let place = if is_free { memory.to_owned() } else { std::env::temp_dir() };
        let kills = u32::try_from(random.below(1000)).unwrap().into();
        Self { world: Some(World::new_in(&place)), random, took: Default::default(), kills }
    }

    pub(super) fn world(&self) -> &World {
        self.world.as_ref().unwrap()
    }

    pub(super) fn work(&self) -> PathBuf {
        self.world().work()
    }

    pub(super) fn tree(&self) -> Tree {
        look(&self.work())
    }

    pub(super) fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.world().program(&binary(), arguments)
    }

    /// A verb that isn't killed. It ends in time and in one of the ways that a user is told of.
    pub(super) fn piton<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Finished {
        let (mut command, begin) = (self.command(arguments), Instant::now());
        let said = Running::spawn(&mut command).wait(PATIENCE);
        sound(&command, &said);
        let verb = command.get_args().next().unwrap_or_default().to_string_lossy().into_owned();
        self.took.borrow_mut().insert(verb, begin.elapsed());
        said
    }

    /// A verb that must succeed.
    pub(super) fn does<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Finished {
        let words: Vec<_> = arguments.into_iter().map(|word| word.as_ref().to_owned()).collect();
        let said = self.piton(&words);
        assert!(said.success(), "{words:?}: {said:?}");
        said
    }

    /// Saves the folder. The new checkpoint.
    pub(super) fn save(&self) -> String {
        let said = self.does(["save", "--json"]);
        let saved: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
        saved["id"].as_str().unwrap().to_owned()
    }

    /// When to kill a verb: evenly spread over the time that it takes by itself, and a little more.
    pub(super) fn moment(&self, verb: &str) -> Duration {
        // Those that start programs take longer.
        let usual = Duration::from_millis(if matches!(verb, "run" | "resume" | "guard") { 250 } else { 40 });
        let took = self.took.borrow().get(verb).copied().unwrap_or(usual);
        self.kills.set(self.kills.get() + 1);
        took.mul_f64((f64::from(self.kills.get()) * SPREAD).fract() * 1.1)
    }

    /// A verb that is killed while it works, unless it has ended by then.
    pub(super) fn kill(&self, arguments: &[&str]) -> Finished {
        let mut command = self.command(arguments);
        let said = Running::spawn(&mut command).kill_after(self.moment(arguments[0]));
        if !said.killed() {
            sound(&command, &said);
        }
        said
    }

    /// Changes some files at random: contents, names, kinds, modes, links. No content comes twice.
    pub(super) fn scribble(&self) {
        let (random, work) = (self.random, self.work());
        for _ in 0..=random.below(20) {
            let name = format!("{}f{}", ["", "sub/", "sub/deep/", "other/"][random.below(4)], random.below(12));
            let path = work.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let clear = || match path.symlink_metadata() {
                Ok(found) if found.is_dir() => std::fs::remove_dir_all(&path).unwrap(),
                Ok(_) => std::fs::remove_file(&path).unwrap(),
                Err(_) => {}
            };
            match random.below(12) {
                0 | 1 => clear(),
                2 => {
                    clear();
                    std::os::unix::fs::symlink(format!("to-{}", random.next_u64()), &path).unwrap();
                }
                3 => {
                    clear();
                    std::fs::create_dir(&path).unwrap();
                    std::fs::write(path.join("inner"), random.next_u64().to_string()).unwrap();
                }
                4 if path.is_file() && !path.is_symlink() => {
                    let mode = [0o644, 0o600, 0o755, 0o700][random.below(4)];
                    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
                }
                _ => {
                    clear();
                    std::fs::write(&path, content(random)).unwrap();
                }
            }
        }
    }
}

impl Drop for Player<'_> {
    fn drop(&mut self) {
        if let Some(world) = self.world.take().filter(|_| std::thread::panicking() && variable("PITON_SEED").is_some())
        {
            println!("what there was is in {}", world.keep().display());
        }
    }
}

/// Text that no other file has: a word, or some hundred kilobytes.
fn content(random: &SeededRandom) -> String {
    let word = format!("{:016x} ", random.next_u64());
    word.repeat(1 + [0, 3, random.below(200), random.below(20_000)][random.below(4)])
}

/// A panic, a signal, an internal fault or an end that never comes is a finding, whatever was asked for.
pub(super) fn sound(command: &Command, said: &Finished) {
    // 2 would be a mistake of the campaign's own.
    let is_sound = matches!(said.ending, Ending::Code(0 | 1 | 3 | 4)) && !said.stderr.contains("panicked");
    assert!(is_sound, "{command:?}: {said:?}");
}

/// Fails with the names that differ unless `found` is one of `wanted`; which one.
pub(super) fn is_one_of(found: &Tree, wanted: &[&Tree], after: &str) -> usize {
    if let Some(place) = wanted.iter().position(|tree| *tree == found) {
        return place;
    }
    let differ = |tree: &Tree| {
        let all = tree.keys().chain(found.keys());
        all.filter(|path| tree.get(*path) != found.get(*path)).cloned().collect::<Vec<_>>()
    };
    let differ: Vec<_> = wanted.iter().map(|tree| differ(tree)).collect();
    panic!("after {after} the folder is none of what it may be: {differ:?}");
}

/// Deletes every file of this name below a folder, if there is one.
pub(super) fn delete_all(folder: &Path, name: &str) {
    Command::new("find").arg(folder).args(["-name", name, "-delete"]).output().unwrap();
}
