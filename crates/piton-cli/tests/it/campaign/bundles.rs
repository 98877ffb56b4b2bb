//! Bundles of others: exports with bits flipped, parts swapped and ends cut, and stores that were forged with names and
//! bytes that no tree may have. Imported and restored they write nothing outside of the folder and nothing of git's.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use piton_log::{Content, ContentWriter, Draft, DraftPart, RunLog};
use piton_store::{Pin, Store};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::SeededRandom;
use piton_types::{BlobId, EntryKind, PartName, RunId, Timestamp, Value};
use serde_json::Value as Json;

use super::documents::{MEMORY, bounded};
use super::player::{PATIENCE, Player};
use super::{Counts, finds, play};

#[test]
fn bundles() {
    play("bundles", (1, 3), |random, counts| {
        damaged(random, counts);
        forged(random, counts, false);
    });
}

/// A Piton that takes names as they are.
#[test]
fn bundles_find_names_that_are_believed() {
    finds(20, &["came out of a bundle"], |random, counts| forged(random, counts, true));
}

/// The verbs that a user would try on what was imported.
fn try_out(player: &Player<'_>, bundle: &Path, checkpoint: &str, counts: &Counts) {
    let verbs =
        ["check --deep", "ls --all", "show CP", "log CP", "diff CP", "restore CP --exact --yes", "save", "undo --yes"];
    let import = ["import", bundle.to_str().unwrap()].map(str::to_owned).to_vec();
    let words = |verb: &str| verb.replace("CP", checkpoint).split(' ').map(str::to_owned).collect::<Vec<_>>();
    for verb in [import].into_iter().chain(verbs.map(words)) {
        let (said, most) = bounded(&mut player.command(&verb), PATIENCE, MEMORY);
        counts.add(format!("{} exit {:?}", verb[0], said.ending));
        counts.most("KiB at most", usize::try_from(most).unwrap());
    }
}

/// All that there is in the world but in the home, and once more what has rights that go with its owner.
fn names(player: &Player<'_>) -> BTreeSet<PathBuf> {
    let root = player.world().root();
    let found = |which: &[&str]| Command::new("find").arg(&root).args(which).arg("-print0").output().unwrap().stdout;
    let all = found(&["-path", "*/home", "-prune", "-o"]);
    let special = found(&["-perm", "/7000"]);
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let special = special.split(|byte| *byte == 0).map(|bytes| path(bytes).join("special"));
    all.split(|byte| *byte == 0).map(path).chain(special).collect()
}

/// What is new has a name of the folder, none of git's or Piton's, and none of the rights that go with an owner.
fn harmless(player: &Player<'_>, before: &BTreeSet<PathBuf>) {
    for path in names(player).difference(before) {
        let is_own = |part: Component<'_>| {
            let name = part.as_os_str().to_string_lossy().to_lowercase();
            matches!(name.trim_end_matches([' ', '.']), "" | ".git" | "git~1" | "special") || name.starts_with(".piton")
        };
        let is_harmless = path.strip_prefix(player.work()).is_ok_and(|below| !below.components().any(is_own));
        assert!(is_harmless, "{} came out of a bundle", path.display());
    }
}

