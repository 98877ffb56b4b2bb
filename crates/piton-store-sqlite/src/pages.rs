//! SQLite's pages, read without SQLite: the rows in a leaf, with what of them overflows to other pages.
//!
//! Layout: <https://www.sqlite.org/fileformat2.html>. A page counts only if its checksum fits; every number that is read
//! is checked against what is there.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rusqlite::ToSql;
use rusqlite::types::ToSqlOutput;

use crate::schema::{PAGE, RESERVED};
use crate::vfs;

/// Bytes of a page that SQLite uses.
const USABLE: usize = PAGE - RESERVED as usize;
/// A page of the map speaks of so many behind it.
const MAPPED: u32 = (USABLE / 5) as u32;
/// In which page the byte is that locks are taken on: it is never used.
const LOCKS: u32 = (0x4000_0000 / PAGE) as u32 + 1;
/// Kinds of pages in the map.
const ROOT: u8 = 1;
const TREE: u8 = 5;
/// Kinds of pages, as they say of themselves.
const INDEX_INNER: u8 = 2;
const INDEX_LEAF: u8 = 10;
const TABLE_LEAF: u8 = 13;

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Integer(i64),
    Float(f64),
    Text(String),
    Blob(Vec<u8>),
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Null => rusqlite::types::Null.to_sql(),
            Self::Integer(n) => n.to_sql(),
            Self::Float(n) => n.to_sql(),
            Self::Text(text) => text.to_sql(),
            Self::Blob(bytes) => bytes.to_sql(),
        }
    }
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Its number, in a table that has numbers.
    pub(crate) key: Option<i64>,
    pub(crate) columns: Vec<Value>,
}

/// The pages of a database, with those that its WAL has in their place.
pub(crate) struct Pages {
    file: File,
    log: Option<File>,
    /// Where in the WAL the newest form of a page is.
    newer: HashMap<u32, u64>,
    count: u32,
}

