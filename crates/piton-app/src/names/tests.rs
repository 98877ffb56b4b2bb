//! Names are given once, whatever other processes do.

use std::collections::BTreeSet;

use piton_log::{NewRun, RunLog};
use piton_store_objects::ObjectStore;
use piton_types::Timestamp;
use tokio::sync::Barrier;

use super::*;

/// A store through which two processes look for the last number before either wants the next, and write what they want
/// before either looks who else does. A blind one never shows what others want.
struct Meeting {
    inner: Arc<dyn Store>,
    both: Barrier,
    blind: bool,
}

#[async_trait]
impl Upkeep for Meeting {
    forward! { remove packs pack_ids condemn pardon sweep note inspect run_ids totals }

    async fn notes(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        let found = if self.blind { Vec::new() } else { self.inner.notes(prefix).await? };
        if prefix.ends_with("/guard-") {
            self.both.wait().await;
        }
        Ok(found)
    }

    async fn set_note(&self, key: &str, note: Option<Bytes>) -> Result<(), StoreError> {
        self.inner.set_note(key, note).await?;
        if key.contains("/guard-1/") {
            self.both.wait().await;
        }
        Ok(())
    }
}

#[async_trait]
impl Log for Meeting {
    forward! { append head read }
}

#[async_trait]
impl Fold for Meeting {
    forward! { segments section fold }
}

#[async_trait]
impl Blobs for Meeting {
    forward! { stage pin locate pack pack_part }
}

#[async_trait]
impl RunIndex for Meeting {
    forward! { summary list }
}

#[async_trait]
impl Leases for Meeting {
    forward! { lease beat release }
}

#[async_trait]
impl Store for Meeting {
    forward! { capabilities hashing redaction syncs url usage close folding leases upkeep changes queue }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(ObjectStore::in_memory())
}

/// A store as a process has it that works on a folder.
fn process(store: &Arc<dyn Store>, folder: &str) -> Arc<dyn Store> {
    Arc::new(NamedStore::new(Arc::clone(store), folder, Arc::default()))
}

fn new(kind: RunKind) -> NewRun {
    let at = Timestamp::from_millis(1);
    NewRun { kind, ..NewRun::new(RunId::generate(at, &SystemRandom), at) }
}

/// Creates a run, and says what it is called.
async fn create(store: &Arc<dyn Store>, new: NewRun) -> String {
    let id = new.id.clone();
    RunLog::create(Arc::clone(store), new).await.unwrap();
    short_of(&store.summary(&id).await.unwrap().unwrap())
}

#[tokio::test]
async fn names_are_counted_per_folder_and_kind_and_never_given_again() {
    let below = memory();
    let (a, b) = (process(&below, "/a"), process(&below, "/b"));
    assert_eq!(create(&a, new(RunKind::Guard)).await, "guard-1");
    let second = new(RunKind::Guard);
    let id = second.id.clone();
    assert_eq!(create(&a, second.clone()).await, "guard-2");
    assert_eq!(create(&a, new(RunKind::Workflow)).await, "flow-1");
    assert_eq!(create(&b, new(RunKind::Guard)).await, "guard-1");
    let folder = Some("/b".to_owned());
    assert_eq!(create(&a, NewRun { folder, ..new(RunKind::Guard) }).await, "guard-2", "it belongs to /b");
    for (chosen, name) in [("nightly", "nightly"), ("claude-1f", "claude-1")] {
        let kind = if chosen == name { RunKind::Workflow } else { RunKind::Guard };
        assert_eq!(create(&a, NewRun { id: chosen.parse().unwrap(), ..new(kind) }).await, name);
    }
    let found = named(&*a, &scope(&*a, "/a"), "guard-2").await.unwrap();
    assert_eq!(found.iter().map(|run| &run.id).collect::<Vec<_>>(), [&id]);

    below.remove(&id, below.head(&id).await.unwrap().unwrap()).await.unwrap();
    assert_eq!(create(&a, new(RunKind::Guard)).await, "guard-3");
}

/// A fork has the labels of its parent, and so has a copy in another store.
#[tokio::test]
async fn a_copy_keeps_its_name_and_a_fork_gets_one_of_its_own() {
    let one = process(&memory(), "/a");
    let parent = new(RunKind::Workflow);
    create(&one, parent.clone()).await;
    let labels = one.summary(&parent.id).await.unwrap().unwrap().labels;
    assert_eq!(create(&one, NewRun { labels: labels.clone(), ..new(RunKind::Workflow) }).await, "flow-2");
    let other = process(&memory(), "/b");
    assert_eq!(create(&other, NewRun { labels: labels.clone(), ..parent }).await, "flow-1");
    // It is counted in the folder of the store that it is created in.
    let forged = NewRun { labels: labels.clone(), ..new(RunKind::Workflow) };
    let id = forged.id.clone();
    create(&other, forged).await;
    assert_ne!(other.summary(&id).await.unwrap().unwrap().labels, labels);
}

/// Of two processes that want a name at once at most one gets it. With a store that doesn't show what the other wants
/// both do.
#[tokio::test]
async fn two_processes_never_get_the_same_name() {
    for blind in [false, true] {
        let meeting: Arc<dyn Store> = Arc::new(Meeting { inner: memory(), both: Barrier::new(2), blind });
        let (one, other) = (process(&meeting, "/a"), process(&meeting, "/a"));
        let names = tokio::join!(create(&one, new(RunKind::Guard)), create(&other, new(RunKind::Guard)));
        assert_eq!(names.0 == names.1, blind, "{names:?}");
    }
    let below = memory();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let store = process(&below, "/a");
        tasks.spawn(async move { create(&store, new(RunKind::Guard)).await });
    }
    assert_eq!(tasks.join_all().await.into_iter().collect::<BTreeSet<_>>().len(), 64);
}

fn names() -> Names {
    let names = Names::default();
    names.0.lock().unwrap().insert("7k3f".to_owned(), "guard-3".to_owned());
    names
}

#[test]
fn ids_in_texts_become_names_and_nothing_else_changes() {
    let names = names();
    for (text, short) in [
        ("`piton undo 7k3f` takes it back.", "`piton undo guard-3` takes it back."),
        ("run 7k3f.", "run guard-3."),
        ("7k3f@7 … 7k3f/turn-1", "guard-3@7 … guard-3/turn-1"),
        ("a7k3f 7k3f- ...7k3f", "a7k3f 7k3f- ...7k3f"),
        ("ends with... ü", "ends with... ü"),
        ("", ""),
    ] {
        assert_eq!(names.shorten(text), short);
    }
}
