//! What can be chosen when a store is opened.

use std::time::Duration;

use crate::upgrade::Formats;

/// How to open a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// Make the store if there is none; otherwise that is `NotFound`.
    pub create: bool,
    /// How long to wait for another process that is writing.
    pub patience: Duration,
    /// What to do about a damaged WAL that a crash left.
    pub damaged_wal: DamagedWal,
    /// If there is no space even to open the store, open it for reading, alone: a write to it then gets
    /// `Poisoned`, and other processes wait until it is closed. Otherwise that is `Full`.
    pub read_when_full: bool,
    /// Only look: nothing is written, repaired, moved out of the WAL or closed to other users, and every write is
    /// `ReadOnly`. SQLite's index of the WAL (`PATH-shm`) is made anew where a crash left one.
    pub looks: bool,
    /// Check pages as they are read. Off only as the negative control of the damage tests.
    #[doc(hidden)]
    pub verify_pages: bool,
    /// Check the WAL that a crash left. Off only as the negative control of the damage tests.
    #[doc(hidden)]
    pub scan_wal: bool,
    /// The formats that are known. Others than those of this version only in the tests of upgrades.
    #[doc(hidden)]
    pub formats: Formats,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            create: true,
            patience: Duration::from_secs(10),
            damaged_wal: DamagedWal::Refuse,
            read_when_full: false,
            looks: false,
            verify_pages: true,
            scan_wal: true,
            formats: Formats::OURS,
        }
    }
}

impl SqliteOptions {
    /// Whether to make the store if there is none.
    #[must_use]
    pub fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// How long to wait for another process that is writing.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// What to do about a damaged WAL that a crash left.
    #[must_use]
    pub fn with_damaged_wal(mut self, damaged_wal: DamagedWal) -> Self {
        self.damaged_wal = damaged_wal;
        self
    }

    /// Whether only to look.
    #[must_use]
    pub fn with_looks(mut self, looks: bool) -> Self {
        self.looks = looks;
        self
    }

    /// Whether to open the store for reading if there is no space even for that much.
    #[must_use]
    pub fn with_read_when_full(mut self, read_when_full: bool) -> Self {
        self.read_when_full = read_when_full;
        self
    }
}

/// What to do about a WAL that a crash left and in which acknowledged commits lie behind damage. Either
/// way its bytes are first copied to `PATH-wal.damaged-N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DamagedWal {
    /// Don't open the store.
    #[default]
    Refuse,
    /// Go on with the commits before the damage; those behind it are given up.
    KeepPrefix,
}
