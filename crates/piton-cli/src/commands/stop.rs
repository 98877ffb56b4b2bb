//! `piton stop`: a run that somebody drives is asked to stop; one that nobody drives is paused here and now.

use std::sync::Arc;
use std::time::Duration;

use piton::{Context, Requested, stop};
use piton_types::{RunId, RunStatus};
use serde_json::json;

use crate::arguments::Stop;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use piton_app::references::run_id;

pub(crate) async fn execute(session: &Session, arguments: &Stop) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let run = run_id(&store, &arguments.run).await?;
    let grace = if arguments.now { Duration::ZERO } else { Duration::from_secs(arguments.grace) };
    let context = Context::system(Arc::clone(&store));
    let came = stop(&context, &run, &arguments.message, Some(grace)).await?;
    let status = store.summary(&run).await?.map(|summary| summary.status);
    store.close().await?;
    let (request, note) = match (&came, status) {
        (Requested::Done, _) => ("done", format!("run {run} is paused; `piton resume {run}` goes on")),
        (Requested::Asked(holder), _) => {
            ("asked", format!("process {} on {} was asked to stop run {run}", holder.pid, holder.host))
        }
        (Requested::Already, Some(status)) => ("already", format!("nobody drives run {run}: it is {status}")),
        (Requested::Already, None) => ("already", format!("nobody drives run {run}")),
    };
    told(session, &run, status, request, &note)
}

/// Says what became of a request to a run: its status now, and whether it is done, asked for, or was so already.
pub(super) fn told(
    session: &Session,
    run: &RunId,
    status: Option<RunStatus>,
    request: &str,
    note: &str,
) -> Result<Exit, Failure> {
    if session.output.is_json() {
        let id = run.as_str();
        session.output.object(&json!({"id": id, "run": id, "status": status, "request": request}))?;
    } else {
        session.output.note(note);
    }
    Ok(Exit::Done)
}
