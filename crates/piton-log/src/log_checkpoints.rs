//! A [`CheckpointStore`] over any [`Store`]: the opposite of [`EmbeddedStore`](crate::EmbeddedStore). Each id has a
//! log of its own, of which the newest entry counts; what lies before it is folded away now and then.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{Durability, EntryHash, Fence, RunId, RunKind, RunStatus, RunSummary, Seq, Timestamp};

use piton_store::{
    CheckpointError, CheckpointStore, Commit, Expected, Hashing, Head, Owner, Saved, Segment, SegmentInfo, Span, Store,
    StoreError,
};

/// How many saves are kept before they are folded away.
const KEPT: u32 = 16;

/// What the entry of a save begins with, and that of a deletion.
const SAVED: u8 = 1;
const DELETED: u8 = 0;

/// An embedder's checkpoints in a [`Store`]: as durable, checked, shared and encrypted as that is.
pub struct LogCheckpointStore {
    store: Arc<dyn Store>,
}

/// The newest entry of an id.
struct Newest {
    head: Head,
    /// `None` once it is deleted.
    bytes: Option<Bytes>,
}

impl LogCheckpointStore {
    /// Keeps checkpoints in `store`, which should hold nothing else.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    fn hash(&self, run: &RunId, seq: Seq, parent: EntryHash, entry: &[u8], bytes: &[u8]) -> EntryHash {
        let (run, content) = (run.as_str().as_bytes(), self.store.hashing().blob(bytes));
        self.store.hashing().entry(&[
            b"piton checkpoint",
            &[u8::try_from(run.len()).expect("run ids have at most 64 bytes")],
            run,
            &seq.0.to_le_bytes(),
            parent.as_bytes(),
            content.as_bytes(),
            entry,
        ])
    }

    async fn newest(&self, run: &RunId, id: &str) -> Result<Option<Newest>, StoreError> {
        let span = Span { packs: true, ..Span::newest(1) };
        let record = match self.store.read(run, span).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            read => {
                read?.pop().ok_or_else(|| StoreError::corrupt(format!("the checkpoint of {id:?}"), "it is missing"))?
            }
        };
        let corrupt = |detail: &str| StoreError::corrupt(format!("the checkpoint of {id:?}"), detail);
        let (&state, rest) = record.entry.split_first().ok_or_else(|| corrupt("it is empty"))?;
        let (parent, name) = rest.split_first_chunk::<32>().ok_or_else(|| corrupt("it is cut off"))?;
        let parent = EntryHash::new(*parent);
        if self.hash(run, record.seq, parent, &record.entry, &record.pack) != record.hash || name != id.as_bytes() {
            return Err(corrupt("its hash doesn't fit its content"));
        }
        let head = Head { seq: record.seq, hash: record.hash, fence: record.fence };
        Ok(Some(Newest { head, bytes: (state == SAVED).then_some(record.pack) }))
    }

    async fn append(&self, run: RunId, id: &str, head: Option<Head>, bytes: Option<Bytes>) -> Result<u64, StoreError> {
        let parent = head.map_or(EntryHash::ROOT, |head| head.hash);
        let seq = head.map_or(Seq(0), |head| head.seq.next());
        let state = if bytes.is_some() { SAVED } else { DELETED };
        let entry = Bytes::from([&[state][..], parent.as_bytes(), id.as_bytes()].concat());
        let pack = bytes.unwrap_or_default();
        // No caller lists these runs, so they need no times.
        let at = Timestamp::from_millis(0);
        let row = RunSummary {
            id: run.clone(),
            name: String::new(),
            kind: RunKind::Steps,
            status: RunStatus::Paused,
            created_at: at,
            updated_at: at,
            parent: None,
            folder: None,
            labels: BTreeSet::new(),
        };
        let commit = Commit {
            hash: self.hash(&run, seq, parent, &entry, &pack),
            run: run.clone(),
            seq,
            parent,
            fence: Fence(1),
            at,
            entry,
            pack,
            staged: Vec::new(),
            owner: Owner(0),
            index: head.is_none().then_some(row),
            durability: Durability::Durable,
        };
        self.store.append(vec![commit]).await?;
        if state == DELETED || seq.0 % KEPT == KEPT - 1 {
            let info = SegmentInfo { first: Seq(0), last: Seq(seq.0 - 1) };
            let empty = Bytes::from_static(b"-");
            let segment = Segment { info, entries: empty.clone(), index: empty.clone(), nodes: empty };
            match self.store.fold(&run, segment).await {
                // Another writer saved or folded meanwhile; the next save does it.
                Ok(()) | Err(StoreError::Conflict { .. } | StoreError::Unsupported { .. }) => {}
                Err(error) => tracing::warn!(%error, "earlier checkpoints of an id can't be folded away"),
            }
        }
        Ok(u64::from(seq.0))
    }
}

