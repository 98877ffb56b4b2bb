//! Crashes at store calls, tried on a careful writer and on one that believes that what wasn't
//! acknowledged wasn't written.

use std::sync::Arc;

use bytes::Bytes;
use piton_log::{Draft, NewRun, RunLog};
use piton_store::{
    Blobs, Commit, Fold as _, Leases as _, Log, Owner, PackId, Pin, RunIndex, RunQuery, Section, Segment, SegmentInfo,
    Span, Store, StoreError,
};
use piton_store_objects::ObjectStore;
use piton_testing::{CrashStore, Fault, ManualClock};
use piton_types::{
    BlobId, Clock, Durability, EntryHash, EntryKind, Fence, Holder, RunId, RunKind, RunStatus, RunSummary, Seq,
    Timestamp,
};

const ENTRIES: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writer {
    Careful,
    Credulous,
}

fn run_id() -> RunId {
    "run".parse().unwrap()
}

fn commit(seq: Seq, parent: EntryHash, payload: u32) -> Commit {
    let at = ManualClock::default().now();
    let summary = || RunSummary {
        id: run_id(),
        name: String::new(),
        kind: RunKind::default(),
        status: RunStatus::InProgress,
        created_at: at,
        updated_at: at,
        parent: None,
        folder: None,
        labels: std::collections::BTreeSet::new(),
    };
    Commit {
        run: run_id(),
        seq,
        parent,
        hash: EntryHash::new([u8::try_from(seq.0 + 1).unwrap(); 32]),
        fence: Fence(1),
        at,
        entry: Bytes::copy_from_slice(&payload.to_le_bytes()),
        pack: Bytes::new(),
        staged: Vec::new(),
        owner: Owner(0),
        index: (seq == Seq(0)).then(summary),
        durability: Durability::Durable,
    }
}

/// Writes the payloads that are missing, and counts what was acknowledged.
async fn work(store: &dyn Store, writer: Writer, acknowledged: &mut u32) -> Result<(), StoreError> {
    loop {
        let head = store.head(&run_id()).await?;
        let (seq, parent) = head.map_or((Seq(0), EntryHash::ROOT), |head| (head.seq.next(), head.hash));
        let payload = if writer == Writer::Careful { seq.0 } else { *acknowledged };
        if payload == ENTRIES {
            return Ok(());
        }
        store.append(vec![commit(seq, parent, payload)]).await?;
        *acknowledged = payload + 1;
    }
}

async fn payloads(store: &dyn Store) -> Vec<u32> {
    let records = store.read(&run_id(), Span::ALL).await.unwrap();
    records.iter().map(|record| u32::from_le_bytes(record.entry[..].try_into().unwrap())).collect()
}

/// Crashes the writer at every call, lets it go on without faults, and counts the logs that aren't what
/// an undisturbed writer leaves.
async fn crash_everywhere(writer: Writer) -> (u64, usize) {
    let store = CrashStore::new(Arc::new(ObjectStore::in_memory()), Fault::None);
    work(&store, writer, &mut 0).await.unwrap();
    assert!(!store.struck());
    let (calls, mut broken) = (store.calls(), 0);
    for n in 1..=calls {
        for fault in [Fault::CrashBefore(n), Fault::CrashAfter(n)] {
            let inner: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
            let (store, mut acknowledged) = (CrashStore::new(Arc::clone(&inner), fault), 0);
            let error = work(&store, writer, &mut acknowledged).await.unwrap_err();
            assert!(error.is_retryable() && store.struck() && store.calls() == n, "{fault:?}: {error}");
            assert!(store.head(&run_id()).await.is_err(), "a crashed process makes no more calls");
            work(&*inner, writer, &mut acknowledged).await.unwrap();
            broken += usize::from(!payloads(&*inner).await.into_iter().eq(0..ENTRIES));
        }
    }
    println!("{writer:?}: {calls} calls, {} crashes, {broken} broken", 2 * calls);
    (calls, broken)
}

#[tokio::test]
async fn crashes_find_the_credulous_writer_only() {
    assert_eq!(crash_everywhere(Writer::Careful).await, (7, 0));
    let (calls, broken) = crash_everywhere(Writer::Credulous).await;
    assert_eq!((calls, broken), (7, 3), "once for each append whose answer was lost");
}

