//! Taking runs and packs out of the store, in short transactions, so that a writer beside it never waits long.
//!
//! A removed run disappears with its row; the next sweep deletes its entries and segments, some at a time. A crash in
//! between leaves them to the sweep after that.

use std::collections::BTreeSet;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Defect, Head, PackId, PackInfo, PackState, StoreError, Sweep, Swept, Totals, Upkeep};
use piton_types::{BlobId, Durability, RunId, Seq, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::append::{head, run_number};
use crate::blobs::NOW;
use crate::log::bytes;
use crate::open::{A_MOMENT, let_others_write};
use crate::schema::key;
use crate::writer::Failure;
use crate::{SqliteStore, blobs, inspect};

/// What one transaction of a sweep deletes at most, in bytes; it ends earlier if it takes [`A_MOMENT`].
const STEP: u64 = 8 << 20;
/// Rows that one transaction changes.
const ROWS: usize = 256;
/// How keys of notes begin in `meta`.
const NOTE: &str = "note:";

#[async_trait]
impl Upkeep for SqliteStore {
    async fn remove(&self, run: &RunId, head: Head) -> Result<(), StoreError> {
        let id = run.clone();
        self.core.write(Durability::Relaxed, move |conn| remove(conn, &id, head)).await
    }

    async fn packs(&self, after: Option<PackId>, limit: usize) -> Result<Vec<PackInfo>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let after = after.map_or([0; 32], |pack| *pack.as_bytes());
        self.core.read(|conn| {
            let mut statement = conn.prepare_cached(&format!(
                "SELECT id, since, (SELECT max(until) FROM pin WHERE pin.pack = no), {NOW}, length(bytes)
                 FROM pack LEFT JOIN condemned ON condemned.pack = no WHERE id > ?1 ORDER BY id LIMIT ?2",
            ))?;
            let found = statement.query_map(params![after, limit], info)?;
            Ok(found.collect::<rusqlite::Result<Vec<_>>>()?)
        })
    }

    async fn pack_ids(&self, pack: PackId) -> Result<Vec<BlobId>, StoreError> {
        self.core.read(|conn| {
            let found = conn
                .prepare_cached("SELECT ids FROM pack WHERE id = ?1")?
                .query_row([pack.as_bytes()], |row| bytes(row, 0))
                .optional()?;
            let listed = found.ok_or_else(|| StoreError::no_pack(pack))?;
            Ok(listed.as_chunks::<32>().0.iter().map(|id| BlobId::new(*id)).collect())
        })
    }

    async fn condemn(&self, packs: &[PackId], at: Timestamp) -> Result<u64, StoreError> {
        let mut condemned = 0;
        for some in packs.chunks(ROWS) {
            let some = some.to_vec();
            let condemn = move |conn: &Connection| {
                let mut statement = conn.prepare_cached(&format!(
                    "INSERT OR IGNORE INTO condemned(pack, since) SELECT no, ?2 FROM pack WHERE id = ?1
                     AND NOT EXISTS (SELECT 1 FROM pin WHERE pin.pack = no AND until > {NOW})",
                ))?;
                let mut changed = 0;
                for pack in &some {
                    changed += statement.execute(params![pack.as_bytes(), at.as_millis()])? as u64;
                }
                Ok(changed)
            };
            condemned += self.core.write(Durability::Relaxed, condemn).await?;
        }
        Ok(condemned)
    }

    async fn pardon(&self, packs: &[PackId]) -> Result<(), StoreError> {
        for some in packs.chunks(ROWS) {
            let some = some.to_vec();
            let pardon = move |conn: &Connection| {
                let of = "pack = (SELECT no FROM pack WHERE id = ?1)";
                for sql in [
                    format!("DELETE FROM condemned WHERE {of}"),
                    format!("DELETE FROM pin WHERE {of} AND until <= {NOW}"),
                ] {
                    let mut statement = conn.prepare_cached(&sql)?;
                    for pack in &some {
                        statement.execute([pack.as_bytes()])?;
                    }
                }
                Ok(())
            };
            self.core.write(Durability::Relaxed, pardon).await?;
        }
        Ok(())
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        let mut packs = sweep.packs;
        loop {
            let left = sweep.bytes.saturating_sub(swept.bytes);
            if left == 0 {
                let removed =
                    |conn: &Connection| conn.query_row("SELECT EXISTS (SELECT 1 FROM removed)", (), |row| row.get(0));
                swept.more = !packs.is_empty() || self.core.read(|conn| Ok(removed(conn)?))?;
                break;
            }
            let due = packs.clone();
            let step = move |conn: &Connection| Ok(step(conn, &due, left.min(STEP))?);
            let (done, deleted, bytes) = self.core.write(Durability::Relaxed, step).await?;
            packs.drain(..done);
            if done == 0 && bytes == 0 {
                break;
            }
            swept.packs += deleted;
            swept.bytes += bytes;
            let_others_write();
            tokio::task::yield_now().await;
        }
        if swept.bytes > 0 {
            self.core.vacuum(true).await;
        }
        Ok(swept)
    }

    async fn notes(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        let from = format!("{NOTE}{prefix}");
        self.core.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT key, value FROM meta WHERE key >= ?1 ORDER BY key")?;
            let mut rows = statement.query([&from])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()?
                && let key = row.get::<_, String>(0)?
                && let Some(key) = key.strip_prefix(NOTE).filter(|key| key.starts_with(prefix))
            {
                found.push((key.to_owned(), bytes(row, 1)?));
            }
            Ok(found)
        })
    }

    async fn note(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.core.read(|conn| {
            Ok(conn
                .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
                .query_row([format!("{NOTE}{key}")], |row| bytes(row, 0))
                .optional()?)
        })
    }

    async fn set_note(&self, key: &str, note: Option<Bytes>) -> Result<(), StoreError> {
        let key = format!("{NOTE}{key}");
        let set = move |conn: &Connection| {
            match note {
                Some(note) => conn
                    .prepare_cached("INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)")?
                    .execute(params![key, &note[..]])?,
                None => conn.prepare_cached("DELETE FROM meta WHERE key = ?1")?.execute([key])?,
            };
            Ok(())
        };
        self.core.write(Durability::Relaxed, set).await
    }

    async fn run_ids(&self) -> Result<Vec<RunId>, StoreError> {
        // The table and each index that has the ids; where one is damaged, another may not be.
        let ways = ["INDEXED BY sqlite_autoindex_run_1", "INDEXED BY run_status", "NOT INDEXED"];
        self.core.read(|conn| {
            let (mut found, mut failed) = (BTreeSet::new(), Vec::new());
            for way in ways {
                let mut look = || {
                    let mut statement = conn.prepare(&format!("SELECT id FROM run {way}"))?;
                    let mut rows = statement.query(())?;
                    while let Some(row) = rows.next()? {
                        found.extend(row.get_ref(0)?.as_str()?.parse::<RunId>().ok());
                    }
                    Ok::<_, rusqlite::Error>(())
                };
                failed.extend(look().err());
            }
            match failed.pop() {
                Some(error) if failed.len() + 1 == ways.len() && found.is_empty() => Err(error.into()),
                _ => Ok(found.into_iter().collect()),
            }
        })
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        // Lengths stand in the rows' heads: what is large isn't read.
        let sums = |conn: &Connection, sql: &str| {
            conn.query_row(sql, (), |row| {
                Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()))
            })
        };
        self.core.read(|conn| {
            let (entries, entry_bytes) =
                sums(conn, "SELECT count(*), coalesce(sum(length(entry) + length(pack)), 0) FROM entry")?;
            let lengths =
                "SELECT count(*), coalesce(sum(length(entries) + length(idx) + length(nodes)), 0) FROM segment";
            let (segments, segment_bytes) = sums(conn, lengths)?;
            let (packs, pack_bytes) = sums(conn, "SELECT count(*), coalesce(sum(length(bytes)), 0) FROM pack")?;
            Ok(Totals { entries, entry_bytes, segments, segment_bytes, packs, pack_bytes })
        })
    }

    async fn inspect(&self) -> Result<Vec<Defect>, StoreError> {
        self.core.read(|conn| Ok(inspect::inspect(conn, self.core.files.size())?))
    }
}

