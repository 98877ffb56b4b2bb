//! The suite that every store must pass, on objects in memory and in a folder.

use std::sync::Arc;

use piton_store::conformance::{Encrypted, Fixture};
use piton_store::{Registry, Store, async_trait};
use piton_store_objects::{FolderDriver, FolderOptions, MemoryDriver, MemoryObjects, ObjectStore};
use piton_testing::SeededRandom;
use piton_testing::scratch::Scratch;

/// Every handle is a store of its own: they share the objects and nothing else.
struct Memory(Arc<MemoryObjects>);

impl Memory {
    fn new() -> Self {
        Self(Arc::new(MemoryObjects::new()))
    }
}

#[async_trait]
impl Fixture for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(ObjectStore::open(self.0.clone(), true).await.unwrap())
    }
}

struct Folder(Scratch);

impl Folder {
    fn new() -> Self {
        Self(Scratch::in_memory())
    }
}

#[async_trait]
impl Fixture for Folder {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(ObjectStore::in_folder(self.0.join("store"), &FolderOptions::default()).unwrap())
    }
}

mod memory {
    use super::*;

    piton_store::conformance!(Memory::new());
    piton_log::conformance!(Memory::new());
}

mod folder {
    use super::*;

    piton_store::conformance!(Folder::new());
    piton_log::conformance!(Folder::new());
}

fn random() -> Arc<SeededRandom> {
    Arc::new(SeededRandom::new(7))
}

mod encrypted_folder {
    use super::*;

    piton_store::conformance!(Encrypted::new(Folder::new(), random()));
    piton_log::conformance!(Encrypted::new(Folder::new(), random()));
}

mod checkpoint_stores {
    use piton_store::conformance::{checkpoint_store_behaves, runtime};
    use piton_store::{CheckpointStore, Expected};
    use piton_store_objects::FileCheckpointStore;

    use super::*;

    /// F10.
    #[test]
    fn of_files_behave() {
        let folder = Scratch::in_memory();
        let open = || Arc::new(FileCheckpointStore::open(folder.join("c")).unwrap()) as Arc<dyn CheckpointStore>;
        runtime().block_on(checkpoint_store_behaves(&open));
    }

    /// Promise 5: a flipped byte of a saved checkpoint is found.
    #[test]
    fn of_files_notice_damage() {
        use piton_testing::flip::{Outcome, Sweep};
        let folder = Scratch::in_memory();
        let check = |folder: &std::path::Path| {
            runtime().block_on(async { FileCheckpointStore::open(folder).unwrap().load("id").await })
        };
        let saved = runtime().block_on(async {
            let store = FileCheckpointStore::open(folder.path()).unwrap();
            store.save("id", "some bytes".into(), Expected::Absent).await.unwrap();
            store.load("id").await.unwrap().unwrap()
        });
        let tally = Sweep::default().run(folder.path(), |folder, mutation| match check(folder) {
            // The count of creations is read by the next creation.
            Ok(Some(loaded)) if loaded == saved && mutation.file.ends_with("created.json") => {
                let store = FileCheckpointStore::open(folder).unwrap();
                match runtime().block_on(store.save("other", "x".into(), Expected::Any)) {
                    Ok(_) => Outcome::Silent("a damaged count was believed".to_owned()),
                    Err(error) => Outcome::Detected(error.to_string().chars().take(20).collect()),
                }
            }
            Ok(Some(loaded)) if loaded == saved => Outcome::Same,
            Ok(other) => Outcome::Silent(format!("{other:?}")),
            Err(error) => Outcome::Detected(error.to_string().chars().take(20).collect()),
        });
        println!("a file checkpoint: {tally}");
        assert_eq!((tally.same, tally.lost, tally.silent), (0, 0, 0), "{tally}");
        assert!(tally.detected > 100);
    }
}

#[tokio::test]
async fn urls_open_stores() {
    let scratch = Scratch::in_memory();
    let registry = Registry::default().with("file", FolderDriver { create: true }).with("memory", MemoryDriver);
    let url = format!("file:{}", scratch.join("store").canonicalize().unwrap_or(scratch.join("store")).display());
    assert_eq!(registry.open(&url).await.unwrap().url(), url);
    assert!(!registry.open("memory:").await.unwrap().capabilities().persistent);
    for (url, expected) in [
        ("memory:/x", "write just memory:"),
        ("file:", "the path is missing"),
        ("file:///tmp/x", "follows the colon at once"),
    ] {
        let error = registry.open(url).await.err().expect(url).to_string();
        assert!(error.contains(expected), "{url}: {error}");
    }
}
