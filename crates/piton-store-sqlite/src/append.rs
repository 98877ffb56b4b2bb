//! Appending inside a transaction: what is checked, and the rows that it writes.

use piton_store::{Commit, Head, StoreError};
use piton_types::{EntryHash, Fence, RunId, RunSummary, Seq, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};

use crate::blobs;
use crate::index::{kind_number, status_number};
use crate::inspect::is_damage;
use crate::schema::{MAX_ROW, MAX_RUN, key, seq_of};
use crate::writer::Failure;

/// What can be said of a commit without looking at the store.
pub(crate) fn check(commit: &Commit) -> Result<(), StoreError> {
    if commit.index.as_ref().is_some_and(|index| index.id != commit.run) {
        let what = format!("entry {} of run {}", commit.seq, commit.run);
        return Err(StoreError::Invalid { what, detail: "its index row is another run's".to_owned() });
    }
    let size = (commit.entry.len() + commit.pack.len()) as u64;
    if size > MAX_ROW {
        let what = format!("entry {} of run {} with its values", commit.seq, commit.run);
        return Err(StoreError::TooLarge { what, size, limit: MAX_ROW });
    }
    Ok(())
}

/// Appends inside the caller's transaction, which the caller takes back if this refuses.
///
/// It writes one row for the entry, and the time of the entry, or all that changed, to the run's row.
pub(crate) fn append(conn: &Connection, commit: &Commit) -> Result<(), Failure> {
    let number = run_number(conn, &commit.run)?;
    commit.check(number.map(|number| head(conn, number)).transpose()?.flatten())?;
    let number = match (number, &commit.index) {
        (Some(number), index) => {
            match index {
                Some(index) => update_row(conn, number, index, commit.at)?,
                None => {
                    for sql in
                        ["UPDATE run SET updated_at = ?2 WHERE no = ?1", "UPDATE label SET at = ?2 WHERE run = ?1"]
                    {
                        conn.prepare_cached(sql)?.execute([number, commit.at.as_millis()])?;
                    }
                }
            }
            // A run that moved last already stays so: that it moved on is said by its newest entry.
            conn.prepare_cached(&format!("UPDATE run SET moved = {LAST} + 1 WHERE no = ?1 AND moved < {LAST}"))?
                .execute([number])?;
            number
        }
        (None, Some(index)) => insert_row(conn, index)?,
        (None, None) => return Err(StoreError::no_run(&commit.run).into()),
    };
    blobs::take(conn, &commit.staged, commit.owner)?;
    conn.prepare_cached("INSERT INTO entry(key, at, fence, hash, entry, pack) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![
            key(number, commit.seq),
            commit.at.as_millis(),
            commit.fence.0.cast_signed(),
            commit.hash.as_bytes(),
            &commit.entry[..],
            &commit.pack[..],
        ])?;
    Ok(())
}

/// The last number in the order in which runs moved.
const LAST: &str =
    "(SELECT max((SELECT value FROM meta WHERE key = 'moved'), (SELECT coalesce(max(moved), 0) FROM run)))";

fn update_row(conn: &Connection, number: i64, index: &RunSummary, at: Timestamp) -> rusqlite::Result<()> {
    let sql = "UPDATE run SET (status, updated_at, created_at, kind, name, parent, folder, labels)
               = (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) WHERE no = ?1";
    write_row(conn, sql, &number, index, at)?;
    set_labels(conn, number, index, at)
}

/// Executes a statement that writes a run's row; `key` is its first parameter.
fn write_row(conn: &Connection, sql: &str, key: &dyn ToSql, index: &RunSummary, at: Timestamp) -> rusqlite::Result<()> {
    let has_labels = !index.labels.is_empty();
    let labels = has_labels.then(|| serde_json::to_string(&index.labels).expect("texts are written to memory"));
    conn.prepare_cached(sql)?
        .execute(params![
            key,
            status_number(index.status),
            at.as_millis(),
            index.created_at.as_millis(),
            kind_number(index.kind),
            index.name,
            index.parent.as_ref().map(ToString::to_string),
            index.folder,
            labels,
        ])
        .map(drop)
}

/// Lists a run by its labels, and by no others.
fn set_labels(conn: &Connection, number: i64, index: &RunSummary, at: Timestamp) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM label WHERE run = ?1")?.execute([number])?;
    for label in &index.labels {
        conn.prepare_cached("INSERT INTO label(run, label, at, run_id) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
            number,
            label,
            at.as_millis(),
            index.id.as_str()
        ])?;
    }
    Ok(())
}

fn insert_row(conn: &Connection, index: &RunSummary) -> Result<i64, Failure> {
    let sql = format!(
        "INSERT INTO run(id, status, updated_at, created_at, kind, name, parent, folder, labels, moved)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, {LAST} + 1)",
    );
    write_row(conn, &sql, &index.id.as_str(), index, index.updated_at)?;
    let number = conn.last_insert_rowid();
    set_labels(conn, number, index, index.updated_at)?;
    if number > MAX_RUN {
        let (size, limit) = (number.cast_unsigned(), MAX_RUN.cast_unsigned());
        return Err(StoreError::TooLarge { what: "the number of runs".to_owned(), size, limit }.into());
    }
    Ok(number)
}

/// The number of a run, if it exists. Where the index of ids is damaged, the table itself tells: a reader gets whatever
/// is whole of a run then.
pub(crate) fn run_number(conn: &Connection, run: &RunId) -> rusqlite::Result<Option<i64>> {
    let look = |sql| conn.prepare_cached(sql)?.query_row([run.as_str()], |row| row.get(0)).optional();
    match look("SELECT no FROM run WHERE id = ?1") {
        Err(error) if is_damage(&error) => look("SELECT no FROM run NOT INDEXED WHERE id = ?1"),
        found => found,
    }
}

/// The newest entry of a run. No fold covers it, so it is always a row of its own.
pub(crate) fn head(conn: &Connection, run: i64) -> rusqlite::Result<Option<Head>> {
    conn.prepare_cached("SELECT key, fence, hash FROM entry WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1")?
        .query_row([key(run, Seq(0)), key(run, Seq(u32::MAX))], |row| {
            Ok(Head { seq: seq_of(row.get(0)?), fence: fence(row, 1)?, hash: hash(row, 2)? })
        })
        .optional()
}

/// A fence in a row.
pub(crate) fn fence(row: &Row<'_>, column: usize) -> rusqlite::Result<Fence> {
    Ok(Fence(row.get::<_, i64>(column)?.cast_unsigned()))
}

/// A hash in a row.
pub(crate) fn hash(row: &Row<'_>, column: usize) -> rusqlite::Result<EntryHash> {
    row.get(column).map(EntryHash::new)
}
