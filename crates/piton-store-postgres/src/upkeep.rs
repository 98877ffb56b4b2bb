//! Taking runs and packs out of the store, in short statements, so that a writer beside it never waits long.
//!
//! A removed run disappears with its row; the next sweep deletes its entries and segments, some at a time. A crash in
//! between leaves them to the sweep after that.

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Defect, Head, PackId, PackInfo, PackState, StoreError, Sweep, Swept, Totals, Upkeep};
use piton_types::{BlobId, RunId, Timestamp};
use tokio_postgres::Row;

use crate::PostgresStore;
use crate::append;
use crate::blobs::names;
use crate::errors::Failed;
use crate::index::parse;
use crate::log::bytes;
use crate::params::{Params, count, get, id32};
use crate::schema::NOW;
use crate::text::{escape, unescape};

/// Rows that one statement changes at most.
const ROWS: usize = 256;
/// How keys of notes begin in `meta`.
const NOTE: &str = "note:";
/// More findings than these say nothing new.
const MOST: i64 = 1000;

/// Rows that lead nowhere, or to which nothing leads.
const LOOSE: [(&str, &str); 6] = [
    (
        "SELECT 'entry ' || seq || ' of run number ' || run FROM @entry AS loose
         WHERE NOT EXISTS (SELECT 1 FROM @run WHERE no = loose.run) AND NOT EXISTS (SELECT 1 FROM @removed AS gone WHERE gone.run = loose.run)",
        "it belongs to no run",
    ),
    (
        "SELECT 'segment ' || first || ' of run number ' || run FROM @segment AS loose
         WHERE NOT EXISTS (SELECT 1 FROM @run WHERE no = loose.run) AND NOT EXISTS (SELECT 1 FROM @removed AS gone WHERE gone.run = loose.run)",
        "it belongs to no run",
    ),
    (
        "SELECT 'run ' || id FROM @run AS run WHERE NOT EXISTS
         (SELECT 1 FROM @entry AS entry WHERE entry.run = run.no AND entry.seq = run.seq AND entry.hash = run.hash)",
        "it has no newest entry",
    ),
    (
        "SELECT 'run ' || id FROM @run AS run WHERE EXISTS
         (SELECT 1 FROM @entry AS entry WHERE entry.run = run.no AND entry.seq > run.seq)",
        "it has an entry behind its newest",
    ),
    (
        "SELECT 'staged pack number ' || pack FROM @blob AS blob WHERE NOT EXISTS (SELECT 1 FROM @pack WHERE no = blob.pack)",
        "it is missing",
    ),
    (
        "SELECT 'staged pack number ' || pack FROM @pin AS pin WHERE NOT EXISTS (SELECT 1 FROM @pack WHERE no = pin.pack)",
        "it is missing",
    ),
];

#[async_trait]
impl Upkeep for PostgresStore {
    async fn remove(&self, run: &RunId, head: Head) -> Result<(), StoreError> {
        let sql = "WITH gone AS (DELETE FROM @run WHERE id = $1 AND seq = $2 AND hash = $3 AND fence = $4 RETURNING no)
                   INSERT INTO @removed SELECT no FROM gone RETURNING 1";
        let params = Params::default()
            .with(run.as_str())
            .with(i64::from(head.seq.0))
            .with(&head.hash.as_bytes()[..])
            .with(head.fence.0.cast_signed());
        let rows = self.core.once(sql, &params).await.map_err(Failed::into_error)?;
        if !rows.is_empty() {
            return Ok(());
        }
        match append::head(&self.core, run).await? {
            Some(now) => Err(StoreError::Conflict { run: run.clone(), wanted: head.seq, head: Some(now) }),
            None => Err(StoreError::no_run(run)),
        }
    }

    async fn packs(&self, after: Option<PackId>, limit: usize) -> Result<Vec<PackInfo>, StoreError> {
        let sql = format!(
            "SELECT id, condemned, (SELECT max(until) FROM @pin AS pin WHERE pin.pack = pack.no), {NOW},
             coalesce(size, octet_length(bytes)::bigint) FROM @pack AS pack WHERE id > $1 ORDER BY id LIMIT $2"
        );
        let after = after.map_or(Vec::new(), |pack| pack.as_bytes().to_vec());
        let params = Params::default().with(after).with(i64::try_from(limit).unwrap_or(i64::MAX));
        self.core.again(&sql, &params).await?.iter().map(info).collect()
    }

    async fn pack_ids(&self, pack: PackId) -> Result<Vec<BlobId>, StoreError> {
        let rows = self
            .core
            .again("SELECT ids FROM @pack WHERE id = $1", &Params::default().with(&pack.as_bytes()[..]))
            .await?;
        let listed: &[u8] = get(rows.first().ok_or_else(|| StoreError::no_pack(pack))?, 0)?;
        Ok(listed.as_chunks::<32>().0.iter().map(|id| BlobId::new(*id)).collect())
    }

