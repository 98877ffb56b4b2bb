//! The one connection that writes, and what becomes of it when a write fails.
//!
//! Two ways lead to it. Whoever finds it free and nothing waiting uses it on his own thread. Everybody
//! else, and whoever finds another *process* writing, puts his work into the queue, which a thread of
//! its own serves in order (see [`group`](crate::group)).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};

use bytes::Bytes;
use piton_store::{Commit, StoreError};
use piton_types::{RunId, Seq};
use rusqlite::{Connection, FileControl, MAIN_DB};

use crate::append::Tip;
use crate::counters::Tally;
use crate::errors::{is_busy, poisons, translate};
use crate::files::Files;
use crate::group::{Job, Queue};
use crate::helper::Helper;
use crate::hot::Hot;
use crate::maintenance::{Chores, MarkUse};
use crate::open::patiently;
use crate::pool::Pool;
use crate::syncs::Syncs;
use crate::vfs::MarksOf;
use crate::{SqliteOptions, connect, mark, places};

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
    /// Before the connection, which outlives them.
    pub(crate) hot: Hot,
    marks: MarksOf,
    pub(crate) conn: Connection,
    /// Whether commits wait for the disk at present.
    durable: bool,
    tips: Tips,
    /// Runs that may have places for entries to come, which were made here.
    placed: HashSet<i64>,
}

/// Where runs end, as of the last append of this connection. They hold only until anybody commits anything else.
#[derive(Default)]
struct Tips {
    /// What SQLite counts up whenever this connection commits, or finds that another one did.
    version: u32,
    of: HashMap<RunId, Tip>,
}

impl Writer {
    /// How many runs' ends are remembered.
    const TIPS: usize = 1 << 10;

    pub(crate) fn new(conn: Connection) -> rusqlite::Result<Self> {
        let mut marks = MarksOf::new(&conn)?;
        marks.spare(true);
        Ok(Self { hot: Hot::new(&conn)?, marks, conn, durable: true, tips: Tips::default(), placed: HashSet::new() })
    }

    /// Forgets the ends of runs if anybody else wrote since. At the begin of a transaction that has the database's
    /// write lock.
    pub(crate) fn check_tips(&mut self) {
        if self.version() != Some(self.tips.version) {
            self.tips.of.clear();
        }
    }

    /// Where a run ended when the transaction began, if that is known.
    pub(crate) fn tip(&self, run: &RunId) -> Option<Tip> {
        self.tips.of.get(run).copied()
    }

    /// Remembers what a transaction with these appends and nothing else has left.
    pub(crate) fn keep_tips(&mut self, applied: &[(&Commit, Tip)]) {
        let Some(version) = self.version() else { return self.tips.of.clear() };
        self.tips.version = version;
        for (commit, tip) in applied {
            // A run that begins is the newest, and another one isn't any more.
            if commit.seq == Seq(0) || self.tips.of.len() >= Self::TIPS {
                self.tips.of.clear();
            }
            match self.tips.of.get_mut(&commit.run) {
                Some(known) => *known = *tip,
                None => drop(self.tips.of.insert(commit.run.clone(), *tip)),
            }
            if tip.places.is_some() {
                self.placed.insert(tip.number);
            } else {
                self.placed.remove(&tip.number);
            }
        }
    }

    fn version(&self) -> Option<u32> {
        let mut version = 0;
        self.conn.file_control(Some(MAIN_DB), FileControl::DataVersion(&mut version)).ok()?;
        Some(version)
    }

