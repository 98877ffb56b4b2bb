//! Runs that grow by made-up entries: what tests of stores write.

use bytes::Bytes;
use piton_store::{Commit, Hashing, Head, Owner, Store, StoreError};
use piton_types::{Durability, EntryHash, Fence, RunId, RunKind, RunStatus, RunSummary, Seq, Timestamp};

/// A run's id.
///
/// # Panics
/// If it isn't one.
pub fn id(text: &str) -> RunId {
    text.parse().expect("the id of a test is one")
}

/// A run that grows.
#[derive(Debug)]
pub struct Line {
    /// Its id.
    pub run: RunId,
    /// Where it ends.
    pub head: Option<Head>,
    /// What its entries survive.
    pub durability: Durability,
    /// Bytes of an entry's pack.
    pub size: usize,
}

impl Line {
    /// With small durable entries.
    pub fn new(run: &str) -> Self {
        Self { run: id(run), head: None, durability: Durability::Durable, size: 40 }
    }

    /// With larger entries that wait for no disk.
    pub fn relaxed(run: &str) -> Self {
        Self { durability: Durability::Relaxed, size: 100, ..Self::new(run) }
    }

    /// The next commit. Its time is 1,000 plus its number.
    pub fn next(&self) -> Commit {
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
            labels: ["a label".into()].into(),
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
            owner: Owner(0),
            index: (seq == Seq(0)).then_some(index),
            durability: self.durability,
        }
    }

    /// Takes it for granted that `commit` was appended.
    pub fn advance(&mut self, commit: &Commit) {
        self.head = Some(Head { seq: commit.seq, hash: commit.hash, fence: commit.fence });
    }

    /// Appends one entry.
    pub async fn append(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let commit = self.next();
        store.append(vec![commit.clone()]).await?;
        self.advance(&commit);
        Ok(())
    }

    /// Appends so many entries.
    ///
    /// # Panics
    /// If the store refuses one.
    pub async fn grow(&mut self, store: &dyn Store, count: usize) {
        for _ in 0..count {
            self.append(store).await.expect("the store takes the next entry");
        }
    }
}
