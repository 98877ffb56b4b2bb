//! What a handle has done so far. Tests assert on it that a commit costs what it should.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a handle has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Entries that were appended.
    pub commits: u64,
    /// Bytes of entries and packs in them.
    pub bytes: u64,
    /// Transactions that waited for the disk.
    pub syncs: u64,
    /// Checkpoints that moved SQLite's WAL into the database.
    pub checkpoints: u64,
    /// Pages that were given back to the file system.
    pub vacuumed: u64,
    /// Pages in SQLite's WAL after the newest commit of this handle.
    pub wal_pages: u64,
}

/// The counters as they are counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) commits: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) vacuumed: AtomicU64,
    pub(crate) wal_pages: AtomicU64,
}

impl Tally {
    /// Counts `by` more.
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    /// The counters now.
    pub(crate) fn read(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            commits: get(&self.commits),
            bytes: get(&self.bytes),
            syncs: get(&self.syncs),
            checkpoints: get(&self.checkpoints),
            vacuumed: get(&self.vacuumed),
            wal_pages: get(&self.wal_pages),
        }
    }
}