#[tokio::test]
async fn before_and_after_differ_in_what_the_store_holds() {
    for (fault, expected) in [(Fault::CrashBefore(2), 0), (Fault::CrashAfter(2), 1)] {
        let inner: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
        let store = CrashStore::new(Arc::clone(&inner), fault);
        let error = work(&store, Writer::Careful, &mut 0).await.unwrap_err();
        assert_eq!(error.to_string(), "the store can't be reached: crashed at call 2 (append)");
        assert_eq!(store.names(), ["head", "append"]);
        assert_eq!(inner.head(&run_id()).await.unwrap().map_or(0, |head| head.seq.0 + 1), expected);
    }
}

/// Promise 13: a store that goes away comes back.
#[tokio::test]
async fn an_outage_passes() {
    for performed in [false, true] {
        let store = CrashStore::new(Arc::new(ObjectStore::in_memory()), Fault::Away { from: 2, calls: 3, performed });
        let (mut acknowledged, mut failures) = (0, 0);
        while work(&store, Writer::Careful, &mut acknowledged).await.is_err() {
            failures += 1;
            assert!(failures < 10, "the store never came back");
        }
        assert_eq!((failures, payloads(&store).await), (3, vec![0, 1, 2]));
    }
    let store = CrashStore::new(Arc::new(ObjectStore::in_memory()), Fault::None);
    store.set_away(true);
    assert!(work(&store, Writer::Careful, &mut 0).await.is_err());
    store.set_away(false);
    work(&store, Writer::Careful, &mut 0).await.unwrap();
}

/// Every method is counted, passes on what the store says, and can be struck.
#[tokio::test]
async fn every_method_is_covered() {
    let holder = Holder { host: "host".into(), boot: "boot".into(), pid: 1, started: 2 };
    let info = SegmentInfo { first: Seq(0), last: Seq(0) };
    let inner: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    for fault in [Fault::None, Fault::CrashBefore(1)] {
        let store = CrashStore::new(Arc::clone(&inner), fault);
        let run = run_id();
        let segment = Segment { info, entries: Bytes::new(), index: Bytes::new(), nodes: Bytes::new() };
        let id = BlobId::new([9; 32]);
        let answers = [
            ("append", store.append(vec![commit(Seq(0), EntryHash::ROOT, 0)]).await.err()),
            ("head", store.head(&run).await.err()),
            ("read", store.read(&run, Span::ALL).await.err()),
            ("segments", store.segments(&run).await.err()),
            ("section", store.section(&run, info, Section::Index).await.err()),
            ("fold", store.fold(&run, segment).await.err()),
            ("stage", store.stage(PackId::new([1; 32]), Bytes::from_static(b"pack"), &[id], Pin::new()).await.err()),
            ("locate", store.locate(&[id]).await.err()),
            ("pack", store.pack(PackId::new([9; 32])).await.err()),
            ("summary", store.summary(&run).await.err()),
            ("list", store.list(RunQuery::default()).await.err()),
            ("lease", store.lease(&run).await.err()),
            ("beat", store.beat(&run, Fence(1), &holder).await.err()),
            ("release", store.release(&run, Fence(1)).await.err()),
            ("usage", store.usage().await.err()),
            ("close", store.close().await.err()),
        ];
        assert_eq!(store.names(), answers.each_ref().map(|(name, _)| *name));
        assert_eq!(store.calls(), 16);
        for (name, error) in answers {
            let struck = matches!(&error, Some(StoreError::Unavailable { detail }) if detail.starts_with("crashed"));
            assert_eq!(struck, fault != Fault::None, "{name}: {error:?}");
        }
        assert_eq!(store.url(), inner.url());
        assert_eq!(store.capabilities(), inner.capabilities());
    }
}

/// Decision 2: after a lost answer the head tells whether the commit took place, and the writer goes on.
#[tokio::test]
async fn a_lost_answer_is_recognised() {
    for performed in [false, true] {
        // The second call is the first append after the creation.
        let store: Arc<dyn Store> =
            Arc::new(CrashStore::new(Arc::new(ObjectStore::in_memory()), Fault::Away { from: 2, calls: 1, performed }));
        let new = NewRun::new(run_id(), Timestamp::from_millis(1));
        let mut log = RunLog::create(Arc::clone(&store), new).await.unwrap();
        let draft = || Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(2));
        let first = log.append(draft()).await;
        assert_eq!(first.is_ok(), performed, "{first:?}");
        log.append(draft()).await.unwrap();
        assert_eq!(log.entries(Span::ALL).await.unwrap().len(), if performed { 3 } else { 2 });
    }
}
