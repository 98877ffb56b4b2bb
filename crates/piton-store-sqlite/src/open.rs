//! Opening a store: in which order files are looked at, locked, checked and changed.
//!
//! 1. Look at the files, and refuse what isn't a Piton store, before anything is created.
//! 2. Lock `PATH-lock`. A handle that gets it exclusively is alone: it checks the WAL that a crash may have
//!    left, and whether that is this database's, makes a new store if there is none, and removes staged packs
//!    whose processes are gone.
//! 3. Go on with a shared lock, held until the handle is closed.
//!
//! A new store is made under another name and renamed, so that a database that exists is complete.

use std::fs::{self, File, TryLockError};
use std::io;
use std::time::{Duration, Instant};

use piton_store::StoreError;
use rusqlite::Connection;

use crate::connect::Target;
use crate::errors::{from_io, is_busy, translate};
use crate::files::{self, Files, Found, invalid};
use crate::mark::Mark;
use crate::schema::{APPLICATION_ID, PAGE, RESERVED};
use crate::upgrade::Formats;
use crate::{SqliteOptions, connect, set_aside, version, vfs};

/// An open database.
pub(crate) struct Opened {
    pub(crate) files: Files,
    pub(crate) target: Target,
    /// The connection that writes; `None` if the store can only be read.
    pub(crate) writer: Option<Connection>,
    /// Holds the shared lock.
    pub(crate) lock: Option<File>,
    /// Why nothing can be written although the store isn't read-only: there was no space to open it for that. Then the
    /// lock stays exclusive, because this handle wouldn't see what another process writes.
    pub(crate) full: Option<String>,
}

/// Opens the store at `path`.
pub(crate) fn open(path: &std::path::Path, options: &SqliteOptions) -> Result<Opened, StoreError> {
    if !version::is_safe(rusqlite::version_number()) {
        let detail = "it can lose commits (the WAL-reset bug); 3.51.3 or newer is needed".to_owned();
        return Err(StoreError::Invalid { what: format!("SQLite {}", rusqlite::version()), detail });
    }
    vfs::register().map_err(|code| StoreError::Unavailable { detail: format!("SQLite can't start: code {code}") })?;
    let files = Files::of(path, options.create)?;
    let mut target = Target::new(&files.database, options);
    let found = files.inspect()?;
    match found {
        Found::File => identify(&target, &files, options.formats)?,
        Found::Empty if was_a_store(&files) => {
            let detail = "it is empty, and was a store: another program has taken away what was in it";
            return Err(StoreError::corrupt(files.database.display().to_string(), detail));
        }
        _ if options.create => {}
        _ => return Err(StoreError::NotFound { what: files.database.display().to_string() }),
    }
    let read_only = !files.writable(found);
    let changes = !read_only && !options.looks;
    let lock = open_lock(&files, !changes)?;
    let mut alone = match &lock {
        Some(lock) => take(lock, &files, options.patience)?,
        None => false,
    };
    let found = files.inspect()?;
    if found != Found::File {
        if read_only {
            return Err(StoreError::ReadOnly { what: files.folder.display().to_string() });
        }
        if !alone {
            let detail = format!("{} is missing although another process has it open", files.database.display());
            return Err(StoreError::Unavailable { detail });
        }
        create(&files, options)?;
    }
    if changes {
        files.tighten()?;
    }
    if let (true, Some(lock)) = (alone, &lock) {
        let fail = |error: io::Error| from_io(&error, &files.beside("-lock"));
        let mark = Mark::read(lock).map_err(fail)?;
        if options.scan_wal {
            set_aside::check(&files, options, !changes, mark)?;
        }
        if changes && (mark.is_none() || mark.is_some_and(|mark| mark.is_of_another_boot())) {
            // On disk before anything is written to the WAL: without a mark every frame counts.
            Mark::new([0; 8], 0).write(lock).and_then(|()| lock.sync_all()).map_err(fail)?;
            files.sync_folder()?;
        }
    }
    let has_wal = fs::symlink_metadata(files.wal()).is_ok_and(|data| data.len() > 0);
    let writer = if read_only {
        if format_of(&target, &files)? < options.formats.newest {
            // It has to be upgraded first.
            return Err(StoreError::ReadOnly { what: files.database.display().to_string() });
        }
        target.immutable = needs_no_locks(&target, &files)?;
        None
    } else {
        let writer = patiently(options.patience, || {
            let conn = target.writer()?;
            Ok((touch(&conn)?, conn))
        });
        let (format, writer) = match writer.map_err(|error| translate(&error, &files.database)) {
            Err(error @ StoreError::Full { .. }) if alone && options.read_when_full => {
                return read_without_space(files, target, lock, error, options);
            }
            opened => opened?,
        };
        options.formats.know(format, &files)?;
        if options.looks && has_wal {
            connect::keep_wal(&writer);
        }
        if format < options.formats.newest && options.looks {
            return Err(StoreError::ReadOnly { what: files.database.display().to_string() });
        }
        if format < options.formats.newest {
            alone = alone || alone_at_last(lock.as_ref(), options.patience);
            if !alone {
                let detail = format!(
                    "{} has to be upgraded to format {}, and another process has it open",
                    files.database.display(),
                    options.formats.newest
                );
                return Err(StoreError::Unavailable { detail });
            }
            // The process that had it may have upgraded it.
            let format = touch(&writer).map_err(|error| translate(&error, &files.database))?;
            options.formats.upgrade(&writer, format, &files)?;
        }
        Some(writer)
    };
    if let (true, Some(lock)) = (alone, &lock) {
        // Not atomic: another process may be alone in between. It finds a whole store and changes nothing in it.
        share(lock, &files, options.patience)?;
    }
    Ok(Opened { files, target, writer, lock, full: None })
}

