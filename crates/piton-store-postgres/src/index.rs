//! The index of runs.

use async_trait::async_trait;
use piton_store::{RunIndex, RunQuery, StoreError};
use piton_types::{RunId, RunKind, RunStatus, RunSummary, Timestamp};
use tokio_postgres::Row;

use crate::PostgresStore;
use crate::list;
use crate::params::{Params, get};
use crate::text::unescape;

/// The columns of a run that [`summary_of`] reads.
pub(crate) const COLUMNS: &str = "id, status, updated_at, created_at, kind, name, parent, folder, labels";

/// The kinds of runs, at the places of the numbers that are stored for them.
const KINDS: [RunKind; 5] = [RunKind::Steps, RunKind::Workflow, RunKind::Guard, RunKind::Embedded, RunKind::Workspace];

#[async_trait]
impl RunIndex for PostgresStore {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM @run WHERE id = $1");
        let rows = self.core.again(&sql, &Params::default().with(run.as_str())).await?;
        rows.first().map(summary_of).transpose()
    }

    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        let (sql, params) = list::statement(&query);
        self.core.again(&sql, &params).await?.iter().map(summary_of).collect()
    }
}

/// A run's summary from its row.
pub(crate) fn summary_of(row: &Row) -> Result<RunSummary, StoreError> {
    let id: &str = get(row, 0)?;
    let nonsense = |detail: &str| StoreError::corrupt(format!("the row of run {id}"), detail);
    let (status, kind): (i32, i32) = (get(row, 1)?, get(row, 4)?);
    let status = usize::try_from(status).ok().and_then(|status| RunStatus::ALL.get(status).copied());
    let kind = usize::try_from(kind).ok().and_then(|kind| KINDS.get(kind).copied());
    let parent: Option<&str> = get(row, 6)?;
    Ok(RunSummary {
        id: parse(id)?,
        name: unescape(get(row, 5)?),
        kind: kind.ok_or_else(|| nonsense("it is of no known kind"))?,
        status: status.ok_or_else(|| nonsense("it has no known status"))?,
        created_at: Timestamp::from_millis(get(row, 3)?),
        updated_at: Timestamp::from_millis(get(row, 2)?),
        parent: parent.map(parse).transpose()?,
        folder: get::<Option<String>>(row, 7)?.map(unescape),
        labels: get::<Vec<String>>(row, 8)?.into_iter().map(unescape).collect(),
    })
}

/// An id as it is stored.
pub(crate) fn parse<T: std::str::FromStr<Err: std::error::Error>>(text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|error: T::Err| StoreError::corrupt(format!("the id {text:?}"), error.to_string()))
}

/// The number of a status, as it is stored.
pub(crate) const fn status_number(status: RunStatus) -> i32 {
    status as i32
}

/// The number of a kind, as it is stored.
pub(crate) const fn kind_number(kind: RunKind) -> i32 {
    match kind {
        RunKind::Steps => 0,
        RunKind::Workflow => 1,
        RunKind::Guard => 2,
        RunKind::Embedded => 3,
        RunKind::Workspace => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_states_sit_at_their_numbers() {
        for (number, kind) in (0..).zip(KINDS) {
            assert_eq!(kind_number(kind), number);
        }
        for (number, status) in (0..).zip(RunStatus::ALL) {
            assert_eq!(status_number(status), number);
        }
    }
}
