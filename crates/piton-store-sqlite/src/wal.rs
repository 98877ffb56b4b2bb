//! Keeps SQLite's WAL short, and the file as small as its content.
//!
//! - **Checkpoints.** A commit that leaves a WAL of [`WAL_PAGES`] pages moves it into the database. That takes some
//!   milliseconds once in hundreds of commits; other writers wait for it.
//! - **Vacuum.** Folds and sweeps leave free pages, which the next appends use. If there are far more than that, the
//!   handle that freed them gives some back to the file system, in short transactions.
//!
//! A crash in either loses nothing: the next checkpoint moves the same pages, and a step of the vacuum is a transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use piton_store::StoreError;
use piton_types::Durability;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB};

use crate::counters::Tally;
use crate::errors::{is_busy, poisons};
use crate::open::{A_MOMENT, let_others_write};
use crate::schema::PAGE;
use crate::writer::{Core, Writer};

/// Pages of the WAL that are worth a checkpoint: 4 MiB.
pub(crate) const WAL_PAGES: u64 = (4 << 20) / PAGE as u64;
/// Bytes that the file of a WAL which was begun again keeps: enough for the next ones as a rule.
pub(crate) const WAL_KEPT: u64 = 2 * WAL_PAGES * PAGE as u64;
/// How often a checkpoint tries to get past another process that writes, or reads what would be overwritten, and the
/// pause in between: a tenth of a second in all.
const ATTEMPTS: i32 = 500;
const PAUSE: Duration = Duration::from_micros(200);
/// Free pages that are never given back.
const SPARE_PAGES: u64 = 512;
/// Pages that one step gives back between two looks at the time.
const VACUUM_STEP: u64 = 16;
/// Pages that a handle gives back when it is closed: 32 MiB, some milliseconds.
const VACUUM_CLOSING: u64 = 8192;

impl Core {
    /// Moves the WAL into the database if the commit that was just made has left it long.
    pub(crate) fn keep_wal_short(&self, writer: &mut Writer) {
        let pages = self.tally.wal_pages.load(Ordering::Relaxed);
        if pages + WAL_PAGES < writer.checkpoint_at {
            // SQLite has begun it again.
            writer.checkpoint_at = WAL_PAGES;
        }
        if pages < writer.checkpoint_at {
            return;
        }
        // A reader may keep SQLite from beginning the WAL again; a checkpoint with every commit wouldn't help then.
        writer.checkpoint_at = pages + WAL_PAGES;
        match checkpoint(&mut writer.conn) {
            Ok(()) => Tally::add(&self.tally.checkpoints, 1),
            Err(error) if is_busy(&error) => {}
            // A checkpoint whose sync failed must not be tried again: the next sync may succeed without the pages, and
            // then SQLite would overwrite the WAL, which has them.
            Err(error) if poisons(&error, false) => drop(self.poison(&writer.conn, &error)),
            Err(error) => {
                tracing::warn!(%error, store = %self.files.database.display(), "the WAL can't be moved");
            }
        }
    }

    /// Gives free pages back, if there are many: until there are few (`all`), or for a moment.
    pub(crate) async fn vacuum(self: &Arc<Self>, all: bool) {
        self.freed.store(true, Ordering::Relaxed);
        if let Err(error) = self.give_back(all).await {
            tracing::warn!(%error, store = %self.files.database.display(), "free pages stay in the file");
        }
    }

    async fn give_back(self: &Arc<Self>, all: bool) -> Result<(), StoreError> {
        let mut begun = false;
        // A read first: most often there is nothing to do.
        while let Some(most) = self.read(|conn| Ok(too_many(conn, begun)?))? {
            let given = self.write(Durability::Relaxed, move |conn| Ok(give_back(conn, most)?)).await?;
            Tally::add(&self.tally.vacuumed, given);
            if !all || given == 0 {
                break;
            }
            begun = true;
            let_others_write();
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Gives back what the folds and sweeps of a handle that is about to close have freed, as far as that is quickly
    /// done.
    pub(crate) fn vacuum_before_closing(&self) {
        let mut left = if self.freed.load(Ordering::Relaxed) { VACUUM_CLOSING } else { 0 };
        while left > 0 {
            match self.write_patiently(false, |conn| Ok(give_back(conn, left)?)) {
                Ok(0) => break,
                Ok(given) => left = left.saturating_sub(given),
                Err(error) => {
                    tracing::debug!(%error, "free pages stay in the file");
                    break;
                }
            }
            let_others_write();
        }
    }
}

/// Moves the whole WAL into the database, so that the next commit of any process begins it again. No process writes
/// meanwhile: of a WAL that grows while it is moved there would always be a rest.
fn checkpoint(conn: &mut Connection) -> rusqlite::Result<()> {
    conn.busy_handler(Some(|attempts| {
        std::thread::sleep(PAUSE);
        attempts < ATTEMPTS
    }))?;
    let moved = conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::RESTART);
    conn.busy_timeout(Duration::ZERO)?;
    moved.map(drop)
}

/// How many free pages may be given back, if there are so many that it is worth it: that begins at a quarter of all pages
/// and ends at an eighth.
fn too_many(conn: &Connection, begun: bool) -> rusqlite::Result<Option<u64>> {
    let (free, pages) = (number(conn, "freelist_count")?, number(conn, "page_count")?);
    let enough = if begun { pages / 8 } else { pages / 4 };
    Ok((free > enough.max(SPARE_PAGES)).then(|| free - enough))
}

/// A number that SQLite knows about the database.
fn number(conn: &Connection, name: &str) -> rusqlite::Result<u64> {
    conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

/// Gives free pages back inside the caller's transaction, at most so many and for [`A_MOMENT`]; says how many.
fn give_back(conn: &Connection, most: u64) -> rusqlite::Result<u64> {
    let started = Instant::now();
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
    Ok(given)
}
