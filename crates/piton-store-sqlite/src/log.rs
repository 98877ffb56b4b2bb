//! The logs of runs.

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Commit, Fold, Head, Log, Record, Section, Segment, SegmentInfo, Span, StoreError};
use piton_types::{Durability, RunId, Seq};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::SqliteStore;
use crate::append::{self, fence, hash, head, run_number};
use crate::counters::Tally;
use crate::inspect::is_damage;
use crate::schema::{MAX_ROW, key, seq_of};
use crate::writer::Failure;

#[async_trait]
impl Log for SqliteStore {
    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        Commit::check_together(&commits)?;
        self.append_all(commits).await
    }

    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError> {
        self.core.read(|conn| match run_number(conn, run)? {
            Some(number) => Ok(head(conn, number)?),
            None => Ok(None),
        })
    }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        self.core.read(|conn| {
            let records = read(conn, run, span)?;
            if records.is_empty() && run_number(conn, run)?.is_none() {
                return Err(StoreError::no_run(run).into());
            }
            Ok(records)
        })
    }
}

#[async_trait]
impl Fold for SqliteStore {
    async fn segments(&self, run: &RunId) -> Result<Vec<SegmentInfo>, StoreError> {
        self.core.read(|conn| {
            let number = run_number(conn, run)?.ok_or_else(|| StoreError::no_run(run))?;
            Ok(segments(conn, number, Seq(0), Seq(u32::MAX))?)
        })
    }

    async fn section(&self, run: &RunId, segment: SegmentInfo, section: Section) -> Result<Bytes, StoreError> {
        let sql = match section {
            Section::Entries => "SELECT entries FROM segment WHERE key = ?1 AND last = ?2",
            Section::Index => "SELECT idx FROM segment WHERE key = ?1 AND last = ?2",
            Section::Nodes => "SELECT nodes FROM segment WHERE key = ?1 AND last = ?2",
        };
        self.core.read(|conn| {
            let number = run_number(conn, run)?.ok_or_else(|| StoreError::no_run(run))?;
            let mut statement = conn.prepare_cached(sql)?;
            let found = statement
                .query_row(params![key(number, segment.first), segment.last.0], |row| bytes(row, 0))
                .optional()?;
            found.ok_or_else(|| {
                let what = format!("segment {segment} of run {run}");
                StoreError::NotFound { what }.into()
            })
        })
    }

    async fn fold(&self, run: &RunId, segment: Segment) -> Result<(), StoreError> {
        let SegmentInfo { first, last } = segment.info;
        let what = || format!("segment {} of run {run}", segment.info);
        if first > last {
            return Err(StoreError::Invalid { what: what(), detail: "it ends before it begins".to_owned() });
        }
        let size = (segment.entries.len() + segment.index.len() + segment.nodes.len()) as u64;
        if size > MAX_ROW {
            return Err(StoreError::TooLarge { what: what(), size, limit: MAX_ROW });
        }
        let run = run.clone();
        self.core.write(Durability::Relaxed, move |conn| fold(conn, &run, &segment)).await?;
        self.core.vacuum(false).await;
        Ok(())
    }
}

impl SqliteStore {
    /// Appends in one transaction: all of them, or none.
    async fn append_all(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        commits.iter().try_for_each(append::check)?;
        if commits.is_empty() {
            return Ok(());
        }
        let durable = commits.iter().any(|commit| commit.durability == Durability::Durable);
        let durability = if durable { Durability::Durable } else { Durability::Relaxed };
        let bytes: usize = commits.iter().map(|commit| commit.entry.len() + commit.pack.len()).sum();
        let count = commits.len();
        let work = move |conn: &Connection| commits.iter().try_for_each(|commit| append::append(conn, commit));
        self.core.write(durability, work).await?;
        Tally::add(&self.core.tally.commits, count as u64);
        Tally::add(&self.core.tally.bytes, bytes as u64);
        Ok(())
    }
}

/// Bytes in a row.
pub(crate) fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(column)?.as_blob()?))
}

