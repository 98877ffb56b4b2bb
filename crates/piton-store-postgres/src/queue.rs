//! Runs that wait for workers.
//!
//! The order of the queue is an index of labels, priority and time. A worker looks at the first run of each set of labels and
//! priority, and takes from the best of them the first one that no other worker is taking just then: what that costs doesn't
//! depend on how many runs wait. All times are the server's.

use std::time::Duration;

use async_trait::async_trait;
use piton_store::{Depth, Limit, Place, Queue, StoreError, Waiting, WorkerInfo, WorkerStanding};
use piton_types::{RunId, Timestamp};
use tokio_postgres::Row;

use crate::PostgresStore;
use crate::errors::Failed;
use crate::index::parse;
use crate::params::{Params, count, get};
use crate::schema::NOW;
use crate::text::{escape, unescape};

/// When a run is due that waits to be woken.
const NEVER: i64 = i64::MAX;

/// How long a worker that gave no sign of life is remembered, in milliseconds.
const REMEMBERED: i64 = 24 * 60 * 60 * 1000;

/// What [`place`] reads, of a run `run` in the queue `queue`.
const PLACE: &str = "run.id, queue.labels, queue.rank, queue.due, queue.worker, queue.key, queue.at_once, queue.attempts, queue.problem";

/// The sets of labels and priorities in the queue, each with when its first run is due: one look into the index for each.
const GROUPS: &str = "
    WITH RECURSIVE groups(labels, rank, due) AS (
        (SELECT labels, rank, due FROM @queue ORDER BY labels, rank, due LIMIT 1)
        UNION ALL
        SELECT next.labels, next.rank, next.due FROM groups CROSS JOIN LATERAL (
            SELECT labels, rank, due FROM @queue AS queue WHERE (queue.labels, queue.rank) > (groups.labels, groups.rank)
            ORDER BY labels, rank, due LIMIT 1) AS next)";

/// How many runs of each key are held: counted once for a look, not once for each run that is passed.
fn held_keys() -> String {
    format!(
        "held AS MATERIALIZED (SELECT key, count(*) AS runs FROM @queue
          WHERE key IS NOT NULL AND worker IS NOT NULL AND due > {NOW} GROUP BY key)"
    )
}

/// Whether a key has room for one more run.
const HAS_ROOM: &str =
    "(one.key IS NULL OR one.at_once > coalesce((SELECT runs FROM held WHERE held.key = one.key), 0))";

#[async_trait]
impl Queue for PostgresStore {
    async fn enqueue(&self, waiting: Waiting) -> Result<(), StoreError> {
        let sql = "INSERT INTO @queue(run, labels, rank, due, worker, key, at_once, attempts, problem)
                   SELECT no, $2, $3, $4, NULL, $5, $6, $7, $8 FROM @run WHERE id = $1
                   ON CONFLICT (run) DO UPDATE SET labels = EXCLUDED.labels, rank = EXCLUDED.rank, due = EXCLUDED.due,
                   worker = NULL, key = EXCLUDED.key, at_once = EXCLUDED.at_once, attempts = EXCLUDED.attempts,
                   problem = EXCLUDED.problem RETURNING 1";
        let (key, at_once) = waiting.limit.as_ref().map(|limit| (escape(&limit.key), i64::from(limit.at_once))).unzip();
        let params = Params::default()
            .with(waiting.run.as_str())
            .with(labels_text(&waiting.labels)?)
            .with(-i64::from(waiting.priority))
            .with(waiting.due.map_or(NEVER, Timestamp::as_millis))
            .with::<Option<String>>(key)
            .with::<Option<i64>>(at_once)
            .with(i64::from(waiting.attempts))
            .with(waiting.problem.as_deref().map(escape));
        match self.core.again(sql, &params).await?.is_empty() {
            true => Err(StoreError::no_run(&waiting.run)),
            false => Ok(()),
        }
    }

