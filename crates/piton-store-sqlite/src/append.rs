//! One append inside a transaction: what is checked, and the rows that it writes.

use piton_store::{Commit, Head, StoreError};
use piton_types::{EntryHash, Fence, RunId, RunStatus, RunSummary, Seq};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::hot::{EntryRow, PackColumn};
use crate::index::{kind_number, status_number};
use crate::inspect::is_damage;
use crate::places::{self, Places};
use crate::schema::{INLINE_PACK, INLINE_PACK_OF_NEWEST, MAX_ROW, MAX_RUN, key, seq_of};
use crate::upkeep;
use crate::writer::{Failure, Writer};

/// What can be said of a commit without looking at the store.
pub(crate) fn check(commit: &Commit) -> Result<(), StoreError> {
    if commit.index.as_ref().is_some_and(|index| index.id != commit.run) {
        let what = format!("entry {} of run {}", commit.seq, commit.run);
        return Err(StoreError::Invalid { what, detail: "its index row is another run's".to_owned() });
    }
    let size = (commit.entry.len() + commit.pack.len()) as u64;
    if size > MAX_ROW {
        let what = format!("entry {} of run {} with its values", commit.seq, commit.run);
        return Err(StoreError::TooLarge { what, size, limit: MAX_ROW });
    }
    Ok(())
}

/// Appends inside the caller's transaction; gives what the next append must know. If it refuses, the caller takes
/// back what was written so far.
///
/// An append to a run in progress writes one row, and one more if its pack is large; now and then it makes
/// [places](crate::places) for those to come. The index row is left alone
/// then: its time is that of the newest entry.
pub(crate) fn apply(writer: &Writer, commit: &Commit, known: Known, room: Room) -> Result<Tip, Failure> {
    let conn = &writer.conn;
    let (number, found) = match known {
        Known::Tip(tip) => (Some(tip.number), Some(tip)),
        Known::Number(number) => match look(conn, number)? {
            Some(found) => (Some(number), Some(found)),
            // The run was removed since, and there may be another one of its name.
            None => find(conn, &commit.run)?,
        },
        Known::Nothing => find(conn, &commit.run)?,
    };
    commit.check(found.as_ref().map(|found| found.head))?;
    if let Some(era) = commit.era
        && era < upkeep::era(conn)?
    {
        return Err(StoreError::EraEnded { run: commit.run.clone(), wanted: commit.seq }.into());
    }
    let in_progress = status_number(RunStatus::InProgress);
    let number =
        match (number, &commit.index) {
            (Some(number), Some(index)) => {
                update_row(conn, number, index, commit)?;
                number
            }
            (Some(number), None) => {
                if found.as_ref().is_none_or(|found| found.status != in_progress) {
                    conn.prepare_cached("UPDATE run SET updated_at = ?2, as_of = ?3 WHERE no = ?1")?
                        .execute(params![number, commit.at.as_millis(), commit.seq.0])?;
                }
                number
            }
            (None, Some(index)) => insert_row(conn, index)?,
            (None, None) => return Err(StoreError::no_run(&commit.run).into()),
        };
    upkeep::rely(conn, number, &commit.staged)?;
    let status = match (&commit.index, &found) {
        (Some(index), _) => status_number(index.status),
        (None, Some(found)) => found.status,
        (None, None) => in_progress,
    };
    let head = Head { seq: commit.seq, fence: commit.fence, hash: commit.hash };
    let is_newest = found.as_ref().is_none_or(|found| found.is_newest);
    let mut tip = Tip { number, head, status, is_newest, places: found.and_then(|found| found.places) };
    let row = write(writer, commit, &tip)?;
    if status == in_progress {
        tip.places = match room {
            Room::Made => places::make(writer, &tip, &row)?,
            Room::Left => tip.places.filter(|places| places.has(commit.seq.next())),
        };
    } else if tip.places.take().is_some() {
        places::clear(conn, number)?;
    }
    Ok(tip)
}

/// Writes the row of an entry, in its place if it has one.
fn write<'a>(writer: &Writer, commit: &'a Commit, tip: &Tip) -> rusqlite::Result<EntryRow<'a>> {
    let mut row = EntryRow {
        key: key(tip.number, commit.seq),
        at: commit.at.as_millis(),
        fence: commit.fence.0.cast_signed(),
        hash: commit.hash.as_bytes(),
        entry: &commit.entry,
        pack: PackColumn::Here(&commit.pack),
    };
    let place = tip.places.filter(|places| places.has(commit.seq));
    let fits = match place {
        Some(place) => place.pad(&row).is_some(),
        None => commit.pack.len() <= if tip.is_newest { INLINE_PACK_OF_NEWEST } else { INLINE_PACK },
    };
    if !fits {
        writer.conn.prepare_cached("INSERT INTO tail(bytes) VALUES (?1)")?.execute([&commit.pack[..]])?;
        row.pack = PackColumn::InTail(writer.conn.last_insert_rowid());
    }
    let is_filled = match place {
        Some(place) => writer.hot.fill(&row, place.pad(&row).unwrap_or(0))?,
        None => false,
    };
    if !is_filled {
        writer.hot.append(&row)?;
    }
    Ok(row)
}

