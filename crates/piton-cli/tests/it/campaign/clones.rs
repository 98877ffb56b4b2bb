//! Folders that come from elsewhere with a store in them, whole or mutated, with an unfinished restore in it and traps beside
//! it. Whatever verb is used there, nothing outside changes, git's own files stay, and nothing hangs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use piton_testing::SeededRandom;
use piton_testing::process::Running;
use piton_testing::scratch::{Scratch, copy_tree};
use piton_testing::strace::{self, KillAt};

use super::player::{PATIENCE, Player, binary, sound};
use super::{Counts, finds, play};
use crate::world::World;

#[test]
fn clones() {
    play("clones", (1, 4), |random, counts| round(random, counts, None));
}

/// A Piton that writes into what lies in the place of its own files.
#[test]
fn clones_find_a_write_through_a_link() {
    let line =
        "for file in .piton/* .piton/*/*; do [ -f $file ] && timeout 1 sh -c 'echo mine >> $0' $file; done; true";
    finds(60, &["changed what lies outside"], |random, counts| round(random, counts, Some(line)));
}

/// A repository with a store of another user's, in which a restore waits to be finished: it would bring hooks of git along
/// if its tree could have them, and other files if it were believed.
fn original() -> &'static Path {
    static ORIGINAL: OnceLock<Scratch> = OnceLock::new();
    let made = ORIGINAL.get_or_init(|| {
        let kept = Scratch::new();
        for when in 1..40 {
            let world = World::new();
            let piton = |verb: &[&str]| assert!(world.program(&binary(), verb).status().unwrap().success(), "{verb:?}");
            assert!(world.program("git", ["init", "-q"]).status().unwrap().success());
            piton(&["init", "--here"]);
            for text in ["one", "two"] {
                ["a", "b", "c", "d"].iter().for_each(|name| world.write(name, text));
                piton(&["save"]);
            }
            let restore = world.program(&binary(), ["restore", "@-", "--yes"]);
            strace::run(&restore, KillAt::new(&["renameat2"], when));
            let found = Command::new("find").arg(world.work()).args(["-name", "restoring"]).output().unwrap();
            if !found.stdout.is_empty() && std::fs::read(world.work().join("a")).unwrap() == b"one" {
                copy_tree(&world.work(), kept.path()).unwrap();
                return kept;
            }
        }
        panic!("no kill left a restore half done");
    });
    made.path()
}

/// What there is outside: of files the bytes, of all the mode and the time.
fn outside(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64)> {
    let found = Command::new("find").arg(folder).args(["-print0"]).output().unwrap();
    let paths = found.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let paths = paths.map(|path| PathBuf::from(std::str::from_utf8(path).unwrap()));
    let look = |path: PathBuf| {
        let data = path.symlink_metadata().unwrap();
        let is_small = data.is_file() && data.len() < 1 << 30;
        let bytes = if is_small { std::fs::read(&path).unwrap() } else { Vec::new() };
        (path, (bytes, data.mode(), data.mtime(), data.mtime_nsec()))
    };
    paths.map(look).collect()
}

/// Every file and folder below one, in no order that chance knows.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = outside(folder).into_keys().filter(|path| path != folder).collect();
    all.sort();
    all
}

const TRAPS: [&str; 12] = [
    "link to a file",
    "link to a folder",
    "link to nothing",
    "hard link",
    "fifo",
    "huge",
    "folder",
    "mode 0",
    "setuid",
    "flipped",
    "cut",
    "gone",
];

