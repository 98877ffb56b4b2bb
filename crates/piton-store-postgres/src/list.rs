//! Lists of runs, newest first, by one statement that filters, sorts and stops when the page is full. The server goes along an
//! index of times, states or folders; the other filters are applied to the rows on the way.

use piton_store::RunQuery;
use piton_types::Timestamp;

use crate::index::{COLUMNS, kind_number, status_number};
use crate::params::Params;
use crate::text::escape;

/// Behind every id, which consists of ASCII.
const BEHIND_IDS: &str = "\u{7f}";

/// The statement of a query.
pub(crate) fn statement(query: &RunQuery) -> (String, Params<'static>) {
    let mut params = Params::default();
    let mut filters = String::from("true");
    let mut filter = |filter: String| filters.extend([" AND ", &filter]);
    let escaped = |texts: &mut dyn Iterator<Item = &String>| texts.map(|text| escape(text)).collect::<Vec<_>>();
    if let Some((time, run)) = &query.after {
        filter(format!("(updated_at, id) < ({}, {})", params.add(time.as_millis()), params.add(run.to_string())));
    }
    for (than, time) in [(">=", query.since), ("<", query.until)] {
        if let Some(time) = time.map(Timestamp::as_millis) {
            filter(format!("updated_at {than} {}", params.add(time)));
        }
    }
    if !query.id_prefix.is_empty() {
        let (from, to) = (escape(&query.id_prefix), escape(&format!("{}{BEHIND_IDS}", query.id_prefix)));
        filter(format!("id >= {} AND id < {}", params.add(from), params.add(to)));
    }
    if !query.labels.is_empty() {
        filter(format!("{} <@ labels", params.add(escaped(&mut query.labels.iter()))));
    }
    if !query.folders.is_empty() {
        filter(format!("folder = ANY({})", params.add(escaped(&mut query.folders.iter()))));
    }
    if !query.status.is_empty() {
        let states: Vec<_> = query.status.iter().map(|status| status_number(*status)).collect();
        filter(format!("status = ANY({})", params.add(states)));
    }
    if !query.kinds.is_empty() {
        let kinds: Vec<_> = query.kinds.iter().map(|kind| kind_number(*kind)).collect();
        filter(format!("kind = ANY({})", params.add(kinds)));
    }
    if !query.text.is_empty() {
        // The columns are of the collation C, in which only ASCII has cases.
        let text = params.add(escape(&query.text.to_ascii_lowercase()));
        filter(format!("(strpos(lower(name), {text}) > 0 OR strpos(lower(id), {text}) > 0)"));
    }
    let limit = params.add(query.limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(i64::MAX));
    let sql = format!("SELECT {COLUMNS} FROM @run WHERE {filters} ORDER BY updated_at DESC, id DESC LIMIT {limit}");
    (sql, params)
}