/// Opens for reading what can't be opened otherwise because SQLite has no space for the index of its WAL. Without a WAL
/// it needs none; no other process opens the store meanwhile.
fn read_without_space(
    files: Files,
    mut target: Target,
    lock: Option<File>,
    full: StoreError,
    options: &SqliteOptions,
) -> Result<Opened, StoreError> {
    if fs::symlink_metadata(files.wal()).is_ok_and(|data| data.len() > 0) {
        let detail = "a crash left a log, and the index that it is read by takes 32 KiB. Make room for that much";
        return Err(StoreError::Full { what: files.database.display().to_string(), detail: detail.to_owned() });
    }
    if format_of(&target, &files)? < options.formats.newest {
        // It has to be upgraded first.
        return Err(full);
    }
    target.immutable = true;
    target.reader().and_then(|conn| touch(&conn)).map_err(|error| translate(&error, &files.database))?;
    Ok(Opened { files, target, writer: None, lock, full: Some(full.to_string()) })
}

/// Whether there was a store whose database is empty now. One has its name when it is whole, and its mark after that.
fn was_a_store(files: &Files) -> bool {
    let lock = files::options().read(true).open(files.beside("-lock"));
    matches!(lock.and_then(|lock| Mark::read(&lock)), Ok(Some(_)))
}

/// Refuses a file that is something else, or of a format that this version doesn't know, without changing anything.
fn identify(target: &Target, files: &Files, formats: Formats) -> Result<(), StoreError> {
    let fail = |error: rusqlite::Error| translate(&error, &files.database);
    let conn = target.peek().map_err(fail)?;
    let not_ours = |detail: &str| Err(invalid(&files.database, &format!("it is not a Piton store: {detail}")));
    let Some(header) = vfs::header(&conn) else { return not_ours("it is too short") };
    let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if &header[..16] != b"SQLite format 3\0" {
        return not_ours("it is not an SQLite database");
    }
    if number(68) != APPLICATION_ID {
        return not_ours("it is a database of another application");
    }
    let page = usize::from(u16::from_be_bytes([header[16], header[17]]));
    if number(60) == 0 || page != PAGE || header[20] != RESERVED {
        // A newer format may have other pages.
        formats.know(number(60).max(1), files)?;
        return Err(StoreError::corrupt(files.database.display().to_string(), "its header makes no sense"));
    }
    formats.know(number(60), files)
}

/// The format that the file's header names.
fn format_of(target: &Target, files: &Files) -> Result<u32, StoreError> {
    let conn = target.peek().map_err(|error| translate(&error, &files.database))?;
    let header = vfs::header(&conn).ok_or_else(|| invalid(&files.database, "it is too short"))?;
    Ok(u32::from_be_bytes(header[60..64].try_into().expect("four bytes")))
}

/// Reads the first page, so that whatever is wrong with it shows now. Gives the format, which may be newer in
/// the WAL than in the file's header.
fn touch(conn: &Connection) -> rusqlite::Result<u32> {
    conn.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Whether a store that can only be read has to be opened without locks, because SQLite can't make
/// the files for them.
fn needs_no_locks(target: &Target, files: &Files) -> Result<bool, StoreError> {
    let Err(error) = target.reader().and_then(|conn| touch(&conn)) else { return Ok(false) };
    if !matches!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::ReadOnly | rusqlite::ErrorCode::SystemIoFailure)
    ) {
        return Err(translate(&error, &files.database));
    }
    if fs::symlink_metadata(files.wal()).is_ok_and(|data| data.len() > 0) {
        let detail = "a crash left a log that can't be recovered in a read-only folder".to_owned();
        return Err(StoreError::Denied { what: files.database.display().to_string(), detail });
    }
    let mut immutable = target.clone();
    immutable.immutable = true;
    immutable.reader().and_then(|conn| touch(&conn)).map_err(|error| translate(&error, &files.database))?;
    Ok(true)
}