fn run_of(id: &str) -> RunId {
    // Always hashed, so that no id can be chosen to meet another's.
    let hash = Hashing::PLAIN.entry(&[b"piton checkpoint id", id.as_bytes()]);
    format!("c{}", &hash.to_string()[..63]).parse().expect("hex digits make a valid id")
}

fn failed(id: &str, error: StoreError) -> CheckpointError {
    match error {
        StoreError::Conflict { .. } | StoreError::Fenced { .. } => CheckpointError::Conflict(id.to_owned()),
        StoreError::Corrupt { .. } | StoreError::TooNew { .. } => CheckpointError::Corrupted(error.to_string()),
        other => CheckpointError::Storage(other.to_string()),
    }
}

#[async_trait]
impl CheckpointStore for LogCheckpointStore {
    async fn save(&self, id: &str, bytes: Bytes, expected: Expected) -> Result<u64, CheckpointError> {
        let run = run_of(id);
        // Whatever is there is replaced. If another writer saves in between, its checkpoint is replaced, too.
        for _ in 0..1_000 {
            let newest = self.newest(&run, id).await.map_err(|error| failed(id, error))?;
            let old =
                newest.as_ref().filter(|newest| newest.bytes.is_some()).map(|newest| u64::from(newest.head.seq.0));
            if expected != Expected::Any && expected != old.map_or(Expected::Absent, Expected::Version) {
                return Err(CheckpointError::Conflict(id.to_owned()));
            }
            let head = newest.map(|newest| newest.head);
            match self.append(run.clone(), id, head, Some(bytes.clone())).await {
                Err(StoreError::Conflict { .. }) if expected == Expected::Any => {}
                saved => return saved.map_err(|error| failed(id, error)),
            }
        }
        Err(CheckpointError::Conflict(id.to_owned()))
    }

    async fn load(&self, id: &str) -> Result<Option<Saved>, CheckpointError> {
        let newest = self.newest(&run_of(id), id).await.map_err(|error| failed(id, error))?;
        Ok(newest.and_then(|newest| Some(Saved { version: newest.head.seq.0.into(), bytes: newest.bytes? })))
    }

    async fn delete(&self, id: &str) -> Result<(), CheckpointError> {
        let run = run_of(id);
        for _ in 0..1_000 {
            let newest = self.newest(&run, id).await.map_err(|error| failed(id, error))?;
            let Some(head) = newest.filter(|newest| newest.bytes.is_some()).map(|newest| newest.head) else {
                return Ok(());
            };
            match self.append(run.clone(), id, Some(head), None).await {
                Err(StoreError::Conflict { .. }) => {}
                deleted => return deleted.map(drop).map_err(|error| failed(id, error)),
            }
        }
        Err(CheckpointError::Conflict(id.to_owned()))
    }
}

impl std::fmt::Debug for LogCheckpointStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogCheckpointStore").field("store", &self.store.url()).finish()
    }
}
