//! What has to be done now and then, on a thread of its own and never by an append:
//!
//! - **Checkpoints.** Past [`LOG_PAGES`] the log is moved into the database, first beside running
//!   writers, then, for the rest of the moment, while they are kept out: only a log that is moved as a
//!   whole is begun again from its start. Otherwise it would grow for as long as somebody writes. Whoever writes faster
//!   than the disk takes it waits a moment with each commit while a log of [`LONG`] pages is moved.
//! - **Syncs** of what was committed without waiting for the disk ([`syncs`](crate::syncs)).
//! - **Growing the log.** A commit that lengthens a file waits for the file system's journal as well.
//!   A handle that has committed [`GROW_AFTER`] times writes zeros behind the log once, so that later
//!   commits overwrite. SQLite ignores what doesn't fit its checksums. Short commands never pay for it.
//! - **Letting go.** A writer that commits often keeps its mark in the log's index from one commit to the next
//!   ([`marks`](crate::marks)), and gives it up when it comes to rest, so that nobody else waits for it.
//! - **Vacuum.** Folding leaves free pages. The next appends reuse them; if there are far more than
//!   that, some are given back to the file system, in short transactions.
//!
//! A crash in any of it loses nothing: a checkpoint is repeated, zeros mean nothing, and a step of the
//! vacuum is a transaction.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB, Transaction, TransactionBehavior};

use crate::counters::Tally;
use crate::errors::{is_busy, poisons};
use crate::open::{A_MOMENT, let_others_write};
use crate::schema::PAGE;
use crate::writer::{Core, locked};
use crate::{connect, files};

/// Pages of the log that are worth a checkpoint.
const LOG_PAGES: u64 = (4 << 20) / PAGE as u64;
/// Pages of the log with which whoever writes waits for a checkpoint that is under way.
const LONG: u64 = 5 * LOG_PAGES;
/// How long a commit waits for it: no longer than anybody may be held up, and long enough to let the disk go first.
const A_WHILE: Duration = Duration::from_millis(25);
/// Commits of a handle after which its log is grown.
const GROW_AFTER: u64 = 64;
/// How far it is grown: twice `LOG_PAGES`, for what is written while a checkpoint is under way.
const GROWN: u64 = 8 << 20;
/// By how much in one go: a moment's work for the disk.
const GROWN_BY: usize = 256 << 10;
/// Free pages that are never given back.
const SPARE_PAGES: u64 = 512;
/// Pages that are given back between two looks at the time.
const VACUUM_STEP: u64 = 16;
/// What of the log may be moved while writers are kept out: some milliseconds.
const LITTLE: u64 = 256;
/// How often it is tried to get there. Each pass moves what was written during the one before, which is less every time.
const PASSES: usize = 8;
/// Pages that are given back when a handle that folded is closed: 32 MiB, some milliseconds.
const VACUUM_CLOSING: u64 = 8192;

/// A writer who didn't commit for as long as this, or twice as long, lets go of its mark in the log's index.
const IDLE: Duration = Duration::from_millis(20);

/// What a writer does with its mark in the log's index ([`marks`](crate::marks)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkUse {
    /// It takes one with each transaction, an older one if there is one.
    Spare,
    /// It keeps it from one commit to the next: it commits so often that there is a maintenance thread to let go of it.
    Keep,
    /// It takes the newest with each transaction and drops it. The log is longer than it should be: perhaps others want
    /// to move it and find a mark in their way, of several writers one at any time.
    Drop,
}

/// What there is to do.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    checkpoint: bool,
    grow: bool,
    vacuum: bool,
    let_go: bool,
    sync: bool,
    stop: bool,
}

impl Due {
    const fn anything(self) -> bool {
        self.checkpoint || self.grow || self.vacuum || self.let_go || self.sync || self.stop
    }
}

/// What there is to do, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Chores {
    due: Mutex<Due>,
    changed: Condvar,
    /// The length of the log at which the next checkpoint is due, less `LOG_PAGES`. Above zero while a
    /// reader keeps the log from being begun again: then a checkpoint per commit would help nobody.
    backlog: AtomicU64,
    /// A checkpoint is under way.
    moving: AtomicBool,
    moved: Condvar,
    /// Transactions that committed.
    commits: AtomicU64,
    /// Somebody sees to it that the writer lets go of its mark.
    minding: AtomicBool,
}

impl Chores {
    fn note(&self, change: impl FnOnce(&mut Due)) {
        change(&mut locked(&self.due));
        self.changed.notify_one();
    }