/// Makes a new store. A crash before the rename leaves nothing but `PATH-new`, which the next open
/// replaces; one after it leaves a whole store.
fn create(files: &Files, options: &SqliteOptions) -> Result<(), StoreError> {
    let new = files.beside("-new");
    let fail = |error: io::Error| from_io(&error, &new);
    if fs::symlink_metadata(files.wal()).is_ok_and(|data| data.len() > 0) {
        let detail = "the database is missing or empty, but its log isn't";
        return Err(StoreError::corrupt(files.wal().display().to_string(), detail));
    }
    for suffix in ["-new", "-new-wal", "-new-shm", "-new-journal"] {
        let path = files.beside(suffix);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(from_io(&error, &path)),
            _ => {}
        }
    }
    let file = files::options().read(true).write(true).create_new(true).open(&new).map_err(fail)?;
    Target::new(&new, options).create().map_err(|error| translate(&error, &new))?;
    file.sync_all().map_err(fail)?;
    fs::rename(&new, &files.database).map_err(fail)?;
    files.sync_folder()
}

fn open_lock(files: &Files, read_only: bool) -> Result<Option<File>, StoreError> {
    let path = files.beside("-lock");
    if !read_only {
        let lock = files::options().read(true).write(true).create(true).truncate(false).open(&path);
        return lock.map(Some).map_err(|error| from_io(&error, &path));
    }
    match files::options().read(true).open(&path) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(from_io(&error, &path)),
    }
}

/// Locks: exclusively (`true`) if no other handle has the store open, else shared.
fn take(lock: &File, files: &Files, patience: Duration) -> Result<bool, StoreError> {
    match lock.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => share(lock, files, patience).map(|()| false),
        Err(TryLockError::Error(error)) => Err(from_io(&error, &files.beside("-lock"))),
    }
}

/// Waits until no other handle has the store open, and locks it exclusively; `false` if that takes too long.
fn alone_at_last(lock: Option<&File>, patience: Duration) -> bool {
    lock.is_some_and(|lock| lock_within(patience, || lock.try_lock()).is_ok())
}

/// Locks a store that no process has open. A moment's patience: a program that this process is just starting has its open
/// files until it runs.
pub(crate) fn lock_alone(files: &Files) -> Result<File, StoreError> {
    const MOMENT: Duration = Duration::from_millis(200);
    let path = files.beside("-lock");
    let lock = files::options().read(true).write(true).create(true).truncate(false).open(&path);
    let lock = lock.map_err(|error| from_io(&error, &path))?;
    match lock_within(MOMENT, || lock.try_lock()) {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            let detail = format!("{} is open in another process", files.database.display());
            Err(StoreError::Unavailable { detail })
        }
        Err(TryLockError::Error(error)) => Err(from_io(&error, &path)),
    }
}

/// Locks shared. A handle is alone for a moment only.
fn share(lock: &File, files: &Files, patience: Duration) -> Result<(), StoreError> {
    lock_within(patience, || lock.try_lock_shared()).map_err(|error| match error {
        TryLockError::WouldBlock => {
            let detail = format!("{} is being opened by another process", files.database.display());
            StoreError::Unavailable { detail }
        }
        TryLockError::Error(error) => from_io(&error, &files.beside("-lock")),
    })
}

/// Tries to lock until it succeeds or the time is over.
fn lock_within(patience: Duration, attempt: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(TryLockError::WouldBlock) if started.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}

/// The longest pause of a writer that waits for the database's write lock.
const PAUSE: Duration = Duration::from_millis(2);

/// How long one transaction of upkeep may go on before it ends and [lets others write](let_others_write).
pub(crate) const A_MOMENT: Duration = Duration::from_millis(5);

/// Leaves the write lock alone for long enough that a writer of another process that waits for it finds it free. Upkeep
/// calls it between its short transactions: the lock has no queue, and upkeep would take it again first.
pub(crate) fn let_others_write() {
    std::thread::sleep(PAUSE + PAUSE / 2);
}

/// Tries again while another writer is in the way.
pub(crate) fn patiently<T>(
    patience: Duration,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let mut pause = Duration::from_micros(50);
    let mut left = patience;
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && !left.is_zero() => {
                let now = pause.min(left);
                std::thread::sleep(now);
                left -= now;
                pause = (pause * 2).min(PAUSE);
            }
            done => return done,
        }
    }
}
