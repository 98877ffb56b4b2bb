//! What the tests of stores share: runs that grow by made-up entries, and logs of real ones.

use std::sync::Arc;

use bytes::Bytes;
use piton_store::{Commit, Hashing, Head, Store, StoreError};
use piton_types::{Durability, EntryHash, Fence, RunId, RunKind, RunStatus, RunSummary, Seq, Timestamp};

/// Runs a test's future.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// A run's id.
pub(crate) fn id(text: &str) -> RunId {
    text.parse().unwrap()
}

/// A run that grows.
pub(crate) struct Line {
    pub(crate) run: RunId,
    pub(crate) head: Option<Head>,
    pub(crate) durability: Durability,
    /// Bytes of an entry's pack.
    pub(crate) size: usize,
}

impl Line {
    pub(crate) fn new(run: &str) -> Self {
        Self { run: id(run), head: None, durability: Durability::Durable, size: 40 }
    }

    /// The next commit. Its time is 1,000 plus its number.
    pub(crate) fn next(&self) -> Commit {
        let (seq, parent) = self.head.map_or((Seq(0), EntryHash::ROOT), |head| (head.seq.next(), head.hash));
        let at = Timestamp::from_millis(1000 + i64::from(seq.0));
        let entry = Bytes::from(format!("entry {seq} of {}", self.run));
        let index = RunSummary {
            id: self.run.clone(),
            name: "a name".into(),
            kind: RunKind::Workflow,
            status: RunStatus::InProgress,
            created_at: at,
            updated_at: at,
            parent: None,
            folder: Some("/a/folder".into()),
        };
        Commit {
            run: self.run.clone(),
            seq,
            parent,
            hash: Hashing::PLAIN.entry(&[self.run.as_str().as_bytes(), &entry, parent.as_bytes()]),
            fence: self.head.map_or(Fence(1), |head| head.fence),
            at,
            pack: entry.iter().copied().cycle().take(self.size).collect(),
            entry,
            staged: Vec::new(),
            era: None,
            index: (seq == Seq(0)).then_some(index),
            durability: self.durability,
        }
    }

    /// Appends one entry.
    pub(crate) async fn append(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let commit = self.next();
        store.append(vec![commit.clone()]).await?;
        self.head = Some(Head { seq: commit.seq, hash: commit.hash, fence: commit.fence });
        Ok(())
    }

    /// Appends so many entries.
    pub(crate) async fn grow(&mut self, store: &Arc<dyn Store>, count: usize) {
        for _ in 0..count {
            self.append(&**store).await.unwrap();
        }
    }
}