/// Puts a trap in the place of a file or folder.
fn trap(place: &Path, victim: &Path, kind: &str, random: &SeededRandom) {
    let was_file = place.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() < 1 << 30);
    let clear = || match place.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(place).unwrap(),
        Ok(_) => std::fs::remove_file(place).unwrap(),
        Err(_) => {}
    };
    let mode = |mode| {
        if place.exists() {
            std::fs::set_permissions(place, PermissionsExt::from_mode(mode)).unwrap();
        }
    };
    match kind {
        "mode 0" => return mode(0),
        "setuid" => return mode(0o6777),
        "flipped" | "cut" if was_file => {
            let mut bytes = std::fs::read(place).unwrap();
            let at = random.below(bytes.len());
            if kind == "cut" {
                bytes.truncate(at);
            } else if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
            return std::fs::write(place, bytes).unwrap();
        }
        _ => clear(),
    }
    match kind {
        "link to a file" => symlink(victim.join("file"), place).unwrap(),
        "link to a folder" => symlink(victim, place).unwrap(),
        "link to nothing" => symlink(victim.join("made"), place).unwrap(),
        "hard link" => std::fs::hard_link(victim.join("file"), place).unwrap(),
        "fifo" => rustix::fs::mknodat(rustix::fs::CWD, place, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap(),
        "huge" => std::fs::File::create(place).unwrap().set_len(1 << 40).unwrap(),
        "folder" => std::fs::create_dir_all(place.join("inner")).unwrap(),
        _ => {}
    }
}

const VERBS: [&[&str]; 22] = [
    &["status"],
    &["status", "--excluded", "--json"],
    &["ls"],
    &["ls", "--all"],
    &["log"],
    &["log", "--", "a"],
    &["show", "@"],
    &["diff"],
    &["diff", "@-", "@"],
    &["check"],
    &["lease", "ls"],
    &["lease", "check", "a"],
    &["hook", "show"],
    &["doctor"],
    &["drift", "--no-fetch"],
    &["restore", "@-", "--dry-run"],
    &["init", "--adopt", "--dry-run"],
    &["save"],
    &["guard", "-q", "--", "true"],
    &["restore", "@-", "--yes"],
    &["undo", "--yes"],
    &["gc", "--yes"],
];

fn round(random: &SeededRandom, counts: &Counts, flawed: Option<&str>) {
    let player = Player::new(random);
    let (work, victim) = (player.work(), player.world().root().join("victim"));
    std::fs::create_dir_all(victim.join("sub")).unwrap();
    for name in ["file", "sub/file", "store.db", "id"] {
        std::fs::write(victim.join(name), format!("the user's own {name}")).unwrap();
    }
    // In the folder, above it, or below it.
    let place = random.below(3);
    let clone = if place == 2 { work.join("vendor") } else { work.clone() };
    std::fs::create_dir_all(&clone).unwrap();
    copy_tree(original(), &clone).unwrap();
    let here = if place == 1 { work.join("sub/deep") } else { work.clone() };
    std::fs::create_dir_all(&here).unwrap();
    counts.add(["clones in the folder", "clones above the folder", "clones below the folder"][place]);
    let mut places = below(&clone.join(".piton"));
    places.push(clone.join(".piton"));
    for name in [".pitonignore", ".gitignore", ".ignore", ".claude", ".piton-tmp-1", "a", "piton.toml", ".git/info"] {
        places.push(clone.join(name));
    }
    for _ in 0..random.below(8) {
        let (place, kind) = (&places[random.below(places.len())], TRAPS[random.below(TRAPS.len())]);
        if place.parent().is_some_and(|folder| folder.is_dir() && !folder.is_symlink()) {
            trap(place, &victim, kind, random);
            counts.add(format!("trap: {kind}"));
        }
    }
    let before = (outside(&victim), outside(&clone.join(".git")));
    for _ in 0..8 {
        let verb = VERBS[random.below(VERBS.len())];
        let mut command = match flawed {
            Some(line) => player.world().program("sh", ["-c", line]),
            None => player.command(verb),
        };
        let said = Running::spawn(command.current_dir(&here)).wait(PATIENCE);
        sound(&command, &said);
        counts.add(format!("exit {:?}", said.ending));
        let after = (outside(&victim), outside(&clone.join(".git")));
        let differ = |path: &&PathBuf| {
            [(&before.0, &after.0), (&before.1, &after.1)].iter().any(|(old, new)| old.get(*path) != new.get(*path))
        };
        let all = [&before.0, &before.1, &after.0, &after.1];
        let changed: BTreeSet<_> = all.into_iter().flat_map(BTreeMap::keys).filter(differ).collect();
        assert!(changed.is_empty(), "{verb:?} changed what lies outside: {changed:?}");
    }
}
