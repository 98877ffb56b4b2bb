//! `piton checkpoint create|list|restore`: for chat front ends, which know these words.

use piton_app::files::Capture;
use piton_app::files::restore::Restoring;
use piton_app::files::status::{checkpoints, save};

use crate::arguments::files::{Capture as CaptureOptions, Change, Checkpoint, CheckpointAction, Conflict};
use crate::commands::restore::carry_out;
use crate::commands::save::show;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::Table;

pub(crate) async fn execute(session: &Session, arguments: Checkpoint) -> Result<Exit, Failure> {
    match arguments.action {
        CheckpointAction::Create { description } => {
            show(session, &save(session, description.join(" "), Capture::default()).await?)?;
            Ok(Exit::Done)
        }
        CheckpointAction::List => list(session).await,
        CheckpointAction::Restore { id } => {
            let change = Change {
                dry_run: false,
                yes: true,
                conflict: Some(Conflict::Merge),
                unattributed: false,
                model: None,
                config: None,
                capture: CaptureOptions::default(),
            };
            carry_out(session, Restoring::to_short(session, &id).await?, &change, true).await
        }
    }
}

async fn list(session: &Session) -> Result<Exit, Failure> {
    let found = checkpoints(session).await?;
    let output = &session.output;
    if output.is_json() {
        output.list(&found)?;
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        output.note("there are no checkpoints of these files yet");
        return Ok(Exit::Done);
    }
    let mut table = Table::with_heading(&["ID", "WHEN", "FILES", "BY", "WHAT"]);
    for moment in &found {
        table.row(vec![
            moment.id.to_string(),
            session.age(moment.created_at),
            moment.files.unwrap_or(0).to_string(),
            moment.made_by.to_owned(),
            clean(&moment.label),
        ]);
    }
    output.data(&table.render(output.width()))?;
    Ok(Exit::Done)
}
