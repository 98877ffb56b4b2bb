//! Copies between stores that name things differently: plain, encrypted, encrypted with another key.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_log::upkeep::{check, copy_run, drop_removed};
use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_runtime::Context;
use piton_store::{EncryptedStore, Key, RunQuery, Span};
use piton_store::{Store, StoreError};
use piton_store_objects::ObjectStore;
use piton_testing::scratch::Scratch;
use piton_testing::{CrashStore, Fault, SeededRandom};
use piton_types::{EntryKind, RunId, Timestamp};
use piton_types::{RunStatus, Seq, Value};
use piton_workspace::{Goal, Record, RestoreOptions, SnapshotReach, Workspace, WorkspaceOptions};

async fn encrypted(below: Arc<dyn Store>, seed: u64) -> Arc<dyn Store> {
    let random = Arc::new(SeededRandom::new(seed));
    let key = Key::generate(&*random);
    Arc::new(EncryptedStore::create(below, &key, random).await.unwrap())
}

fn memory() -> Arc<dyn Store> {
    Arc::new(ObjectStore::in_memory())
}

fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => drop(found.insert(path.clone(), fs::read(path).unwrap())),
            }
        }
    }
    found
}

struct Folder {
    root: PathBuf,
    state: PathBuf,
}

impl Folder {
    fn new(scratch: &Scratch) -> Self {
        let root = scratch.path().join("root");
        fs::create_dir_all(root.join("many")).unwrap();
        Self { root: root.canonicalize().unwrap(), state: scratch.path().join("state") }
    }

    fn workspace(&self, store: &Arc<dyn Store>, state: &str) -> Workspace {
        let options = WorkspaceOptions { state: self.state.join(state), budget: Some(0), ..Default::default() };
        Workspace::open(&Context::system(Arc::clone(store)), &self.root, options).unwrap()
    }
}

/// A conversation of which checkpoints were removed, a state of half a megabyte, and a folder with many names, a large
/// file with holes, and a restore.
async fn fill(store: &Arc<dyn Store>, folder: &Folder, names: u32, megabytes: usize) {
    let id: RunId = "talk".parse().unwrap();
    let new = NewRun { status: RunStatus::Failed, ..NewRun::new(id.clone(), Timestamp::from_millis(1)) };
    let mut log = RunLog::create(Arc::clone(store), new).await.unwrap();
    let mut list = Vec::new();
    for n in 0..40_i64 {
        list.push(Value::from(format!("message {n} ").repeat(30)));
        if n == 20 {
            list.push(Value::from("x y".repeat(150_000)));
        }
        let value = Value::List(list.clone());
        let part = DraftPart { name: "app".into(), schema: "t".into(), version: 3, content: Content::Value(&value) };
        let draft = Draft { parts: vec![part], ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(n)) };
        log.append(draft).await.unwrap();
    }
    let gone: BTreeSet<Seq> = (2..30).map(Seq).collect();
    log.remove_checkpoints(&gone, "test").await.unwrap();
    log.close().await.unwrap();
    drop_removed(store, &id).await.unwrap();

    let random = SeededRandom::new(5);
    for n in 0..names {
        fs::write(folder.root.join(format!("many/{n}.txt")), format!("file {n}")).unwrap();
    }
    let mut large = vec![0; megabytes << 20];
    for byte in large[1 << 20..3 << 20].iter_mut().step_by(3) {
        *byte = random.below(256) as u8;
    }
    fs::write(folder.root.join("large.bin"), &large).unwrap();
    let workspace = folder.workspace(store, "from");
    let first = workspace.save(Record::manual("first"), &Arc::default()).await.unwrap();
    fs::write(folder.root.join("many/7.txt"), "changed").unwrap();
    large[2 << 20] ^= 1;
    fs::write(folder.root.join("large.bin"), &large).unwrap();
    workspace.save(Record::manual(""), &Arc::default()).await.unwrap();
    workspace
        .restore_to(&Goal::Checkpoint(first.checkpoint), &RestoreOptions::default(), &Arc::default())
        .await
        .unwrap();
}

async fn runs(store: &Arc<dyn Store>) -> Vec<RunId> {
    store.list(RunQuery::default()).await.unwrap().into_iter().map(|run| run.id).collect()
}

async fn copy_all(from: &Arc<dyn Store>, to: &Arc<dyn Store>) -> Result<u64, StoreError> {
    let mut entries = 0;
    for run in runs(from).await {
        entries += copy_run(from, to, &run, &SnapshotReach).await?.entries;
    }
    Ok(entries)
}

