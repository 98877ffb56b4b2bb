//! Signs of life of the processes that drive runs.

use async_trait::async_trait;
use piton_store::{Lease, Leases, StoreError};
use piton_types::{Fence, Holder, RunId};

use crate::PostgresStore;
use crate::params::{Params, count, get};

#[async_trait]
impl Leases for PostgresStore {
    async fn lease(&self, run: &RunId) -> Result<Option<Lease>, StoreError> {
        let sql = "SELECT l.fence, l.beat, l.holder FROM @run r JOIN @lease l ON l.run = r.no
                   WHERE r.id = $1 AND l.holder IS NOT NULL";
        let rows = self.core.again(sql, &Params::default().with(run.as_str())).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let holder = serde_json::from_str(get(row, 2)?)
            .map_err(|error| StoreError::corrupt(format!("the lease of run {run}"), error.to_string()))?;
        Ok(Some(Lease { fence: Fence(count(row, 0)?), beat: count(row, 1)?, holder }))
    }

    async fn beat(&self, run: &RunId, fence: Fence, holder: &Holder) -> Result<u64, StoreError> {
        let holder = serde_json::to_string(holder)
            .map_err(|error| StoreError::Invalid { what: "a holder".to_owned(), detail: error.to_string() })?;
        let sql = "WITH held AS (
                     INSERT INTO @lease AS lease(run, fence, beat, holder) SELECT no, $2, 1, $3 FROM @run WHERE id = $1 AND fence <= $2
                     ON CONFLICT (run) DO UPDATE SET fence = $2, beat = lease.beat + 1, holder = $3 WHERE lease.fence <= $2
                     RETURNING beat)
                   SELECT (SELECT beat FROM held), r.fence, l.fence FROM @run r LEFT JOIN @lease l ON l.run = r.no WHERE r.id = $1";
        let params = Params::default().with(run.as_str()).with(fence.0.cast_signed()).with(holder);
        let rows = self.core.again(sql, &params).await?;
        let row = rows.first().ok_or_else(|| StoreError::no_run(run))?;
        match get::<Option<i64>>(row, 0)? {
            Some(beat) => Ok(beat.cast_unsigned()),
            None => {
                let (written, seen): (i64, Option<i64>) = (get(row, 1)?, get(row, 2)?);
                let current = Fence(written.max(seen.unwrap_or(0)).cast_unsigned());
                Err(StoreError::Fenced { run: run.clone(), held: fence, current })
            }
        }
    }

    async fn release(&self, run: &RunId, fence: Fence) -> Result<(), StoreError> {
        // The fence and the beat stay, so that neither ever goes back.
        let sql = "UPDATE @lease SET holder = NULL WHERE fence = $2 AND run = (SELECT no FROM @run WHERE id = $1)";
        let params = Params::default().with(run.as_str()).with(fence.0.cast_signed());
        self.core.again(sql, &params).await.map(drop)
    }
}