    /// Lets commits wait for the disk, or not. Not inside a transaction.
    pub(crate) fn set_durable(&mut self, durable: bool) -> rusqlite::Result<()> {
        if self.durable != durable {
            let sql = if durable { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            self.conn.execute_batch(sql)?;
            self.durable = durable;
        }
        Ok(())
    }

    /// Begins a transaction and takes the database's write lock with it.
    pub(crate) fn begin(&mut self, durable: bool) -> rusqlite::Result<()> {
        self.set_durable(durable)?;
        self.hot.begin()
    }

    /// Begins a transaction during which the whole log can be moved.
    pub(crate) fn begin_at_the_end(&mut self) -> rusqlite::Result<()> {
        let spared = self.marks.spare(false);
        let begun = self.begin(false);
        self.marks.spare(spared);
        begun
    }

    /// Commits the transaction, and does with its mark and the next one's as the log allows.
    pub(crate) fn commit(&mut self, marks: MarkUse) -> rusqlite::Result<()> {
        self.marks.keep(marks == MarkUse::Keep);
        let done = self.hot.commit();
        self.marks.keep(false);
        self.marks.spare(marks != MarkUse::Drop);
        if done.is_err() {
            // Nobody will be told of it.
            self.marks.let_go();
        }
        done
    }

    /// Removes the places that were made here and hold nothing. Nobody needs to wait for the disk then.
    pub(crate) fn clear_places(&mut self) -> rusqlite::Result<()> {
        if self.placed.is_empty() {
            return Ok(());
        }
        self.begin(Core::chores_are_durable())?;
        let cleared = self.placed.drain().try_for_each(|run| places::clear(&self.conn, run));
        match cleared.and_then(|()| self.commit(MarkUse::Drop)) {
            Err(error) if !self.conn.is_autocommit() => self.run("ROLLBACK").and(Err(error)),
            done => done,
        }
    }

    /// Lets go of the mark that was kept with the last commit, if one was.
    pub(crate) fn let_go(&mut self) {
        self.marks.let_go();
    }

    /// Executes a statement that takes and gives nothing.
    pub(crate) fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute(()).map(drop)
    }
}

/// What all parts of an open store share.
pub(crate) struct Core {
    pub(crate) me: Weak<Self>,
    pub(crate) files: Files,
    pub(crate) options: SqliteOptions,
    /// `None` if the store can only be read, or is closed.
    pub(crate) writer: Mutex<Option<Writer>>,
    pub(crate) read_only: bool,
    pub(crate) queue: Queue,
    pub(crate) serving: Helper,
    pub(crate) pool: Pool,
    pub(crate) chores: Chores,
    pub(crate) doing_chores: Helper,
    pub(crate) syncs: Syncs,
    pub(crate) tally: Arc<Tally>,
    /// Why no more writes are taken.
    pub(crate) poison: OnceLock<String>,
    /// The lists of packs that the table of blobs hasn't got yet. They never change.
    pub(crate) unlisted: Mutex<HashMap<i64, Bytes>>,
    /// The numbers of runs, which never change and are never used again, for appends.
    runs: Mutex<HashMap<RunId, i64>>,
}

