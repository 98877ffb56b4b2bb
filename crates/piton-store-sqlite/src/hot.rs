//! The statements of nearly every append, prepared once. All others are looked up by their text, which takes as long
//! as it takes to run one of these.
#![expect(unsafe_code, reason = "a statement of rusqlite borrows its connection, and can't stand beside it")]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use rusqlite::{Connection, ffi};

const BEGIN: &CStr = c"BEGIN IMMEDIATE";
const COMMIT: &CStr = c"COMMIT";
const APPEND: &CStr = c"INSERT INTO entry(key, at, fence, hash, entry, pack) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const FILL: &CStr = c"UPDATE entry SET at = ?2, fence = ?3, hash = ?4, entry = ?5, pack = ?6, pad = ?7 WHERE key = ?1";
const PLACE: &CStr = c"INSERT INTO entry(key, at, fence, entry, pack, pad) VALUES (?1, 0, 0, x'', x'', ?2)";

/// Statements of one connection, which must outlive them.
pub(crate) struct Hot {
    begin: Prepared,
    commit: Prepared,
    append: Prepared,
    fill: Prepared,
    place: Prepared,
}

/// A row of `entry`.
pub(crate) struct EntryRow<'a> {
    pub(crate) key: i64,
    pub(crate) at: i64,
    pub(crate) fence: i64,
    pub(crate) hash: &'a [u8],
    pub(crate) entry: &'a [u8],
    pub(crate) pack: PackColumn<'a>,
}

/// The pack of an entry.
pub(crate) enum PackColumn<'a> {
    /// In its row.
    Here(&'a [u8]),
    /// In this row of `tail`.
    InTail(i64),
}

impl Hot {
    pub(crate) fn new(conn: &Connection) -> rusqlite::Result<Self> {
        let prepare = |sql| Prepared::new(conn, sql);
        Ok(Self {
            begin: prepare(BEGIN)?,
            commit: prepare(COMMIT)?,
            append: prepare(APPEND)?,
            fill: prepare(FILL)?,
            place: prepare(PLACE)?,
        })
    }

    /// Begins a transaction and takes the write lock with it.
    pub(crate) fn begin(&self) -> rusqlite::Result<()> {
        self.begin.run()
    }

    /// Commits the transaction.
    pub(crate) fn commit(&self) -> rusqlite::Result<()> {
        self.commit.run()
    }

    /// Inserts an entry.
    pub(crate) fn append(&self, row: &EntryRow<'_>) -> rusqlite::Result<()> {
        self.append.run_with(row)
    }

    /// Writes an entry over its place, with so many zeros behind it; whether there was one.
    pub(crate) fn fill(&self, row: &EntryRow<'_>, pad: usize) -> rusqlite::Result<bool> {
        self.fill.bind_zeros(7, pad)?;
        self.fill.run_with(row)?;
        Ok(self.fill.changed() == 1)
    }

    /// Makes a place for an entry, with so many zeros in it.
    pub(crate) fn make_place(&self, key: i64, pad: usize) -> rusqlite::Result<()> {
        self.place.bind_number(1, key)?;
        self.place.bind_zeros(2, pad)?;
        self.place.run()
    }
}

struct Prepared(NonNull<ffi::sqlite3_stmt>);

// SAFETY: a statement may be used by any thread, one at a time, as its connection may.
unsafe impl Send for Prepared {}

impl Prepared {
    fn new(conn: &Connection, sql: &CStr) -> rusqlite::Result<Self> {
        let mut statement = std::ptr::null_mut();
        let flags = ffi::SQLITE_PREPARE_PERSISTENT;
        // SAFETY: the connection is open, and the text ends with a zero.
        let code = unsafe {
            ffi::sqlite3_prepare_v3(conn.handle(), sql.as_ptr(), -1, flags, &raw mut statement, std::ptr::null_mut())
        };
        match NonNull::new(statement) {
            Some(statement) if code == ffi::SQLITE_OK => Ok(Self(statement)),
            // SAFETY: the connection is open.
            _ => Err(unsafe { failure(conn.handle(), code) }),
        }
    }