/// An export with damages: it is refused, or what it has left is restored.
fn damaged(random: &SeededRandom, counts: &Counts) {
    let player = Player::new(random);
    player.scribble();
    let checkpoint = player.save();
    player.scribble();
    let run = checkpoint.split('@').next().unwrap();
    let mut bytes = player.command(["export", run]).output().unwrap().stdout;
    assert!(!bytes.is_empty());
    for _ in 0..random.below(4) {
        let (at, other) = (random.below(bytes.len()), random.below(bytes.len()));
        let length = random.below(200).min(bytes.len() - at).min(bytes.len() - other);
        match random.below(7) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.extend_from_within(at..),
            2 => bytes.copy_within(at..at + length, other),
            // A number of SQLite's header, or of a page.
            3 => bytes[random.below(100)] = random.next_u64().to_le_bytes()[0],
            4 => bytes[at - at % 4096] ^= 0xff,
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
    let bundle = player.world().root().join("bundle");
    std::fs::write(&bundle, bytes).unwrap();
    // As on another machine: without what is here.
    std::fs::remove_dir_all(player.world().root().join("home")).unwrap();
    let before = names(&player);
    try_out(&player, &bundle, &checkpoint, counts);
    counts.add("damaged bundles");
    harmless(&player, &before);
}

const NAMES: [&[u8]; 24] = [
    b"fine",
    b"other",
    b"more",
    b"name.txt",
    b"..",
    b".",
    b"",
    b"../canary",
    b"/canary",
    b"a/../../canary",
    b"a\0b",
    b".git",
    b".GIT",
    b".Git ",
    b".git.",
    b".g\xe2\x80\x8cit",
    b"git~1",
    b".piton",
    b".Piton",
    b".piton-tmp-7",
    b"\xff\xfe",
    b"a\\..\\b",
    b"new\nline",
    b"con",
];

/// A tree as an attacker would write it: names as they shouldn't be, rights that go with an owner, bytes that are wrong.
fn node(store: &dyn Store, random: &SeededRandom, below: Option<(&[u8], BlobId)>) -> Vec<u8> {
    // The first ones are fine.
    let name = || NAMES[random.below(if random.one_in(2) { 4 } else { NAMES.len() })];
    let mut chosen: Vec<&[u8]> = (0..random.below(3)).map(|_| name()).collect();
    chosen.extend(below.iter().map(|(name, _)| *name));
    if !random.one_in(4) {
        chosen.sort_unstable();
        chosen.dedup();
    }
    let mode: u16 = [0o644, 0o755, 0o6755, 0o1777, 0o4644][random.below(5)];
    let [low, high] = [mode & 0x7f | 0x80, mode >> 7].map(|part| u8::try_from(part).unwrap());
    let mut node = vec![1, u8::try_from(chosen.len()).unwrap()];
    for name in chosen {
        node.push(u8::try_from(name.len()).unwrap());
        node.extend_from_slice(name);
        match below.filter(|(folder, _)| *folder == name) {
            Some((_, tree)) => {
                node.extend_from_slice(&[4, low, high]);
                node.extend_from_slice(tree.as_bytes());
            }
            None => {
                node.extend_from_slice(&[1, low, high, 5]);
                node.extend_from_slice(store.hashing().blob(b"owned").as_bytes());
            }
        }
    }
    if random.one_in(4) {
        let at = random.below(node.len());
        node[at] = random.next_u64().to_le_bytes()[0];
    }
    node
}

/// Commits a checkpoint with such a tree to a store that a save has made. Its name.
async fn forge(path: &Path, run: &RunId, random: &SeededRandom) -> String {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap());
    let leaf = node(&*store, random, None);
    let folder = [&b"sub"[..], b"sub", b"sub", b"fine", b"..", b".git"][random.below(6)];
    let root = node(&*store, random, Some((folder, store.hashing().blob(&leaf))));
    let runtime = tokio::runtime::Handle::current();
    let staging = Arc::clone(&store);
    let (tree, staged) = tokio::task::spawn_blocking(move || {
        let writer = ContentWriter::new(staging, runtime, Pin::new());
        writer.put(b"owned").unwrap();
        writer.put(&leaf).unwrap();
        let tree: BlobId = writer.put(&root).unwrap();
        (tree, writer.finish().unwrap())
    })
    .await
    .unwrap();
    let number = |value: i64| if random.one_in(6) { Value::from(i64::MAX) } else { Value::from(value) };
    let fields =
        [("tree", Value::from(tree.to_string())), ("files", number(1)), ("bytes", number(1)), ("excluded", number(0))];
    let value = Value::Map(fields.map(|(name, value)| (name.to_owned(), value)).into());
    let (name, content) = (PartName::WORKSPACE.into(), Content::Value(&value));
    let part = DraftPart { name, schema: "piton.workspace".to_owned(), version: 1, content };
    let at = Timestamp::from_millis(4_000_000_000_000);
    let mut log = RunLog::open(Arc::clone(&store), run).await.unwrap();
    let draft = Draft { parts: vec![part], staged, ..Draft::new(EntryKind::Checkpoint, at) };
    let seq = log.append(draft).await.unwrap();
    log.close().await.unwrap();
    store.close().await.unwrap();
    format!("{run}@{seq}")
}

fn forged(random: &SeededRandom, counts: &Counts, believes: bool) {
    let player = Player::new(random);
    let (work, canary) = (player.work(), player.world().root().join("canary"));
    player.world().write("seed", "x");
    std::fs::write(&canary, "alive").unwrap();
    assert!(player.world().program("git", ["init", "-q"]).status().unwrap().success());
    let bundle: PathBuf = player.world().root().join("forged.db");
    let saved = player.does(["--store", &format!("sqlite:{}", bundle.display()), "save", "--json"]).stdout;
    let saved: Json = serde_json::from_str(&saved).unwrap();
    let run: RunId = saved["run"].as_str().unwrap().parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let checkpoint = runtime.block_on(forge(&bundle, &run, random));
    let before = names(&player);
    let git = crate::files::look(&work.join(".git"));
    try_out(&player, &bundle, &checkpoint, counts);
    if believes {
        let name = std::str::from_utf8(NAMES[random.below(NAMES.len())]).unwrap_or("x").replace('\0', "");
        let _ = std::fs::write(work.join(name), "owned");
    }
    counts.add("forged bundles");
    counts.add_many("forged bundles that were restored", usize::from(work.join("fine").exists()));
    harmless(&player, &before);
    assert_eq!(std::fs::read(canary).unwrap(), b"alive");
    assert!(crate::files::look(&work.join(".git")) == git, "git's own files came out of a bundle");
}
