//! `piton log`: what happened, newest first. Reads no more than it shows: of a run the newest entries, of
//! a folder the newest entries of as few runs as have them.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::Arc;

use piton_store::{RunLog, SealedEntry, Span, Store};
use piton_types::{RunId, Seq};
use serde_json::Value as Json;

use crate::arguments::{Log, Subject};
use crate::commands::path_log;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::Table;
use crate::view;
use piton_app::references::Runs;
use piton_app::references::{Target, resolve};

/// How many entries are read at a time when not all of them count.
const PAGE: usize = 64;

pub(crate) async fn execute(session: &Session, arguments: &Log) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let mut paths = arguments.paths.clone();
    let mut of = None;
    match &arguments.subject {
        None => {}
        Some(Subject::Path(path)) => paths.push(path.clone()),
        Some(Subject::Reference(reference)) => match resolve(session, &store, reference).await {
            Ok(Target::Run(log)) => of = Some((log, Seq(u32::MAX))),
            Ok(Target::Entry(log, entry) | Target::Step(log, entry)) => of = Some((log, entry.seq)),
            Ok(Target::Blob(..)) => {
                return Err(Failure::usage(format!("{reference} is a value, which has no log"))
                    .hint(format!("`piton show {reference}` shows it.")));
            }
            Err(unknown) => {
                // `a.rs` could be the beginning of a run's id, and `src/a.rs` a step of one.
                let path = PathBuf::from(reference.to_string());
                if session.surroundings.folder.join(&path).symlink_metadata().is_err() {
                    return Err(unknown);
                }
                paths.push(path);
            }
        },
    }
    if !paths.is_empty() {
        return path_log::execute(session, &store, arguments, of, &paths).await;
    }
    let entries = match of {
        None => of_store(&store, arguments).await?,
        Some((log, to)) => of_run(&log, to, arguments, |_| true).await?,
    };
    store.close().await?;
    show(session, &entries)?;
    Ok(Exit::Done)
}

/// An entry of a run, and whether it is a checkpoint that was given up.
struct Shown {
    run: RunId,
    entry: SealedEntry,
    is_removed: bool,
}

/// The newest entries of one run, from `to` back, as long as `wanted` wants more.
async fn of_run(
    log: &RunLog,
    mut to: Seq,
    arguments: &Log,
    wanted: impl Fn(&SealedEntry) -> bool,
) -> Result<Vec<Shown>, Failure> {
    let mut found = Vec::new();
    // Whatever removes a checkpoint comes after it, and so is met first.
    let newer = Span { from: Seq(to.0.saturating_add(1)), ..Span::ALL };
    let newer = if to < log.head().seq { log.entries(newer).await? } else { Vec::new() };
    let mut removed = log.removed_in(&newer).await?.checkpoints;
    while found.len() < arguments.limit {
        let missing = arguments.limit - found.len();
        let limit = if arguments.checkpoints { PAGE } else { missing };
        let page = log.entries(Span { to, ..Span::newest(limit) }).await?;
        let oldest = page.last().map(|entry| entry.seq);
        removed.extend(log.removed_in(&page).await?.checkpoints);
        for entry in page {
            if !wanted(&entry) {
                return Ok(found);
            }
            if (!arguments.checkpoints || !entry.parts.is_empty()) && found.len() < arguments.limit {
                found.push(Shown { run: log.run().clone(), is_removed: removed.contains(&entry.seq), entry });
            }
        }
        match oldest.and_then(|oldest| oldest.0.checked_sub(1)) {
            Some(before) => to = Seq(before),
            None => break,
        }
    }
    Ok(found)
}

/// The newest entries of all runs.
async fn of_store(store: &Arc<dyn Store>, arguments: &Log) -> Result<Vec<Shown>, Failure> {
    let mut newest: Vec<Shown> = Vec::new();
    let mut runs = Runs::newest_first(Arc::clone(store));
    while let Some(run) = runs.next().await? {
        // The oldest that would still be shown. No entry is newer than its run, and the runs come newest
        // first, so once a run is older than that, all others are.
        let last = newest.get(arguments.limit.wrapping_sub(1)).map(|last| last.entry.at);
        if arguments.limit == 0 || last.is_some_and(|last| run.updated_at < last) {
            break;
        }
        let log = RunLog::open(Arc::clone(store), &run.id).await?;
        newest.extend(of_run(&log, Seq(u32::MAX), arguments, |entry| last.is_none_or(|last| entry.at >= last)).await?);
        // Stable: entries of one run stay in their order even if the clock stood still.
        newest.sort_by_key(|shown| Reverse(shown.entry.at));
        newest.truncate(arguments.limit);
    }
    Ok(newest)
}

fn show(session: &Session, entries: &[Shown]) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        for Shown { run, entry, is_removed } in entries {
            let mut json = view::entry_json(run, entry);
            if *is_removed {
                json.insert("removed".to_owned(), true.into());
            }
            output.object(&Json::Object(json))?;
            if output.is_closed() {
                break;
            }
        }
        return Ok(());
    }
    if entries.is_empty() {
        output.note("nothing to show");
        return Ok(());
    }
    let mut table = Table::with_heading(&["ID", "WHEN", "WHAT", "STATE", "LABEL"]);
    for Shown { run, entry, is_removed } in entries {
        let parts: Vec<_> = entry.parts.keys().map(|name| clean(&name.0)).collect();
        table.row(vec![
            view::entry_id(run, entry).to_string(),
            session.age(entry.at),
            view::kind_word(entry.kind).to_owned(),
            match (is_removed, parts.is_empty()) {
                (true, _) => "removed".to_owned(),
                (false, true) => "-".to_owned(),
                (false, false) => parts.join(","),
            },
            clean(&entry.label),
        ]);
    }
    output.data(&table.render(output.width()))
}
