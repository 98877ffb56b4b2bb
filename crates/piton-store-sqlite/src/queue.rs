//! Runs that wait for workers.

use async_trait::async_trait;
use piton_store::{Queue, StoreError, Waiting};
use piton_types::{Durability, RunId, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};

use crate::SqliteStore;
use crate::append::run_number;
use crate::index::parse;

/// In the order in which they are taken.
const WAITING: &str = "SELECT run.id, queue.labels, priority, due, run.no FROM queue JOIN run ON run.no = queue.run";

#[async_trait]
impl Queue for SqliteStore {
    async fn enqueue(&self, waiting: Waiting) -> Result<(), StoreError> {
        let labels = serde_json::to_string(&waiting.labels)
            .map_err(|error| StoreError::Invalid { what: "labels".to_owned(), detail: error.to_string() })?;
        let enqueue = move |conn: &Connection| {
            let number = run_number(conn, &waiting.run)?.ok_or_else(|| StoreError::no_run(&waiting.run))?;
            conn.prepare_cached("INSERT OR REPLACE INTO queue(run, priority, due, labels) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![number, waiting.priority, waiting.due.as_millis(), labels])?;
            Ok(())
        };
        self.core.write(Durability::Relaxed, enqueue).await
    }

    async fn take(&self, labels: &[String], now: Timestamp) -> Result<Option<Waiting>, StoreError> {
        let labels = labels.to_vec();
        let take = move |conn: &Connection| {
            let mut statement =
                conn.prepare_cached(&format!("{WAITING} WHERE due <= ?1 ORDER BY priority DESC, due, queue.run"))?;
            let mut rows = statement.query([now.as_millis()])?;
            while let Some(row) = rows.next()? {
                let waiting = waiting(row)?;
                if waiting.labels.iter().all(|label| labels.contains(label)) {
                    conn.prepare_cached("DELETE FROM queue WHERE run = ?1")?.execute([row.get::<_, i64>(4)?])?;
                    return Ok(Some(waiting));
                }
            }
            Ok(None)
        };
        self.core.write(Durability::Relaxed, take).await
    }

    async fn dequeue(&self, run: &RunId) -> Result<bool, StoreError> {
        let run = run.clone();
        let dequeue = move |conn: &Connection| match run_number(conn, &run)? {
            Some(number) => Ok(conn.prepare_cached("DELETE FROM queue WHERE run = ?1")?.execute([number])? > 0),
            None => Ok(false),
        };
        self.core.write(Durability::Relaxed, dequeue).await
    }

    async fn next_due(&self, labels: &[String]) -> Result<Option<Timestamp>, StoreError> {
        self.core.read(|conn| {
            let mut statement = conn.prepare_cached(&format!("{WAITING} ORDER BY due"))?;
            let mut rows = statement.query(())?;
            while let Some(row) = rows.next()? {
                let waiting = waiting(row)?;
                if waiting.labels.iter().all(|label| labels.contains(label)) {
                    return Ok(Some(waiting.due));
                }
            }
            Ok(None)
        })
    }
}

fn waiting(row: &Row<'_>) -> rusqlite::Result<Waiting> {
    let labels = serde_json::from_str(row.get_ref(1)?.as_str()?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, Type::Text, Box::new(error)))?;
    Ok(Waiting { run: parse(row, 0)?, labels, priority: row.get(2)?, due: Timestamp::from_millis(row.get(3)?) })
}
