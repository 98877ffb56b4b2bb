//! The suite that every store must pass, on the decorators of this crate.

use std::sync::Arc;

use piton_store::conformance::{Encrypted, Fixture};
use piton_store::{Key, Store, async_trait};
use piton_store_objects::ObjectStore;
use piton_testing::SeededRandom;

struct Memory(Arc<ObjectStore>);

#[async_trait]
impl Fixture for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
}

fn random() -> Arc<SeededRandom> {
    Arc::new(SeededRandom::new(7))
}

mod encrypted_memory {
    use super::*;

    piton_store::conformance!(Encrypted::new(Memory(Arc::new(ObjectStore::in_memory())), random()));
    piton_log::conformance!(Encrypted::new(Memory(Arc::new(ObjectStore::in_memory())), random()));
}

mod checkpoint_stores {
    use piton_log::LogCheckpointStore;
    use piton_store::conformance::{checkpoint_store_behaves, runtime};
    use piton_store::{CheckpointStore, EncryptedCheckpointStore, MemoryCheckpointStore};

    use super::*;

    /// F10, on each of this crate's.
    #[test]
    fn of_memory_behave() {
        let store: Arc<dyn CheckpointStore> = Arc::new(MemoryCheckpointStore::new());
        runtime().block_on(checkpoint_store_behaves(&|| Arc::clone(&store)));
    }

    #[test]
    fn that_are_encrypted_behave() {
        let below: Arc<dyn CheckpointStore> = Arc::new(MemoryCheckpointStore::new());
        let random = Arc::new(SeededRandom::new(3));
        let key = Key::generate(&*random);
        let store = runtime().block_on(EncryptedCheckpointStore::open(below, &key, random)).unwrap();
        let store: Arc<dyn CheckpointStore> = Arc::new(store);
        runtime().block_on(checkpoint_store_behaves(&|| Arc::clone(&store)));
    }

    #[test]
    fn over_any_store_behave() {
        let below: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
        runtime().block_on(checkpoint_store_behaves(&|| Arc::new(LogCheckpointStore::new(Arc::clone(&below)))));
    }
}

mod metered_memory {
    use piton_store::{Call, MeteredStore};

    use super::*;

    struct Metered(Memory);

    #[async_trait]
    impl Fixture for Metered {
        async fn open(&self) -> Arc<dyn Store> {
            Arc::new(MeteredStore::new(self.0.open().await))
        }
    }

    piton_store::conformance!(Metered(Memory(Arc::new(ObjectStore::in_memory()))));
    piton_log::conformance!(Metered(Memory(Arc::new(ObjectStore::in_memory()))));

    /// What is counted is what was done: commits of either kind, their bytes, and what failed.
    #[tokio::test]
    async fn a_metered_store_counts() {
        use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
        use piton_types::{Durability, EntryKind, Timestamp, Value};
        let metered = MeteredStore::new(Arc::new(ObjectStore::in_memory()));
        let metrics = metered.metrics();
        let store: Arc<dyn Store> = Arc::new(metered);
        let at = Timestamp::from_millis(1);
        let mut log = RunLog::create(Arc::clone(&store), NewRun::new("r".parse().unwrap(), at)).await.unwrap();
        let value = Value::from("x".repeat(3_000));
        for durability in [Durability::Durable, Durability::Relaxed, Durability::Relaxed] {
            let part = DraftPart { name: "p".into(), schema: "s".into(), version: 1, content: Content::Value(&value) };
            log.append(Draft { parts: vec![part], durability, ..Draft::new(EntryKind::Checkpoint, at) }).await.unwrap();
        }
        let again = RunLog::create(Arc::clone(&store), NewRun::new("r".parse().unwrap(), at)).await;
        assert!(again.is_err());
        let [durable, relaxed] = [Call::Commit, Call::RelaxedCommit].map(|call| metrics.of(call));
        assert_eq!((durable.count, durable.failed, relaxed.count), (3, 1, 2));
        assert_eq!(metrics.commits(), 4);
        assert!(durable.bytes > 3_000 && relaxed.bytes < 1_000, "{durable:?} {relaxed:?}");
        let totals = store.totals().await.unwrap();
        assert_eq!(totals.entries, 4);
        let run = "r".parse().unwrap();
        let records = store.read(&run, piton_store::Span { packs: true, ..piton_store::Span::ALL }).await.unwrap();
        let bytes: usize = records.iter().map(|record| record.entry.len() + record.pack.len()).sum();
        assert_eq!(bytes as u64, durable.bytes + relaxed.bytes);
        assert!(durable.p50_us <= durable.p99_us && durable.p99_us <= durable.longest_us.max(1));
    }
}

mod redacted_memory {
    use piton_store::{RedactedStore, Redaction, RedactionPolicy};

    use super::*;

    struct Redacted(Memory, Arc<Redaction>);

    #[async_trait]
    impl Fixture for Redacted {
        async fn open(&self) -> Arc<dyn Store> {
            Arc::new(RedactedStore::new(self.0.open().await, Arc::clone(&self.1)))
        }
    }

    fn redaction() -> Arc<Redaction> {
        let policy = RedactionPolicy::default().with_secret("SOME", "not in any of them");
        Arc::new(Redaction::new(&policy).unwrap())
    }

    piton_store::conformance!(Redacted(Memory(Arc::new(ObjectStore::in_memory())), redaction()));
    piton_log::conformance!(Redacted(Memory(Arc::new(ObjectStore::in_memory())), redaction()));
}