    /// Called after each transaction that committed; says whether there is something to do.
    pub(crate) fn after_commit(&self, tally: &Tally, appends: u64) -> bool {
        let mut due = false;
        self.commits.fetch_add(1, Ordering::Relaxed);
        if Self::mark_use(tally) == MarkUse::Keep && !self.minding.load(Ordering::Relaxed) {
            self.minding.store(true, Ordering::Relaxed);
            self.note(|_| ());
            due = true;
        }
        let pages = tally.wal_pages.load(Ordering::Relaxed);
        let backlog = self.backlog.load(Ordering::Relaxed);
        if pages < backlog {
            self.backlog.store(0, Ordering::Relaxed);
        } else if pages >= backlog + LOG_PAGES {
            self.backlog.store(pages, Ordering::Relaxed);
            self.note(|due| due.checkpoint = true);
            due = true;
        }
        let commits = tally.commits.load(Ordering::Relaxed);
        if commits >= GROW_AFTER && commits - appends < GROW_AFTER && appends > 0 {
            self.note(|due| due.grow = true);
            due = true;
        }
        due
    }

    /// Whether whoever writes had better wait until the log is moved.
    pub(crate) fn holds_up(&self, tally: &Tally) -> bool {
        tally.wal_pages.load(Ordering::Relaxed) >= LONG && self.moving.load(Ordering::Relaxed)
    }

    /// Waits until the log is moved, or for a while.
    pub(crate) fn wait_for_the_log(&self, tally: &Tally) {
        if self.holds_up(tally) {
            let due = locked(&self.due);
            drop(self.moved.wait_timeout_while(due, A_WHILE, |_| self.holds_up(tally)));
        }
    }

    /// Does what moves the log.
    fn moving<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Nobody waits for it any more, even if it panicked.
        struct Moving<'a>(&'a Chores);
        impl Drop for Moving<'_> {
            fn drop(&mut self) {
                // With the lock, so that nobody looks before and waits after.
                let due = locked(&self.0.due);
                self.0.moving.store(false, Ordering::Relaxed);
                drop(due);
                self.0.moved.notify_all();
            }
        }
        self.moving.store(true, Ordering::Relaxed);
        let _moving = Moving(self);
        work()
    }

    /// What becomes of the marks of writers at present.
    pub(crate) fn mark_use(tally: &Tally) -> MarkUse {
        if tally.wal_pages.load(Ordering::Relaxed) >= 2 * LOG_PAGES {
            MarkUse::Drop
        } else if tally.commits.load(Ordering::Relaxed) >= GROW_AFTER {
            MarkUse::Keep
        } else {
            MarkUse::Spare
        }
    }

    pub(crate) fn after_fold(&self) {
        self.note(|due| due.vacuum = true);
    }

    /// There is no thread to mind the mark: the next commit asks for one again.
    pub(crate) fn ask_again(&self) {
        self.minding.store(false, Ordering::Relaxed);
    }

    /// Somebody asked for a sync.
    pub(crate) fn sync(&self) {
        self.note(|due| due.sync = true);
    }

    /// Lets the thread end.
    pub(crate) fn stop(&self) {
        self.note(|due| due.stop = true);
    }

    /// Whether a checkpoint is due; it isn't any more then.
    fn take_checkpoint(&self) -> bool {
        std::mem::take(&mut locked(&self.due).checkpoint)
    }

    fn stopping(&self) -> bool {
        locked(&self.due).stop
    }

    /// Waits for something to do.
    fn next(&self) -> Due {
        let mut due = locked(&self.due);
        let mut seen = None;
        while !due.anything() {
            if !self.minding.load(Ordering::Relaxed) {
                due = self.changed.wait(due).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (woken, waited) = self.changed.wait_timeout(due, IDLE).unwrap_or_else(PoisonError::into_inner);
            due = woken;
            let commits = self.commits.load(Ordering::Relaxed);
            due.let_go = waited.timed_out() && seen.replace(commits) == Some(commits);
        }
        let now = *due;
        *due = Due { stop: now.stop, ..Due::default() };
        now
    }
}

