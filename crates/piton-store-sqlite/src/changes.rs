//! What moved, in the order in which it did.
//!
//! A cursor is the number of the run that moved last, in that order, and the number of its newest entry then. Only a run
//! that overtakes another one gets a new number, so a run that goes on alone costs its commits nothing.

use async_trait::async_trait;
use piton_store::{Changes, Cursor, StoreError};
use piton_types::RunId;
use rusqlite::{Connection, OptionalExtension as _};

use crate::SqliteStore;
use crate::append::head;
use crate::index::parse;

#[async_trait]
impl Changes for SqliteStore {
    async fn changed(&self, after: Cursor, limit: usize) -> Result<(Vec<RunId>, Cursor), StoreError> {
        self.core.read(|conn| {
            let mut statement =
                conn.prepare_cached("SELECT id, moved, no FROM run WHERE moved >= ?1 ORDER BY moved")?;
            let mut rows = statement.query([after.0.cast_signed()])?;
            let (mut runs, mut cursor) = (Vec::new(), after);
            while runs.len() < limit
                && let Some(row) = rows.next()?
            {
                let place = place(conn, row.get(1)?, row.get(2)?)?;
                if place > after {
                    runs.push(parse(row, 0)?);
                    cursor = place;
                }
            }
            Ok((runs, cursor))
        })
    }

    async fn now(&self) -> Result<Cursor, StoreError> {
        self.core.read(|conn| {
            let last = conn
                .query_row("SELECT moved, no FROM run ORDER BY moved DESC LIMIT 1", (), |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            Ok(match last {
                Some((moved, run)) => place(conn, moved, run)?,
                None => Cursor::default(),
            })
        })
    }
}

/// Where a run is in the order.
fn place(conn: &Connection, moved: i64, run: i64) -> rusqlite::Result<Cursor> {
    Ok(Cursor(moved.cast_unsigned(), head(conn, run)?.map_or(0, |head| head.seq.0.into())))
}
