//! Reading all that the database keeps, to find what is wrong with its own structures.

use std::time::Duration;

use piton_store::Defect;
use rusqlite::{Connection, ffi};

use crate::schema::PAGE;
use crate::vfs;

/// More findings than these say nothing new.
const MOST: usize = 1000;

/// Rows that lead nowhere, or to which nothing leads.
const LOOSE: [(&str, &str); 6] = [
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
    ("SELECT 'staged pack ' || pack FROM blob WHERE NOT EXISTS (SELECT 1 FROM pack WHERE no = pack)", "it is missing"),
    ("SELECT 'staged pack ' || pack FROM pin WHERE pack NOT IN (SELECT no FROM pack)", "it is missing"),
    ("SELECT 'staged pack ' || pack FROM condemned WHERE pack NOT IN (SELECT no FROM pack)", "it is missing"),
];

/// What is wrong with the database: pages, SQLite's own structures, and rows that lead nowhere.
pub(crate) fn inspect(conn: &Connection, length: u64) -> rusqlite::Result<Vec<Defect>> {
    let mut defects = damaged_pages(conn, length);
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

/// Pages whose checksum doesn't fit, or in which the file ends. Those that were never written, because they were freed
/// before, are zeros.
fn damaged_pages(conn: &Connection, length: u64) -> Vec<Defect> {
    let mut page = vec![0; PAGE];
    let mut is_whole = |number: u64| {
        let code = vfs::read_raw(conn, (number - 1).cast_signed() * PAGE as i64, &mut page);
        let is_read = matches!(code, ffi::SQLITE_IOERR_DATA | ffi::SQLITE_IOERR_SHORT_READ);
        code == ffi::SQLITE_OK || is_read && page.iter().all(|byte| *byte == 0)
    };
    let mut defects = Vec::new();
    for number in 1..=length.div_ceil(PAGE as u64) {
        // Again after a moment: another process may be writing it just now.
        let fits = (0..3).any(|attempt| {
            std::thread::sleep(Duration::from_millis(5 * attempt));
            is_whole(number)
        });
        let is_cut = number * PAGE as u64 > length;
        if (!fits || is_cut) && defects.len() < MOST {
            let detail = if is_cut { "the file ends in it" } else { "its checksum doesn't fit its content" };
            defects.push(Defect { what: format!("page {number} of the database"), detail: detail.to_owned() });
        }
    }
    defects
}
