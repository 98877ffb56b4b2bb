//! Lists of runs, newest first, by one statement that filters, sorts and stops when the page is full.
//!
//! It goes along an index from the newest run back: that of a label, of folders, or of states, which together are all
//! runs; another index would cost every commit a page. The other filters are applied to the rows on the way, so a page costs what the rows cost that are passed until it is full,
//! however many runs the store has. Only if ids are to begin in a certain way, those are looked up and sorted.

use piton_store::RunQuery;
use piton_types::{RunStatus, RunSummary, Timestamp};
use rusqlite::types::Value;
use rusqlite::{CachedStatement, Connection, params_from_iter};

use crate::index::{COLUMNS, kind_number, status_number, summary_of};

/// If more folders than these are asked for, they aren't looked up one by one.
const FOLDERS: usize = 32;

/// Behind every id, which consists of ASCII.
const BEHIND_IDS: &str = "\u{7f}";

pub(crate) fn list(conn: &Connection, query: &RunQuery) -> rusqlite::Result<Vec<RunSummary>> {
    let (mut statement, values) = prepare(conn, query)?;
    statement.query_map(params_from_iter(values), summary_of)?.collect()
}

/// The statement of a query, and what its parameters are.
fn prepare<'c>(conn: &'c Connection, query: &RunQuery) -> rusqlite::Result<(CachedStatement<'c>, Vec<Value>)> {
    let mut values = Values::default();
    let mut folders = query.folders.clone();
    folders.sort_unstable();
    folders.dedup();
    let by_label = query.labels.first().filter(|_| query.id_prefix.is_empty());
    // The ways on which runs are found, each run on one of them. On each they come in the order of the list, so that SQLite
    // merges them and needn't sort.
    let ways: Vec<String> = if !query.id_prefix.is_empty() {
        vec!["run WHERE true".to_owned()]
    } else if let Some(label) = by_label {
        vec![format!(
            "label INDEXED BY label_listing CROSS JOIN run ON no = run WHERE label = {}",
            values.add(label.clone())
        )]
    } else if (1..=FOLDERS).contains(&folders.len()) {
        let way = |folder: &String| format!("run INDEXED BY run_folder WHERE folder = {}", values.add(folder.clone()));
        folders.iter().map(way).collect()
    } else {
        let asked = |status: &RunStatus| query.status.is_empty() || query.status.contains(status);
        let way = |status| format!("run INDEXED BY run_status WHERE status = {}", status_number(status));
        RunStatus::ALL.into_iter().filter(asked).map(way).collect()
    };
    let (at, id) = if by_label.is_none() { ("updated_at", "id") } else { ("at", "run_id") };
    let mut filters = String::new();
    let mut filter = |filter: String| filters.extend([" AND ", &filter]);
    if let Some((time, run)) = &query.after {
        filter(format!("({at}, {id}) < ({}, {})", values.add(time.as_millis()), values.add(run.to_string())));
    }
    for (than, time) in [(">=", query.since), ("<", query.until)] {
        if let Some(time) = time.map(Timestamp::as_millis) {
            filter(format!("{at} {than} {}", values.add(time)));
        }
    }
    if !query.id_prefix.is_empty() {
        let end = format!("{}{BEHIND_IDS}", query.id_prefix);
        filter(format!("id >= {} AND id < {}", values.add(query.id_prefix.clone()), values.add(end)));
    }
    for label in query.labels.iter().skip(usize::from(by_label.is_some())) {
        filter(format!("EXISTS (SELECT 1 FROM json_each(labels) WHERE value = {})", values.add(label.clone())));
    }
    // These look at the row alone; the sign keeps SQLite from another index.
    if !folders.is_empty() {
        filter(format!("+folder IN ({})", values.add_all(folders)));
    }
    if !query.status.is_empty() {
        filter(format!("+status IN ({})", values.add_all(query.status.iter().map(|status| status_number(*status)))));
    }
    if !query.kinds.is_empty() {
        filter(format!("kind IN ({})", values.add_all(query.kinds.iter().map(|kind| kind_number(*kind)))));
    }
    if !query.text.is_empty() {
        let text = values.add(query.text.to_ascii_lowercase());
        filter(format!("(instr(lower(name), {text}) > 0 OR instr(lower(id), {text}) > 0)"));
    }
    let limit = values.add(query.limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(i64::MAX));
    let selects: Vec<_> = ways.iter().map(|way| format!("SELECT {COLUMNS} FROM {way}{filters}")).collect();
    let sql = format!("{} ORDER BY {at} DESC, {id} DESC LIMIT {limit}", selects.join(" UNION ALL "));
    Ok((conn.prepare_cached(&sql)?, values.0))
}