    async fn take(&self, worker: &WorkerInfo, hold: Duration) -> Result<Option<Waiting>, StoreError> {
        let sql = format!("{GROUPS} SELECT labels, rank FROM groups WHERE due <= {NOW} ORDER BY rank, due");
        for row in &self.core.again(&sql, &Params::default()).await? {
            let (labels, rank) = (get::<&str>(row, 0)?, get::<i64>(row, 1)?);
            if admits(labels, &worker.labels)?
                && let Some(taken) = self.take_of(labels, rank, worker, hold).await?
            {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    async fn dequeue(&self, run: &RunId) -> Result<bool, StoreError> {
        let sql = "DELETE FROM @queue WHERE run = (SELECT no FROM @run WHERE id = $1) RETURNING 1";
        let rows = self.core.once(sql, &Params::default().with(run.as_str())).await.map_err(Failed::into_error)?;
        Ok(!rows.is_empty())
    }

    async fn wake(&self, run: &RunId) -> Result<bool, StoreError> {
        let sql = format!(
            "WITH woken AS (UPDATE @queue SET due = {NOW}, worker = NULL, attempts = 0, problem = NULL
                            WHERE run = (SELECT no FROM @run WHERE id = $1) AND (worker IS NULL OR due <= {NOW}))
             SELECT EXISTS (SELECT 1 FROM @queue WHERE run = (SELECT no FROM @run WHERE id = $1))"
        );
        get(&self.core.one(&sql, &Params::default().with(run.as_str())).await?, 0)
    }

    async fn next_due(&self, labels: &[String]) -> Result<Option<Duration>, StoreError> {
        let sql = format!("{GROUPS} SELECT labels, due, {NOW} FROM groups");
        let mut next = None;
        for row in &self.core.again(&sql, &Params::default()).await? {
            let (due, now) = (get::<i64>(row, 1)?, get::<i64>(row, 2)?);
            if due != NEVER && admits(get(row, 0)?, labels)? {
                let wait = duration(due.saturating_sub(now));
                next = Some(next.map_or(wait, |next: Duration| next.min(wait)));
            }
        }
        Ok(next)
    }

    async fn place(&self, run: &RunId) -> Result<Option<Place>, StoreError> {
        let sql =
            format!("SELECT {PLACE} FROM @run AS run JOIN @queue AS queue ON queue.run = run.no WHERE run.id = $1");
        let rows = self.core.again(&sql, &Params::default().with(run.as_str())).await?;
        rows.first().map(place).transpose()
    }

    async fn depth(&self) -> Result<Depth, StoreError> {
        let sql = format!(
            "SELECT count(*) FILTER (WHERE due <= {NOW}), count(*) FILTER (WHERE due > {NOW} AND worker IS NULL),
             count(*) FILTER (WHERE due > {NOW} AND worker IS NOT NULL) FROM @queue"
        );
        let row = self.core.one(&sql, &Params::default()).await?;
        Ok(Depth { due: count(&row, 0)?, later: count(&row, 1)?, held: count(&row, 2)? })
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let row = self.core.one(&format!("SELECT {NOW}"), &Params::default()).await?;
        get(&row, 0).map(Timestamp::from_millis)
    }

    async fn alive(&self, worker: &WorkerInfo, runs: &[RunId], hold: Duration) -> Result<bool, StoreError> {
        let info = serde_json::to_string(worker).map_err(|error| invalid(&error))?;
        let sql = format!(
            "WITH forgotten AS (DELETE FROM @worker WHERE seen < {NOW} - {REMEMBERED} AND name <> $1),
             held AS (UPDATE @queue AS queue SET due = {NOW} + $3 FROM @run AS run
                      WHERE run.no = queue.run AND run.id = ANY($4) AND queue.worker = $1 AND queue.due > {NOW})
             INSERT INTO @worker(name, info, seen, draining) VALUES ($1, $2, {NOW}, false)
             ON CONFLICT (name) DO UPDATE SET info = EXCLUDED.info, seen = EXCLUDED.seen RETURNING draining"
        );
        // In JSON there is no NUL.
        let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
        let params = Params::default().with(escape(&worker.name)).with(info).with(millis(hold)).with(runs);
        get(&self.core.one(&sql, &params).await?, 0)
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        let sql = format!(
            "WITH left_over AS (UPDATE @queue SET worker = NULL, due = {NOW} WHERE worker = $1)
             DELETE FROM @worker WHERE name = $1"
        );
        self.core.again(&sql, &Params::default().with(escape(worker))).await.map(drop)
    }

    async fn drain(&self, worker: &str) -> Result<bool, StoreError> {
        let sql = "UPDATE @worker SET draining = true WHERE name = $1 RETURNING 1";
        Ok(!self.core.again(sql, &Params::default().with(escape(worker))).await?.is_empty())
    }

    async fn keep(&self, worker: &str, hold: Duration) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE @keeper SET worker = $1, until = {NOW} + $2 WHERE worker = $1 OR until <= {NOW} RETURNING 1"
        );
        let params = Params::default().with(escape(worker)).with(millis(hold));
        Ok(!self.core.again(&sql, &params).await?.is_empty())
    }

    async fn workers(&self) -> Result<Vec<WorkerStanding>, StoreError> {
        let sql = format!(
            "SELECT info, {NOW} - seen, draining,
             (SELECT count(*) FROM @queue AS queue WHERE queue.worker = worker.name AND due > {NOW})
             FROM @worker AS worker ORDER BY name"
        );
        let standing = |row: &Row| {
            let info = serde_json::from_str(get(row, 0)?)
                .map_err(|error| StoreError::corrupt("the row of a worker", error.to_string()))?;
            let holds = u32::try_from(count(row, 3)?).unwrap_or(u32::MAX);
            Ok(WorkerStanding { info, holds, silent_for: duration(get(row, 1)?), draining: get(row, 2)? })
        };
        self.core.again(&sql, &Params::default()).await?.iter().map(standing).collect()
    }
}

