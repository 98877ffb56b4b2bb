//! Restores that could not be done whole: what they leave behind is a checkpoint like any other. Promise 17.

use std::sync::Arc;
use std::time::Duration;

use piton_log::upkeep::check;
use piton_store::Store;
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::{CrashStore, Fault};
use piton_types::CheckpointRef;
use piton_workspace::{Goal, RestoreOptions, Side, SnapshotReach, WorkspaceError};

use crate::world::{World, look};

const FILES: [&str; 6] = ["d/e/1", "d/e/2", "d/e/3", "x/1", "x/2", "x/3"];

/// Opens the store as the next process does: what no commit named is gone.
fn open(world: &World) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(world.scratch.join("store.db"), SqliteOptions::default()).unwrap())
}

/// A folder in its second version, and the checkpoint of its first.
async fn second_version() -> (World, CheckpointRef) {
    let mut world = World::new();
    world.store = open(&world);
    let mut checkpoints = Vec::new();
    for version in ["first", "second"] {
        for file in FILES {
            world.write(file, format!("{version} of {file}\n"));
        }
        checkpoints.push(world.save(version).await.checkpoint);
    }
    (world, checkpoints.swap_remove(0))
}

/// The commits of a restore: that of its backup, and that of the entry which says that it is done.
async fn commits() -> [u64; 2] {
    let (mut world, first) = second_version().await;
    let counting = Arc::new(CrashStore::new(Arc::clone(&world.store), Fault::None));
    world.store = Arc::clone(&counting) as Arc<dyn Store>;
    world.restore(&first).await.unwrap();
    let names = counting.names();
    let found: Vec<u64> = (1..).zip(&names).filter(|(_, name)| **name == "append").map(|(call, _)| call).collect();
    found.try_into().unwrap_or_else(|_| panic!("two commits: {names:?}"))
}

/// Everything in the store can be read, the newest checkpoint is the folder as it is, and there is no restore to go on
/// with.
async fn assert_whole(world: &World) {
    let report = check(&world.store, &SnapshotReach, true).await.unwrap();
    assert!(report.is_whole(), "{report:?}");
    let workspace = world.workspace();
    let newest = workspace.newest().await.unwrap().unwrap();
    let changes = workspace.detect_changes(newest.snapshot, Side::Now, &Arc::default()).await.unwrap();
    assert!(changes.changes.is_empty(), "{:?}", changes.changes);
    assert_eq!(newest.snapshot.files, FILES.len() as u64);
    assert!(workspace.recover(&Arc::default()).await.unwrap().is_none());
}

/// One file changes at the very moment, and is left: the entry of the restore has a tree that no other has, and it is
/// stored with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_fails_in_part_leaves_a_whole_checkpoint_and_can_be_undone() {
    let [backup, _] = commits().await;
    let (mut world, first) = second_version().await;
    let before = look(&world.root());
    let below = Arc::clone(&world.store);
    let stopping = Arc::new(CrashStore::new(Arc::clone(&below), Fault::StopBefore(backup)));
    world.store = Arc::clone(&stopping) as Arc<dyn Store>;
    let workspace = world.workspace();
    let restore = tokio::spawn(async move {
        let options = RestoreOptions { exact: true, ..RestoreOptions::default() };
        workspace.restore_to(&Goal::Checkpoint(first), &options, &Arc::default()).await
    });
    while !stopping.is_stopped() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    world.write("d/e/2", "changed at this very moment\n");
    stopping.let_go_on();
    let outcome = restore.await.unwrap().map(|_| ());
    let Err(WorkspaceError::Incomplete { failed, planned, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((failed.len(), failed[0].0.to_string().as_str(), planned), (1, "d/e/2", FILES.len()));

    below.close().await.unwrap();
    world.store = open(&world);
    for file in FILES {
        let expected = if file == "d/e/2" { "changed at this very moment\n" } else { &format!("first of {file}\n") };
        assert_eq!(world.read(file), expected);
    }
    assert_whole(&world).await;
    world.undo().await.unwrap();
    assert_eq!(look(&world.root()), before);
    assert_whole(&world).await;
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    assert_eq!(world.read("d/e/2"), "changed at this very moment\n", "an undo has a backup of its own");
    assert_whole(&world).await;
}

/// A restore is cut short, the user changes a file, and the process that finishes the restore leaves that file: that
/// entry's tree is in no other either.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_is_finished_in_part_leaves_a_whole_checkpoint_and_can_be_undone() {
    let [_, done] = commits().await;
    let (mut world, first) = second_version().await;
    let before = look(&world.root());
    let below = Arc::clone(&world.store);
    world.store = Arc::new(CrashStore::new(Arc::clone(&below), Fault::CrashBefore(done)));
    world.restore(&first).await.unwrap_err();

    world.store = below;
    world.write("d/e/2", "changed since\n");
    let recovered = world.workspace().recover(&Arc::default()).await.unwrap().unwrap();
    world.store.close().await.unwrap();
    world.store = open(&world);
    let left: Vec<_> = recovered.left.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(left, ["d/e/2"]);
    assert_eq!(world.read("d/e/2") + &world.read("x/1"), "changed since\nfirst of x/1\n");
    assert_whole(&world).await;
    world.undo().await.unwrap();
    assert_eq!(look(&world.root()), before);
    assert_whole(&world).await;
}
