//! `piton log PATH`, `piton log RUN -- PATH…`: the checkpoints in which a file or folder changed, newest first.

use std::path::PathBuf;
use std::sync::Arc;

use piton::workspace::FileChange;
use piton_store::{RunLog, Store};
use piton_types::Seq;
use serde_json::json;

use crate::arguments::Log;
use crate::commands::restore::inside;
use crate::commands::status::{change_json, change_line};
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::Table;
use crate::view;
use piton_app::files::Capture;
use piton_app::files::{open, watched};

/// How many changed paths of a checkpoint are named in the table.
const NAMED: usize = 2;

/// Shows those of all runs in the folder, or those of one up to an entry.
pub(crate) async fn execute(
    session: &Session,
    store: &Arc<dyn Store>,
    arguments: &Log,
    of: Option<(RunLog, Seq)>,
    paths: &[PathBuf],
) -> Result<Exit, Failure> {
    let workspace = open(session, store, Capture::ACCEPTED).await?;
    let paths = paths.iter().map(|path| inside(workspace.root(), path)).collect::<Result<Vec<_>, _>>()?;
    let mut history = watched(session, async |_| workspace.history_of(paths).await).await?;
    store.close().await?;
    history.reverse();
    history.retain(|(moment, _)| {
        of.as_ref().is_none_or(|(log, to)| moment.checkpoint.run == *log.run() && moment.checkpoint.seq <= *to)
    });
    history.truncate(arguments.limit);

    let output = &session.output;
    let mut table = Table::with_heading(&["ID", "WHEN", "CHANGED", "LABEL"]);
    for (moment, changes) in &history {
        if output.is_json() {
            output.object(&json!({
                "id": moment.checkpoint.to_string(),
                "run": moment.checkpoint.run.as_str(),
                "created_at": view::time_json(moment.at),
                "label": moment.label,
                "changes": changes.iter().map(change_json).collect::<Vec<_>>(),
            }))?;
            if output.is_closed() {
                break;
            }
            continue;
        }
        let id = moment.checkpoint.to_string();
        table.row(vec![id, session.age(moment.at), named(changes), clean(&moment.label)]);
    }
    match (output.is_json(), history.is_empty()) {
        (true, _) => {}
        (false, true) => output.note("no checkpoint has changes there"),
        (false, false) => output.data(&table.render(output.width()))?,
    }
    Ok(Exit::Done)
}

fn named(changes: &[FileChange]) -> String {
    let mut names: Vec<String> = changes.iter().take(NAMED).map(change_line).collect();
    if changes.len() > NAMED {
        names.push(format!("{} more", changes.len() - NAMED));
    }
    names.join(", ")
}
