//! The files of a checkpoint in a folder of their own, whichever folder and machine they are of: how a member of a team
//! takes up what another one, or a worker, has made.

use std::path::Path;

use piton_types::CheckpointRef;
use piton_workspace::{ExportOptions, Workspace, WorkspaceError};
use serde::Serialize;

use crate::app::App;
use crate::failure::Failure;
use crate::files::{Capture, look};
use crate::references::{Reference, resolve_checkpoint};

/// What was written.
#[derive(Debug, Clone, Serialize)]
pub struct BroughtView {
    /// The checkpoint.
    pub checkpoint: String,
    /// The folder.
    pub folder: String,
    /// How many files and links it has.
    pub files: usize,
    /// How many of them were cloned from the working folder.
    pub cloned: usize,
}

/// Writes the files of a checkpoint into a folder that isn't there yet, or is empty. Nothing else is changed.
pub async fn bring(app: &App, reference: &Reference, into: &Path) -> Result<BroughtView, Failure> {
    let store = app.look().await?;
    let (log, entry) = resolve_checkpoint(app, &store, reference).await?;
    let checkpoint = CheckpointRef { run: log.run().clone(), seq: entry.seq };
    let Some(snapshot) = Workspace::snapshot_of(&log, entry.seq).await? else {
        return Err(Failure::from(WorkspaceError::NoFiles { checkpoint: checkpoint.to_string() })
            .hint(format!("nothing was written. `piton log {} --checkpoints` shows those of the run.", log.run())));
    };
    let folder = store.summary(&checkpoint.run).await?.and_then(|summary| summary.folder);
    let workspace = look(app, &store, Capture::ACCEPTED).await?;
    let into = std::path::absolute(into)
        .map_err(|error| Failure::fixable(format!("can't find {}", into.display())).because(&error))?;
    let options = ExportOptions { foreign: !app.residence().has(folder.as_deref()), ..ExportOptions::default() };
    let done = workspace.export(snapshot, &into, options).await.map_err(|error| match error {
        WorkspaceError::Root { .. } => {
            Failure::refused(error.to_string()).hint("nothing was written; name a new or empty folder.")
        }
        error => error.into(),
    })?;
    store.close().await?;
    let folder = into.canonicalize().unwrap_or(into).to_string_lossy().into_owned();
    Ok(BroughtView { checkpoint: checkpoint.to_string(), folder, files: done.files, cloned: done.cloned })
}
