//! Runs that wait for workers.
//!
//! The order of the queue is an index of labels, priority and time, so that a worker looks at the first run of each set of
//! labels and priority, and not at those that are due later, held or asleep, however many they are.

use std::time::Duration;

use async_trait::async_trait;
use piton_store::{Depth, Limit, Place, Queue, StoreError, Waiting, WorkerInfo, WorkerStanding};
use piton_types::{Durability, RunId, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::SqliteStore;
use crate::append::run_number;
use crate::blobs::NOW;
use crate::index::parse;

/// When a run is due that waits to be woken.
const NEVER: i64 = i64::MAX;

/// How long a worker that gave no sign of life is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

const PLACE: &str = "SELECT run.id, queue.labels, priority, due, worker, key, at_once, attempts, problem, queue.run FROM queue \
     JOIN run ON run.no = queue.run";

#[async_trait]
impl Queue for SqliteStore {
    async fn enqueue(&self, waiting: Waiting) -> Result<(), StoreError> {
        let labels = labels_text(&waiting.labels)?;
        let enqueue = move |conn: &Connection| {
            let number = run_number(conn, &waiting.run)?.ok_or_else(|| StoreError::no_run(&waiting.run))?;
            let due = waiting.due.map_or(NEVER, Timestamp::as_millis);
            let (key, at_once) = waiting.limit.map(|limit| (limit.key, limit.at_once)).unzip();
            conn.prepare_cached(
                "INSERT OR REPLACE INTO queue(run, labels, priority, due, worker, key, at_once, attempts, problem) \
                 VALUES (?1, ?2, ?3, ?4, NULL, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                number,
                labels,
                waiting.priority,
                due,
                key,
                at_once,
                waiting.attempts,
                waiting.problem
            ])?;
            Ok(())
        };
        self.core.write(Durability::Durable, enqueue).await
    }

    async fn take(&self, worker: &WorkerInfo, hold: Duration) -> Result<Option<Waiting>, StoreError> {
        let (worker, hold) = (worker.clone(), millis(hold));
        let take = move |conn: &Connection| {
            let now = now(conn)?;
            let mut best: Option<(Waiting, i64)> = None;
            for labels in admitted(conn, &worker.labels)? {
                let found = first_due(conn, &labels, now)?;
                best = [best, found]
                    .into_iter()
                    .flatten()
                    .min_by_key(|(one, number)| (std::cmp::Reverse(one.priority), one.due, *number));
            }
            let Some((mut waiting, number)) = best else { return Ok(None) };
            waiting.attempts += 1;
            conn.prepare_cached("UPDATE queue SET worker = ?2, due = ?3, attempts = ?4 WHERE run = ?1")?
                .execute(params![number, worker.name, now.saturating_add(hold), waiting.attempts])?;
            Ok(Some(waiting))
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

    async fn wake(&self, run: &RunId) -> Result<bool, StoreError> {
        let run = run.clone();
        let wake = move |conn: &Connection| {
            let Some(number) = run_number(conn, &run)? else { return Ok(false) };
            let is_there: bool = conn
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM queue WHERE run = ?1)")?
                .query_row([number], |row| row.get(0))?;
            let sql = format!(
                "UPDATE queue SET due = {NOW}, worker = NULL, attempts = 0, problem = NULL \
                 WHERE run = ?1 AND (worker IS NULL OR due <= {NOW})"
            );
            conn.prepare_cached(&sql)?.execute([number])?;
            Ok(is_there)
        };
        self.core.write(Durability::Durable, wake).await
    }

    async fn next_due(&self, labels: &[String]) -> Result<Option<Duration>, StoreError> {
        self.core.read(|conn| {
            let mut next: Option<i64> = None;
            for set in admitted(conn, labels)? {
                for priority in priorities(conn, &set)? {
                    let due: i64 = conn
                        .prepare_cached("SELECT min(due) FROM queue WHERE labels = ?1 AND priority = ?2")?
                        .query_row(params![set, priority], |row| row.get(0))?;
                    next = Some(next.map_or(due, |next| next.min(due)));
                }
            }
            let now = now(conn)?;
            Ok(next.filter(|due| *due != NEVER).map(|due| duration(due.saturating_sub(now))))
        })
    }

    async fn place(&self, run: &RunId) -> Result<Option<Place>, StoreError> {
        self.core.read(|conn| {
            let place = conn.prepare_cached(&format!("{PLACE} WHERE run.id = ?1"))?.query_row([run.as_str()], place);
            Ok(place.optional()?)
        })
    }

    async fn depth(&self) -> Result<Depth, StoreError> {
        self.core.read(|conn| {
            let sql = format!(
                "SELECT count(*) FILTER (WHERE due <= {NOW}), count(*) FILTER (WHERE due > {NOW} AND worker IS NULL), \
                 count(*) FILTER (WHERE due > {NOW} AND worker IS NOT NULL) FROM queue"
            );
            let count = |row: &Row<'_>, column| row.get::<_, i64>(column).map(i64::cast_unsigned);
            Ok(conn
                .prepare_cached(&sql)?
                .query_row((), |row| Ok(Depth { due: count(row, 0)?, later: count(row, 1)?, held: count(row, 2)? }))?)
        })
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.core.read(|conn| Ok(Timestamp::from_millis(now(conn)?)))
    }

    async fn alive(&self, worker: &WorkerInfo, runs: &[RunId], hold: Duration) -> Result<bool, StoreError> {
        let (worker, runs, hold) = (worker.clone(), runs.to_vec(), millis(hold));
        let info = serde_json::to_string(&worker).map_err(|error| invalid(&error))?;
        let alive = move |conn: &Connection| {
            let now = now(conn)?;
            conn.prepare_cached("DELETE FROM worker WHERE seen < ?1")?.execute([now - millis(REMEMBERED)])?;
            for run in &runs {
                let sql = "UPDATE queue SET due = ?2 WHERE run = (SELECT no FROM run WHERE id = ?4) AND worker = ?1 AND due > ?3";
                let until = now.saturating_add(hold);
                conn.prepare_cached(sql)?.execute(params![worker.name, until, now, run.as_str()])?;
            }
            let sql = "INSERT INTO worker(name, info, seen, draining) VALUES (?1, ?2, ?3, 0) \
                 ON CONFLICT(name) DO UPDATE SET info = ?2, seen = ?3 RETURNING draining";
            Ok(conn.prepare_cached(sql)?.query_row(params![worker.name, info, now], |row| row.get(0))?)
        };
        self.core.write(Durability::Relaxed, alive).await
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        let worker = worker.to_owned();
        let leave = move |conn: &Connection| {
            conn.prepare_cached(&format!("UPDATE queue SET worker = NULL, due = {NOW} WHERE worker = ?1"))?
                .execute([&worker])?;
            conn.prepare_cached("DELETE FROM worker WHERE name = ?1")?.execute([&worker])?;
            Ok(())
        };
        self.core.write(Durability::Relaxed, leave).await
    }

    async fn drain(&self, worker: &str) -> Result<bool, StoreError> {
        let worker = worker.to_owned();
        let drain = move |conn: &Connection| {
            Ok(conn.prepare_cached("UPDATE worker SET draining = 1 WHERE name = ?1")?.execute([&worker])? > 0)
        };
        self.core.write(Durability::Durable, drain).await
    }

    async fn keep(&self, worker: &str, hold: Duration) -> Result<bool, StoreError> {
        let (worker, hold) = (worker.to_owned(), millis(hold));
        let keep = move |conn: &Connection| {
            let sql = format!(
                "SELECT NOT EXISTS (SELECT 1 FROM meta WHERE key = 'kept_until' AND value > {NOW}) \
                 OR EXISTS (SELECT 1 FROM meta WHERE key = 'keeper' AND value = ?1)"
            );
            let is_free = conn.prepare_cached(&sql)?.query_row([&worker], |row| row.get(0))?;
            if is_free {
                let sql = format!("INSERT OR REPLACE INTO meta VALUES ('keeper', ?1), ('kept_until', {NOW} + ?2)");
                conn.prepare_cached(&sql)?.execute(params![worker, hold])?;
            }
            Ok(is_free)
        };
        self.core.write(Durability::Relaxed, keep).await
    }

    async fn workers(&self) -> Result<Vec<WorkerStanding>, StoreError> {
        self.core.read(|conn| {
            let sql = format!(
                "SELECT info, {NOW} - seen, draining, \
                 (SELECT count(*) FROM queue WHERE queue.worker = worker.name AND due > {NOW}) FROM worker ORDER BY name"
            );
            let mut statement = conn.prepare_cached(&sql)?;
            let standing = |row: &Row<'_>| {
                Ok(WorkerStanding {
                    info: json(row, 0)?,
                    silent_for: duration(row.get(1)?),
                    draining: row.get(2)?,
                    holds: row.get(3)?,
                })
            };
            Ok(statement.query_map((), standing)?.collect::<rusqlite::Result<_>>()?)
        })
    }
}