    /// Runs it to its end.
    fn run(&self) -> rusqlite::Result<()> {
        let statement = self.0.as_ptr();
        // SAFETY: the statement is valid, and so is its connection.
        unsafe {
            let code = ffi::sqlite3_step(statement);
            let done = match code {
                ffi::SQLITE_DONE => Ok(()),
                code => Err(failure(ffi::sqlite3_db_handle(statement), code)),
            };
            ffi::sqlite3_reset(statement);
            done
        }
    }

    /// The same with a row, whose columns are the first six parameters.
    fn run_with(&self, row: &EntryRow<'_>) -> rusqlite::Result<()> {
        for (place, number) in [(1, row.key), (2, row.at), (3, row.fence)] {
            self.bind_number(place, number)?;
        }
        // SAFETY: the row outlives this call, and so do its bytes the statement, which forgets them below.
        unsafe {
            self.bind_bytes(4, row.hash)?;
            self.bind_bytes(5, row.entry)?;
            match row.pack {
                PackColumn::Here(bytes) => self.bind_bytes(6, bytes)?,
                PackColumn::InTail(number) => self.bind_number(6, number)?,
            }
        }
        let done = self.run();
        self.forget();
        done
    }

    /// Rows that it changed when it ran last, if nothing else has run since.
    fn changed(&self) -> i64 {
        // SAFETY: the statement is valid, and so is its connection.
        unsafe { ffi::sqlite3_changes64(ffi::sqlite3_db_handle(self.0.as_ptr())) }
    }

    fn bind_zeros(&self, place: c_int, count: usize) -> rusqlite::Result<()> {
        // SAFETY: the statement is valid.
        self.bound(unsafe { ffi::sqlite3_bind_zeroblob64(self.0.as_ptr(), place, count as u64) })
    }

    fn bind_number(&self, place: c_int, number: i64) -> rusqlite::Result<()> {
        // SAFETY: the statement is valid.
        self.bound(unsafe { ffi::sqlite3_bind_int64(self.0.as_ptr(), place, number) })
    }

    /// The caller sees to it that the bytes are there until the statement [forgets](Self::forget) them.
    unsafe fn bind_bytes(&self, place: c_int, bytes: &[u8]) -> rusqlite::Result<()> {
        let (at, length) = (bytes.as_ptr().cast(), bytes.len() as u64);
        // SAFETY: the statement is valid, and so are the bytes. They aren't copied.
        self.bound(unsafe { ffi::sqlite3_bind_blob64(self.0.as_ptr(), place, at, length, ffi::SQLITE_STATIC()) })
    }

    fn bound(&self, code: c_int) -> rusqlite::Result<()> {
        match code {
            ffi::SQLITE_OK => Ok(()),
            // SAFETY: the statement is valid, and so is its connection.
            code => Err(unsafe { failure(ffi::sqlite3_db_handle(self.0.as_ptr()), code) }),
        }
    }

    fn forget(&self) {
        // SAFETY: the statement is valid.
        unsafe { ffi::sqlite3_clear_bindings(self.0.as_ptr()) };
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: it is finalized once, before its connection is closed.
        unsafe { ffi::sqlite3_finalize(self.0.as_ptr()) };
    }
}

/// What SQLite says of the call that failed last.
unsafe fn failure(db: *mut ffi::sqlite3, code: c_int) -> rusqlite::Error {
    // SAFETY: the caller has an open connection. The message is copied before anything else is called.
    let (extended, message) = unsafe {
        let message = ffi::sqlite3_errmsg(db);
        let message = (!message.is_null()).then(|| CStr::from_ptr(message).to_string_lossy().into_owned());
        (ffi::sqlite3_extended_errcode(db), message)
    };
    let code = if extended == ffi::SQLITE_OK { code } else { extended };
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), message)
}