impl PostgresStore {
    /// Takes the first run of these labels and this priority that may be taken.
    async fn take_of(
        &self,
        labels: &str,
        rank: i64,
        worker: &WorkerInfo,
        hold: Duration,
    ) -> Result<Option<Waiting>, StoreError> {
        let held_keys = held_keys();
        let sql = format!(
            "WITH {held_keys},
             first AS (SELECT one.run, one.key FROM @queue AS one
                            WHERE one.labels = $1 AND one.rank = $2 AND one.due <= {NOW} AND {HAS_ROOM}
                            ORDER BY one.due, one.run LIMIT 1 FOR UPDATE SKIP LOCKED),
             taken AS (UPDATE @queue AS queue SET worker = $3, due = {NOW} + $4, attempts = queue.attempts + 1
                       FROM first WHERE queue.run = first.run AND first.key IS NULL RETURNING queue.run),
             before AS (SELECT {PLACE} FROM @queue AS queue JOIN @run AS run ON run.no = queue.run
                        WHERE queue.run = (SELECT run FROM first))
             SELECT before.*, EXISTS (SELECT 1 FROM taken) FROM before"
        );
        loop {
            let params = Params::default().with(labels).with(rank).with(escape(&worker.name)).with(millis(hold));
            let rows = self.core.once(&sql, &params).await.map_err(Failed::into_error)?;
            let Some(row) = rows.first() else { return Ok(None) };
            // What is read is as it was before the statement.
            let mut waiting = place(row)?.waiting;
            if get(row, 9)? {
                waiting.attempts += 1;
                return Ok(Some(waiting));
            }
            let Some(limit) = &waiting.limit else { return Ok(None) };
            if let Some(taken) = self.take_limited(labels, rank, worker, hold, &limit.key).await? {
                return Ok(Some(taken));
            }
            // Another worker took what was left of this key. Now that is seen, and the next run isn't of it.
        }
    }

    /// Takes the first such run with a key that has a limit: one worker after the other.
    async fn take_limited(
        &self,
        labels: &str,
        rank: i64,
        worker: &WorkerInfo,
        hold: Duration,
        key: &str,
    ) -> Result<Option<Waiting>, StoreError> {
        let core = &self.core;
        let failed = |error: tokio_postgres::Error| core.failed(&error).into_error();
        let mut client = core.connection().await?;
        let transaction = client.transaction().await.map_err(failed)?;
        let key = escape(key);
        // The row is locked by writing to it. What follows is a statement of its own, which sees what was taken before.
        let lock = "INSERT INTO @limited_key VALUES ($1) ON CONFLICT (key) DO UPDATE SET key = EXCLUDED.key";
        core.within(&transaction, lock, &Params::default().with(key.as_str())).await.map_err(Failed::into_error)?;
        let held_keys = held_keys();
        let sql = format!(
            "WITH {held_keys}
             UPDATE @queue AS queue SET worker = $3, due = {NOW} + $4, attempts = queue.attempts + 1 FROM @run AS run
             WHERE run.no = queue.run AND queue.run = (
                SELECT one.run FROM @queue AS one
                WHERE one.labels = $1 AND one.rank = $2 AND one.due <= {NOW} AND one.key = $5 AND {HAS_ROOM}
                ORDER BY one.due, one.run LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING {PLACE}"
        );
        let params =
            Params::default().with(labels).with(rank).with(escape(&worker.name)).with(millis(hold)).with(key.as_str());
        let rows = core.within(&transaction, &sql, &params).await.map_err(Failed::into_error)?;
        transaction.commit().await.map_err(failed)?;
        rows.first().map(|row| Ok(place(row)?.waiting)).transpose()
    }
}

/// Whether a worker with these labels may take runs with that set.
fn admits(set: &str, labels: &[String]) -> Result<bool, StoreError> {
    let wanted: Vec<String> = serde_json::from_str(set)
        .map_err(|error| StoreError::corrupt("the labels of a run in the queue", error.to_string()))?;
    Ok(wanted.iter().all(|label| labels.contains(label)))
}

fn place(row: &Row) -> Result<Place, StoreError> {
    let corrupt = |detail: String| StoreError::corrupt("a row of the queue", detail);
    let number = |number: i64| u32::try_from(number).map_err(|error| corrupt(error.to_string()));
    let due: i64 = get(row, 3)?;
    let (key, at_once): (Option<String>, Option<i64>) = (get(row, 5)?, get(row, 6)?);
    let at_once = at_once.map(number).transpose()?;
    let waiting = Waiting {
        run: parse(get(row, 0)?)?,
        labels: serde_json::from_str(get(row, 1)?).map_err(|error| corrupt(error.to_string()))?,
        priority: i32::try_from(-get::<i64>(row, 2)?).map_err(|error| corrupt(error.to_string()))?,
        due: (due != NEVER).then(|| Timestamp::from_millis(due)),
        limit: key.map(unescape).zip(at_once).map(|(key, at_once)| Limit { key, at_once }),
        attempts: number(get(row, 7)?)?,
        problem: get::<Option<String>>(row, 8)?.map(unescape),
    };
    Ok(Place { waiting, worker: get::<Option<String>>(row, 4)?.map(unescape) })
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

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(millis.max(0).cast_unsigned())
}
