//! The index of runs, and their leases.

use std::collections::BTreeSet;

use async_trait::async_trait;
use piton_store::{Lease, Leases, RunIndex, RunQuery, StoreError};
use piton_types::{Durability, Fence, Holder, RunId, RunKind, RunStatus, RunSummary, Timestamp};
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::SqliteStore;
use crate::append::{fence, head, run_number};
use crate::inspect::is_damage;
use crate::list::list;
use crate::writer::Failure;

#[async_trait]
impl RunIndex for SqliteStore {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        self.core.read(|conn| Ok(summary(conn, run)?))
    }

    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        self.core.read(|conn| Ok(list(conn, &query)?))
    }
}

#[async_trait]
impl Leases for SqliteStore {
    async fn lease(&self, run: &RunId) -> Result<Option<Lease>, StoreError> {
        self.core.read(|conn| match run_number(conn, run)? {
            Some(number) => Ok(lease(conn, number)?),
            None => Ok(None),
        })
    }

    async fn beat(&self, run: &RunId, fence: Fence, holder: &Holder) -> Result<u64, StoreError> {
        let run = run.clone();
        let holder = serde_json::to_string(holder)
            .map_err(|error| StoreError::Invalid { what: "a holder".to_owned(), detail: error.to_string() })?;
        self.core.write(Durability::Relaxed, move |conn| beat(conn, &run, fence, &holder)).await
    }

    async fn release(&self, run: &RunId, fence: Fence) -> Result<(), StoreError> {
        let run = run.clone();
        let release = move |conn: &Connection| {
            if let Some(number) = run_number(conn, &run)? {
                // The fence and the beat stay, so that neither ever goes back.
                conn.prepare_cached("UPDATE lease SET holder = NULL WHERE run = ?1 AND fence = ?2")?
                    .execute([number, fence.0.cast_signed()])?;
            }
            Ok(())
        };
        self.core.write(Durability::Relaxed, release).await
    }
}

/// The columns of a run that [`summary_of`] reads.
pub(crate) const COLUMNS: &str = "id, status, updated_at, created_at, kind, name, parent, folder, labels";

fn summary(conn: &Connection, run: &RunId) -> rusqlite::Result<Option<RunSummary>> {
    let look = |how| {
        conn.prepare_cached(&format!("SELECT {COLUMNS} FROM run {how} WHERE id = ?1"))?
            .query_row([run.as_str()], summary_of)
            .optional()
    };
    match look("") {
        // As for the number of a run.
        Err(error) if is_damage(&error) => look("NOT INDEXED"),
        found => found,
    }
}

/// A run's summary from its row.
pub(crate) fn summary_of(row: &Row<'_>) -> rusqlite::Result<RunSummary> {
    let status = usize::from(row.get::<_, u8>(1)?);
    let kind = usize::from(row.get::<_, u8>(4)?);
    Ok(RunSummary {
        id: parse(row, 0)?,
        name: row.get(5)?,
        kind: *KINDS.get(kind).ok_or_else(|| nonsense(4, "no such kind"))?,
        status: *RunStatus::ALL.get(status).ok_or_else(|| nonsense(1, "no such status"))?,
        created_at: Timestamp::from_millis(row.get(3)?),
        updated_at: Timestamp::from_millis(row.get(2)?),
        parent: match row.get_ref(6)? {
            ValueRef::Null => None,
            _ => Some(parse(row, 6)?),
        },
        folder: row.get(7)?,
        labels: match row.get_ref(8)? {
            ValueRef::Null => BTreeSet::new(),
            labels => serde_json::from_str(labels.as_str()?)
                .map_err(|error| rusqlite::Error::FromSqlConversionFailure(8, Type::Text, Box::new(error)))?,
        },
    })
}

pub(crate) fn parse<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    text.parse().map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}

fn nonsense(column: usize, detail: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Integer, detail.into())
}

/// The number of a status, as it is stored.
pub(crate) const fn status_number(status: RunStatus) -> u8 {
    status as u8
}

/// The kinds of runs, at the places of the numbers that are stored for them.
const KINDS: [RunKind; 5] = [RunKind::Steps, RunKind::Workflow, RunKind::Guard, RunKind::Embedded, RunKind::Workspace];

/// The number of a kind, as it is stored.
pub(crate) const fn kind_number(kind: RunKind) -> u8 {
    match kind {
        RunKind::Steps => 0,
        RunKind::Workflow => 1,
        RunKind::Guard => 2,
        RunKind::Embedded => 3,
        RunKind::Workspace => 4,
    }
}

fn lease(conn: &Connection, run: i64) -> rusqlite::Result<Option<Lease>> {
    conn.prepare_cached("SELECT fence, beat, holder FROM lease WHERE run = ?1 AND holder IS NOT NULL")?
        .query_row([run], |row| {
            let holder = serde_json::from_str(row.get_ref(2)?.as_str()?)
                .map_err(|error| rusqlite::Error::FromSqlConversionFailure(2, Type::Text, Box::new(error)))?;
            Ok(Lease { fence: fence(row, 0)?, beat: row.get::<_, i64>(1)?.cast_unsigned(), holder })
        })
        .optional()
}

fn beat(conn: &Connection, run: &RunId, held: Fence, holder: &str) -> Result<u64, Failure> {
    let number = run_number(conn, run)?.ok_or_else(|| StoreError::no_run(run))?;
    let seen = conn
        .prepare_cached("SELECT fence FROM lease WHERE run = ?1")?
        .query_row([number], |row| fence(row, 0))
        .optional()?;
    let written = head(conn, number)?.map(|head| head.fence);
    if let Some(current) = seen.max(written)
        && current > held
    {
        return Err(StoreError::Fenced { run: run.clone(), held, current }.into());
    }
    let beat: i64 = conn
        .prepare_cached(
            "INSERT INTO lease(run, fence, beat, holder) VALUES (?1, ?2, 1, ?3)
             ON CONFLICT(run) DO UPDATE SET fence = ?2, beat = beat + 1, holder = ?3 RETURNING beat",
        )?
        .query_row(params![number, held.0.cast_signed(), holder], |row| row.get(0))?;
    Ok(beat.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_sit_at_their_numbers() {
        for (number, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(usize::from(kind_number(kind)), number);
        }
    }
}
