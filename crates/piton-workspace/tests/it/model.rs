//! Random trees and random edits against a plain copy of the tree. Promise 17.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use piton_workspace::{Goal, RestoreOptions};
use proptest::prelude::*;

use crate::world::{Tree, World, look};

/// Names that collide often: a file here is a folder there.
const NAMES: [&str; 5] = ["a", "b", "A", "c.d", "e"];

#[derive(Debug, Clone)]
enum Edit {
    Write(Vec<usize>, Vec<u8>),
    Link(Vec<usize>, usize),
    Folder(Vec<usize>),
    Remove(Vec<usize>),
    Mode(Vec<usize>, u32),
    Rename(Vec<usize>, Vec<usize>),
}

fn path() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0..NAMES.len(), 1..4)
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (path(), proptest::collection::vec(0_u8..4, 0..40)).prop_map(|(path, bytes)| Edit::Write(path, bytes)),
        1 => (path(), 0..NAMES.len()).prop_map(|(path, target)| Edit::Link(path, target)),
        1 => path().prop_map(Edit::Folder),
        3 => path().prop_map(Edit::Remove),
        1 => (path(), prop_oneof![Just(0o600), Just(0o755), Just(0o444)]).prop_map(|(path, mode)| Edit::Mode(path, mode)),
        2 => (path(), path()).prop_map(|(from, to)| Edit::Rename(from, to)),
    ]
}

fn full(root: &Path, path: &[usize]) -> PathBuf {
    path.iter().fold(root.to_owned(), |path, name| path.join(NAMES[*name]))
}

/// Does it as far as it can be done; what doesn't fit is left.
fn perform(root: &Path, edit: &Edit) {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let is_plain = |path: &Path| path.ancestors().take_while(|path| *path != root).all(|path| !path.is_symlink());
    let clear = |path: &Path| {
        if path.is_dir() && !path.is_symlink() {
            let _ = std::fs::remove_dir_all(path);
        } else {
            let _ = std::fs::remove_file(path);
        }
    };
    let prepare =
        |path: &Path| path.parent().is_some_and(|parent| is_plain(parent) && std::fs::create_dir_all(parent).is_ok());
    match edit {
        Edit::Write(path, bytes) => {
            let path = full(root, path);
            if prepare(&path) && !path.is_symlink() {
                let _ = std::fs::write(path, bytes);
            }
        }
        Edit::Link(path, target) => {
            let path = full(root, path);
            if prepare(&path) {
                clear(&path);
                let _ = symlink(NAMES[*target], path);
            }
        }
        Edit::Folder(path) => {
            let path = full(root, path);
            if is_plain(&path) {
                let _ = std::fs::create_dir_all(path);
            }
        }
        Edit::Remove(path) => {
            let path = full(root, path);
            if path.parent().is_some_and(is_plain) {
                clear(&path);
            }
        }
        Edit::Mode(path, mode) => {
            let path = full(root, path);
            if is_plain(&path) && path.exists() {
                let mode = if path.is_dir() { *mode | 0o700 } else { *mode };
                let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
            }
        }
        Edit::Rename(from, to) => {
            let (from, to) = (full(root, from), full(root, to));
            if from.parent().is_some_and(is_plain) && prepare(&to) {
                let _ = std::fs::rename(from, to);
            }
        }
    }
}

/// Inodes and times of what is the same in both trees: a restore must not touch those.
fn marks(root: &Path, same: &[PathBuf]) -> Vec<(u64, i64, i64)> {
    same.iter()
        .map(|path| root.join(path).symlink_metadata().unwrap())
        .map(|metadata| (metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
        .collect()
}

fn same_files(a: &Tree, b: &Tree) -> Vec<PathBuf> {
    let is_file = |path: &&PathBuf| matches!(a[*path], crate::world::Plain::File(..) | crate::world::Plain::Link(_));
    a.keys().filter(is_file).filter(|path| b.get(*path) == a.get(*path)).cloned().collect()
}

fn cases() -> u32 {
    match std::env::var("PITON_TEST").as_deref() {
        Ok("full") => 2_000,
        Ok("quick") => 30,
        _ => 150,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_checkpoint_comes_back_exactly_and_every_restore_can_be_undone(
        rounds in proptest::collection::vec(proptest::collection::vec(edit(), 1..8), 2..5),
        goal in any::<proptest::sample::Index>(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new();
            let mut kept = Vec::new();
            for edits in &rounds {
                edits.iter().for_each(|edit| perform(&world.root(), edit));
                let saved = world.save("").await;
                kept.push((saved, look(&world.root())));
            }
            let (saved, then) = &kept[goal.index(kept.len())];
            let now = look(&world.root());
            let untouched = same_files(then, &now);
            let before = marks(&world.root(), &untouched);
            let goal = Goal::Checkpoint(saved.checkpoint.clone());
            let plan = world.plan(goal, RestoreOptions::default()).await.unwrap().plan;
            let result = world.restore(&saved.checkpoint).await.unwrap();
            assert_eq!(&look(&world.root()), then);
            assert_eq!(marks(&world.root(), &untouched), before, "something that is the same was touched");
            assert_eq!(plan.changes, result.plan.changes, "the preview said something else");
            if result.checkpoint.is_some() {
                world.undo().await.unwrap();
                assert_eq!(look(&world.root()), now);
                world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
                assert_eq!(&look(&world.root()), then);
            }
            // What the cache says of all that is still true: a look from scratch finds the same.
            let cached = world.save("").await;
            std::fs::remove_file(world.options.state.join("stat.cache")).unwrap();
            let fresh = world.save("").await;
            assert_eq!(cached.snapshot.tree, fresh.snapshot.tree);
        });
    }
}
