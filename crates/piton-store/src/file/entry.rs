//! One entry of a log as a file: a line of JSON with what a person wants to know, the sealed entry, its pack
//! and the run's index row as of it. One file, so that all of it comes into being by one `link`.

use bytes::Bytes;
use piton_types::{EntryHash, EntryKind, Fence, RunId, RunSummary, Seq, Timestamp};
use serde::{Deserialize, Serialize};

use crate::checked::{self, FORMAT};
use crate::{Commit, Hashing, Head, Record, StoreError, sealed};

/// The file of an entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EntryFile {
    format: u32,
    pub(crate) run: RunId,
    pub(crate) seq: Seq,
    /// For people; of an encrypted entry nothing can be said.
    pub(crate) about: Shown,
    pub(crate) at: Timestamp,
    pub(crate) fence: Fence,
    parent: EntryHash,
    hash: EntryHash,
    /// The run's index row, as of this entry.
    pub(crate) row: RunSummary,
    /// Staged packs that it relies on.
    staged: Vec<u64>,
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
        match sealed::open(&Hashing::PLAIN, &commit.run, &record) {
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

impl EntryFile {
    /// The file for a commit whose run will have the given row.
    pub(crate) fn new(commit: Commit, row: RunSummary) -> Self {
        Self {
            format: FORMAT,
            about: Shown::of(&commit),
            run: commit.run,
            seq: commit.seq,
            at: commit.at,
            fence: commit.fence,
            parent: commit.parent,
            hash: commit.hash,
            row,
            staged: commit.staged.iter().map(|pack| pack.0).collect(),
            entry: commit.entry,
            pack: commit.pack,
        }
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        checked::seal(self)
    }

    /// Reads the file that should be entry `seq` of `run`.
    pub(crate) fn decode(bytes: &[u8], run: &RunId, seq: Seq) -> Result<Self, StoreError> {
        let what = || format!("entry {seq} of run {run}");
        let file: Self = checked::open(bytes, what)?;
        if (&file.run, file.seq) != (run, seq) || file.row.id != *run {
            return Err(StoreError::corrupt(what(), format!("it is entry {} of run {}", file.seq, file.run)));
        }
        Ok(file)
    }

    /// As the end of the log.
    pub(crate) fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash, fence: self.fence }
    }

    /// As a reader of the log wants it.
    pub(crate) fn record(self, packs: bool) -> Record {
        let pack = if packs { self.pack } else { Bytes::new() };
        Record { seq: self.seq, hash: self.hash, fence: self.fence, entry: self.entry, pack }
    }
}