/// What a run says, without the names that differ between the stores.
async fn told(store: &Arc<dyn Store>, run: &RunId) -> Vec<String> {
    let log = RunLog::open(Arc::clone(store), run).await.unwrap();
    let entries = log.entries(Span::ALL).await.unwrap();
    let removed = log.removed_in(&entries).await.unwrap().checkpoints;
    let mut lines = Vec::new();
    for entry in entries {
        let mut line = format!("{} {:?} {:?} {:?} {}", entry.seq, entry.kind, entry.at, entry.fence, entry.label);
        for (name, part) in &entry.parts {
            line.push_str(&format!(" {name:?} {} {}", part.schema, part.version));
            if name.0 != "workspace" && !removed.contains(&entry.seq) {
                line.push_str(&format!(" {:?}", log.load(part).await.unwrap()));
            }
        }
        if !entry.parts.contains_key(&"workspace".into()) {
            line.push_str(&format!(" {:?}", log.body(&entry).await.unwrap()));
        }
        lines.push(line);
    }
    lines
}

async fn assert_same(from: &Arc<dyn Store>, to: &Arc<dyn Store>) {
    assert!(check(to, &SnapshotReach, true).await.unwrap().is_whole());
    for run in runs(from).await {
        assert_eq!(told(from, &run).await, told(to, &run).await, "{run}");
        assert_eq!(from.summary(&run).await.unwrap(), to.summary(&run).await.unwrap());
    }
}

/// Between any two stores, encrypted or not, a copy says the same, restores the same files, and can be copied on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_between_stores_of_different_keys_say_the_same() {
    let scratch = Scratch::in_memory();
    let folder = Folder::new(&scratch);
    let plain = memory();
    fill(&plain, &folder, 400, 7).await;
    let on_files: Arc<dyn Store> =
        Arc::new(ObjectStore::in_folder(scratch.path().join("files"), &Default::default()).unwrap());
    let (one, other, back) = (encrypted(on_files, 1).await, encrypted(memory(), 2).await, memory());
    for (from, to) in [(&plain, &one), (&one, &other), (&other, &back)] {
        assert!(copy_all(from, to).await.unwrap() > 40);
        assert_same(from, to).await;
        assert_eq!(copy_all(from, to).await.unwrap(), 0, "nothing is left to copy");
    }
    for run in runs(&plain).await {
        let heads = [&plain, &back].map(async |store: &Arc<dyn Store>| store.head(&run).await.unwrap());
        let [a, b] = heads;
        // Its body names folders that were given up, so only what can be said of the rest is compared there.
        if run.as_str() == "talk" {
            assert_ne!(a.await, None);
            assert_ne!(b.await, None);
        } else {
            assert_eq!(a.await, b.await, "there and back again, it is the same to the byte");
        }
    }

    // The same files come back, and a folder that didn't change is found unchanged.
    let before = files(&folder.root);
    let workspace = folder.workspace(&other, "to");
    let moments = workspace.newest().await.unwrap().unwrap();
    for path in before.keys() {
        fs::write(path, "overwritten").unwrap();
    }
    let options = RestoreOptions { exact: true, ..RestoreOptions::default() };
    workspace.restore_to(&Goal::Checkpoint(moments.checkpoint), &options, &Arc::default()).await.unwrap();
    assert_eq!(files(&folder.root), before);
    let saved = workspace.save(Record::manual(""), &Arc::default()).await.unwrap();
    assert_eq!(saved.snapshot.tree, moments.snapshot.tree, "what was copied is named as a scan names it");
}

/// A copy that is cut short at any call leaves a whole store, and goes on where it ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_into_an_encrypted_store_can_be_cut_short() {
    let scratch = Scratch::in_memory();
    let folder = Folder::new(&scratch);
    let from = memory();
    fill(&from, &folder, 10, 4).await;
    let calls = {
        let counting = Arc::new(CrashStore::new(encrypted(memory(), 3).await, Fault::None));
        copy_all(&from, &(Arc::clone(&counting) as Arc<dyn Store>)).await.unwrap();
        counting.calls()
    };
    assert!(calls > 50, "{calls}");
    let step = if std::env::var("PITON_TEST").is_ok_and(|level| level == "full") { 1 } else { 11 };
    for call in (1..=calls).step_by(step) {
        let to = encrypted(memory(), 3).await;
        let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&to), Fault::CrashAfter(call)));
        copy_all(&from, &crashing).await.unwrap_err();
        assert!(check(&to, &SnapshotReach, false).await.unwrap().is_whole(), "what is there is whole, call {call}");
        copy_all(&from, &to).await.unwrap();
        assert_same(&from, &to).await;
    }
}

/// Another run of the same id is refused there too, and not changed.
#[tokio::test]
async fn another_run_of_the_same_id_is_refused_in_an_encrypted_store() {
    let (a, b) = (memory(), encrypted(memory(), 4).await);
    let id: RunId = "same".parse().unwrap();
    for (store, body) in [(&a, 1), (&b, 2)] {
        let new = NewRun { body: Value::from(body), ..NewRun::new(id.clone(), Timestamp::from_millis(1)) };
        RunLog::create(Arc::clone(store), new).await.unwrap();
    }
    let head = b.head(&id).await.unwrap();
    assert!(matches!(copy_run(&a, &b, &id, &SnapshotReach).await, Err(StoreError::Conflict { .. })));
    assert_eq!(b.head(&id).await.unwrap(), head);
}