    /// A pin that is set just beside this may not be seen, and the pack is condemned all the same. That does no harm: its
    /// writer's commit takes it off the list, and no sweep deletes what is pinned.
    async fn condemn(&self, packs: &[PackId], at: Timestamp) -> Result<u64, StoreError> {
        let sql = format!(
            "UPDATE @pack AS pack SET condemned = $2 WHERE id = ANY($1) AND condemned IS NULL
             AND NOT EXISTS (SELECT 1 FROM @pin AS pin WHERE pin.pack = pack.no AND until > {NOW}) RETURNING 1"
        );
        let mut condemned = 0;
        for some in packs.chunks(ROWS) {
            let params = Params::default().with(names(some)).with(at.as_millis());
            condemned += self.core.again(&sql, &params).await?.len() as u64;
        }
        Ok(condemned)
    }

    async fn pardon(&self, packs: &[PackId]) -> Result<(), StoreError> {
        let sql = format!(
            "WITH pardoned AS (UPDATE @pack SET condemned = NULL WHERE id = ANY($1) AND condemned IS NOT NULL)
             DELETE FROM @pin WHERE pack IN (SELECT no FROM @pack WHERE id = ANY($1)) AND until <= {NOW}"
        );
        for some in packs.chunks(ROWS) {
            self.core.again(&sql, &Params::default().with(names(some))).await?;
        }
        Ok(())
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        let left = |swept: &Swept| sweep.bytes.saturating_sub(swept.bytes);
        while left(&swept) > 0 {
            match self.sweep_run(left(&swept)).await? {
                Some(bytes) => swept.bytes += bytes,
                None => break,
            }
        }
        let mut packs = sweep.packs.iter();
        while left(&swept) > 0
            && let Some((pack, since)) = packs.next()
        {
            if let Some(bytes) = self.sweep_pack(*pack, *since).await? {
                swept.packs += 1;
                swept.bytes += bytes;
            }
        }
        let row = self.core.one("SELECT EXISTS (SELECT 1 FROM @removed)", &Params::default()).await?;
        swept.more = packs.next().is_some() || get(&row, 0)? || self.sweep_outside().await?;
        // Keys of which no run waits any more.
        let keys = "DELETE FROM @limited_key AS old WHERE NOT EXISTS (SELECT 1 FROM @queue AS queue WHERE queue.key = old.key)";
        self.core.again(keys, &Params::default()).await?;
        Ok(swept)
    }

    async fn notes(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        let from = format!("{NOTE}{}", escape(prefix));
        let sql = "SELECT key, value FROM @meta WHERE key >= $1 AND left(key, length($1)) = $1 ORDER BY key";
        let note = |row: &Row| {
            let key = unescape(get(row, 0)?);
            Ok((key.strip_prefix(NOTE).unwrap_or(&key).to_owned(), bytes(row, 1)?))
        };
        self.core.again(sql, &Params::default().with(from)).await?.iter().map(note).collect()
    }

    async fn note(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        let params = Params::default().with(format!("{NOTE}{}", escape(key)));
        let rows = self.core.again("SELECT value FROM @meta WHERE key = $1", &params).await?;
        rows.first().map(|row| bytes(row, 0)).transpose()
    }

    async fn set_note(&self, key: &str, note: Option<Bytes>) -> Result<(), StoreError> {
        let params = Params::default().with(format!("{NOTE}{}", escape(key)));
        match &note {
            Some(note) => {
                let sql = "INSERT INTO @meta VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value";
                self.core.again(sql, &params.with(&note[..])).await.map(drop)
            }
            None => self.core.again("DELETE FROM @meta WHERE key = $1", &params).await.map(drop),
        }
    }

    async fn run_ids(&self) -> Result<Vec<RunId>, StoreError> {
        let rows = self.core.again("SELECT id FROM @run ORDER BY id", &Params::default()).await?;
        rows.iter().map(|row| parse(get(row, 0)?)).collect()
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        let sql = "SELECT e.n, e.size, s.n, s.size, p.n, p.size FROM
            (SELECT count(*) AS n, coalesce(sum(octet_length(entry)::bigint + octet_length(pack)), 0)::bigint AS size FROM @entry) AS e,
            (SELECT count(*) AS n, coalesce(sum(octet_length(entries)::bigint + octet_length(idx) + octet_length(nodes)), 0)::bigint AS size
             FROM @segment) AS s,
            (SELECT count(*) AS n, coalesce(sum(coalesce(size, octet_length(bytes))), 0)::bigint AS size FROM @pack) AS p";
        let row = self.core.one(sql, &Params::default()).await?;
        Ok(Totals {
            entries: count(&row, 0)?,
            entry_bytes: count(&row, 1)?,
            segments: count(&row, 2)?,
            segment_bytes: count(&row, 3)?,
            packs: count(&row, 4)?,
            pack_bytes: count(&row, 5)?,
        })
    }

