//! What the tests share: runs that grow by made-up entries.

use super::{SqliteOptions, SqliteStore};
use bytes::Bytes;
use piton_store::{Commit, Hashing, Head, Log as _, StoreError};
use piton_types::{Durability, EntryHash, Fence, RunId, RunKind, RunStatus, RunSummary, Seq, Timestamp};

/// Runs a test's future.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A run's id.
pub(crate) fn id(text: &str) -> RunId {
    text.parse().unwrap()
}

/// Opens the store of a test.
pub(crate) fn open(folder: &tempfile::TempDir) -> SqliteStore {
    SqliteStore::open(folder.path().join("store.db"), SqliteOptions::default()).unwrap()
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
        Self { run: id(run), head: None, durability: Durability::Relaxed, size: 100 }
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

    /// Takes it for granted that `commit` was appended.
    pub(crate) fn advance(&mut self, commit: &Commit) {
        self.head = Some(Head { seq: commit.seq, hash: commit.hash, fence: commit.fence });
    }

    /// Appends one entry.
    pub(crate) async fn append(&mut self, store: &SqliteStore) -> Result<(), StoreError> {
        let commit = self.next();
        store.append(vec![commit.clone()]).await?;
        self.advance(&commit);
        Ok(())
    }

    /// Appends so many entries.
    pub(crate) async fn grow(&mut self, store: &SqliteStore, count: usize) {
        for _ in 0..count {
            self.append(store).await.unwrap();
        }
    }
}