/// The run's number, if its log ends at `expected`.
fn at_head(conn: &Connection, run: &RunId, expected: Head) -> Result<i64, Failure> {
    let number = run_number(conn, run)?.ok_or_else(|| StoreError::no_run(run))?;
    let now = head(conn, number)?;
    if now != Some(expected) {
        return Err(StoreError::Conflict { run: run.clone(), wanted: expected.seq, head: now }.into());
    }
    Ok(number)
}

fn remove(conn: &Connection, run: &RunId, head: Head) -> Result<(), Failure> {
    let number = at_head(conn, run, head)?;
    for sql in [
        "UPDATE meta SET value = max(value, (SELECT moved FROM run WHERE no = ?1)) WHERE key = 'moved'",
        "DELETE FROM run WHERE no = ?1",
        "DELETE FROM label WHERE run = ?1",
        "DELETE FROM lease WHERE run = ?1",
        "DELETE FROM queue WHERE run = ?1",
        "INSERT INTO removed(run) VALUES (?1)",
    ] {
        conn.prepare_cached(sql)?.execute([number])?;
    }
    Ok(())
}

fn info(row: &Row<'_>) -> rusqlite::Result<PackInfo> {
    let (since, until): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
    let state = match (since, until) {
        (Some(since), _) => PackState::Condemned(Timestamp::from_millis(since)),
        (None, None) => PackState::Kept,
        (None, Some(until)) if until > row.get(3)? => PackState::Pinned,
        (None, Some(_)) => PackState::Abandoned,
    };
    Ok(PackInfo { id: PackId::new(row.get(0)?), state, size: row.get::<_, i64>(4)?.cast_unsigned() })
}