impl Pages {
    pub(crate) fn new(file: File, log: Option<File>, newer: HashMap<u32, u64>) -> io::Result<Self> {
        let pages = u32::try_from(file.metadata()?.len().div_ceil(PAGE as u64)).unwrap_or(u32::MAX);
        let count = newer.keys().copied().max().unwrap_or(0).max(pages);
        Ok(Self { file, log, newer, count })
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// A page; `None` if it is damaged.
    pub(crate) fn page(&self, number: u32) -> io::Result<Option<Box<[u8; PAGE]>>> {
        if number == 0 || number > self.count {
            return Ok(None);
        }
        let mut page = Box::new([0; PAGE]);
        if let (Some(at), Some(log)) = (self.newer.get(&number), &self.log) {
            log.read_exact_at(&mut page[..], *at)?;
            return Ok(Some(page));
        }
        match self.file.read_exact_at(&mut page[..], u64::from(number - 1) * PAGE as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            // The disk itself may say that it can't be read.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => return Ok(None),
            read => read?,
        }
        let (content, sum) = page.split_at(USABLE);
        Ok((vfs::checksum(number.into(), content) == sum).then_some(page))
    }

    /// What the map says that a page is; `None` if that can't be read.
    fn kind(&self, number: u32) -> io::Result<Option<u8>> {
        let map = map_of(number);
        let Some(page) = self.page(map)? else { return Ok(None) };
        Ok(number.checked_sub(map + 1).and_then(|place| page.get(place as usize * 5).copied()))
    }

    /// Gives every row that a page has as a whole. A page that is damaged, or none that has rows, gives none.
    pub(crate) fn rows<E: From<io::Error>>(
        &self,
        number: u32,
        mut give: impl FnMut(&Row) -> Result<(), E>,
    ) -> Result<(), E> {
        // The first has no row but the schema's, which is known.
        if number < 2 || number == LOCKS || number == map_of(number) {
            return Ok(());
        }
        let Some(page) = self.page(number)? else { return Ok(()) };
        let kind = page[0];
        if ![INDEX_INNER, INDEX_LEAF, TABLE_LEAF].contains(&kind)
            || self.kind(number)?.is_some_and(|mapped| ![ROOT, TREE].contains(&mapped))
        {
            return Ok(());
        }
        let header = if kind == INDEX_INNER { 12 } else { 8 };
        let cells = usize::from(u16::from_be_bytes([page[3], page[4]]));
        for place in 0..cells {
            let at = header + 2 * place;
            let Some(pointer) = page[..USABLE].get(at..at + 2) else { break };
            let start = usize::from(u16::from_be_bytes([pointer[0], pointer[1]]));
            if let Some(row) = self.row(&page[..USABLE], start, kind)? {
                give(&row)?;
            }
        }
        Ok(())
    }

    fn row(&self, page: &[u8], start: usize, kind: u8) -> io::Result<Option<Row>> {
        let mut cell = page.get(start..).unwrap_or_default();
        let Some((length, key)) = head(&mut cell, kind) else { return Ok(None) };
        let Some(payload) = self.payload(cell, length, kind)? else { return Ok(None) };
        Ok(columns(&payload).map(|columns| Row { key, columns }))
    }

    /// All of a row, from its cell and the pages that it overflows to.
    fn payload(&self, cell: &[u8], length: usize, kind: u8) -> io::Result<Option<Vec<u8>>> {
        let most = if kind == TABLE_LEAF { USABLE - 35 } else { (USABLE - 12) * 64 / 255 - 23 };
        let least = (USABLE - 12) * 32 / 255 - 23;
        if length <= most {
            return Ok(cell.get(..length).map(<[u8]>::to_vec));
        }
        // No row is longer than the file.
        if length as u64 > u64::from(self.count) * PAGE as u64 {
            return Ok(None);
        }
        let surplus = least + (length - least) % (USABLE - 4);
        let local = if surplus <= most { surplus } else { least };
        let (Some(begin), Some(next)) = (cell.get(..local), cell.get(local..local + 4)) else { return Ok(None) };
        let mut payload = Vec::with_capacity(length);
        payload.extend_from_slice(begin);
        let mut next = u32::from_be_bytes(next.try_into().expect("four bytes"));
        while payload.len() < length {
            let Some(page) = self.page(next)? else { return Ok(None) };
            next = u32::from_be_bytes(page[..4].try_into().expect("four bytes"));
            payload.extend_from_slice(&page[4..USABLE][..(length - payload.len()).min(USABLE - 4)]);
        }
        Ok(Some(payload))
    }
}

/// The page of the map that speaks of a page; its own number if it is one.
const fn map_of(number: u32) -> u32 {
    let map = (number - 2) / (MAPPED + 1) * (MAPPED + 1) + 2;
    if map == LOCKS { map + 1 } else { map }
}

/// Length and key of a row, taken from its cell.
fn head(cell: &mut &[u8], kind: u8) -> Option<(usize, Option<i64>)> {
    if kind == INDEX_INNER {
        // The page that lies before it.
        *cell = cell.get(4..)?;
    }
    let length = usize::try_from(varint(cell)?).ok()?;
    let key = if kind == TABLE_LEAF { Some(varint(cell)?.cast_signed()) } else { None };
    Some((length, key))
}

/// SQLite's varint: seven bits a byte, the highest first; the ninth has eight.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0_u64;
    for place in 0..9 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if place == 8 {
            return Some(n << 8 | u64::from(*byte));
        }
        n = n << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// The columns of a record; `None` if it isn't one.
fn columns(record: &[u8]) -> Option<Vec<Value>> {
    let mut header = record;
    let length = usize::try_from(varint(&mut header)?).ok()?;
    let mut content = record.get(length..)?;
    let mut header = header.get(..header.len().checked_sub(content.len())?)?;
    let mut columns = Vec::new();
    let mut take = |length: usize| {
        let (taken, rest) = content.split_at_checked(length)?;
        content = rest;
        Some(taken)
    };
    while !header.is_empty() {
        let kind = varint(&mut header)?;
        columns.push(match kind {
            0 => Value::Null,
            1..=6 => {
                let bytes = take([1, 2, 3, 4, 6, 8][usize::try_from(kind).ok()? - 1])?;
                let sign = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
                Value::Integer(bytes.iter().fold(sign, |n: i64, byte| n << 8 | i64::from(*byte)))
            }
            7 => Value::Float(f64::from_be_bytes(take(8)?.try_into().ok()?)),
            8 | 9 => Value::Integer(i64::from(kind == 9)),
            10 | 11 => return None,
            kind if kind % 2 == 0 => Value::Blob(take(usize::try_from((kind - 12) / 2).ok()?)?.to_vec()),
            kind => Value::Text(String::from_utf8(take(usize::try_from((kind - 13) / 2).ok()?)?.to_vec()).ok()?),
        });
    }
    Some(columns)
}