impl Core {
    /// Does the chores until it is told to stop.
    pub(crate) fn do_chores(self: Arc<Self>) {
        // Opened when it is first needed, and closed with the thread.
        let mut conn = None;
        loop {
            let due = self.chores.next();
            if due.sync {
                self.sync_for_all();
            }
            if due.stop {
                return;
            }
            if due.let_go {
                self.let_go();
            }
            if self.poison.get().is_some() {
                conn.iter().for_each(connect::keep_log);
                continue;
            }
            let done: rusqlite::Result<()> = (|| {
                if due.grow {
                    self.grow_log()?;
                }
                if due.vacuum {
                    self.vacuum(&mut conn)?;
                }
                if due.checkpoint {
                    self.checkpoint(&mut conn)?;
                }
                Ok(())
            })();
            match done {
                Ok(()) => {}
                // A checkpoint whose sync failed must not be tried again: the next sync may succeed
                // without the pages, and then the log, which has them, would be overwritten.
                Err(error) if poisons(&error, false) => {
                    if let Some(conn) = &conn {
                        connect::keep_log(conn);
                    }
                    self.poison(&error);
                }
                // Nothing is lost, and later commits ask for it again.
                Err(error) => {
                    tracing::warn!(%error, store = %self.files.database.display(), "maintenance failed");
                }
            }
        }
    }

    /// Lets go of the writer's mark, unless somebody commits after all.
    fn let_go(&self) {
        if let Some(mut guard) = self.free_writer() {
            // Whoever commits next has the writer after this, and says so again.
            self.chores.minding.store(false, Ordering::Relaxed);
            if let Some(writer) = guard.as_mut() {
                writer.let_go();
            }
        }
    }

    fn checkpoint(&self, conn: &mut Option<Connection>) -> rusqlite::Result<()> {
        let conn = match conn {
            Some(conn) => conn,
            None => conn.insert(self.pool.target().writer()?),
        };
        self.chores.moving(|| self.move_log(conn))
    }

