//! Taking runs and packs out of the store, in short transactions, so that a writer beside it never waits long.
//!
//! A removed run disappears with its row; the next sweep deletes its entries and segments, some at a time. A crash in
//! between leaves them to the sweep after that.

use std::collections::BTreeSet;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Defect, Era, Head, PackId, PackInfo, PackState, Reliance, StoreError, Sweep, Swept, Totals, Upkeep};
use piton_types::{BlobId, Durability, RunId, Seq, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::append::{head, run_number};
use crate::log::bytes;
use crate::open::{A_MOMENT, let_others_write};
use crate::schema::{key, pack_state};
use crate::writer::Failure;
use crate::{SqliteStore, blobs, inspect};

/// What one transaction of a sweep deletes at most, in bytes; it ends earlier if it takes [`A_MOMENT`].
const STEP: u64 = 8 << 20;
/// Rows that one transaction changes.
const ROWS: usize = 256;
/// Where the era stands in `meta`.
const ERA: &str = "era";
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
        self.core.read(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT no, state, since, length(bytes) FROM pack JOIN pack_state USING (no) WHERE no > ?1 ORDER BY no LIMIT ?2",
            )?;
            let mut runs = conn.prepare_cached(
                "SELECT run.id FROM pack_run JOIN run ON run.no = pack_run.run WHERE pack_run.pack = ?1 ORDER BY run.id",
            )?;
            let found = statement.query_map([after.map_or(0, |pack| pack.0.cast_signed()), limit], info)?;
            let mut packs = found.collect::<rusqlite::Result<Vec<_>>>()?;
            for pack in &mut packs {
                let relying = runs.query_map([pack.id.0.cast_signed()], |row| {
                    let text = row.get_ref(0)?.as_str()?;
                    text.parse().map_err(|error| {
                        rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::<piton_types::InvalidId>::new(error))
                    })
                })?;
                pack.runs = relying.collect::<rusqlite::Result<_>>()?;
            }
            Ok(packs)
        })
    }

    async fn pack_ids(&self, pack: PackId) -> Result<Vec<BlobId>, StoreError> {
        self.core.read(|conn| {
            let found = conn
                .prepare_cached("SELECT ids FROM pack WHERE no = ?1")?
                .query_row([pack.0.cast_signed()], |row| bytes(row, 0))
                .optional()?;
            let listed = found.ok_or_else(|| no_pack(pack))?;
            Ok(listed.as_chunks::<32>().0.iter().map(|id| BlobId::new(*id)).collect())
        })
    }

    async fn rely(&self, run: &RunId, head: Head, reliance: Reliance) -> Result<(), StoreError> {
        let run = run.clone();
        let change = move |conn: &Connection| {
            let number = at_head(conn, &run, head)?;
            rely(conn, number, &reliance.also)?;
            let mut drop_one = conn.prepare_cached("DELETE FROM pack_run WHERE pack = ?1 AND run = ?2")?;
            for pack in &reliance.no_more {
                drop_one.execute([pack.0.cast_signed(), number])?;
            }
            Ok(())
        };
        self.core.write(Durability::Relaxed, change).await
    }

    async fn next_era(&self) -> Result<Era, StoreError> {
        let next = |conn: &Connection| {
            conn.prepare_cached(
                "INSERT INTO meta(key, value) VALUES (?1, 1) ON CONFLICT(key) DO UPDATE SET value = value + 1",
            )?
            .execute([ERA])?;
            Ok(era(conn)?)
        };
        self.core.write(Durability::Relaxed, next).await
    }

    async fn condemn(&self, packs: &[PackId], at: Timestamp) -> Result<u64, StoreError> {
        let mut condemned = 0;
        for some in packs.chunks(ROWS) {
            let some = some.to_vec();
            let condemn = move |conn: &Connection| {
                let mut statement = conn.prepare_cached(
                    "UPDATE pack_state SET state = ?2, since = ?3 WHERE no = ?1 AND state = ?4
                     AND NOT EXISTS (SELECT 1 FROM pack_run WHERE pack = ?1)",
                )?;
                let mut changed = 0;
                for pack in &some {
                    let row = params![pack.0.cast_signed(), pack_state::CONDEMNED, at.as_millis(), pack_state::KEPT];
                    changed += statement.execute(row)? as u64;
                }
                Ok(changed)
            };
            condemned += self.core.write(Durability::Relaxed, condemn).await?;
        }
        Ok(condemned)
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        loop {
            let left = sweep.bytes.saturating_sub(swept.bytes);
            if left == 0 {
                swept.more = self.core.read(|conn| Ok(is_due(conn, sweep.before)?))?;
                break;
            }
            let step = move |conn: &Connection| Ok(step(conn, sweep.before, left.min(STEP))?);
            let (packs, bytes) = self.core.write(Durability::Relaxed, step).await?;
            if packs == 0 && bytes == 0 {
                break;
            }
            swept.packs += packs;
            swept.bytes += bytes;
            let_others_write();
            tokio::task::yield_now().await;
        }
        if swept.bytes > 0 {
            self.core.vacuum(true).await;
        }
        Ok(swept)
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
        let ways = ["INDEXED BY sqlite_autoindex_run_1", "INDEXED BY run_listing", "NOT INDEXED"];
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

pub(crate) fn no_pack(pack: PackId) -> StoreError {
    StoreError::NotFound { what: format!("staged pack {}", pack.0) }
}

/// The era that the store is in.
pub(crate) fn era(conn: &Connection) -> rusqlite::Result<Era> {
    let found =
        conn.prepare_cached("SELECT value FROM meta WHERE key = ?1")?.query_row([ERA], |row| row.get(0)).optional()?;
    Ok(Era(found.map_or(0, i64::cast_unsigned)))
}

/// Records that a run relies on packs, which are then neither pinned nor condemned.
pub(crate) fn rely(conn: &Connection, run: i64, packs: &[PackId]) -> Result<(), Failure> {
    for pack in packs {
        let number = pack.0.cast_signed();
        let mut keep = conn.prepare_cached("UPDATE pack_state SET state = ?2, since = NULL WHERE no = ?1")?;
        if keep.execute([number, pack_state::KEPT])? == 0 {
            return Err(no_pack(*pack).into());
        }
        conn.prepare_cached("INSERT OR IGNORE INTO pack_run(pack, run) VALUES (?1, ?2)")?.execute([number, run])?;
    }
    Ok(())
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
        "DELETE FROM run WHERE no = ?1",
        "DELETE FROM lease WHERE run = ?1",
        "DELETE FROM pack_run WHERE run = ?1",
        "INSERT INTO removed(run) VALUES (?1)",
    ] {
        conn.prepare_cached(sql)?.execute([number])?;
    }
    Ok(())
}

