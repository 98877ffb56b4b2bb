//! The store as its user holds it: opening, closing, and what it says of itself.

use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use piton_store::{Capabilities, Hashing, Store, StoreError, Usage};
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use crate::counters::{Counters, Tally};
use crate::open::{self, Opened};
use crate::pool::Pool;
use crate::writer::{Core, Writer, locked};
use crate::{SqliteOptions, connect, maintenance};

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
    /// If a crash left a log, it is checked and recovered here. A store that can't be written to (the
    /// file or its folder is read-only) is opened for reading, and every write to it is `ReadOnly`. A log that is another
    /// store's is refused (`ForeignLog`).
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let Opened { files, target, writer, lock, full } = open::open(path.as_ref(), &options)?;
        let tally = Arc::new(Tally::default());
        let writer = writer.map(|conn| watch_log(conn, &tally).and_then(Writer::new)).transpose();
        let writer = writer.map_err(|error| crate::errors::translate_unfit(&error, &files.database))?;
        let core = Core::new(files, options, writer, Pool::new(target), tally);
        if let Some(full) = full {
            core.poison.get_or_init(|| full);
        }
        // If there is no log yet, the first sync finds it.
        drop(core.syncs.open(&core.files));
        Ok(Self { core, lock: Mutex::new(lock) })
    }

    /// The version of SQLite that is built in.
    pub fn engine_version() -> &'static str {
        rusqlite::version()
    }

    /// What this handle has done so far.
    pub fn counters(&self) -> Counters {
        self.core.tally.read()
    }

    /// Work that waits is done first. Readers go before the writer, which then is the last connection
    /// of this handle: SQLite moves the log into the database and removes it when it is the last of all.
    fn shut(&self) -> Result<(), StoreError> {
        self.core.queue.stop();
        self.core.chores.stop();
        self.core.serving.join();
        self.core.doing_chores.join();
        self.core.syncs.end();
        self.core.pool.close();
        let closed = match locked(&self.core.writer).take() {
            Some(mut writer) => {
                if self.core.poison.get().is_none()
                    && let Err(error) = writer.clear_places()
                {
                    tracing::debug!(%error, "places for entries to come stay in the file");
                }
                writer.let_go();
                let Writer { conn, hot, .. } = writer;
                drop(hot);
                if self.core.poison.get().is_some() {
                    connect::keep_log(&conn);
                } else {
                    maintenance::before_closing(&conn, &self.core.tally);
                }
                conn.close().map_err(|(_, error)| crate::errors::translate(&error, &self.core.files.database))
            }
            None => Ok(()),
        };
        drop(locked(&self.lock).take());
        closed
    }
}

/// Counts the pages of the log as commits add them.
fn watch_log(mut conn: Connection, tally: &Arc<Tally>) -> rusqlite::Result<Connection> {
    let tally = Arc::clone(tally);
    conn.wal_hook(Some(move |_: &mut Wal, pages: i32| {
        tally.wal_pages.store(u64::try_from(pages).unwrap_or(0), std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(conn)
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
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len());
        let files = &self.core.files;
        Ok(Usage { runs: runs.cast_unsigned(), bytes: size(&files.database) + size(&files.wal()) })
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.shut()
    }
}
