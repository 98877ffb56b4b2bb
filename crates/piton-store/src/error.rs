//! What can go wrong in a store. Each variant says what it means for the data; what to do about it is
//! the shell's part to add.

use std::path::PathBuf;

use piton_types::{Fence, InvalidId, PackId, RunId, Seq};

use crate::Head;

/// An error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It isn't there.
    #[error("{what} doesn't exist")]
    NotFound {
        /// What was looked for.
        what: String,
    },

    /// Another writer was first. Nothing was written.
    #[error("entry {wanted} of run {run} can't be created: {}", match head { Some(head) => format!("the log ends at entry {}", head.seq), None => "the run doesn't exist".to_owned() })]
    Conflict {
        /// The run.
        run: RunId,
        /// The entry that was to be created.
        wanted: Seq,
        /// Where the log ends.
        head: Option<Head>,
    },

    /// The run was taken over by another holder, with a higher fence. Nothing was written, and nothing more
    /// can be with this fence.
    #[error("run {run} was taken over: fence {held} is behind {current}")]
    Fenced {
        /// The run.
        run: RunId,
        /// The caller's fence.
        held: Fence,
        /// The run's fence.
        current: Fence,
    },

    /// A staged pack that a commit relies on isn't there any more. Nothing was written; stage it again.
    #[error("staged pack {pack} is gone")]
    PackGone {
        /// The pack.
        pack: PackId,
    },

    /// What was read is not what was written.
    #[error("{what} is damaged: {detail}")]
    Corrupt {
        /// Which record or file.
        what: String,
        /// How it shows.
        detail: String,
    },

    /// A write-ahead log of SQLite that a crash left has commits behind a damaged place. Nothing was changed.
    #[error("{} is damaged: {before} commits are before the damage and {behind} behind it{}", wal.display(), match copy { Some(copy) => format!("; a copy is in {}", copy.display()), None => String::new() })]
    DamagedWal {
        /// The file.
        wal: PathBuf,
        /// The commits before the damage.
        before: u64,
        /// Those that can still be read behind it.
        behind: u64,
        /// Where its bytes are kept.
        copy: Option<PathBuf>,
    },

    /// The WAL beside a database is another's. Nothing was changed, and nothing is lost by moving it elsewhere.
    #[error("{} is not the WAL of {}: {detail}. Nothing was changed. Put it back beside the store that it belongs to, and this one's own in its place if there was one: without a WAL the store opens as its database has it", wal.display(), database.display())]
    ForeignWal {
        /// The file.
        wal: PathBuf,
        /// The database that it lies beside.
        database: PathBuf,
        /// How it shows.
        detail: String,
    },

    /// Written by a newer Piton. Nothing was changed.
    #[error("{what} has format {found}; this version knows formats up to {known}")]
    TooNew {
        /// Which record or file.
        what: String,
        /// Its format.
        found: u64,
        /// The newest format known here.
        known: u64,
    },

    /// This store can't do that at all.
    #[error("{store} can't {what}")]
    Unsupported {
        /// The kind of store.
        store: &'static str,
        /// What was asked.
        what: &'static str,
    },

    /// It can't be reached or is too busy; trying again may help. Whether a write that got this answer
    /// took place must be found out by reading the head.
    #[error("the store can't be reached: {detail}")]
    Unavailable {
        /// What happened.
        detail: String,
    },

    /// No space is left. What was stored before is intact.
    #[error("no space is left for {what}: {detail}")]
    Full {
        /// What was to be written.
        what: String,
        /// What the system said.
        detail: String,
    },

    /// The store can be read but not written.
    #[error("{what} is read-only")]
    ReadOnly {
        /// The file or folder.
        what: String,
    },

    /// The system doesn't let us.
    #[error("access to {what} is denied: {detail}")]
    Denied {
        /// The file or folder.
        what: String,
        /// Why.
        detail: String,
    },

    /// It is encrypted, and the key is missing or another one. Nothing was changed.
    #[error("{what} is encrypted: {detail}")]
    Locked {
        /// The store.
        what: String,
        /// What is wrong with the key.
        detail: String,
    },

    /// An earlier write failed in a way that leaves unknown what reached the disk, so this handle
    /// takes no more writes. What was acknowledged is safe; open the store again to go on.
    #[error("the store takes no more writes after a failed one: {cause}")]
    Poisoned {
        /// The failure.
        cause: String,
    },

    /// What was asked for makes no sense.
    #[error("{what} is not valid: {detail}")]
    Invalid {
        /// What.
        what: String,
        /// Why.
        detail: String,
    },

    /// More than fits.
    #[error("{what} has {size} bytes; at most {limit} are allowed")]
    TooLarge {
        /// What.
        what: String,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Full { .. })
    }

    /// Damage found in `what`.
    pub fn corrupt(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), detail: detail.into() }
    }

    /// What a failed call of the file system means for `path`.
    pub fn from_io(error: &std::io::Error, path: &std::path::Path) -> Self {
        use std::io::ErrorKind;
        let what = path.display().to_string();
        match error.kind() {
            ErrorKind::NotFound => Self::NotFound { what },
            ErrorKind::PermissionDenied => Self::Denied { what, detail: error.to_string() },
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { what },
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full { what, detail: error.to_string() },
            _ => Self::Unavailable { detail: format!("{what}: {error}") },
        }
    }

    /// A staged pack that isn't there.
    pub fn no_pack(pack: PackId) -> Self {
        Self::NotFound { what: format!("staged pack {pack}") }
    }

    /// A run that isn't there.
    pub fn no_run(run: &RunId) -> Self {
        Self::NotFound { what: format!("run {run}") }
    }
}

impl From<InvalidId> for StoreError {
    fn from(invalid: InvalidId) -> Self {
        Self::Invalid { what: invalid.kind.to_owned(), detail: invalid.to_string() }
    }
}
