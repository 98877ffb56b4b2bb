//! Appending: one statement that moves the run's row on and inserts the entries, and what happens if its answer is lost.
//!
//! The row is moved on only if it is where the writer says. The server locks it to do so, and looks at its newest version: of
//! several writers one finds the row as it was, and the others find nothing to move.

use std::collections::BTreeSet;

use piton_store::{Commit, Head, PackId, StoreError};
use piton_types::{EntryHash, Fence, RunId, RunSummary, Seq};
use tokio_postgres::Row;

use crate::connect::{Core, PAUSES, passes};
use crate::errors::Failed;
use crate::index::{kind_number, status_number};
use crate::params::{Params, get, id32};
use crate::schema::MAX_ROW;
use crate::text::escape;

/// Now in microseconds, as the moment at which a run was written to.
const TOUCHED: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

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

/// The statement of an append. Packs that it relies on are taken off the condemned list first, so that a sweep beside it either
/// has deleted them or doesn't; if one is missing, nothing is written.
fn statement<'a>(commits: &'a [Commit], first: &Commit, last: &'a Commit) -> (String, Params<'a>) {
    let mut params = Params::default();
    let index = commits.iter().rev().find_map(|commit| commit.index.as_ref());
    let updated_at = match commits {
        [only] if only.seq == Seq(0) => only.index.as_ref().map_or(only.at, |index| index.updated_at),
        _ => last.at,
    };
    let packs = staged(commits);
    let (mut with, mut unpinned, mut all_there, mut kept) =
        (String::new(), String::new(), String::new(), "NULL::bytea[]");
    if !packs.is_empty() {
        let count = params.add(packs.len() as i64);
        let ids = params.add(packs.iter().map(|pack| pack.as_bytes().to_vec()).collect::<Vec<_>>());
        let owners = params.add(commits.iter().map(|commit| commit.owner.0.cast_signed()).collect::<Vec<_>>());
        with = format!("kept AS (UPDATE @pack SET condemned = NULL WHERE id = ANY({ids}) RETURNING id, no), ");
        unpinned = format!(
            "unpinned AS (DELETE FROM @pin AS pin USING kept, head WHERE pin.pack = kept.no AND pin.owner = ANY({owners})), "
        );
        all_there = format!("(SELECT count(*) FROM kept) = {count}");
        kept = "(SELECT array_agg(id) FROM kept)";
    }
    let id = params.add(last.run.as_str());
    let seq = params.add(i64::from(last.seq.0));
    let hash = params.add(&last.hash.as_bytes()[..]);
    let fence = params.add(last.fence.0.cast_signed());
    let updated_at = params.add(updated_at.as_millis());
    let head = match index.filter(|_| first.seq == Seq(0)) {
        Some(index) => {
            let (columns, values) = columns(index, &mut params);
            let only_if = if all_there.is_empty() { String::new() } else { format!("WHERE {all_there}") };
            format!(
                "INSERT INTO @run(id, seq, hash, fence, updated_at, touched, {columns})
                 SELECT {id}, {seq}, {hash}, {fence}, {updated_at}, {TOUCHED}, {values} {only_if}
                 ON CONFLICT (id) DO NOTHING RETURNING no"
            )
        }
        None => {
            let before = params.add(i64::from(first.seq.0) - 1);
            let parent = params.add(first.parent.as_bytes().to_vec());
            let row = match index {
                Some(index) => {
                    let (columns, values) = columns(index, &mut params);
                    format!(", ({columns}) = ROW({values})")
                }
                None => String::new(),
            };
            let only_if = if all_there.is_empty() { String::new() } else { format!("AND {all_there}") };
            format!(
                "UPDATE @run SET seq = {seq}, hash = {hash}, fence = {fence}, updated_at = {updated_at},
                 touched = {TOUCHED}, moved = NULL{row}
                 WHERE id = {id} AND seq = {before} AND hash = {parent} AND fence <= {fence} {only_if} RETURNING no"
            )
        }
    };
    let numbers = params.add(commits.iter().map(|commit| i64::from(commit.seq.0)).collect::<Vec<_>>());
    let times = params.add(commits.iter().map(|commit| commit.at.as_millis()).collect::<Vec<_>>());
    let hashes = params.add(commits.iter().map(|commit| &commit.hash.as_bytes()[..]).collect::<Vec<_>>());
    let entries = params.add(commits.iter().map(|commit| &commit.entry[..]).collect::<Vec<_>>());
    let values = params.add(commits.iter().map(|commit| &commit.pack[..]).collect::<Vec<_>>());
    let sql = format!(
        "WITH {with}head AS ({head}), {unpinned}written AS (
         INSERT INTO @entry(run, seq, at, fence, hash, entry, pack)
         SELECT head.no, new.seq, new.at, {fence}, new.hash, new.entry, new.pack
         FROM head, unnest({numbers}, {times}, {hashes}, {entries}, {values}) AS new(seq, at, hash, entry, pack))
         SELECT (SELECT count(*) FROM head), {kept}"
    );
    (sql, params)
}

/// The columns of a run's row that its index row decides, and their parameters.
fn columns<'a>(index: &'a RunSummary, params: &mut Params<'a>) -> (&'static str, String) {
    let values = [
        params.add(status_number(index.status)),
        params.add(kind_number(index.kind)),
        params.add(index.created_at.as_millis()),
        params.add(escape(&index.name)),
        params.add(index.parent.as_ref().map(ToString::to_string)),
        params.add(index.folder.as_deref().map(escape)),
        params.add(index.labels.iter().map(|label| escape(label)).collect::<Vec<_>>()),
    ];
    ("status, kind, created_at, name, parent, folder, labels", values.join(", "))
}

enum Outcome {
    Done,
    /// Nothing was written; of the packs, these are there.
    Nothing(Vec<PackId>),
}

fn outcome(rows: &[Row]) -> Result<Outcome, StoreError> {
    let Some(row) = rows.first() else { return Err(StoreError::corrupt("an append", "its answer has no row")) };
    if get::<i64>(row, 0)? > 0 {
        return Ok(Outcome::Done);
    }
    let kept: Option<Vec<&[u8]>> = get(row, 1)?;
    let ids = kept.unwrap_or_default().into_iter().filter_map(|id| Some(PackId::new(id.try_into().ok()?)));
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
