//! Lists of runs, newest first. Those of a status come from one index scan, which goes from the newest back and stops when
//! enough rows passed the filters; those of a folder, or whose id begins in a certain way, are looked up and sorted.

use piton_store::RunQuery;
use piton_types::{RunStatus, RunSummary, Timestamp};
use rusqlite::{Connection, params};

use crate::index::{COLUMNS, status_number, summary_of};

/// Rows of one status that come after a place in the list.
const BY_STATUS: &str = "FROM run INDEXED BY run_listing
    WHERE status = ?1 AND (updated_at, id) < (?2, ?3) AND updated_at >= ?4 ORDER BY updated_at DESC, id DESC";
/// Rows whose id begins in a certain way: `?1` is the beginning, `?2` the least text behind it.
const BY_PREFIX: &str = "FROM run WHERE id >= ?1 AND id < ?2";

/// Rows of a folder.
const BY_FOLDER: &str = "FROM run INDEXED BY run_folder WHERE folder = ?1";

/// Behind every id, which consists of ASCII.
const BEHIND_IDS: &str = "\u{7f}";

pub(crate) fn list(conn: &Connection, query: &RunQuery) -> rusqlite::Result<Vec<RunSummary>> {
    // One snapshot for all of the statements.
    let snapshot = conn.unchecked_transaction()?;
    let wanted = |status: RunStatus| query.status.is_empty() || query.status.contains(&status);
    let (at, id) = match &query.after {
        Some((at, id)) => (at.as_millis(), id.as_str()),
        None => (i64::MAX, BEHIND_IDS),
    };
    let since = query.since.map_or(i64::MIN, Timestamp::as_millis);
    let mut runs = Vec::new();
    if !query.id_prefix.is_empty() {
        let mut statement = conn.prepare_cached(&format!("SELECT {COLUMNS} {BY_PREFIX}"))?;
        let end = format!("{}{BEHIND_IDS}", query.id_prefix);
        for run in statement.query_map([&query.id_prefix, &end], summary_of)? {
            runs.push(run?);
        }
    } else if !query.folders.is_empty() {
        let mut statement = conn.prepare_cached(&format!("SELECT {COLUMNS} {BY_FOLDER}"))?;
        for folder in &query.folders {
            for run in statement.query_map([folder], summary_of)? {
                runs.push(run?);
            }
        }
    } else {
        let mut statement = conn.prepare_cached(&format!("SELECT {COLUMNS} {BY_STATUS}"))?;
        for status in RunStatus::ALL.into_iter().filter(|status| wanted(*status)) {
            let mut rows = statement.query(params![status_number(status), at, id, since])?;
            let mut enough = query.limit.unwrap_or(usize::MAX);
            while enough > 0
                && let Some(row) = rows.next()?
            {
                let run = summary_of(row)?;
                if query.admits(&run) {
                    runs.push(run);
                    enough -= 1;
                }
            }
        }
    }
    snapshot.finish()?;
    runs.retain(|run| {
        let after = query.after.as_ref().is_none_or(|(at, id)| (run.updated_at, &run.id) < (*at, id));
        after && query.admits(run)
    });
    runs.sort_unstable_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
    runs.dedup_by(|a, b| a.id == b.id);
    runs.truncate(query.limit.unwrap_or(usize::MAX));
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    /// The statements search an index and never sort or scan.
    #[test]
    fn no_statement_scans() {
        let conn = Connection::open_in_memory().unwrap();
        schema::create(&conn).unwrap();
        for (sql, plan) in [
            (BY_STATUS, "SEARCH run USING INDEX run_listing (status=? AND updated_at>? AND (updated_at,id)<(?,?))"),
            (BY_PREFIX, "SEARCH run USING INDEX sqlite_autoindex_run_1 (id>? AND id<?)"),
            (BY_FOLDER, "SEARCH run USING INDEX run_folder (folder=?)"),
        ] {
            let sql = format!("EXPLAIN QUERY PLAN SELECT {COLUMNS} {sql}");
            let mut statement = conn.prepare(&sql).unwrap();
            let count = statement.parameter_count();
            let rows =
                statement.query_map(rusqlite::params_from_iter(vec![0; count]), |row| row.get::<_, String>(3)).unwrap();
            assert_eq!(rows.map(Result::unwrap).collect::<Vec<_>>(), [plan]);
        }
    }
}