/// The values of a statement's parameters.
#[derive(Default)]
struct Values(Vec<Value>);

impl Values {
    /// Adds one, and gives its parameter.
    fn add(&mut self, value: impl Into<Value>) -> String {
        self.0.push(value.into());
        format!("?{}", self.0.len())
    }

    fn add_all<V: Into<Value>>(&mut self, values: impl IntoIterator<Item = V>) -> String {
        values.into_iter().map(|value| self.add(value)).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::schema;

    /// So many runs: of each four one failed, of each five one is in a folder, of each ten one has two labels.
    fn filled(runs: u32) -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        schema::create(&conn).unwrap();
        conn.execute_batch(&format!(
            "WITH RECURSIVE series(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM series WHERE value < {runs})
             INSERT INTO run(id, status, updated_at, created_at, kind, name, folder, labels, moved)
                 SELECT printf('run-%06d', value), iif(value % 4, 4, 5), value / 2, value, value % 3, printf('Name %d', value % 9),
                     iif(value % 5, NULL, '/folder'), iif(value % 10, NULL, '[\"night\",\"other\"]'), value
                 FROM series;
             INSERT INTO label SELECT no, value, updated_at, run.id FROM run, json_each(labels)"
        ))
        .unwrap();
        conn
    }

    /// The runs of a page, and the steps of SQLite's machine that it took.
    fn page(conn: &Connection, query: &RunQuery) -> (usize, i32) {
        let (mut statement, values) = prepare(conn, query).unwrap();
        statement.reset_status(StatementStatus::VmStep);
        let found = statement.query_map(params_from_iter(values), summary_of).unwrap().map(Result::unwrap).count();
        (found, statement.get_status(StatementStatus::VmStep))
    }

    /// A page of 20 takes as many steps out of 10,000 runs as out of 1,000, whatever it is filtered by.
    #[test]
    fn a_page_costs_the_same_however_many_runs_there_are() {
        let (some, many) = (filled(1_000), filled(10_000));
        let newest = |runs: i64| Timestamp::from_millis(runs / 2);
        let queries = |runs: i64| {
            let all = || RunQuery { limit: Some(20), ..RunQuery::default() };
            let prefix = format!("run-{:05}", runs / 10 - 1);
            [
                ("everything", all()),
                ("status", RunQuery { status: vec![RunStatus::Failed], ..all() }),
                ("two states", RunQuery { status: vec![RunStatus::Failed, RunStatus::Completed], ..all() }),
                ("kind", RunQuery { kinds: vec![piton_types::RunKind::Guard], ..all() }),
                ("folder", RunQuery { folders: vec!["/folder".into(), "/none".into(), "/folder".into()], ..all() }),
                (
                    "folder and status",
                    RunQuery { folders: vec!["/folder".into()], status: vec![RunStatus::Failed], ..all() },
                ),
                ("label", RunQuery { labels: ["night".into()].into(), ..all() }),
                (
                    "labels and text",
                    RunQuery { labels: ["night".into(), "other".into()].into(), text: "AME".into(), ..all() },
                ),
                ("text", RunQuery { text: "name 7".into(), ..all() }),
                ("since", RunQuery { since: Some(Timestamp::from_millis(newest(runs).as_millis() - 5)), ..all() }),
                ("until", RunQuery { until: Some(Timestamp::from_millis(runs / 4)), ..all() }),
                (
                    "after",
                    RunQuery { after: Some((Timestamp::from_millis(runs / 4), "run-x".parse().unwrap())), ..all() },
                ),
                (
                    "label after",
                    RunQuery {
                        labels: ["night".into()].into(),
                        after: Some((Timestamp::from_millis(runs / 4), "run-x".parse().unwrap())),
                        ..all()
                    },
                ),
                ("nothing", RunQuery { labels: ["none".into()].into(), ..all() }),
                ("prefix", RunQuery { id_prefix: prefix, ..all() }),
            ]
        };
        for ((what, few), (_, all)) in queries(1_000).into_iter().zip(queries(10_000)) {
            let ((found_few, few), (found_all, all)) = (page(&some, &few), page(&many, &all));
            println!("{what}: {found_few} runs in {few} steps, {found_all} in {all}");
            assert_eq!((found_few, few), (found_all, all), "{what}");
        }
        // The count tells a page from the whole list.
        let (found, steps) = page(&many, &RunQuery::default());
        assert!(found == 10_000 && steps > 10 * page(&some, &RunQuery { limit: Some(20), ..RunQuery::default() }).1);
    }
}
