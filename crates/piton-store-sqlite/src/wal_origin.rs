//! Whether a WAL that a crash left is of the database that it lies beside.
//!
//! SQLite can't tell: the frames of a WAL fit each other wherever it lies, and would be moved into any database. No WAL
//! names its store. But there is what never changes in one: its id, which run has a number, and which hash an entry has.
//! What the WAL says of these must be what the database says without it. And every commit that changes the first page
//! counts that up by one at most, so the WAL's count goes on from the database's.
//!
//! What can't be told: a WAL that has none of those rows in common with the database, and a count that happens to go on.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt as _;

use piton_store::StoreError;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, ToSql};

use crate::SqliteOptions;
use crate::connect::Target;
use crate::errors::from_io;
use crate::files::{self, Files};
use crate::pages::{Pages, Row, Value};
use crate::wal_scan::{self, Committed};

/// Where the first page counts its changes.
const COUNT: usize = 24;

/// An error if the WAL beside the database is another's. The caller has the store alone; nothing
/// is changed. `is_whole` says that nothing is missing at the end of the WAL.
pub(crate) fn check(files: &Files, options: &SqliteOptions, is_whole: bool) -> Result<(), StoreError> {
    let fail = |error: io::Error| from_io(&error, &files.wal());
    let open = || files::options().read(true).open(files.wal());
    let log = wal_scan::committed(|| Ok(BufReader::with_capacity(1 << 16, open()?))).map_err(fail)?;
    if log.pages.is_empty() {
        return Ok(());
    }
    let found = counts(files, &log, &open().map_err(fail)?, is_whole).map_err(fail)?;
    let found = match found {
        None => rows(files, options, log).map_err(fail)?,
        found => found,
    };
    match found {
        None => Ok(()),
        Some(detail) => Err(StoreError::ForeignWal { wal: files.wal(), database: files.database.clone(), detail }),
    }
}

/// What is wrong with the count of changes.
fn counts(files: &Files, log: &Committed, file: &File, is_whole: bool) -> io::Result<Option<String>> {
    let (Some(oldest), Some(newest)) = (log.first_page, log.pages.get(&1)) else { return Ok(None) };
    let Some(page) = database(files)?.page(1)? else { return Ok(None) };
    let at = |place: u64| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, place + COUNT as u64).map(|()| u32::from_be_bytes(bytes))
    };
    let (oldest, newest) = (at(oldest)?, at(*newest)?);
    let own = u32::from_be_bytes(page[COUNT..COUNT + 4].try_into().expect("four bytes"));
    Ok(if oldest > own.saturating_add(1) {
        Some(format!("it begins with change {oldest}, and the database is at change {own}"))
    } else if newest < own && is_whole {
        Some(format!("it ends with change {newest}, and the database is at change {own}"))
    } else {
        None
    })
}

/// The database without its WAL.
fn database(files: &Files) -> io::Result<Pages> {
    Pages::new(files::options().read(true).open(&files.database)?, None, HashMap::new())
}

/// What the WAL says otherwise than the database.
fn rows(files: &Files, options: &SqliteOptions, log: Committed) -> io::Result<Option<String>> {
    let mut target = Target::new(&files.database, options);
    target.immutable = true;
    // One that can't be read by itself is no witness. The crash may have come while the WAL was moved.
    let Ok(own) = target.reader() else { return Ok(None) };
    let mut numbers: Vec<u32> = log.pages.keys().copied().collect();
    numbers.sort_unstable();
    let open = |path: &std::path::Path| files::options().read(true).open(path);
    let pages = Pages::new(open(&files.database)?, Some(open(&files.wal())?), log.pages)?;
    let mut found = None;
    for number in numbers {
        pages.rows(number, |row| {
            found = found.take().or_else(|| contradiction(&own, row));
            io::Result::Ok(())
        })?;
        if found.is_some() {
            break;
        }
    }
    Ok(found)
}

/// How a row differs from the database's, if it can't.
fn contradiction(own: &Connection, row: &Row) -> Option<String> {
    match (row.key, &row.columns[..]) {
        (None, [Value::Text(key), Value::Text(store)]) if key == "store" => {
            let own = text(own, "SELECT value FROM meta WHERE key = ?1", "store")?;
            (own != *store).then(|| format!("it is of store {store}, and the database of store {own}"))
        }
        (Some(number), [Value::Null, Value::Text(id), Value::Integer(_), Value::Integer(_), ..]) => {
            let own = text(own, "SELECT id FROM run WHERE no = ?1", number)?;
            (own != *id).then(|| format!("run {number} is {id} in it and {own} in the database"))
        }
        (
            Some(key),
            [Value::Null, Value::Integer(_), Value::Integer(_), Value::Blob(hash), Value::Blob(_), Value::Blob(_)],
        ) => {
            let own = look_up(own, "SELECT hash FROM entry WHERE key = ?1", key, |value| match value {
                ValueRef::Blob(own) if own.len() == hash.len() => Some(own == &hash[..]),
                _ => None,
            })?;
            let (run, seq) = (key >> 32, crate::schema::seq_of(key));
            (!own).then(|| format!("entry {seq} of run {run} is another in it than in the database"))
        }
        _ => None,
    }
}

fn text(own: &Connection, sql: &str, key: impl ToSql) -> Option<String> {
    look_up(own, sql, key, |value| value.as_str().ok().map(str::to_owned))
}

/// What `read` makes of a value of the database; `None` if there is none, or if it can't be read.
fn look_up<T>(own: &Connection, sql: &str, key: impl ToSql, read: impl FnOnce(ValueRef<'_>) -> Option<T>) -> Option<T> {
    let mut statement = own.prepare_cached(sql).ok()?;
    statement.query_row([key], |row| Ok(read(row.get_ref(0)?))).optional().ok().flatten().flatten()
}
