//! Logs that race, and logs whose index says what can't be.

use std::sync::Arc;

use piton_log::{Draft, NewRun, RunLog};
use piton_store::{Pin, Store, StoreError};
use piton_store_objects::ObjectStore;
use piton_types::{BlobId, CheckpointRef, EntryKind, Part, Seq, Timestamp};

const AT: Timestamp = Timestamp::from_millis(7);

/// A draft that met an entry of another writer names the same packs when it is tried again.
#[tokio::test]
async fn a_draft_that_is_tried_again_keeps_its_packs() {
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let mut log = RunLog::create(Arc::clone(&store), NewRun::new("r".parse().unwrap(), AT)).await.unwrap();
    let pack = piton_store::stage(&*store, "a pack".into(), &[BlobId::new([3; 32])], Pin::new()).await.unwrap();
    let mut draft = Draft { staged: vec![pack], ..Draft::new(EntryKind::Checkpoint, AT) };
    let mut other = RunLog::open(Arc::clone(&store), log.run()).await.unwrap();
    other.append(Draft::new(EntryKind::Logged, AT)).await.unwrap();
    let met = log.append_draft(&mut draft).await;
    assert!(matches!(met, Err(StoreError::Conflict { .. })), "{met:?}");
    log.refresh().await.unwrap();
    assert_eq!(log.append_draft(&mut draft).await.unwrap(), Seq(2));
    assert_eq!(draft.staged, [pack]);
}

/// Promise 21: where runs came from is no more than a row of the index, so it may lead in a circle.
#[tokio::test]
async fn runs_that_came_from_each_other_are_looked_at_once() {
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let mut logs = Vec::new();
    for (run, parent) in [("a", "b"), ("b", "c"), ("c", "a")] {
        let parent = Some(CheckpointRef { run: parent.parse().unwrap(), seq: Seq(0) });
        let new = NewRun { parent, ..NewRun::new(run.parse().unwrap(), AT) };
        logs.push(RunLog::create(Arc::clone(&store), new).await.unwrap());
    }
    let unknown = Part { schema: String::new(), version: 1, root: BlobId::new([9; 32]) };
    let found = logs[0].load(&unknown).await;
    assert!(matches!(found, Err(StoreError::NotFound { .. })), "{found:?}");
}