fn now(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached(&format!("SELECT {NOW}"))?.query_row((), |row| row.get(0))
}

/// The sets of labels in the queue that a worker with these labels may take, as they are stored.
fn admitted(conn: &Connection, labels: &[String]) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare_cached("SELECT labels FROM queue WHERE labels > ?1 ORDER BY labels LIMIT 1")?;
    let (mut sets, mut after) = (Vec::new(), String::new());
    while let Some(set) = statement.query_row([&after], |row| row.get::<_, String>(0)).optional()? {
        let wanted: Vec<String> = serde_json::from_str(&set).map_err(|error| nonsense(0, error))?;
        if wanted.iter().all(|label| labels.contains(label)) {
            sets.push(set.clone());
        }
        after = set;
    }
    Ok(sets)
}

/// The priorities that runs with such labels have, highest first.
fn priorities(conn: &Connection, labels: &str) -> rusqlite::Result<Vec<i32>> {
    let mut statement = conn.prepare_cached("SELECT max(priority) FROM queue WHERE labels = ?1 AND priority < ?2")?;
    let (mut all, mut below) = (Vec::new(), i64::MAX);
    while let Some(priority) = statement.query_row(params![labels, below], |row| row.get::<_, Option<i32>>(0))? {
        all.push(priority);
        below = priority.into();
    }
    Ok(all)
}

