//! Reading all that the database keeps, to find what is wrong with its own structures.

use std::time::Duration;

use piton_store::Defect;
use rusqlite::{Connection, ffi};

use crate::connect::Target;
use crate::schema::PAGE;
use crate::vfs;

/// Bytes that are read in one go.
const AT_ONCE: usize = 128 << 10;

/// More findings than these say nothing new.
const MOST: usize = 1000;

/// Rows that lead nowhere, or to which nothing leads.
const LOOSE: [(&str, &str); 7] = [
    (
        "SELECT 'entry ' || (key & 4294967295) || ' of run number ' || (key >> 32) FROM entry
         WHERE NOT EXISTS (SELECT 1 FROM run WHERE no = key >> 32) AND NOT EXISTS (SELECT 1 FROM removed WHERE run = key >> 32)",
        "it belongs to no run",
    ),
    (
        "SELECT 'segment ' || (key & 4294967295) || ' of run number ' || (key >> 32) FROM segment
         WHERE NOT EXISTS (SELECT 1 FROM run WHERE no = key >> 32) AND NOT EXISTS (SELECT 1 FROM removed WHERE run = key >> 32)",
        "it belongs to no run",
    ),
    (
        "SELECT 'run ' || id FROM run WHERE NOT EXISTS
         (SELECT 1 FROM entry WHERE key BETWEEN run.no << 32 AND (run.no << 32) + 4294967295)",
        "it has no newest entry",
    ),
    ("SELECT 'staged pack ' || pack FROM pack_run WHERE NOT EXISTS (SELECT 1 FROM pack WHERE no = pack)", "it is missing"),
    ("SELECT 'staged pack ' || pack FROM blob WHERE NOT EXISTS (SELECT 1 FROM pack WHERE no = pack)", "it is missing"),
    ("SELECT 'staged pack ' || no FROM pack_state WHERE no NOT IN (SELECT no FROM pack)", "it is missing"),
    ("SELECT 'staged pack ' || no FROM pack WHERE no NOT IN (SELECT no FROM pack_state)", "nothing says whether it is needed"),
];

/// What is wrong with the database. Every page is read, and its checksum compared; if all of them fit, the structures are
/// looked at where they lie in the file, which saves reading it twice.
pub(crate) fn inspect(target: &Target, checked: &Connection) -> rusqlite::Result<Vec<Defect>> {
    let bare = target.bare_reader()?;
    let mut defects = match &bare {
        Some(bare) => damaged_pages(bare, target.size()),
        None => Vec::new(),
    };
    let conn = bare.as_ref().filter(|_| defects.is_empty()).unwrap_or(checked);
    let found = (|| {
        let mut statement = conn.prepare(&format!("PRAGMA integrity_check({MOST})"))?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let detail: String = row.get(0)?;
            // One row may have several lines, the first of which names the database.
            let lines = detail.lines().filter(|line| *line != "ok" && !line.starts_with("***") && !line.is_empty());
            defects.extend(lines.map(|line| Defect { what: "the database".to_owned(), detail: line.to_owned() }));
        }
        for (sql, detail) in LOOSE {
            let mut statement = conn.prepare(sql)?;
            let mut rows = statement.query(())?;
            while let Some(row) = rows.next()?
                && defects.len() < MOST
            {
                defects.push(Defect { what: row.get(0)?, detail: detail.to_owned() });
            }
        }
        Ok(())
    })();
    match found {
        Err(error) if is_damage(&error) => {
            defects.push(Defect { what: "the database".to_owned(), detail: error.to_string() });
            Ok(defects)
        }
        other => other.map(|()| defects),
    }
}

/// Whether a page was found to be damaged.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase | SystemIoFailure))
}

/// Pages whose checksum doesn't fit, or in which the file ends. Those that were never written, because they were freed before, are zeros.
fn damaged_pages(conn: &Connection, length: u64) -> Vec<Defect> {
    let mut defects = Vec::new();
    let mut buffer = vec![0; AT_ONCE];
    let mut first = 1_u64;
    let at = |number: u64| (number - 1).cast_signed() * PAGE as i64;
    let is_nothing = |page: &[u8]| page.iter().all(|byte| *byte == 0);
    while at(first).cast_unsigned() < length {
        let code = vfs::read_raw(conn, at(first), &mut buffer);
        for (number, page) in (first..).zip(buffer.as_chunks_mut::<PAGE>().0) {
            let is_read = code == ffi::SQLITE_OK || code == ffi::SQLITE_IOERR_SHORT_READ;
            if is_read && (vfs::fits(number, page) || is_nothing(page)) {
                continue;
            }
            // Alone, and again: somebody may be writing it just now.
            let fits = (0..3).any(|attempt| {
                std::thread::sleep(Duration::from_millis(5 * attempt));
                let code = vfs::read_raw(conn, at(number), page);
                match code {
                    ffi::SQLITE_IOERR_SHORT_READ => is_nothing(page),
                    code => code == ffi::SQLITE_OK && vfs::fits(number, page),
                }
            });
            if !fits && defects.len() < MOST {
                let what = format!("page {number} of the database");
                let is_cut = at(number + 1).cast_unsigned() > length;
                let detail = if is_cut { "the file ends in it" } else { "its checksum doesn't fit its content" };
                defects.push(Defect { what, detail: detail.to_owned() });
            }
        }
        first += (AT_ONCE / PAGE) as u64;
    }
    if defects.is_empty() && !length.is_multiple_of(PAGE as u64) {
        let what = format!("page {} of the database", length.div_ceil(PAGE as u64));
        defects.push(Defect { what, detail: "the file ends in it".to_owned() });
    }
    defects
}