/// The four statements of a read: in either order, with packs or without. Nothing if there is no such run.
fn read(conn: &Connection, run: &RunId, span: Span) -> rusqlite::Result<Vec<Record>> {
    macro_rules! sql {
        ($columns:literal, $order:literal) => {
            concat!(
                "SELECT key, fence, hash, entry",
                $columns,
                " FROM entry WHERE key BETWEEN ((SELECT no FROM run WHERE id = ?1) << 32) | ?2
                 AND ((SELECT no FROM run WHERE id = ?1) << 32) | ?3 ORDER BY key ",
                $order,
                " LIMIT ?4"
            )
        };
    }
    let sql = match (span.packs, span.newest_first) {
        (false, false) => sql!("", "ASC"),
        (false, true) => sql!("", "DESC"),
        (true, false) => sql!(", pack", "ASC"),
        (true, true) => sql!(", pack", "DESC"),
    };
    match read_by(conn, sql, run, span) {
        // The index of ids may be what is damaged; the table tells the number too.
        Err(error) if is_damage(&error) => match run_number(conn, run)? {
            Some(number) => {
                read_by(conn, &sql.replace("(SELECT no FROM run WHERE id = ?1)", &number.to_string()), run, span)
            }
            None => Ok(Vec::new()),
        },
        done => done,
    }
}

fn read_by(conn: &Connection, sql: &str, run: &RunId, span: Span) -> rusqlite::Result<Vec<Record>> {
    let limit = i64::try_from(span.limit).unwrap_or(i64::MAX);
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map(params![run.as_str(), span.from.0, span.to.0, limit], |row| {
        Ok(Record {
            seq: seq_of(row.get(0)?),
            fence: fence(row, 1)?,
            hash: hash(row, 2)?,
            entry: bytes(row, 3)?,
            pack: if span.packs { bytes(row, 4)? } else { Bytes::new() },
        })
    })?;
    rows.collect()
}

/// The segments that begin from `from` to `to`.
fn segments(conn: &Connection, run: i64, from: Seq, to: Seq) -> rusqlite::Result<Vec<SegmentInfo>> {
    let mut statement =
        conn.prepare_cached("SELECT key, last FROM segment WHERE key BETWEEN ?1 AND ?2 ORDER BY key")?;
    let rows = statement.query_map([key(run, from), key(run, to)], |row| {
        Ok(SegmentInfo { first: seq_of(row.get(0)?), last: Seq(row.get(1)?) })
    })?;
    rows.collect()
}

fn fold(conn: &Connection, run: &RunId, segment: &Segment) -> Result<(), Failure> {
    let number = run_number(conn, run)?.ok_or_else(|| StoreError::no_run(run))?;
    let head = head(conn, number)?;
    let SegmentInfo { first, last } = segment.info;
    let (from, to) = (key(number, first), key(number, last));
    let covered = segments(conn, number, first, last)?;
    let entries: i64 = conn
        .prepare_cached("SELECT count(*) FROM entry WHERE key BETWEEN ?1 AND ?2")?
        .query_row([from, to], |row| row.get(0))?;
    // Entries and segments never overlap, so if what is here has the right number, it has no gaps.
    let in_segments: u64 = covered.iter().map(SegmentInfo::len).sum();
    let exact = entries.cast_unsigned() + in_segments == segment.info.len();
    if !exact || covered.iter().any(|info| info.last > last) || head.is_none_or(|head| head.seq <= last) {
        return Err(StoreError::Conflict { run: run.clone(), wanted: first, head }.into());
    }
    conn.prepare_cached("DELETE FROM entry WHERE key BETWEEN ?1 AND ?2")?.execute([from, to])?;
    conn.prepare_cached("DELETE FROM segment WHERE key BETWEEN ?1 AND ?2")?.execute([from, to])?;
    conn.prepare_cached("INSERT INTO segment(key, last, entries, idx, nodes) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![from, last.0, &segment.entries[..], &segment.index[..], &segment.nodes[..]])?;
    Ok(())
}
