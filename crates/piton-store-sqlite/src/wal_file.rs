//! The WAL's file as this crate sees it beside SQLite: syncing it, and noting in `PATH-lock` how far it is on disk
//! (see [`mark`](crate::mark)).

use std::ffi::{OsStr, c_int};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

use rusqlite::ffi;
use rustix::io::retry_on_intr;

use crate::files;
use crate::mark::{Mark, NOTED_EVERY};
use crate::wal_scan::{FRAME, FRAME_HEADER, FRAME_SALTS};

/// The WAL by a handle of its own. Unlike the database, the WAL has no locks on itself that closing could drop.
pub(crate) struct WalFile {
    file: File,
    /// Its folder, to sync its name.
    folder: File,
    /// `PATH-lock`, if there is one.
    lock: Option<File>,
    /// Whether the WAL's name is on disk.
    is_rooted: bool,
    /// What was noted last, and when: the WAL's salts.
    noted: Option<([u8; 8], Instant)>,
    /// The newest frame that was written: the WAL's salts, and where the frame ends.
    newest: ([u8; 8], u64),
}

impl WalFile {
    /// The WAL at this path; `None` where SQLite's own layer has to do.
    pub(crate) fn open(path: &[u8]) -> Option<Self> {
        if !cfg!(target_os = "linux") {
            return None;
        }
        let lock = path.strip_suffix(b"-wal").map(|database| [database, b"-lock"].concat());
        let path = Path::new(OsStr::from_bytes(path));
        Some(Self {
            file: files::options().read(true).open(path).ok()?,
            folder: File::open(path.parent()?).ok()?,
            lock: lock.and_then(|lock| files::options().write(true).open(OsStr::from_bytes(&lock)).ok()),
            is_rooted: false,
            noted: None,
            newest: ([0; 8], 0),
        })
    }

    /// Remembers a frame whose header is written at `offset`. Anything else that is written is no header.
    pub(crate) fn wrote(&mut self, bytes: &[u8], offset: i64) {
        if bytes.len() == FRAME_HEADER {
            self.newest.0.copy_from_slice(&bytes[FRAME_SALTS..FRAME_SALTS + 8]);
            self.newest.1 = offset.cast_unsigned() + FRAME as u64;
        }
    }

    /// Syncs the WAL; gives SQLite's code.
    pub(crate) fn sync(&mut self) -> c_int {
        // A WAL that another program deleted takes data as ever, and the next open wouldn't find it.
        if !is_named(&self.file) {
            return ffi::SQLITE_IOERR_FSYNC;
        }
        let synced = match self.is_rooted {
            true => retry_on_intr(|| rustix::fs::fdatasync(&self.file)),
            false => retry_on_intr(|| rustix::fs::fsync(&self.file)),
        };
        if synced.is_err() {
            return ffi::SQLITE_IOERR_FSYNC;
        }
        // A power cut could take the name of a new WAL, and all of it. SQLite's own layer would sync the folder too,
        // but takes no notice if that fails.
        if !self.is_rooted && retry_on_intr(|| rustix::fs::fsync(&self.folder)).is_err() {
            return ffi::SQLITE_IOERR_DIR_FSYNC;
        }
        self.is_rooted = true;
        self.note_synced();
        ffi::SQLITE_OK
    }

    /// Notes how far the WAL is on disk, unless that was done just now. If it fails, less is known after a power cut, and
    /// nothing is lost.
    fn note_synced(&mut self) {
        let (salts, synced) = self.newest;
        let Some(lock) = self.lock.as_ref().filter(|_| synced > 0) else { return };
        if self.noted.is_some_and(|(noted, at)| noted == salts && at.elapsed() < NOTED_EVERY) {
            return;
        }
        if let Err(error) = Mark::new(salts, synced).write(lock) {
            tracing::debug!(%error, "it can't be noted how far the WAL was synced");
        }
        self.noted = Some((salts, Instant::now()));
    }
}

/// Whether a file still has a name. Nothing else is asked for, where the system can be asked so: a file whose times
/// were asked for gets new ones with the next write, and the sync after that takes longer by a third.
fn is_named(file: &File) -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        if let Ok(stat) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK) {
            return stat.stx_nlink > 0;
        }
    }
    file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
}
