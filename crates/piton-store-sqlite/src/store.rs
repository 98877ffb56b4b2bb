//! The store as its user holds it: opening, closing, and what it says of itself.

use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use piton_store::{Capabilities, Changes, Fold, Hashing, Leases, Queue, Store, StoreError, Upkeep, Usage};

use crate::SqliteOptions;
use crate::counters::{Counters, Tally};
use crate::errors::translate;
use crate::open::{self, Opened};
use crate::pool::Pool;
use crate::writer::{Core, Writer, locked};

/// A store in one SQLite database.
///
/// Several handles, in one process or in many, may have the same store open. Dropping a handle closes
/// it; the last one leaves nothing but the database and `PATH-lock`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use piton_store::Store as _;
/// use piton_store_sqlite::{SqliteOptions, SqliteStore};
///
/// let folder = tempfile::tempdir().unwrap();
/// let store = SqliteStore::open(folder.path().join("store.db"), SqliteOptions::default()).unwrap();
/// assert_eq!(store.usage().await.unwrap().runs, 0);
/// store.close().await.unwrap();
/// # });
/// ```
pub struct SqliteStore {
    pub(crate) core: Arc<Core>,
    /// The shared lock. Let go last.
    lock: Mutex<Option<std::fs::File>>,
}

impl SqliteStore {
    /// Opens the store at `path`, and makes it if there is none and the options say so. An empty file is
    /// taken for none.
    ///
    /// If a crash left a WAL, it is checked and recovered here. A store that can't be written to (the
    /// file or its folder is read-only) is opened for reading, and every write to it is `ReadOnly`. A WAL that is another
    /// store's is refused (`ForeignWal`).
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let Opened { files, target, writer, lock, full } = open::open(path.as_ref(), &options)?;
        let tally = Arc::new(Tally::default());
        let writer = writer.map(|conn| Writer::new(conn, &tally)).transpose();
        let writer = writer.map_err(|error| translate(&error, &files.database))?;
        let core = Core::new(files, options, writer, Pool::new(target), tally);
        if let Some(full) = full {
            core.poison.get_or_init(|| full);
        }
        Ok(Self { core: Arc::new(core), lock: Mutex::new(lock) })
    }

    /// The version of SQLite that is built in.
    pub fn engine_version() -> &'static str {
        rusqlite::version()
    }

    /// What this handle has done so far.
    pub fn counters(&self) -> Counters {
        self.core.tally.read()
    }

    /// Closes the readers first, so that the writer is the last connection of this handle: SQLite moves the WAL into
    /// the database and removes it when the last connection of all handles closes.
    fn shut(&self) -> Result<(), StoreError> {
        self.core.vacuum_before_closing();
        self.core.pool.close();
        let closed = match locked(&self.core.writer).take() {
            Some(Writer { conn, .. }) => {
                conn.close().map_err(|(_, error)| translate(&error, &self.core.files.database))
            }
            None => Ok(()),
        };
        drop(locked(&self.lock).take());
        closed
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if let Err(error) = self.shut() {
            tracing::warn!(%error, "the store can't be closed");
        }
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("database", &self.core.files.database).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn folding(&self) -> Option<&dyn Fold> {
        Some(self)
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn upkeep(&self) -> Option<&dyn Upkeep> {
        Some(self)
    }

    fn changes(&self) -> Option<&dyn Changes> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn hashing(&self) -> &Hashing {
        &Hashing::PLAIN
    }

    fn syncs(&self) -> u64 {
        self.counters().syncs
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.core.files.database.display())
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        let runs = self.core.read(|conn| {
            Ok(conn.prepare_cached("SELECT count(*) FROM run")?.query_row((), |row| row.get::<_, i64>(0))?)
        })?;
        let wal = std::fs::metadata(self.core.files.wal()).map_or(0, |data| data.len());
        Ok(Usage { runs: runs.cast_unsigned(), bytes: self.core.files.size() + wal })
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.shut()
    }
}
