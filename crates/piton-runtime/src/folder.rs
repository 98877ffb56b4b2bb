//! The log of a folder: a run that no process drives. Commands add entries about the folder's files to it, and none of
//! them claims it.

use std::sync::Arc;

use piton_log::{NewRun, RunLog};
use piton_store::StoreError;
use piton_types::{Durability, RunId, RunKind, RunStatus, Value};

use crate::fork::created;
use crate::{Context, RunError};

/// Opens the log of a folder, and creates it if there is none. It counts as in progress for good: it never ends, and
/// nothing removes it for its age.
pub async fn folder_log(context: &Context, id: &RunId, name: &str, folder: &str) -> Result<RunLog, RunError> {
    match RunLog::open(Arc::clone(&context.store), id).await {
        Err(StoreError::NotFound { .. }) => {}
        opened => return Ok(opened?),
    }
    let at = context.clock.now();
    let new = NewRun {
        name: name.to_owned(),
        kind: RunKind::Workspace,
        status: RunStatus::InProgress,
        folder: Some(folder.to_owned()),
        body: created(at, Value::Null, None)?,
        durability: Durability::Relaxed,
        ..NewRun::new(id.clone(), at)
    };
    match RunLog::create(Arc::clone(&context.store), new).await {
        // Another process created it meanwhile.
        Err(StoreError::Conflict { .. }) => Ok(RunLog::open(Arc::clone(&context.store), id).await?),
        created => Ok(created?),
    }
}