fn update_row(conn: &Connection, number: i64, index: &RunSummary, commit: &Commit) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "UPDATE run SET status = ?2, updated_at = ?3, as_of = ?4, created_at = ?5, kind = ?6, name = ?7, parent = ?8,
         folder = ?9 WHERE no = ?1",
    )?
    .execute(params![
        number,
        status_number(index.status),
        commit.at.as_millis(),
        commit.seq.0,
        index.created_at.as_millis(),
        kind_number(index.kind),
        index.name,
        index.parent.as_ref().map(ToString::to_string),
        index.folder,
    ])
    .map(drop)
}

fn insert_row(conn: &Connection, index: &RunSummary) -> Result<i64, Failure> {
    conn.prepare_cached(
        "INSERT INTO run(id, status, updated_at, as_of, created_at, kind, name, parent, folder)
         VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        index.id.as_str(),
        status_number(index.status),
        index.updated_at.as_millis(),
        index.created_at.as_millis(),
        kind_number(index.kind),
        index.name,
        index.parent.as_ref().map(ToString::to_string),
        index.folder,
    ])?;
    let number = conn.last_insert_rowid();
    if number > MAX_RUN {
        let (size, limit) = (number.cast_unsigned(), MAX_RUN.cast_unsigned());
        return Err(StoreError::TooLarge { what: "the number of runs".to_owned(), size, limit }.into());
    }
    Ok(number)
}

/// The number of a run, if it exists. Where the index of ids is damaged, the table itself tells: whatever is whole of a
/// run can be read then.
pub(crate) fn run_number(conn: &Connection, run: &RunId) -> rusqlite::Result<Option<i64>> {
    let look = |sql| conn.prepare_cached(sql)?.query_row([run.as_str()], |row| row.get(0)).optional();
    match look("SELECT no FROM run WHERE id = ?1") {
        Err(error) if is_damage(&error) => look("SELECT no FROM run NOT INDEXED WHERE id = ?1"),
        found => found,
    }
}

/// What becomes of the [places](crate::places) for entries to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Some are made, if it is time for that.
    Made,
    /// There are those that are left: many entries in one transaction write few pages anyway.
    Left,
}

/// What is known of a run before an append to it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    /// Where it ends, and nobody wrote since.
    Tip(Tip),
    /// Its number, if it wasn't removed since.
    Number(i64),
    /// Nothing.
    Nothing,
}

/// What an append must know of its run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tip {
    pub(crate) number: i64,
    pub(crate) head: Head,
    status: u8,
    /// Whether no run was created after it: then its entries are the last of the table.
    pub(crate) is_newest: bool,
    /// Places for entries behind the head.
    pub(crate) places: Option<Places>,
}

fn find(conn: &Connection, run: &RunId) -> rusqlite::Result<(Option<i64>, Option<Tip>)> {
    let Some(number) = run_number(conn, run)? else { return Ok((None, None)) };
    Ok((Some(number), look(conn, number)?))
}

/// `None` if there is no such run.
fn look(conn: &Connection, run: i64) -> rusqlite::Result<Option<Tip>> {
    conn.prepare_cached(
        "SELECT key, fence, hash, (SELECT status FROM run WHERE no = ?3), ?3 = (SELECT max(no) FROM run),
             (SELECT max(key) FROM entry WHERE key BETWEEN ?1 AND ?2),
             (SELECT length(pad) FROM entry WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1)
         FROM entry WHERE key BETWEEN ?1 AND ?2 AND hash IS NOT NULL ORDER BY key DESC LIMIT 1",
    )?
    .query_row([key(run, Seq(0)), key(run, Seq(u32::MAX)), run], |row| {
        let head = Head { seq: seq_of(row.get(0)?), fence: fence(row, 1)?, hash: hash(row, 2)? };
        // A run that was removed has entries until they are swept, but no row.
        let Some(status) = row.get(3)? else { return Ok(None) };
        let last = seq_of(row.get(5)?);
        let places = match row.get::<_, Option<u32>>(6)? {
            Some(pad) if last > head.seq => Some(Places::up_to(last, pad as usize)),
            _ => None,
        };
        Ok(Some(Tip { number: run, head, status, is_newest: row.get(4)?, places }))
    })
    .optional()
    .map(Option::flatten)
}

/// The newest entry of a run. It is never folded, so it is always a row of its own.
pub(crate) fn head(conn: &Connection, run: i64) -> rusqlite::Result<Option<Head>> {
    conn.prepare_cached(
        "SELECT key, fence, hash FROM entry WHERE key BETWEEN ?1 AND ?2 AND hash IS NOT NULL ORDER BY key DESC LIMIT 1",
    )?
    .query_row([key(run, Seq(0)), key(run, Seq(u32::MAX))], |row| {
        Ok(Head { seq: seq_of(row.get(0)?), fence: fence(row, 1)?, hash: hash(row, 2)? })
    })
    .optional()
}

/// A fence in a row.
pub(crate) fn fence(row: &Row<'_>, column: usize) -> rusqlite::Result<Fence> {
    Ok(Fence(row.get::<_, i64>(column)?.cast_unsigned()))
}

/// A hash in a row.
pub(crate) fn hash(row: &Row<'_>, column: usize) -> rusqlite::Result<EntryHash> {
    row.get(column).map(EntryHash::new)
}