    fn move_log(&self, conn: &Connection) -> rusqlite::Result<()> {
        // Beside whoever writes, until what he wrote meanwhile is little.
        let mut before = None;
        for _ in 0..PASSES {
            if !self.sync_for_all() {
                return Ok(());
            }
            if let Some(Some(writer)) = self.free_writer().as_deref_mut() {
                writer.let_go();
            }
            let (log, moved) = match conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::PASSIVE) {
                Err(error) if is_busy(&error) => return Ok(()),
                done => done?,
            };
            Tally::add(&self.tally.checkpoints, 1);
            let count = |pages: i32| u64::try_from(pages).unwrap_or(0);
            let (length, moved) = (self.tally.wal_pages.load(Ordering::Relaxed).max(count(log)), count(moved));
            if moved == length {
                return Ok(());
            }
            if length - moved <= LITTLE {
                break;
            }
            // Somebody reads what would be overwritten. Nobody else waits for him: later commits ask again.
            if before.replace(moved) == Some(moved) {
                return Ok(());
            }
        }
        // The rest, with every writer of every process kept out.
        let mut guard = locked(&self.writer);
        let Some(writer) = guard.as_mut() else { return Ok(()) };
        match writer.begin_at_the_end() {
            Err(error) if is_busy(&error) => return Ok(()),
            begun => begun?,
        }
        let done = conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::PASSIVE);
        writer.run("ROLLBACK")?;
        match done {
            Err(error) if is_busy(&error) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Writes zeros behind the log, a piece at a time: nobody else writes to it meanwhile, and whoever commits next
    /// waits for the disk to take no more than that piece.
    fn grow_log(&self) -> rusqlite::Result<()> {
        while !self.chores.stopping() && self.sync_for_all() {
            let mut guard = locked(&self.writer);
            let Some(writer) = guard.as_mut() else { return Ok(()) };
            match writer.begin(false) {
                Err(error) if is_busy(&error) => return Ok(()),
                begun => begun?,
            }
            let grown = (|| {
                let mut log = files::options().write(true).open(self.files.wal())?;
                let at = log.seek(SeekFrom::End(0))?;
                if at == 0 || at >= GROWN {
                    return Ok(None);
                }
                log.write_all(&vec![0; GROWN_BY.min(usize::try_from(GROWN - at).unwrap_or(usize::MAX))])?;
                std::io::Result::Ok(Some(log))
            })();
            writer.run("ROLLBACK")?;
            drop(guard);
            match grown.and_then(|log| log.map(|log| log.sync_all()).transpose()) {
                Ok(Some(())) => {}
                Ok(None) => {
                    Tally::add(&self.tally.wal_grown, 1);
                    return Ok(());
                }
                // No space, for instance. It is only for speed.
                Err(error) => {
                    tracing::debug!(%error, "the log can't be grown");
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn vacuum(&self, checkpoints: &mut Option<Connection>) -> rusqlite::Result<()> {
        let mut started = false;
        while !self.chores.stopping() && self.sync_for_all() {
            // Most often there is nothing to do, and whoever writes needn't wait until that is known.
            // What fails here fails there as well, and is told.
            if let Ok(None) = self.read(|conn| Ok(too_many(conn, started)?)) {
                return Ok(());
            }
            let mut guard = locked(&self.writer);
            let Some(writer) = guard.as_mut() else { return Ok(()) };
            let Some(most) = too_many(&writer.conn, started)? else { return Ok(()) };
            started = true;
            writer.set_durable(Self::chores_are_durable())?;
            match give_back(&writer.conn, most) {
                Err(error) if is_busy(&error) => return Ok(()),
                Err(error) => {
                    // It is a write like any other.
                    drop(self.abandon(writer, &error, true));
                    return Err(error);
                }
                Ok(given) => Tally::add(&self.tally.vacuumed, given),
            }
            drop(guard);
            self.after_commit(0);
            // All that is moved goes through the log, which is this thread's to keep short.
            if self.chores.take_checkpoint() {
                self.checkpoint(checkpoints)?;
            }
            // Whoever waits for the writer goes first.
            let_others_write();
        }
        Ok(())
    }
}

/// How many free pages may be given back, if there are so many that it is worth it: that begins at a quarter of all pages
/// and ends at an eighth.
fn too_many(conn: &Connection, started: bool) -> rusqlite::Result<Option<u64>> {
    let (free, pages) = (number(conn, "freelist_count")?, number(conn, "page_count")?);
    let enough = if started { pages / 8 } else { pages / 4 };
    Ok((free > enough.max(SPARE_PAGES)).then(|| free - enough))
}

/// A number that SQLite knows about the database.
fn number(conn: &Connection, name: &str) -> rusqlite::Result<u64> {
    conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

/// Gives free pages back to the file system, at most so many and for [`A_MOMENT`], in one transaction; says how many.
fn give_back(conn: &Connection, most: u64) -> rusqlite::Result<u64> {
    let started = Instant::now();
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let before = number(conn, "freelist_count")?;
    let mut given = 0;
    while given < most && started.elapsed() < A_MOMENT {
        let mut statement = conn.prepare_cached(&format!("PRAGMA incremental_vacuum({VACUUM_STEP})"))?;
        let mut rows = statement.query(())?;
        while rows.next()?.is_some() {}
        let now = before.saturating_sub(number(conn, "freelist_count")?);
        if now == given {
            break;
        }
        given = now;
    }
    transaction.commit()?;
    Ok(given)
}

/// What is left to do for a handle that is about to close: what its folds and sweeps freed is given back, as far as
/// that is quickly done.
pub(crate) fn before_closing(conn: &Connection, tally: &Tally) {
    if tally.folds.load(Ordering::Relaxed) + tally.swept.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut given = 0;
    while given < VACUUM_CLOSING {
        match give_back(conn, VACUUM_CLOSING - given) {
            Ok(0) => break,
            Ok(some) => given += some,
            Err(error) => {
                tracing::debug!(%error, "free pages stay in the file");
                break;
            }
        }
        // Others may have it open.
        let_others_write();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_kept_by_who_is_at_work_unless_the_log_is_long() {
        let tally = Tally::default();
        assert_eq!(Chores::mark_use(&tally), MarkUse::Spare);
        Tally::add(&tally.commits, GROW_AFTER);
        assert_eq!(Chores::mark_use(&tally), MarkUse::Keep);
        tally.wal_pages.store(2 * LOG_PAGES, Ordering::Relaxed);
        assert_eq!(Chores::mark_use(&tally), MarkUse::Drop);
    }

    /// Only with a log that is much too long, and only for as long as somebody moves it.
    #[test]
    fn commits_wait_while_a_long_log_is_moved() {
        let (chores, tally) = (Chores::default(), Tally::default());
        tally.wal_pages.store(LONG, Ordering::Relaxed);
        assert!(!chores.holds_up(&tally), "nobody moves it");
        let waited = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let commit = chores.moving(|| {
                assert!(chores.holds_up(&tally));
                let commit = scope.spawn(|| {
                    while chores.holds_up(&tally) {
                        chores.wait_for_the_log(&tally);
                        waited.fetch_add(1, Ordering::Relaxed);
                    }
                });
                // It is held up once and again, and never for good.
                while waited.load(Ordering::Relaxed) < 2 {
                    std::thread::yield_now();
                }
                assert!(!commit.is_finished());
                commit
            });
            commit.join().unwrap();
        });
        let panicked = std::panic::catch_unwind(|| chores.moving(|| panic!("on purpose")));
        assert!(panicked.is_err() && !chores.holds_up(&tally), "nobody moves it any more");
        tally.wal_pages.store(LONG - 1, Ordering::Relaxed);
        chores.moving(|| assert!(!chores.holds_up(&tally), "it is short"));
    }
}