/// Deletes up to about so many bytes; gives how many of the packs were looked at, how many deleted, and the bytes.
fn step(conn: &Connection, due: &[(PackId, Timestamp)], most: u64) -> rusqlite::Result<(usize, u64, u64)> {
    let removed: Option<i64> = conn
        .prepare_cached("SELECT run FROM removed ORDER BY run LIMIT 1")?
        .query_row((), |row| row.get(0))
        .optional()?;
    if let Some(run) = removed {
        return Ok((0, 0, step_of_run(conn, run, most)?));
    }
    let started = Instant::now();
    let (mut packs, mut bytes) = (0, 0);
    for (place, (pack, since)) in due.iter().enumerate() {
        if bytes >= most || started.elapsed() >= A_MOMENT {
            return Ok((place, packs, bytes));
        }
        let found = conn
            .prepare_cached(&format!(
                "SELECT no, ids, length(bytes) FROM pack JOIN condemned ON condemned.pack = no WHERE id = ?1 AND since = ?2
                 AND NOT EXISTS (SELECT 1 FROM pin WHERE pin.pack = no AND until > {NOW})"
            ))?
            .query_row(params![pack.as_bytes(), since.as_millis()], |row| {
                Ok((row.get::<_, i64>(0)?, self::bytes(row, 1)?, row.get::<_, i64>(2)?))
            })
            .optional()?;
        let Some((number, ids, size)) = found else { continue };
        blobs::delete(conn, number, &ids)?;
        packs += 1;
        bytes += size.cast_unsigned() + ids.len() as u64;
    }
    Ok((due.len(), packs, bytes))
}

/// Deletes something of what a removed run held. The last step, which takes it off the list, counts a byte, so that
/// the caller goes on.
fn step_of_run(conn: &Connection, run: i64, most: u64) -> rusqlite::Result<u64> {
    let (first, last) = (key(run, Seq(0)), key(run, Seq(u32::MAX)));
    let started = Instant::now();
    let mut freed = 0;
    for (sizes, delete) in [
        (
            "SELECT key, length(entry) + length(pack) FROM entry WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3",
            "DELETE FROM entry WHERE key = ?1",
        ),
        (
            "SELECT key, length(entries) + length(idx) + length(nodes)
             FROM segment WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3",
            "DELETE FROM segment WHERE key = ?1",
        ),
    ] {
        let mut statement = conn.prepare_cached(sizes)?;
        let rows = statement.query_map(params![first, last, ROWS as i64], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
        })?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        for (key, size) in rows {
            conn.prepare_cached(delete)?.execute([key])?;
            freed += size.max(1);
            if freed >= most || started.elapsed() >= A_MOMENT {
                return Ok(freed);
            }
        }
        if freed > 0 {
            return Ok(freed);
        }
    }
    conn.prepare_cached("DELETE FROM removed WHERE run = ?1")?.execute([run])?;
    Ok(1)
}
