//! What a handle has done so far. Tests assert on it that a commit costs what it should.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a handle has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Entries that were appended.
    pub commits: u64,
    /// Transactions that appended them.
    pub groups: u64,
    /// Those of the transactions that waited for the disk, and syncs without one.
    pub syncs: u64,
    /// Bytes of entries and packs in them.
    pub bytes: u64,
    /// Appends that committed on the calling thread.
    pub inline: u64,
    /// Folds.
    pub folds: u64,
    /// Bytes of removed runs and packs that were deleted.
    pub swept: u64,
    /// Checkpoints of the log into the database.
    pub checkpoints: u64,
    /// Pages that were given back to the file system.
    pub vacuumed: u64,
    /// Pages in the log after the newest commit of this handle.
    pub wal_pages: u64,
    /// How often the log was grown ahead of use.
    pub wal_grown: u64,
}

/// The counters as they are counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) commits: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) inline: AtomicU64,
    pub(crate) folds: AtomicU64,
    pub(crate) swept: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) vacuumed: AtomicU64,
    pub(crate) wal_pages: AtomicU64,
    pub(crate) wal_grown: AtomicU64,
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
            groups: get(&self.groups),
            syncs: get(&self.syncs),
            bytes: get(&self.bytes),
            inline: get(&self.inline),
            folds: get(&self.folds),
            swept: get(&self.swept),
            checkpoints: get(&self.checkpoints),
            vacuumed: get(&self.vacuumed),
            wal_pages: get(&self.wal_pages),
            wal_grown: get(&self.wal_grown),
        }
    }
}
