//! Runs of a schedule. Each knows the moment that it was made for; the worker that takes it creates the one after it, so a
//! schedule needs no process and no table of its own. Cancelling the run that waits ends it.

use piton_runtime::{Context, History, OpenRun, Run, RunError};
use piton_store::StoreError;
use piton_types::{RunId, RunKind, Timestamp, Value, to_value};
use serde::{Deserialize, Serialize};

use crate::body::FlowBody;
use crate::document::Document;
use crate::error::FlowError;

/// The schedule that a run is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// When its runs begin, as a pattern of cron.
    pub every: String,
    /// The moment that this run is for.
    pub at: Timestamp,
}

/// The schedule that a run is of, if it is of one.
///
/// # Errors
///
/// If the run isn't there, can't be read or isn't one of a workflow.
pub async fn schedule_of(context: &Context, run: &RunId) -> Result<Option<Schedule>, FlowError> {
    let history = History::of(context, run).await?;
    Ok(FlowBody::of_history(run, &history).await?.schedule)
}

/// Creates the run of a schedule that follows another one: the same document and inputs under another id. One of that id that
/// exists stays as it is.
///
/// # Errors
///
/// As [`schedule_of`], and if the store fails: then nothing was created.
pub async fn create_following(
    context: &Context,
    run: &RunId,
    id: RunId,
    schedule: Schedule,
) -> Result<RunId, FlowError> {
    let history = History::of(context, run).await?;
    let mut body = FlowBody::of_history(run, &history).await?;
    let summary = context.store.summary(run).await.map_err(RunError::Store)?;
    let summary = summary.ok_or_else(|| RunError::Store(StoreError::no_run(run)))?;
    // What the run before had of its own, the next one gets anew.
    let own = |name: &str, value: &Value| match name {
        "timestamp" => true,
        "conversation_id" | "workflow_run_id" => value.as_str() == Some(run.as_str()),
        _ => false,
    };
    body.system.retain(|name, value| !own(name, value));
    let document = Document::parse(&body.document, body.format).map_err(FlowError::Document)?;
    body.system = body.given().with_system(&document, &id, context.clock.now()).system;
    body.schedule = Some(schedule);
    let open = OpenRun {
        id: Some(id),
        name: summary.name,
        kind: RunKind::Workflow,
        folder: body.folder.clone(),
        labels: summary.labels,
        body: to_value(&body).map_err(|cause| RunError::Value { what: "the workflow".to_owned(), cause })?,
        ..OpenRun::default()
    };
    Ok(Run::create(context, open).await?)
}
