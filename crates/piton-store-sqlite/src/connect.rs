//! Connections to the database, and the making of a new one.

use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, FileControl, MAIN_DB, OpenFlags};

use crate::schema::{self, PAGE, RESERVED};
use crate::wal::WAL_KEPT;
use crate::{SqliteOptions, vfs};

/// Prepared statements that a connection keeps.
const STATEMENTS: usize = 48;

/// How to reach the database.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    path: PathBuf,
    options: SqliteOptions,
    /// The folder is read-only and there is no WAL, so no process can be writing: no locks are needed.
    pub(crate) immutable: bool,
}

impl Target {
    pub(crate) fn new(path: &Path, options: &SqliteOptions) -> Self {
        Self { path: path.to_owned(), options: options.clone(), immutable: false }
    }

    fn layer(&self) -> &'static std::ffi::CStr {
        if self.options.verify_pages { vfs::CHECKED } else { vfs::UNCHECKED }
    }

    /// A connection on which nothing was executed yet: the database and its WAL are untouched.
    pub(crate) fn peek(&self) -> rusqlite::Result<Connection> {
        self.open(OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    fn open(&self, mode: OpenFlags) -> rusqlite::Result<Connection> {
        let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        if self.immutable {
            let flags = flags | OpenFlags::SQLITE_OPEN_URI;
            return Connection::open_with_flags_and_vfs(immutable_uri(&self.path), flags, self.layer());
        }
        Connection::open_with_flags_and_vfs(&self.path, flags, self.layer())
    }

    /// A connection that writes. It never waits, because its user decides how long to try, and its user decides too when
    /// the WAL is moved into the database.
    pub(crate) fn writer(&self) -> rusqlite::Result<Connection> {
        let conn = self.open(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        prepare(&conn)?;
        conn.busy_timeout(std::time::Duration::ZERO)?;
        conn.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = FULL; PRAGMA cache_size = -8192;")?;
        // A reader that stands still lets the WAL grow; once SQLite begins it again, the space is given back.
        conn.execute_batch(&format!("PRAGMA journal_size_limit = {WAL_KEPT}"))?;
        Ok(conn)
    }

    /// A connection that only reads.
    pub(crate) fn reader(&self) -> rusqlite::Result<Connection> {
        let conn = self.open(OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        prepare(&conn)?;
        conn.busy_timeout(self.options.patience)?;
        conn.execute_batch("PRAGMA wal_autocheckpoint = 0;")?;
        Ok(conn)
    }

    /// Makes a new store in an empty file. The caller syncs it.
    pub(crate) fn create(&self) -> rusqlite::Result<()> {
        let conn = self.open(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        // First of all: the first statement that looks at the schema fixes the layout of a page.
        let mut reserved = i32::from(RESERVED);
        conn.execute_batch(&format!("PRAGMA page_size = {PAGE}"))?;
        conn.file_control(Some(MAIN_DB), FileControl::ReserveBytes(&mut reserved))?;
        conn.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL;")?;
        prepare(&conn)?;
        schema::create(&conn)?;
        // Closing would do this too, but says nothing if it fails, as on a full disk. Then the schema would be
        // in the WAL of a file that is about to get another name.
        conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE)?;
        conn.close().map_err(|(_, error)| error)
    }
}

/// What holds for every connection: no code in the schema, no mapped memory, nothing in temporary files, and
/// nothing in the WAL before it is committed, so that its scan meets no frames of transactions that were taken back.
fn prepare(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
    // Without it a statement is compiled anew whenever a value is bound that might change its plan, which takes
    // longer than most of them run.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.execute_batch("PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY; PRAGMA cache_spill = OFF;")
}

/// Leaves the WAL alone when the connection is closed. After a failed sync its pages in memory and on
/// disk may differ, and only the checks of a recovery tell which are good.
pub(crate) fn keep_wal(conn: &Connection) {
    if let Err(error) = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        tracing::warn!(%error, "the WAL can't be kept");
    }
}

fn immutable_uri(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'_' | b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => uri.push(char::from(*byte)),
            _ => write!(uri, "%{byte:02x}").expect("a string takes everything"),
        }
    }
    uri + "?immutable=1"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_escape_what_means_something_in_them() {
        assert_eq!(immutable_uri(Path::new("/a b?c#d%/ü")), "file:/a%20b%3fc%23d%25/%c3%bc?immutable=1");
    }
}
