//! The logs of runs, and their segments.

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Commit, Fold, Head, Log, Record, Section, Segment, SegmentInfo, Span, StoreError};
use piton_types::{EntryHash, Fence, RunId};
use tokio_postgres::Row;

use crate::PostgresStore;
use crate::append::{self, head_of, seq_of};
use crate::connect::Core;
use crate::errors::Failed;
use crate::params::{Params, count, get, id32};
use crate::schema::MAX_ROW;

#[async_trait]
impl Log for PostgresStore {
    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        Commit::check_together(&commits)?;
        append::append(&self.core, &commits).await
    }

    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError> {
        append::head(&self.core, run).await
    }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        let pack = if span.packs { "e.pack" } else { "''::bytea" };
        let order = if span.newest_first { "DESC" } else { "ASC" };
        let sql = format!(
            "SELECT e.seq, e.hash, e.fence, e.entry, {pack} FROM @run r JOIN @entry e ON e.run = r.no
             WHERE r.id = $1 AND e.seq BETWEEN $2 AND $3 ORDER BY e.seq {order} LIMIT $4"
        );
        let limit = i64::try_from(span.limit).unwrap_or(i64::MAX);
        let params =
            Params::default().with(run.as_str()).with(i64::from(span.from.0)).with(i64::from(span.to.0)).with(limit);
        let rows = self.core.again(&sql, &params).await?;
        if rows.is_empty() && append::head(&self.core, run).await?.is_none() {
            return Err(StoreError::no_run(run));
        }
        rows.iter().map(record).collect()
    }
}

fn record(row: &Row) -> Result<Record, StoreError> {
    Ok(Record {
        seq: seq_of(get(row, 0)?)?,
        hash: EntryHash::new(id32(row, 1)?),
        fence: Fence(count(row, 2)?),
        entry: bytes(row, 3)?,
        pack: bytes(row, 4)?,
    })
}

/// Bytes in a row.
pub(crate) fn bytes(row: &Row, column: usize) -> Result<Bytes, StoreError> {
    get::<&[u8]>(row, column).map(Bytes::copy_from_slice)
}

#[async_trait]
impl Fold for PostgresStore {
    async fn segments(&self, run: &RunId) -> Result<Vec<SegmentInfo>, StoreError> {
        let sql =
            "SELECT s.first, s.last FROM @run r LEFT JOIN @segment s ON s.run = r.no WHERE r.id = $1 ORDER BY s.first";
        let rows = self.core.again(sql, &Params::default().with(run.as_str())).await?;
        if rows.is_empty() {
            return Err(StoreError::no_run(run));
        }
        // A run without segments has one row of nothing.
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            if let (Some(first), Some(last)) = (get::<Option<i64>>(row, 0)?, get::<Option<i64>>(row, 1)?) {
                found.push(SegmentInfo { first: seq_of(first)?, last: seq_of(last)? });
            }
        }
        Ok(found)
    }

    async fn section(&self, run: &RunId, segment: SegmentInfo, section: Section) -> Result<Bytes, StoreError> {
        let column = match section {
            Section::Entries => "entries",
            Section::Index => "idx",
            Section::Nodes => "nodes",
        };
        let sql = format!(
            "SELECT s.{column} FROM @run r JOIN @segment s ON s.run = r.no WHERE r.id = $1 AND s.first = $2 AND s.last = $3"
        );
        let params =
            Params::default().with(run.as_str()).with(i64::from(segment.first.0)).with(i64::from(segment.last.0));
        match self.core.again(&sql, &params).await?.first() {
            Some(row) => bytes(row, 0),
            None if append::head(&self.core, run).await?.is_none() => Err(StoreError::no_run(run)),
            None => Err(StoreError::NotFound { what: format!("segment {segment} of run {run}") }),
        }
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
        fold(&self.core, run, &segment).await.map_err(Failed::into_error)
    }
}

/// Folds in one transaction. The lock on the run's row keeps other folds away; an append waits for it.
async fn fold(core: &Core, run: &RunId, segment: &Segment) -> Result<(), Failed> {
    let mut client = core.connection().await?;
    let transaction = client.transaction().await.map_err(|error| core.failed(&error))?;
    let locked = "SELECT no, seq, hash, fence FROM @run WHERE id = $1 FOR UPDATE";
    let rows = core.within(&transaction, locked, &Params::default().with(run.as_str())).await?;
    let row = rows.first().ok_or_else(|| StoreError::no_run(run))?;
    let (number, head): (i64, _) = (get(row, 0)?, head_of(row, 1)?);
    let (first, last) = (i64::from(segment.info.first.0), i64::from(segment.info.last.0));
    let params = Params::default().with(number).with(first).with(last);
    let covered = "SELECT (SELECT count(*) FROM @entry WHERE run = $1 AND seq BETWEEN $2 AND $3),
                   (SELECT coalesce(sum(last - first + 1), 0)::bigint FROM @segment WHERE run = $1 AND first BETWEEN $2 AND $3),
                   EXISTS (SELECT 1 FROM @segment WHERE run = $1 AND first BETWEEN $2 AND $3 AND last > $3)";
    let rows = core.within(&transaction, covered, &params).await?;
    let row = rows.first().ok_or_else(|| StoreError::no_run(run))?;
    // Entries and segments never overlap, so if what is here has the right number, it has no gaps.
    let exact = count(row, 0)? + count(row, 1)? == segment.info.len();
    if !exact || get(row, 2)? || head.seq <= segment.info.last {
        return Err(StoreError::Conflict { run: run.clone(), wanted: segment.info.first, head: Some(head) }.into());
    }
    for sql in [
        "DELETE FROM @entry WHERE run = $1 AND seq BETWEEN $2 AND $3",
        "DELETE FROM @segment WHERE run = $1 AND first BETWEEN $2 AND $3",
    ] {
        core.within(&transaction, sql, &params).await?;
    }
    let params = params.with(&segment.entries[..]).with(&segment.index[..]).with(&segment.nodes[..]);
    let insert = "INSERT INTO @segment(run, first, last, entries, idx, nodes) VALUES ($1, $2, $3, $4, $5, $6)";
    core.within(&transaction, insert, &params).await?;
    transaction.commit().await.map_err(|error| core.failed(&error))
}
