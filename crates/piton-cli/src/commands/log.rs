//! `piton log`: what happened, newest first, one line for what a person means; with `--all` the entries of the log.

use piton_app::runs::log::{Happened, LogQuery, log};
use piton_app::runs::story::{Story, StoryQuery, story};
use piton_app::views::entry::LoggedEntry;
use piton_app::views::run::Happening;
use piton_types::Timestamp;

use crate::arguments::{Log, Subject};
use crate::commands::status::change_line;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::{Table, count};
use crate::view::kind_word;

/// How many changed paths of a checkpoint are named in the table.
const NAMED: usize = 2;

pub(crate) async fn execute(session: &Session, arguments: &Log) -> Result<Exit, Failure> {
    let (mut of, mut paths) = (arguments.run.clone(), arguments.paths.clone());
    match &arguments.subject {
        None => {}
        Some(Subject::Path(path)) => paths.push(path.clone()),
        Some(Subject::Reference(reference)) if of.is_none() => of = Some(reference.clone()),
        // With a run named by the option, what else is named is a path.
        Some(Subject::Reference(reference)) => paths.push(reference.to_string().into()),
    }
    match arguments.all || arguments.checkpoints {
        true => entries(session, arguments, LogQuery { of, paths, ..LogQuery::default() }).await?,
        false => told(session, arguments, StoryQuery { of, paths, ..StoryQuery::default() }).await?,
    }
    Ok(Exit::Done)
}

async fn told(session: &Session, arguments: &Log, query: StoryQuery) -> Result<(), Failure> {
    let since = arguments.since.map(|age| {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(session.now().as_millis().saturating_sub(age))
    });
    let is_path = !query.paths.is_empty();
    let Story { told, more } = story(session, StoryQuery { since, limit: arguments.limit, ..query }).await?;
    let output = &session.output;
    if output.is_json() {
        return output.list(&told);
    }
    match told.is_empty() {
        true if is_path => output.note("no checkpoint has changes there"),
        true => output.note("nothing to show"),
        false => session.paged(&told_table(session, &told).render(output.width()))?,
    }
    if more {
        cut_short(session, arguments.limit);
    }
    Ok(())
}

fn cut_short(session: &Session, limit: usize) {
    session.output.note(&format!("these are the newest {limit}; `-n {}` shows more", limit.max(1) * 4));
}

fn told_table(session: &Session, told: &[Happening]) -> Table {
    let mut table =
        Table::with_heading(&["ID", "WHEN", "WHO", "CHANGED", "WHAT"]).coloured(session.output.has_colour());
    for one in told {
        let mut what = session.names().shorten(&clean(&one.what));
        if let Some(changes) = &one.changes {
            let mut names: Vec<String> = changes.iter().take(NAMED).map(change_line).collect();
            if changes.len() > NAMED {
                names.push(format!("{} more", changes.len() - NAMED));
            }
            what = format!("{}  {what}", names.join(", "));
        }
        table.row(vec![
            session.named(&one.id),
            session.age(one.created_at),
            clean(&one.who),
            changed(one),
            marked(one.undone, what),
        ]);
        match (one.undone, one.made_by) {
            (true, _) => (0..5).for_each(|column| table.paint(column, "2")),
            (false, Some("user" | "restore")) => table.paint(2, "32"),
            (false, _) => table.paint(2, "36"),
        }
    }
    table
}

/// How much changed, as in `+12 −3 in 4 files`.
fn changed(one: &Happening) -> String {
    match (one.files, one.added, one.removed) {
        (None, ..) => "-".to_owned(),
        (Some(0), ..) => "nothing".to_owned(),
        (Some(files), Some(added), Some(removed)) if added + removed > 0 => {
            format!("+{added} −{removed} in {}", count(files, "file"))
        }
        (Some(files), ..) => count(files, "file"),
    }
}

async fn entries(session: &Session, arguments: &Log, query: LogQuery) -> Result<(), Failure> {
    let limit = arguments.limit.saturating_add(1);
    let query = LogQuery { checkpoints: arguments.checkpoints, limit, ..query };
    let output = &session.output;
    match log(session, query).await? {
        Happened::Entries(mut entries) => {
            let more = entries.len() > arguments.limit;
            entries.truncate(arguments.limit);
            match () {
                () if output.is_json() => return output.list(&entries),
                () if entries.is_empty() => output.note("nothing to show"),
                () => session.paged(&entries_table(session, &entries).render(output.width()))?,
            }
            if more {
                cut_short(session, arguments.limit);
            }
            Ok(())
        }
        // Paths have no entries of their own: the checkpoints in which they changed are what there is.
        Happened::Paths(mut moments) => {
            moments.truncate(arguments.limit);
            output.list(&moments)
        }
    }
}

fn entries_table(session: &Session, entries: &[LoggedEntry]) -> Table {
    let mut table = Table::with_heading(&["ID", "WHEN", "WHAT", "STATE", "LABEL"]);
    for LoggedEntry { entry, removed, undone } in entries {
        let parts: Vec<_> = entry.parts.keys().map(|name| clean(&name.0)).collect();
        table.row(vec![
            session.named(&entry.id),
            session.age(entry.created_at),
            kind_word(entry.kind).to_owned(),
            match (removed, parts.is_empty()) {
                (true, _) => "removed".to_owned(),
                (false, true) => "-".to_owned(),
                (false, false) => parts.join(","),
            },
            marked(*undone, session.names().shorten(&clean(&entry.label))),
        ]);
    }
    table
}

/// A label that says whether what it names counts no more.
fn marked(undone: bool, label: String) -> String {
    match (undone, label.is_empty()) {
        (false, _) => label,
        (true, true) => "(undone)".to_owned(),
        (true, false) => format!("{label} (undone)"),
    }
}
