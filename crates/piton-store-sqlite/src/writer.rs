//! The one connection that writes, the one path to it, and what becomes of the handle when a write fails.
//!
//! [`Core::write`] is one transaction: begin, the caller's work, commit. It runs on the calling thread. If another
//! thread has the connection, or another process is writing, a blocking thread waits for it instead of the async task.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use piton_store::StoreError;
use piton_types::Durability;
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use crate::counters::Tally;
use crate::errors::{is_busy, poisons, translate};
use crate::files::Files;
use crate::open::patiently;
use crate::pool::Pool;
use crate::wal::WAL_PAGES;
use crate::{SqliteOptions, connect, mark};

/// Why a transaction was not committed.
pub(crate) enum Failure {
    /// The store refuses it.
    Refused(StoreError),
    /// SQLite failed.
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

/// The connection that writes.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    /// Whether a commit waits for the disk at present.
    durable: bool,
    /// The length of the WAL, in pages, at which the next checkpoint is due.
    pub(crate) checkpoint_at: u64,
}

impl Writer {
    /// A writer that counts the pages of the WAL in `tally` with each commit.
    pub(crate) fn new(mut conn: Connection, tally: &Arc<Tally>) -> rusqlite::Result<Self> {
        let tally = Arc::clone(tally);
        conn.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            tally.wal_pages.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { conn, durable: true, checkpoint_at: WAL_PAGES })
    }

    /// Begins a transaction and takes the database's write lock with it.
    fn begin(&mut self, durable: bool) -> rusqlite::Result<()> {
        if !self.conn.is_autocommit() {
            // The work of an earlier transaction panicked.
            self.run("ROLLBACK")?;
        }
        if self.durable != durable {
            let sql = if durable { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            self.conn.execute_batch(sql)?;
            self.durable = durable;
        }
        self.run("BEGIN IMMEDIATE")
    }

    /// Executes a statement that takes and gives nothing.
    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute(()).map(drop)
    }
}

/// What all parts of an open store share.
pub(crate) struct Core {
    pub(crate) files: Files,
    pub(crate) options: SqliteOptions,
    /// `None` if the store can only be read, or is closed.
    pub(crate) writer: Mutex<Option<Writer>>,
    read_only: bool,
    pub(crate) pool: Pool,
    pub(crate) tally: Arc<Tally>,
    /// Why the handle takes no more writes.
    pub(crate) poison: OnceLock<String>,
    /// Whether this handle freed pages that it hasn't given back to the file system yet.
    pub(crate) freed: AtomicBool,
}

/// Locks a mutex, also one whose holder panicked: [`Writer::begin`] takes back what the holder left open.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    pub(crate) fn new(
        files: Files,
        options: SqliteOptions,
        writer: Option<Writer>,
        pool: Pool,
        tally: Arc<Tally>,
    ) -> Self {
        let read_only = writer.is_none() || options.looks;
        let writer = Mutex::new(writer);
        Self { files, options, writer, read_only, pool, tally, poison: OnceLock::new(), freed: AtomicBool::new(false) }
    }

    /// Fails if nothing can be written.
    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        if let Some(cause) = self.poison.get() {
            return Err(StoreError::Poisoned { cause: cause.clone() });
        }
        if self.read_only {
            return Err(StoreError::ReadOnly { what: self.files.database.display().to_string() });
        }
        Ok(())
    }

    /// The error of a call on a closed store.
    pub(crate) fn closed(&self) -> StoreError {
        StoreError::Unavailable { detail: format!("{} was closed", self.files.database.display()) }
    }

    /// Runs `work` in a transaction of its own and commits it. When this returns, a durable commit survives a power cut;
    /// a relaxed one does so after the next durable one.
    pub(crate) async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        durability: Durability,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        // Where the system has no boot id, a relaxed commit that a power cut took from before a durable one would look
        // like damage (see `mark`), so every commit is durable there.
        let durable = durability == Durability::Durable || mark::boot().is_none();
        let work = match self.write_at_once(durable, work) {
            Ok(done) => return done,
            Err(work) => work,
        };
        let core = Arc::clone(self);
        let wait = move || core.write_patiently(durable, work);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return wait() };
        match runtime.spawn_blocking(wait).await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(self.closed()),
        }
    }

    /// As `write`, but gives `work` back if the caller would have to wait for another writer.
    fn write_at_once<T, W: FnOnce(&Connection) -> Result<T, Failure>>(
        &self,
        durable: bool,
        work: W,
    ) -> Result<Result<T, StoreError>, W> {
        let mut guard = match self.writer.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(work),
        };
        let writer = match self.writer_in(&mut guard) {
            Ok(writer) => writer,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match writer.begin(durable) {
            Ok(()) => Ok(self.finish(writer, work)),
            Err(error) if is_busy(&error) => Err(work),
            Err(error) => Ok(Err(self.abandon(writer, &error, false))),
        }
    }

    /// The same on a thread that may wait.
    pub(crate) fn write_patiently<T>(
        &self,
        durable: bool,
        work: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let mut guard = locked(&self.writer);
        let writer = self.writer_in(&mut guard)?;
        match patiently(self.options.patience, || writer.begin(durable)) {
            Ok(()) => self.finish(writer, work),
            Err(error) => Err(self.abandon(writer, &error, false)),
        }
    }

    fn writer_in<'a>(&self, guard: &'a mut Option<Writer>) -> Result<&'a mut Writer, StoreError> {
        self.check_writable()?;
        guard.as_mut().ok_or_else(|| self.closed())
    }

    /// Does the work of a transaction that was begun, and ends it.
    fn finish<T>(
        &self,
        writer: &mut Writer,
        work: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let value = match work(&writer.conn) {
            Ok(value) => value,
            Err(Failure::Sql(error)) => return Err(self.abandon(writer, &error, false)),
            Err(Failure::Refused(refusal)) => {
                return Err(match writer.run("ROLLBACK") {
                    Ok(()) => refusal,
                    Err(error) => self.abandon(writer, &error, false),
                });
            }
        };
        writer.run("COMMIT").map_err(|error| self.abandon(writer, &error, true))?;
        Tally::add(&self.tally.syncs, u64::from(writer.durable));
        self.keep_wal_short(writer);
        Ok(value)
    }

    /// Takes a failed transaction back, and says what the failure means.
    fn abandon(&self, writer: &Writer, error: &rusqlite::Error, committing: bool) -> StoreError {
        let undone = writer.conn.is_autocommit() || writer.run("ROLLBACK").is_ok();
        if undone && !poisons(error, committing) {
            return translate(error, &self.files.database);
        }
        self.poison(&writer.conn, error)
    }

    /// Takes no more writes through this handle, and leaves the WAL to the checks of the next open.
    pub(crate) fn poison(&self, conn: &Connection, error: &rusqlite::Error) -> StoreError {
        let path = self.files.database.display();
        let cause = self.poison.get_or_init(|| match self.files.wal().symlink_metadata() {
            Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => format!("{path}: its log was deleted"),
            _ => format!("{path}: {error}"),
        });
        tracing::error!(cause, "the store takes no more writes");
        connect::keep_wal(conn);
        self.pool.keep_wal();
        StoreError::Poisoned { cause: cause.clone() }
    }
}
