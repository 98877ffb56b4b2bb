//! What moved, in the order in which it did.

use async_trait::async_trait;
use piton_store::{Changes, Cursor, StoreError};
use piton_types::RunId;

use crate::SqliteStore;
use crate::index::parse;

#[async_trait]
impl Changes for SqliteStore {
    async fn changed(&self, after: Cursor, limit: usize) -> Result<(Vec<RunId>, Cursor), StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.core.read(|conn| {
            let mut statement =
                conn.prepare_cached("SELECT id, moved FROM run WHERE moved > ?1 ORDER BY moved LIMIT ?2")?;
            let mut rows = statement.query([after.0.cast_signed(), limit])?;
            let (mut runs, mut cursor) = (Vec::new(), after);
            while let Some(row) = rows.next()? {
                runs.push(parse(row, 0)?);
                cursor = Cursor(row.get::<_, i64>(1)?.cast_unsigned());
            }
            Ok((runs, cursor))
        })
    }

    async fn now(&self) -> Result<Cursor, StoreError> {
        self.core.read(|conn| {
            let moved: i64 = conn.query_row("SELECT coalesce(max(moved), 0) FROM run", (), |row| row.get(0))?;
            Ok(Cursor(moved.cast_unsigned()))
        })
    }
}
