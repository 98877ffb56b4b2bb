//! A folder, a store beside it, and plain looks at both.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use piton_log::upkeep::{collect, expect_removal};
use piton_runtime::Context;
use piton_store::{Store, Sweep};
use piton_store_objects::ObjectStore;
use piton_testing::scratch::Scratch;
use piton_types::{CheckpointRef, Timestamp};
use piton_workspace::{
    Goal, Record, RestoreOptions, RestorePlan, RestoreResult, Saved, SnapshotReach, Workspace, WorkspaceError,
    WorkspaceOptions,
};

/// What a workspace gets from outside.
pub(crate) fn context(store: &Arc<dyn Store>) -> Context {
    Context::system(Arc::clone(store))
}

/// What is at a path: as plain as can be, and without the code under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plain {
    File(Vec<u8>, u32),
    Link(PathBuf),
    Folder(u32),
    Other,
}

pub(crate) type Tree = BTreeMap<PathBuf, Plain>;

/// Everything below a folder, as it is.
pub(crate) fn look(root: &Path) -> Tree {
    fn below(root: &Path, folder: &Path, tree: &mut Tree) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().to_owned();
            let mode = metadata.permissions().mode() & 0o7777;
            if metadata.is_symlink() {
                tree.insert(name, Plain::Link(std::fs::read_link(&path).unwrap()));
            } else if metadata.is_dir() {
                tree.insert(name, Plain::Folder(mode));
                below(root, &path, tree);
            } else if metadata.is_file() {
                tree.insert(name, Plain::File(std::fs::read(&path).unwrap(), mode));
            } else {
                tree.insert(name, Plain::Other);
            }
        }
    }
    let mut tree = Tree::new();
    below(root, root, &mut tree);
    tree
}

/// Longer than the ticks of any clock that files are stamped with.
pub(crate) const SETTLED: Duration = Duration::from_millis(60);

pub(crate) struct World {
    pub(crate) scratch: Scratch,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: WorkspaceOptions,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_store(Arc::new(ObjectStore::in_memory()))
    }

    pub(crate) fn with_store(store: Arc<dyn Store>) -> Self {
        let scratch = Scratch::in_memory();
        std::fs::create_dir(scratch.join("work")).unwrap();
        let options = WorkspaceOptions { state: scratch.join("state"), ..WorkspaceOptions::default() };
        Self { scratch, store, options }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.scratch.join("work")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub(crate) fn workspace(&self) -> Workspace {
        self.try_workspace().unwrap()
    }

    pub(crate) fn try_workspace(&self) -> Result<Workspace, WorkspaceError> {
        Workspace::open(&context(&self.store), &self.root(), self.options.clone())
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    pub(crate) fn link(&self, name: &str, target: &str) {
        symlink(target, self.path(name)).unwrap();
    }

    pub(crate) fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn inode(&self, name: &str) -> u64 {
        self.path(name).symlink_metadata().unwrap().ino()
    }

    pub(crate) async fn save(&self, description: &str) -> Saved {
        self.workspace().save(Record::manual(description), &Arc::default()).await.unwrap()
    }

    /// Removes at once what no checkpoint needs.
    pub(crate) async fn collect(&self) {
        let upkeep = &self.store;
        expect_removal(&**upkeep).await.unwrap();
        // What is condemned by the first is due at the second.
        for now in [1, 2] {
            let now = Timestamp::from_millis(now);
            let found = collect(upkeep, &SnapshotReach, now, Duration::ZERO, &|| false).await.unwrap();
            upkeep.sweep(Sweep { packs: found.due, bytes: u64::MAX }).await.unwrap();
        }
    }

    pub(crate) async fn restore(&self, checkpoint: &CheckpointRef) -> Result<RestoreResult, WorkspaceError> {
        self.reach(Goal::Checkpoint(checkpoint.clone()), RestoreOptions::default()).await
    }

    pub(crate) async fn undo(&self) -> Result<RestoreResult, WorkspaceError> {
        self.reach(Goal::Undo(None), RestoreOptions::default()).await
    }

    pub(crate) async fn plan(&self, goal: Goal, options: RestoreOptions) -> Result<RestorePlan, WorkspaceError> {
        let workspace = self.workspace();
        let timeline = workspace.timeline().await?;
        workspace.plan_restore(&timeline, &goal, &options, &Arc::default()).await
    }

    pub(crate) async fn reach(&self, goal: Goal, options: RestoreOptions) -> Result<RestoreResult, WorkspaceError> {
        self.workspace().restore_to(&goal, &options, &Arc::default()).await
    }
}
