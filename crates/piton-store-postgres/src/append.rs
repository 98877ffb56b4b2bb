//! Appending: one statement that moves the run's row on and inserts the entries, and what happens if its answer is lost. It calls a
//! function of the store, so that the server plans it once in each of its sessions: planned for each append it took the server
//! longer than all the rest.
//!
//! The row is moved on only if it is where the writer says. The server locks it to do so, and looks at its newest version: of
//! several writers one finds the row as it was, and the others find nothing to move.

use std::collections::BTreeSet;

use piton_store::{Commit, Head, PackId, StoreError};
use piton_types::{EntryHash, Fence, RunId, Seq};
use tokio_postgres::Row;

use crate::connect::{Core, PAUSES, passes};
use crate::errors::Failed;
use crate::index::{kind_number, status_number};
use crate::params::{Params, get, id32};
use crate::schema::MAX_ROW;
use crate::text::escape;

/// Appends all of the commits, which follow each other, or none.
pub(crate) async fn append(core: &Core, commits: &[Commit]) -> Result<(), StoreError> {
    let (Some(first), Some(last)) = (commits.first(), commits.last()) else { return Ok(()) };
    check(commits)?;
    let ours = Head { seq: last.seq, hash: last.hash, fence: last.fence };
    let (sql, params) = statement(commits, first, last);
    let mut pauses = PAUSES.into_iter();
    // Whether an earlier attempt may have been carried out.
    let mut unclear = false;
    loop {
        let failed = match core.once(&sql, &params).await {
            Ok(rows) => match outcome(&rows)? {
                Outcome::Done => return Ok(()),
                Outcome::Nothing(kept) => {
                    let now = head(core, &first.run).await?;
                    if unclear && now == Some(ours) {
                        return Ok(());
                    }
                    first.check(now)?;
                    if let Some(pack) = staged(commits).into_iter().find(|pack| !kept.contains(pack)) {
                        return Err(StoreError::PackGone { pack });
                    }
                    Failed::Undone(format!("others write to run {} all the time", first.run))
                }
            },
            Err(failed) => failed,
        };
        let again = match &failed {
            Failed::Lost(_) => {
                unclear = true;
                true
            }
            Failed::Undone(_) => true,
            Failed::Refused(error) => passes(error),
        };
        match pauses.next().filter(|_| again) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return Err(failed.into_error()),
        }
        // A server that lost a connection may still be at the statement: whoever has the row locked has ended it.
        if unclear && settled(core, &first.run).await.is_ok_and(|now| now == Some(ours)) {
            return Ok(());
        }
    }
}

/// What can be said of commits without looking at the store.
fn check(commits: &[Commit]) -> Result<(), StoreError> {
    for commit in commits {
        if commit.index.as_ref().is_some_and(|index| index.id != commit.run) {
            let what = format!("entry {} of run {}", commit.seq, commit.run);
            return Err(StoreError::Invalid { what, detail: "its index row is another run's".to_owned() });
        }
    }
    let size = commits.iter().map(|commit| (commit.entry.len() + commit.pack.len()) as u64).sum();
    match (size > MAX_ROW, commits) {
        (true, [first, ..]) => {
            let what = format!("entry {} of run {} with its values", first.seq, first.run);
            Err(StoreError::TooLarge { what, size, limit: MAX_ROW })
        }
        _ => Ok(()),
    }
}

fn staged(commits: &[Commit]) -> BTreeSet<PackId> {
    commits.iter().flat_map(|commit| commit.staged.iter().copied()).collect()
}

