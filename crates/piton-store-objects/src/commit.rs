//! One commit as an object: a line of JSON with what a person wants to know, the sealed entries, their packs and the
//! run's index row as of them. One object, so that all of it comes into being by one creation.
//!
//! The removal of a run is a commit too, without entries: a writer that wants the same number loses, and the number
//! is never free again.

use bytes::Bytes;
use piton_log::SealedEntry;
use piton_store::checked::{self, FORMAT};
use piton_store::{Commit, Hashing, Head, Record, StoreError};
use piton_types::{EntryHash, EntryKind, Fence, PackId, RunId, RunSummary, Seq, Timestamp};
use serde::{Deserialize, Serialize};

/// The object of a commit.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CommitObject {
    format: u32,
    run: RunId,
    /// The number of the object.
    number: u64,
    /// The number of the object of the run's first entry.
    pub(crate) base: u64,
    /// The run's index row, as of the last entry; `None` if the run ends here because it is removed.
    pub(crate) row: Option<RunSummary>,
    /// Staged packs that it relies on.
    staged: Vec<PackId>,
    /// The entries, which follow each other.
    pub(crate) entries: Vec<StoredEntry>,
}

/// One entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredEntry {
    pub(crate) seq: Seq,
    /// For people; of an encrypted entry nothing can be said.
    pub(crate) about: Shown,
    at: Timestamp,
    pub(crate) fence: Fence,
    parent: EntryHash,
    pub(crate) hash: EntryHash,
    #[serde(with = "checked::base64")]
    entry: Bytes,
    #[serde(with = "checked::base64")]
    pack: Bytes,
}

/// What can be said of an entry that isn't encrypted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Shown {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    kind: Option<EntryKind>,
    #[serde(skip_serializing_if = "String::is_empty", default)]
    label: String,
    /// When, for people.
    time: String,
    /// The roots of its parts.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    parts: Vec<(String, String)>,
}

impl Shown {
    fn of(commit: &Commit) -> Self {
        let record = Record {
            seq: commit.seq,
            hash: commit.hash,
            fence: commit.fence,
            entry: commit.entry.clone(),
            pack: Bytes::new(),
        };
        let time = commit.at.to_string();
        match SealedEntry::open(&Hashing::PLAIN, &commit.run, &record) {
            Err(_) => Self { time, ..Self::default() },
            Ok(entry) => Self {
                kind: Some(entry.kind),
                label: entry.label,
                time,
                parts: entry.parts.iter().map(|(name, part)| (name.0.clone(), part.root.to_string())).collect(),
            },
        }
    }
}

impl StoredEntry {
    fn of(commit: Commit) -> Self {
        Self {
            about: Shown::of(&commit),
            seq: commit.seq,
            at: commit.at,
            fence: commit.fence,
            parent: commit.parent,
            hash: commit.hash,
            entry: commit.entry,
            pack: commit.pack,
        }
    }

    /// As the end of the log.
    pub(crate) fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash, fence: self.fence }
    }

    /// As a reader of the log wants it.
    pub(crate) fn record(&self, packs: bool) -> Record {
        let pack = if packs { self.pack.clone() } else { Bytes::new() };
        Record { seq: self.seq, hash: self.hash, fence: self.fence, entry: self.entry.clone(), pack }
    }
}

impl CommitObject {
    /// The object for commits that follow each other. The row is the run's after them.
    pub(crate) fn new(base: u64, row: RunSummary, commits: Vec<Commit>) -> Self {
        let first = commits.first().expect("a commit has an entry");
        Self {
            format: FORMAT,
            run: first.run.clone(),
            number: base + u64::from(first.seq.0),
            base,
            row: Some(row),
            staged: commits.iter().flat_map(|commit| commit.staged.iter().copied()).collect(),
            entries: commits.into_iter().map(StoredEntry::of).collect(),
        }
    }

    /// The object of a removal.
    pub(crate) fn removal(run: &RunId, base: u64, number: u64) -> Self {
        Self { format: FORMAT, run: run.clone(), number, base, row: None, staged: Vec::new(), entries: Vec::new() }
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Result<Bytes, StoreError> {
        Ok(checked::seal(self)?.into())
    }

    /// Reads the object of `run` with this number.
    pub(crate) fn decode(bytes: &[u8], run: &RunId, number: u64) -> Result<Self, StoreError> {
        let what = || format!("entry {number} of run {run}");
        let object: Self = checked::open(bytes, what)?;
        if (&object.run, object.number) != (run, number) {
            let detail = format!("it is entry {} of run {}", object.number, object.run);
            return Err(StoreError::corrupt(what(), detail));
        }
        let fits = match &object.row {
            None => object.entries.is_empty(),
            Some(row) => {
                let numbers = object.entries.iter().map(|entry| object.base + u64::from(entry.seq.0));
                row.id == *run && !object.entries.is_empty() && numbers.eq(number..number + object.entries.len() as u64)
            }
        };
        match fits {
            true => Ok(object),
            false => Err(StoreError::corrupt(what(), "its entries don't follow each other")),
        }
    }
}
