//! Places for entries to come.
//!
//! A row that is put behind the last one begins a page every other time if it is large, and then five pages are written
//! instead of one: the new page, the one that leads to it, and three that say which pages are in use. So a run that goes
//! on makes room for several entries at once. Each of them is written over its place, and since its row is as large as
//! the one that was there, SQLite changes one page, and nothing else in it.
//!
//! A place is a row without a hash, which no reader sees. It is of use to whoever appends to the run next, in this
//! process or another; the entry that ends the run removes what is left, and so does the handle that made them when it
//! is closed.

use piton_types::Seq;
use rusqlite::Connection;

use crate::append::Tip;
use crate::hot::{EntryRow, PackColumn};
use crate::schema::key;
use crate::writer::Writer;

/// How many there are at a time.
const AT_ONCE: u32 = 8;
/// A run with fewer entries may be about to end.
const FEW: u32 = 16;
/// Bytes of rows of which five, four, three, two and one fill a page. Of smaller ones so many fit in that few of them
/// begin another.
const SIZES: [usize; 5] = [803, 1007, 1347, 2027, 4053];
/// Less than this is small.
const SMALL: usize = 667;

/// The places of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    /// The first entry that has none.
    end: Seq,
    /// Bytes of each row, as SQLite counts them.
    size: usize,
}

impl Places {
    /// Those up to this key, as `pad`, the length of what fills the last of them, tells.
    pub(crate) fn up_to(last: Seq, pad: usize) -> Self {
        Self { end: last.next(), size: BLANK + sized(pad) }
    }

    /// Whether this entry has one.
    pub(crate) fn has(self, seq: Seq) -> bool {
        seq < self.end
    }

    /// The bytes that a row lacks to be as large as its place; `None` if it is larger.
    pub(crate) fn pad(self, row: &EntryRow<'_>) -> Option<usize> {
        pad(size_of(row), self.size)
    }
}

/// Makes room behind an entry that is in its row by now, if it is time for that. Gives the places that there are then.
pub(crate) fn make(writer: &Writer, tip: &Tip, row: &EntryRow<'_>) -> rusqlite::Result<Option<Places>> {
    let (seq, size) = (tip.head.seq, size_of(row));
    let left = tip.places.filter(|places| places.has(seq.next()));
    let is_time = seq.0 >= FEW && seq.0 % AT_ONCE == AT_ONCE / 2 && tip.is_newest;
    let size = SIZES.into_iter().find(|larger| size <= *larger).filter(|_| is_time && size > SMALL);
    let (Some(size), Some(end)) = (size, seq.0.checked_add(AT_ONCE + 1)) else { return Ok(left) };
    let pad = pad(BLANK, size).expect("every size is larger than nothing");
    for seq in left.map_or(seq.next(), |left| left.end).0..end {
        writer.hot.make_place(key(tip.number, Seq(seq)), pad)?;
    }
    Ok(Some(Places { end: Seq(end), size }))
}

/// Removes the places of a run that hold nothing.
pub(crate) fn clear(conn: &Connection, run: i64) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM entry WHERE key BETWEEN ?1 AND ?2 AND hash IS NULL")?
        .execute([key(run, Seq(0)), key(run, Seq(u32::MAX))])
        .map(drop)
}

/// Bytes of a row that has nothing in it, but for its pad: the length of the head, and a byte for each column.
const BLANK: usize = 7;

/// Bytes of a row without its pad.
fn size_of(row: &EntryRow<'_>) -> usize {
    let pack = match row.pack {
        PackColumn::Here(bytes) => sized(bytes.len()) - 1,
        PackColumn::InTail(number) => integer(number),
    };
    BLANK + integer(row.at) + integer(row.fence) + row.hash.len() + (sized(row.entry.len()) - 1) + pack
}

/// What fills a row of `plain` bytes up to `size`. For one length in some thousand there is nothing that fits, and the
/// row becomes a byte smaller.
fn pad(plain: usize, size: usize) -> Option<usize> {
    let left = size.checked_sub(plain + 1)?;
    Some(if sized(left) == left + 1 { left } else { left.saturating_sub(1) })
}

/// Bytes of so many bytes in a row, with what stands in its head for them: a varint of seven bits a byte.
fn sized(length: usize) -> usize {
    let kind = 2 * length + 12;
    length + 1 + (1..9).filter(|byte| kind >> (7 * byte) > 0).count()
}

/// Bytes of an integer in a row, beside the one in its head.
fn integer(value: i64) -> usize {
    match value {
        0 | 1 => 0,
        _ => match 65 - value.unsigned_abs().saturating_sub(u64::from(value < 0)).leading_zeros() {
            0..=8 => 1,
            9..=16 => 2,
            17..=24 => 3,
            25..=32 => 4,
            33..=48 => 6,
            _ => 8,
        },
    }
}