/// A lock whose holder panicked is as good as any: a transaction that he left open is rolled back by
/// whoever finds it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// How many runs' numbers are remembered.
    const REMEMBERED: usize = 1 << 16;

    pub(crate) fn new(
        files: Files,
        options: SqliteOptions,
        writer: Option<Writer>,
        pool: Pool,
        tally: Arc<Tally>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            files,
            options,
            read_only: writer.is_none(),
            writer: Mutex::new(writer),
            queue: Queue::default(),
            serving: Helper::new("piton-writer", Self::serve),
            pool,
            chores: Chores::default(),
            doing_chores: Helper::new("piton-upkeep", Self::do_chores),
            syncs: Syncs::default(),
            tally,
            poison: OnceLock::new(),
            unlisted: Mutex::default(),
            runs: Mutex::default(),
        })
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

    pub(crate) fn closed(&self) -> StoreError {
        StoreError::Unavailable { detail: format!("{} was closed", self.files.database.display()) }
    }

    /// The writer, if it is free and nothing is waiting for it.
    pub(crate) fn free_writer(&self) -> Option<MutexGuard<'_, Option<Writer>>> {
        if !self.queue.is_empty() {
            return None;
        }
        match self.writer.try_lock() {
            Ok(writer) => Some(writer),
            Err(TryLockError::Poisoned(writer)) => Some(writer.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The run's number if it is remembered.
    pub(crate) fn known_run(&self, run: &RunId) -> Option<i64> {
        locked(&self.runs).get(run).copied()
    }

    /// Remembers the number of a run that is committed.
    pub(crate) fn remember_run(&self, run: &RunId, number: i64) {
        let mut runs = locked(&self.runs);
        if runs.len() >= Self::REMEMBERED {
            runs.clear();
        }
        runs.insert(run.clone(), number);
    }

    /// Forgets a run that was removed.
    pub(crate) fn forget_run(&self, run: &RunId) {
        locked(&self.runs).remove(run);
    }

    /// Whether a transaction that nobody waits for is synced all the same. Were it in the log unsynced when a
    /// durable commit goes behind it, a power cut could leave the second without the first, and that looks
    /// like damage unless it is known that the machine was started again.
    pub(crate) fn chores_are_durable() -> bool {
        mark::boot().is_none()
    }

    /// Takes a failed transaction back, and says what the failure means.
    pub(crate) fn abandon(&self, writer: &Writer, error: &rusqlite::Error, committing: bool) -> StoreError {
        let undone = writer.conn.is_autocommit() || writer.run("ROLLBACK").is_ok();
        if undone && !poisons(error, committing) {
            return translate(error, &self.files.database);
        }
        connect::keep_log(&writer.conn);
        self.poison(error)
    }

    /// Takes no more writes. The caller sees to it that his connection leaves the log alone.
    pub(crate) fn poison(&self, error: &rusqlite::Error) -> StoreError {
        let path = self.files.database.display();
        let cause = self.poison.get_or_init(|| match self.files.wal().symlink_metadata() {
            Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => format!("{path}: its log was deleted"),
            _ => format!("{path}: {error}"),
        });
        tracing::error!(cause, "the store takes no more writes");
        self.pool.keep_log();
        StoreError::Poisoned { cause: cause.clone() }
    }

    /// Runs `op` in a transaction of its own and commits it.
    ///
    /// Nobody needs it to be durable, and the next durable commit makes it so: see
    /// [`chores_are_durable`](Self::chores_are_durable).
    pub(crate) async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        op: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.check_writable()?;
        let op = match self.write_if_free(op) {
            Ok(done) => return done,
            Err(op) => op,
        };
        let (answer, answered) = tokio::sync::oneshot::channel();
        let core = Arc::clone(self);
        let task = move || {
            // Nobody listens any more if the future was dropped.
            drop(answer.send(core.write_patiently(op)));
        };
        self.enqueue(Job::Task(Box::new(task)))?;
        answered.await.unwrap_or_else(|_| Err(self.closed()))
    }

    /// As `write`, but gives `op` back if that would mean to wait.
    fn write_if_free<T, F: FnOnce(&Connection) -> Result<T, Failure>>(
        &self,
        op: F,
    ) -> Result<Result<T, StoreError>, F> {
        if self.chores.holds_up(&self.tally) {
            return Err(op);
        }
        let Some(mut guard) = self.free_writer() else { return Err(op) };
        let Some(writer) = guard.as_mut() else { return Ok(Err(self.closed())) };
        match writer.begin(Self::chores_are_durable()) {
            Ok(()) => Ok(self.finish(writer, op)),
            Err(error) if is_busy(&error) => Err(op),
            Err(error) => Ok(Err(self.abandon(writer, &error, false))),
        }
    }

    fn write_patiently<T>(&self, op: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, StoreError> {
        self.check_writable()?;
        let mut guard = locked(&self.writer);
        let Some(writer) = guard.as_mut() else { return Err(self.closed()) };
        match patiently(self.options.patience, || writer.begin(Self::chores_are_durable())) {
            Ok(()) => self.finish(writer, op),
            Err(error) => Err(self.abandon(writer, &error, false)),
        }
    }

    fn finish<T>(
        &self,
        writer: &mut Writer,
        op: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        match op(&writer.conn) {
            Ok(value) => match writer.commit(self.mark_use()) {
                Ok(()) => {
                    self.after_commit(0);
                    Ok(value)
                }
                Err(error) => Err(self.abandon(writer, &error, true)),
            },
            Err(Failure::Sql(error)) => Err(self.abandon(writer, &error, false)),
            Err(Failure::Refused(refusal)) => match writer.run("ROLLBACK") {
                Ok(()) => Err(refusal),
                Err(error) => Err(self.abandon(writer, &error, false)),
            },
        }
    }

    /// What becomes of the marks of writers at present.
    pub(crate) fn mark_use(&self) -> MarkUse {
        Chores::mark_use(&self.tally)
    }

    /// Notices what the maintenance thread has to do after a transaction with so many appends.
    pub(crate) fn after_commit(&self, appends: u64) {
        if self.chores.after_commit(&self.tally, appends) {
            self.start_chores();
        }
    }

    /// As [`after_commit`](Self::after_commit), after pages were freed.
    pub(crate) fn after_fold(&self) {
        self.chores.after_fold();
        self.start_chores();
    }

    fn start_chores(&self) {
        // Nothing is lost without it, and the next one who wants it tries again.
        if let Err(error) = self.doing_chores.start(&self.me) {
            tracing::warn!(%error, store = %self.files.database.display(), "maintenance has to wait");
            self.chores.ask_again();
        }
    }
}