    /// The server's own structures are the server's to check (`pg_amcheck`).
    async fn inspect(&self) -> Result<Vec<Defect>, StoreError> {
        let mut defects = Vec::new();
        for (sql, detail) in LOOSE {
            let rows = self.core.again(&format!("{sql} LIMIT $1"), &Params::default().with(MOST)).await?;
            for row in &rows {
                defects.push(Defect { what: get(row, 0)?, detail: detail.to_owned() });
            }
        }
        defects.extend(self.inspect_outside().await?);
        Ok(defects)
    }
}

impl PostgresStore {
    /// Deletes something of what a removed run held, up to about so many bytes; nothing if there is no such run. The last step,
    /// which takes it off the list, counts a byte.
    async fn sweep_run(&self, most: u64) -> Result<Option<u64>, StoreError> {
        let rows = self.core.again("SELECT min(run) FROM @removed", &Params::default()).await?;
        let Some(run) = rows.first().map(|row| get::<Option<i64>>(row, 0)).transpose()?.flatten() else {
            return Ok(None);
        };
        for (sizes, delete) in [
            (
                "SELECT seq, octet_length(entry)::bigint + octet_length(pack) FROM @entry WHERE run = $1 ORDER BY seq LIMIT $2",
                "DELETE FROM @entry WHERE run = $1 AND seq <= $2",
            ),
            (
                "SELECT first, octet_length(entries)::bigint + octet_length(idx) + octet_length(nodes) FROM @segment
                 WHERE run = $1 ORDER BY first LIMIT $2",
                "DELETE FROM @segment WHERE run = $1 AND first <= $2",
            ),
        ] {
            let (mut freed, mut last) = (0, None);
            for row in &self.core.again(sizes, &Params::default().with(run).with(ROWS as i64)).await? {
                if freed >= most {
                    break;
                }
                freed += count(row, 1)?.max(1);
                last = Some(get::<i64>(row, 0)?);
            }
            if let Some(last) = last {
                self.core.again(delete, &Params::default().with(run).with(last)).await?;
                return Ok(Some(freed));
            }
        }
        self.core.again("DELETE FROM @removed WHERE run = $1", &Params::default().with(run)).await?;
        Ok(Some(1))
    }

    /// Deletes a pack that is condemned since then and not pinned; says how many bytes that were.
    async fn sweep_pack(&self, pack: PackId, since: Timestamp) -> Result<Option<u64>, StoreError> {
        let found = "SELECT ids FROM @pack WHERE id = $1 AND condemned = $2";
        let params = Params::default().with(&pack.as_bytes()[..]).with(since.as_millis());
        let rows = self.core.again(found, &params).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let ids: &[u8] = get(row, 0)?;
        let sql = format!(
            "WITH gone AS (DELETE FROM @pack AS pack WHERE id = $1 AND condemned = $2
                           AND NOT EXISTS (SELECT 1 FROM @pin AS pin WHERE pin.pack = pack.no AND until > {NOW})
                           RETURNING no, coalesce(size, octet_length(bytes)::bigint) AS size, object),
             loosened AS (INSERT INTO @loose SELECT object, 0 FROM gone WHERE object IS NOT NULL),
             unlisted AS (DELETE FROM @blob AS blob USING gone WHERE blob.pack = gone.no AND blob.id = ANY($3)),
             unpinned AS (DELETE FROM @pin AS pin USING gone WHERE pin.pack = gone.no)
             SELECT size FROM gone"
        );
        let params = params.with(ids.as_chunks::<32>().0.iter().map(|id| &id[..]).collect::<Vec<_>>());
        let rows = self.core.once(&sql, &params).await.map_err(Failed::into_error)?;
        rows.first().map(|row| Ok(count(row, 0)? + ids.len() as u64)).transpose()
    }
}

fn info(row: &Row) -> Result<PackInfo, StoreError> {
    let (since, until): (Option<i64>, Option<i64>) = (get(row, 1)?, get(row, 2)?);
    let state = match (since, until) {
        (Some(since), _) => PackState::Condemned(Timestamp::from_millis(since)),
        (None, None) => PackState::Kept,
        (None, Some(until)) if until > get(row, 3)? => PackState::Pinned,
        (None, Some(_)) => PackState::Abandoned,
    };
    Ok(PackInfo { id: PackId::new(id32(row, 0)?), state, size: count(row, 4)? })
}