/// The statement of an append: a call of a function of the store (see `schema`).
fn statement<'a>(commits: &'a [Commit], first: &'a Commit, last: &'a Commit) -> (String, Params<'a>) {
    let index = commits.iter().rev().find_map(|commit| commit.index.as_ref());
    let is_new = first.seq == Seq(0) && index.is_some();
    let updated_at = match commits {
        [only] if only.seq == Seq(0) => only.index.as_ref().map_or(only.at, |index| index.updated_at),
        _ => last.at,
    };
    let packs = staged(commits);
    let owners: BTreeSet<i64> = match packs.is_empty() {
        true => BTreeSet::new(),
        false => commits.iter().map(|commit| commit.owner.0.cast_signed()).collect(),
    };
    let params = Params::default()
        .with(last.run.as_str())
        .with((!is_new).then(|| i64::from(first.seq.0) - 1))
        .with(&first.parent.as_bytes()[..])
        .with(i64::from(last.seq.0))
        .with(&last.hash.as_bytes()[..])
        .with(last.fence.0.cast_signed())
        .with(updated_at.as_millis())
        .with(index.map(|index| status_number(index.status)))
        .with(index.map(|index| kind_number(index.kind)))
        .with(index.map(|index| index.created_at.as_millis()))
        .with(index.map(|index| escape(&index.name)))
        .with(index.and_then(|index| index.parent.as_ref()).map(ToString::to_string))
        .with(index.and_then(|index| index.folder.as_deref()).map(escape))
        .with(index.map(|index| index.labels.iter().map(|label| escape(label)).collect::<Vec<_>>()))
        .with(commits.iter().map(|commit| i64::from(commit.seq.0)).collect::<Vec<_>>())
        .with(commits.iter().map(|commit| commit.at.as_millis()).collect::<Vec<_>>())
        .with(commits.iter().map(|commit| &commit.hash.as_bytes()[..]).collect::<Vec<_>>())
        .with(commits.iter().map(|commit| &commit.entry[..]).collect::<Vec<_>>())
        .with(commits.iter().map(|commit| &commit.pack[..]).collect::<Vec<_>>())
        .with(packs.iter().map(|pack| pack.as_bytes().to_vec()).collect::<Vec<_>>())
        .with(owners.into_iter().collect::<Vec<_>>());
    let numbers: Vec<String> = (1..=params.len()).map(|number| format!("${number}")).collect();
    (format!("SELECT @append({})", numbers.join(", ")), params)
}

enum Outcome {
    Done,
    /// Nothing was written; of the packs, these are there.
    Nothing(Vec<PackId>),
}

fn outcome(rows: &[Row]) -> Result<Outcome, StoreError> {
    let Some(row) = rows.first() else { return Err(StoreError::corrupt("an append", "its answer has no row")) };
    let Some(kept) = get::<Option<Vec<&[u8]>>>(row, 0)? else { return Ok(Outcome::Done) };
    let ids = kept.into_iter().filter_map(|id| Some(PackId::new(id.try_into().ok()?)));
    Ok(Outcome::Nothing(ids.collect()))
}

/// Where a log ends.
pub(crate) async fn head(core: &Core, run: &RunId) -> Result<Option<Head>, StoreError> {
    let params = Params::default().with(run.as_str());
    let rows = core.again("SELECT seq, hash, fence FROM @run WHERE id = $1", &params).await?;
    rows.first().map(|row| head_of(row, 0)).transpose()
}

/// The same, once no statement is under way that moves it.
async fn settled(core: &Core, run: &RunId) -> Result<Option<Head>, StoreError> {
    let params = Params::default().with(run.as_str());
    let rows = core.again("SELECT seq, hash, fence FROM @run WHERE id = $1 FOR UPDATE", &params).await?;
    rows.first().map(|row| head_of(row, 0)).transpose()
}

/// A head in three columns of a row.
pub(crate) fn head_of(row: &Row, column: usize) -> Result<Head, StoreError> {
    Ok(Head {
        seq: seq_of(get(row, column)?)?,
        hash: EntryHash::new(id32(row, column + 1)?),
        fence: Fence(get::<i64>(row, column + 2)?.cast_unsigned()),
    })
}

/// The number of an entry.
pub(crate) fn seq_of(number: i64) -> Result<Seq, StoreError> {
    u32::try_from(number)
        .map(Seq)
        .map_err(|_| StoreError::corrupt(format!("entry {number}"), "there is no such number"))
}