/// The first of the runs with such labels that may be taken.
fn first_due(conn: &Connection, labels: &str, now: i64) -> rusqlite::Result<Option<(Waiting, i64)>> {
    let sql = format!("{PLACE} WHERE queue.labels = ?1 AND priority = ?2 AND due <= ?3 ORDER BY due, queue.run");
    let mut statement = conn.prepare_cached(&sql)?;
    for priority in priorities(conn, labels)? {
        let mut rows = statement.query(params![labels, priority, now])?;
        while let Some(row) = rows.next()? {
            let waiting = place(row)?.waiting;
            if within_limit(conn, waiting.limit.as_ref(), now)? {
                return Ok(Some((waiting, row.get(9)?)));
            }
        }
    }
    Ok(None)
}

fn within_limit(conn: &Connection, limit: Option<&Limit>, now: i64) -> rusqlite::Result<bool> {
    let Some(limit) = limit else { return Ok(true) };
    let held: u32 = conn
        .prepare_cached("SELECT count(*) FROM queue WHERE worker IS NOT NULL AND key = ?1 AND due > ?2")?
        .query_row(params![limit.key, now], |row| row.get(0))?;
    Ok(held < limit.at_once)
}

fn place(row: &Row<'_>) -> rusqlite::Result<Place> {
    let due: i64 = row.get(3)?;
    let (key, at_once): (Option<String>, Option<u32>) = (row.get(5)?, row.get(6)?);
    let waiting = Waiting {
        run: parse(row, 0)?,
        labels: json(row, 1)?,
        priority: row.get(2)?,
        due: (due != NEVER).then(|| Timestamp::from_millis(due)),
        limit: key.zip(at_once).map(|(key, at_once)| Limit { key, at_once }),
        attempts: row.get(7)?,
        problem: row.get(8)?,
    };
    Ok(Place { waiting, worker: row.get(4)? })
}

/// Sets are compared as texts, so that the same labels have the same one.
fn labels_text(labels: &[String]) -> Result<String, StoreError> {
    let mut labels = labels.to_vec();
    labels.sort_unstable();
    labels.dedup();
    serde_json::to_string(&labels).map_err(|error| invalid(&error))
}

fn invalid(error: &serde_json::Error) -> StoreError {
    StoreError::Invalid { what: "labels".to_owned(), detail: error.to_string() }
}

fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(|error| nonsense(column, error))
}

fn nonsense(column: usize, error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2)
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(millis.max(0).cast_unsigned())
}
