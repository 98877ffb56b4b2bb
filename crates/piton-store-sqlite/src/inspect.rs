//! Reading all that the database keeps, to find what is wrong with its own structures.

use piton_store::Defect;
use rusqlite::Connection;

/// More findings than these say nothing new.
const MOST: usize = 1000;

/// Rows that lead nowhere, or to which nothing leads.
const LOOSE: [(&str, &str); 8] = [
    (
        "SELECT 'entry ' || (key & 4294967295) || ' of run ' || coalesce((SELECT id FROM run WHERE no = key >> 32), key >> 32)
         FROM entry WHERE typeof(pack) = 'integer' AND NOT EXISTS (SELECT 1 FROM tail WHERE no = pack)",
        "its pack is missing",
    ),
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

/// What is wrong with the database. Every page is read, and so its checksum compared.
pub(crate) fn inspect(conn: &Connection) -> rusqlite::Result<Vec<Defect>> {
    let mut defects = Vec::new();
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

fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase | SystemIoFailure))
}
