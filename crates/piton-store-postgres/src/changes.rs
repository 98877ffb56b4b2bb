//! What moved, in the order in which it did.
//!
//! Appends beside each other end in any order, so a number that one of them took could come into sight after a higher one, and a
//! reader behind that would miss it. So an append only notes that the run moved (`moved` is nothing). The next reader gives
//! numbers to all runs that did, one reader at a time: it sees every append that returned, and no number comes into sight late.

use async_trait::async_trait;
use piton_store::{Changes, Cursor, StoreError};
use piton_types::RunId;

use crate::PostgresStore;
use crate::connect::{Core, PAUSES};
use crate::errors::Failed;
use crate::index::parse;
use crate::params::{Params, count, get};

#[async_trait]
impl Changes for PostgresStore {
    async fn changed(&self, after: Cursor, limit: usize) -> Result<(Vec<RunId>, Cursor), StoreError> {
        number(&self.core).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let params = Params::default().with(after.0.cast_signed()).with(limit);
        let sql = "SELECT id, moved FROM @run WHERE moved > $1 ORDER BY moved LIMIT $2";
        let rows = self.core.again(sql, &params).await?;
        let runs = rows.iter().map(|row| parse(get(row, 0)?)).collect::<Result<Vec<_>, _>>()?;
        let last = rows.last().map(|row| count(row, 1)).transpose()?;
        Ok((runs, last.map_or(after, |last| Cursor(last, 0))))
    }

    async fn now(&self) -> Result<Cursor, StoreError> {
        number(&self.core).await?;
        let row = self.core.one("SELECT place FROM @last_moved", &Params::default()).await?;
        Ok(Cursor(count(&row, 0)?, 0))
    }
}

/// Gives numbers to the runs that moved and have none.
async fn number(core: &Core) -> Result<(), StoreError> {
    let any = "SELECT EXISTS (SELECT 1 FROM @run WHERE moved IS NULL)";
    if !get::<bool>(&core.one(any, &Params::default()).await?, 0)? {
        return Ok(());
    }
    let mut pauses = PAUSES.into_iter();
    loop {
        match (try_number(core).await, pauses.next()) {
            (Ok(()), _) => return Ok(()),
            (Err(Failed::Lost(_) | Failed::Undone(_)), Some(pause)) => tokio::time::sleep(pause).await,
            (Err(failed), _) => return Err(failed.into_error()),
        }
    }
}

async fn try_number(core: &Core) -> Result<(), Failed> {
    let mut client = core.connection().await?;
    let transaction = client.transaction().await.map_err(|error| core.failed(&error))?;
    // A statement of its own: the next one sees what the reader before this one did.
    core.within(&transaction, "SELECT place FROM @last_moved FOR UPDATE", &Params::default()).await?;
    let sql =
        "WITH due AS (SELECT no, row_number() OVER (ORDER BY touched, no) AS place FROM @run WHERE moved IS NULL),
               numbered AS (UPDATE @run AS run SET moved = last.place + due.place FROM due, @last_moved AS last
                            WHERE run.no = due.no AND run.moved IS NULL)
               UPDATE @last_moved SET place = place + (SELECT count(*) FROM due)";
    core.within(&transaction, sql, &Params::default()).await?;
    transaction.commit().await.map_err(|error| core.failed(&error))
}
