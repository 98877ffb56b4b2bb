//! `piton checkpoint create|list|restore`: for chat front ends, which know these words.

use piton::workspace::{Goal, Record, RestoreOptions};
use serde_json::json;

use crate::arguments::files::{Change, Checkpoint, CheckpointAction, Conflict};
use crate::commands::{restore, save};
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::Table;
use crate::view;
use piton_app::files::{Capture, open, watched};

pub(crate) async fn execute(session: &Session, arguments: Checkpoint) -> Result<Exit, Failure> {
    match arguments.action {
        CheckpointAction::Create { description } => {
            let store = session.store_or_create().await?;
            let workspace = open(session, &store, Capture::default()).await?;
            let record = Record::manual(description.join(" "));
            let saved = watched(session, async |progress| workspace.save(record, &progress).await).await?;
            store.close().await?;
            save::show(session, &saved)?;
            Ok(Exit::Done)
        }
        CheckpointAction::List => list(session).await,
        CheckpointAction::Restore { id } => {
            let store = session.store().await?;
            let workspace = open(session, &store, Capture::default()).await?;
            let timeline = workspace.timeline().await?;
            let checkpoint =
                timeline.find_short(&id).map_err(|error| Failure::fixable(clean(&error.to_string())))?.clone();
            let change = Change {
                dry_run: false,
                yes: true,
                conflict: Some(Conflict::Merge),
                model: None,
                config: None,
                capture: crate::arguments::files::Capture::default(),
            };
            let goal = Goal::Checkpoint(checkpoint);
            let exit =
                restore::carry_out(session, &workspace, &goal, RestoreOptions::files_only(), &change, true).await?;
            store.close().await?;
            Ok(exit)
        }
    }
}

async fn list(session: &Session) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let workspace = open(session, &store, Capture::default()).await?;
    let timeline = workspace.timeline().await?;
    store.close().await?;
    let output = &session.output;
    let mut table = Table::with_heading(&["ID", "WHEN", "FILES", "WHAT"]);
    for moment in timeline.moments.iter().rev().filter(|moment| !moment.removed) {
        if output.is_json() {
            output.object(&json!({
                "id": moment.checkpoint.to_string(),
                "run": moment.checkpoint.run.as_str(),
                "created_at": view::time_json(moment.at),
                "files": moment.snapshot.files,
                "label": moment.label,
            }))?;
            continue;
        }
        table.row(vec![
            moment.checkpoint.to_string(),
            session.age(moment.at),
            moment.snapshot.files.to_string(),
            clean(&moment.label),
        ]);
    }
    if !output.is_json() {
        match timeline.moments.is_empty() {
            true => output.note("there are no checkpoints of these files yet"),
            false => output.data(&table.render(output.width()))?,
        }
    }
    Ok(Exit::Done)
}
