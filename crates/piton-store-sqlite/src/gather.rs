//! Gathering the rows of a database that can't be read as one any more, because its first page is damaged or one that
//! leads to many others. Every page says by its checksum whether it is whole, and every leaf has its rows complete, so
//! they are found without what led to them, and written into a new database.
//!
//! What is gathered isn't believed: entries, segments and packs have hashes and checksums of their own, and a
//! repair takes over only what fits them. A row whose page is damaged is missing; which table a row is of is told
//! by its columns. Pages that aren't in use any more are left out as far as the map of pages says which they are.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use piton_store::StoreError;
use rusqlite::{Connection, ToSql, params};

use crate::connect::Target;
use crate::errors::{from_io, translate};
use crate::files::{self, Files};
use crate::open::lock_alone;
use crate::pages::{Pages, Row, Value};
use crate::{SqliteOptions, SqliteStore, blobs, vfs, wal_origin, wal_scan};

/// Rows between two commits.
const BATCH: u64 = 1000;

/// Writes every row that can be found of the database at `path` into a new one at `into`; says how many. The damaged
/// one isn't changed. `Unavailable` if another process has it open.
pub fn gather(path: &Path, into: &Path) -> Result<u64, StoreError> {
    vfs::register().map_err(|code| StoreError::Unavailable { detail: format!("SQLite can't start: code {code}") })?;
    let files = Files::of(path, false)?;
    let _lock = lock_alone(&files)?;
    let fail = |error: io::Error| from_io(&error, &files.database);
    let file = files::options().read(true).open(&files.database).map_err(fail)?;
    let log = match files::options().read(true).open(files.wal()) {
        Ok(log) => Some(log),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(from_io(&error, &files.wal())),
    };
    let newer = match &log {
        Some(_) => {
            wal_origin::check(&files, &SqliteOptions::default(), false)?;
            let open = || Ok(io::BufReader::new(files::options().read(true).open(files.wal())?));
            wal_scan::committed(open).map_err(|error| from_io(&error, &files.wal()))?.pages
        }
        None => HashMap::new(),
    };
    let pages = Pages::new(file, log, newer).map_err(fail)?;
    // Its tables, and nothing in them.
    drop(SqliteStore::open(into, SqliteOptions::default())?);
    let conn = Target::new(into, &SqliteOptions::default()).writer().map_err(|error| translate(&error, into))?;
    let gathered = Gathering::new(&conn).and_then(|mut gathering| {
        for number in 1..=pages.count() {
            pages.rows(number, |row| gathering.add(row))?;
        }
        gathering.end()
    });
    let rows = gathered.map_err(|error| match error {
        PageError::Io(error) => from_io(&error, &files.database),
        PageError::Sql(error) => translate(&error, into),
    })?;
    conn.close().map_err(|(_, error)| translate(&error, into))?;
    Ok(rows)
}

/// Why gathering ends early.
pub(crate) enum PageError {
    Io(io::Error),
    Sql(rusqlite::Error),
}

impl From<io::Error> for PageError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rusqlite::Error> for PageError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Rows on their way into the new database.
struct Gathering<'a> {
    conn: &'a Connection,
    rows: u64,
    /// What an index says of runs: number, id, state, time.
    listed: Vec<(i64, String, i64, i64)>,
}

impl<'a> Gathering<'a> {
    fn new(conn: &'a Connection) -> Result<Self, PageError> {
        conn.execute_batch("PRAGMA synchronous = OFF; BEGIN")?;
        Ok(Self { conn, rows: 0, listed: Vec::new() })
    }

    fn add(&mut self, row: &Row) -> Result<(), PageError> {
        use Value::{Blob, Integer, Null, Text};
        let key = row.key;
        let put = |sql: &str, rest: &[&dyn ToSql]| {
            let mut values: Vec<&dyn ToSql> = vec![&key];
            values.extend(rest);
            self.conn.prepare_cached(sql)?.execute(&values[..])
        };
        let added = match (key, &row.columns[..]) {
            (Some(_), [Null, Integer(at), Integer(fence), Blob(hash), Blob(entry), Blob(pack)]) => {
                put("INSERT OR IGNORE INTO entry VALUES (?1, ?2, ?3, ?4, ?5, ?6)", &[at, fence, hash, entry, pack])?
            }
            (Some(_), [Null, Integer(last), Blob(entries), Blob(index), Blob(nodes)]) => {
                put("INSERT OR IGNORE INTO segment VALUES (?1, ?2, ?3, ?4, ?5)", &[last, entries, index, nodes])?
            }
            (Some(number), [Null, Blob(id), Blob(ids), Blob(bytes)]) => {
                let added = put("INSERT OR IGNORE INTO pack VALUES (?1, ?2, ?3, ?4)", &[id, ids, bytes])?;
                if added > 0 {
                    blobs::list(self.conn, number, ids)?;
                }
                added
            }
            (
                Some(_),
                [
                    Null,
                    Text(id),
                    Integer(status),
                    Integer(updated),
                    Integer(created),
                    Integer(kind),
                    Text(name),
                    parent,
                    folder,
                    labels,
                    Integer(moved),
                ],
            ) => put(
                // Where the map of pages is damaged, an older form of it may be found too, on a page that isn't in use.
                "INSERT INTO run VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO UPDATE
                 SET status = excluded.status, updated_at = excluded.updated_at WHERE excluded.updated_at > updated_at",
                &[id, status, updated, created, kind, name, parent, folder, labels, moved],
            )?,
            (Some(_), [Null]) => put("INSERT OR IGNORE INTO removed VALUES (?1)", &[])?,
            (None, [Integer(status), Integer(updated), Text(id), Integer(number)]) => {
                self.listed.push((*number, id.clone(), *status, *updated));
                0
            }
            _ => 0,
        };
        self.rows += added as u64;
        if added > 0 && self.rows.is_multiple_of(BATCH) {
            self.conn.execute_batch("COMMIT; BEGIN")?;
        }
        Ok(())
    }

    /// What is made of the rest once all rows are there.
    fn end(self) -> Result<u64, PageError> {
        // A run whose row is lost has its entries still, and may be in an index.
        let mut run = self.conn.prepare(
            "INSERT OR IGNORE INTO run(no, id, status, updated_at, created_at, kind, name, moved)
             SELECT ?1, ?2, ?3, ?4, ?4, 0, ?2, 0 WHERE EXISTS (SELECT 1 FROM entry WHERE key >> 32 = ?1)",
        )?;
        for (number, id, status, updated) in &self.listed {
            run.execute(params![number, id, status, updated])?;
        }
        self.conn.execute_batch(
            "INSERT OR IGNORE INTO label SELECT no, value, updated_at, run.id FROM run, json_each(labels) WHERE json_valid(labels);
             COMMIT",
        )?;
        Ok(self.rows)
    }
}
