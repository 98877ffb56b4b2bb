//! `piton save`: a checkpoint of the files, by hand.

use piton::workspace::{Record, Saved};
use serde_json::json;

use crate::arguments::files::Save;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::{table, view};
use piton_app::files::{open, watched};
use piton_app::store::keeping;

pub(crate) async fn execute(session: &Session, arguments: &Save) -> Result<Exit, Failure> {
    let store = session.store_or_create().await?;
    let workspace = open(session, &store, arguments.capture.into()).await?;
    keeping::make_room(session, &store, &workspace).await;
    let record = Record::manual(arguments.message.clone());
    let saved = watched(session, async |progress| workspace.save(record, &progress).await).await?;
    keeping::in_passing(session, &store, Some(&workspace)).await;
    store.close().await?;
    show(session, &saved)?;
    Ok(Exit::Done)
}

/// Says what was captured.
pub(crate) fn show(session: &Session, saved: &Saved) -> Result<(), Failure> {
    let output = &session.output;
    for path in &saved.unsteady {
        output.warn(&format!("{} changed while it was read; what was read last is kept", clean(&path.to_string())));
    }
    for path in &saved.secrets {
        output.warn(&format!("there is a secret in {}", clean(&path.to_string())));
    }
    let snapshot = saved.snapshot;
    if output.is_json() {
        return output.object(&json!({
            "id": saved.checkpoint.to_string(),
            "run": saved.checkpoint.run.as_str(),
            "created_at": view::time_json(saved.at),
            "files": snapshot.files,
            "bytes": snapshot.bytes,
            "excluded": snapshot.excluded,
            "changed": saved.changed,
            "unsteady": saved.unsteady.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "secrets": saved.secrets.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }));
    }
    let files = if snapshot.files == 1 { "1 file".to_owned() } else { format!("{} files", snapshot.files) };
    let mut line = format!("{}  {files}, {}", saved.checkpoint, table::size(snapshot.bytes));
    if saved.changed == Some(false) {
        line.push_str(", unchanged");
    }
    if snapshot.excluded > 0 {
        line.push_str(&format!(", {} not captured", snapshot.excluded));
    }
    output.data(&line)
}