fn info(row: &Row<'_>) -> rusqlite::Result<PackInfo> {
    let state = match row.get::<_, i64>(1)? {
        pack_state::PINNED => PackState::Pinned,
        pack_state::KEPT => PackState::Kept,
        pack_state::CONDEMNED => PackState::Condemned(Timestamp::from_millis(row.get(2)?)),
        _ => return Err(rusqlite::Error::FromSqlConversionFailure(1, Type::Integer, "no such state".into())),
    };
    Ok(PackInfo {
        id: PackId(row.get::<_, i64>(0)?.cast_unsigned()),
        state,
        size: row.get::<_, i64>(3)?.cast_unsigned(),
        runs: Vec::new(),
    })
}

/// Packs that may be deleted.
const DUE: &str = "FROM pack_state INDEXED BY pack_condemned WHERE state = 2 AND since < ?1
    AND NOT EXISTS (SELECT 1 FROM pack_run WHERE pack = no)";

fn is_due(conn: &Connection, before: Timestamp) -> rusqlite::Result<bool> {
    conn.query_row(
        &format!("SELECT EXISTS (SELECT 1 FROM removed) OR EXISTS (SELECT 1 {DUE})"),
        [before.as_millis()],
        |row| row.get(0),
    )
}

/// Deletes up to about so many bytes; gives the packs and bytes.
fn step(conn: &Connection, before: Timestamp, most: u64) -> rusqlite::Result<(u64, u64)> {
    let removed: Option<i64> = conn
        .prepare_cached("SELECT run FROM removed ORDER BY run LIMIT 1")?
        .query_row((), |row| row.get(0))
        .optional()?;
    if let Some(run) = removed {
        return Ok((0, step_of_run(conn, run, most)?));
    }
    let started = Instant::now();
    let (mut packs, mut bytes) = (0, 0);
    while bytes < most && started.elapsed() < A_MOMENT {
        let next = conn
            .prepare_cached(&format!(
                "SELECT no, ids, length(bytes) FROM pack WHERE no = (SELECT no {DUE} ORDER BY since, no LIMIT 1)"
            ))?
            .query_row([before.as_millis()], |row| {
                Ok((row.get::<_, i64>(0)?, self::bytes(row, 1)?, row.get::<_, i64>(2)?))
            })
            .optional()?;
        let Some((number, ids, size)) = next else { break };
        blobs::delete(conn, number, &ids)?;
        packs += 1;
        bytes += size.cast_unsigned() + ids.len() as u64;
    }
    Ok((packs, bytes))
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
