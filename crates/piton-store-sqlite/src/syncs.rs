//! Syncs without a commit. What was committed without waiting for the disk is synced by the maintenance thread, beside
//! whoever writes on and once for all who asked meanwhile.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use piton_store::StoreError;
use tokio::sync::oneshot;

use crate::counters::Tally;
use crate::files::{self, Files};
use crate::mark::{Mark, NOTED_EVERY};
use crate::vfs;
use crate::writer::{Core, locked};

/// Who wants to know that the log is synced, and what it is synced through.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    asking: Mutex<Asking>,
    /// The log by a handle of its own, so that nobody who commits waits for it.
    log: OnceLock<File>,
    /// Its name is durable, as far as is known here.
    is_named: AtomicBool,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Asking {
    waiting: Vec<oneshot::Sender<Result<(), StoreError>>>,
    /// Nobody syncs it any more.
    over: bool,
}

/// Where it is noted how far the log was synced.
#[derive(Debug, Default)]
struct Noted {
    file: Option<File>,
    /// Of which log that was done last, and when.
    last: Option<([u8; 8], Instant)>,
}

impl Noted {
    /// Notes it, unless that was done just now. If it fails, less is known after a power cut, and nothing is lost.
    fn note(&mut self, files: &Files, mark: Mark) {
        if self.last.is_some_and(|(salts, at)| salts == mark.salts && at.elapsed() < NOTED_EVERY) {
            return;
        }
        let open = || files::options().write(true).open(files.beside("-lock"));
        let noted = match &self.file {
            Some(file) => mark.write(file),
            None => open().and_then(|file| mark.write(self.file.insert(file))),
        };
        if let Err(error) = noted {
            tracing::debug!(%error, "it can't be noted how far the log was synced");
        }
        self.last = Some((mark.salts, Instant::now()));
    }
}

impl Syncs {
    /// Opens the log. Once, as soon as the store is open, so that it is the one that is written to, whatever becomes of
    /// its name.
    pub(crate) fn open(&self, files: &Files) -> Result<&File, StoreError> {
        if let Some(log) = self.log.get() {
            return Ok(log);
        }
        let log = files.open_log().map_err(|error| StoreError::from_io(&error, &files.wal()))?;
        Ok(self.log.get_or_init(|| log))
    }

    /// Asks for a sync of all that is in the log by now; `None` if nobody does that any more.
    fn ask(&self) -> Option<oneshot::Receiver<Result<(), StoreError>>> {
        let (answer, answered) = oneshot::channel();
        let mut asking = locked(&self.asking);
        if asking.over {
            return None;
        }
        asking.waiting.push(answer);
        Some(answered)
    }

    /// Whoever asks for a sync from now on, or has just asked, is told that the store was closed.
    pub(crate) fn end(&self) {
        *locked(&self.asking) = Asking { over: true, waiting: Vec::new() };
    }
}

impl Core {
    /// Makes every commit durable that there is by now.
    pub(crate) async fn sync(&self) -> Result<(), StoreError> {
        self.check_writable()?;
        let answered = self.syncs.ask().ok_or_else(|| self.closed())?;
        self.chores.sync();
        // Without a thread that would do it, whoever wants it does.
        if self.doing_chores.start(&self.me).is_err() {
            self.sync_for_all();
        }
        answered.await.unwrap_or_else(|_| Err(self.closed()))
    }

    /// Syncs the log if anybody has asked for it, and tells them; says whether writes are still taken. Chores that take
    /// their time look in between.
    pub(crate) fn sync_for_all(&self) -> bool {
        let asking = std::mem::take(&mut locked(&self.syncs.asking).waiting);
        if !asking.is_empty() {
            let synced = self.sync_log();
            for answer in asking {
                let told = match &synced {
                    Ok(()) => Ok(()),
                    Err(error) => self.check_writable().and(Err(StoreError::Unavailable { detail: error.to_string() })),
                };
                // Nobody listens any more if the future was dropped.
                drop(answer.send(told));
            }
        }
        self.poison.get().is_none()
    }

    /// Syncs the log. What of it has been moved meanwhile is in the database, which was synced then.
    fn sync_log(&self) -> Result<(), StoreError> {
        self.check_writable()?;
        let (files, syncs) = (&self.files, &self.syncs);
        let log = syncs.open(files)?;
        // What is there before the sync is on disk after it.
        let reached = Mark::of_log(log, self.tally.wal_pages.load(Ordering::Relaxed));
        self.or_poison(log.sync_data())?;
        // A power cut could take the name of a new log, and all of it.
        if !syncs.is_named.load(Ordering::Relaxed) {
            let opened = File::open(&files.folder).map_err(|error| StoreError::from_io(&error, &files.folder))?;
            self.or_poison(opened.sync_all())?;
            syncs.is_named.store(true, Ordering::Relaxed);
        }
        // A log that somebody deleted takes data as ever, and nobody would find it again.
        self.or_poison(if vfs::is_named(log) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) })?;
        Tally::add(&self.tally.syncs, 1);
        if let Some(mark) = reached {
            locked(&syncs.noted).note(files, mark);
        }
        Ok(())
    }

    /// As after a commit whose sync failed: nobody knows what the disk has.
    fn or_poison(&self, synced: io::Result<()>) -> Result<(), StoreError> {
        synced.map_err(|error| {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
            self.poison(&rusqlite::Error::SqliteFailure(code, Some(error.to_string())))
        })
    }
}
