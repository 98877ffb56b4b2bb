//! `piton log`: what happened, newest first; of a path, the checkpoints in which it changed.

use piton_app::runs::log::{Happened, LogQuery, log};
use piton_app::views::entry::LoggedEntry;
use piton_app::views::files::MomentView;

use crate::arguments::{Log, Subject};
use crate::commands::status::change_line;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::Table;
use crate::view::kind_word;

/// How many changed paths of a checkpoint are named in the table.
const NAMED: usize = 2;

pub(crate) async fn execute(session: &Session, arguments: &Log) -> Result<Exit, Failure> {
    let mut query = LogQuery {
        of: None,
        paths: arguments.paths.clone(),
        checkpoints: arguments.checkpoints,
        limit: arguments.limit,
    };
    match &arguments.subject {
        None => {}
        Some(Subject::Path(path)) => query.paths.push(path.clone()),
        Some(Subject::Reference(reference)) => query.of = Some(reference.clone()),
    }
    let output = &session.output;
    match log(session, query).await? {
        Happened::Entries(entries) if output.is_json() => output.list(&entries)?,
        Happened::Paths(moments) if output.is_json() => output.list(&moments)?,
        Happened::Entries(entries) if entries.is_empty() => output.note("nothing to show"),
        Happened::Paths(moments) if moments.is_empty() => output.note("no checkpoint has changes there"),
        Happened::Entries(entries) => output.data(&entries_table(session, &entries).render(output.width()))?,
        Happened::Paths(moments) => output.data(&moments_table(session, &moments).render(output.width()))?,
    }
    Ok(Exit::Done)
}

fn entries_table(session: &Session, entries: &[LoggedEntry]) -> Table {
    let mut table = Table::with_heading(&["ID", "WHEN", "WHAT", "STATE", "LABEL"]);
    for LoggedEntry { entry, removed } in entries {
        let parts: Vec<_> = entry.parts.keys().map(|name| clean(&name.0)).collect();
        table.row(vec![
            entry.id.to_string(),
            session.age(entry.created_at),
            kind_word(entry.kind).to_owned(),
            match (removed, parts.is_empty()) {
                (true, _) => "removed".to_owned(),
                (false, true) => "-".to_owned(),
                (false, false) => parts.join(","),
            },
            clean(&entry.label),
        ]);
    }
    table
}

fn moments_table(session: &Session, moments: &[MomentView]) -> Table {
    let mut table = Table::with_heading(&["ID", "WHEN", "CHANGED", "BY", "LABEL"]);
    for moment in moments {
        let changes = moment.changes.as_deref().unwrap_or_default();
        let mut names: Vec<String> = changes.iter().take(NAMED).map(change_line).collect();
        if changes.len() > NAMED {
            names.push(format!("{} more", changes.len() - NAMED));
        }
        let when = session.age(moment.created_at);
        let made_by = moment.made_by.to_owned();
        table.row(vec![moment.id.to_string(), when, names.join(", "), made_by, clean(&moment.label)]);
    }
    table
}
