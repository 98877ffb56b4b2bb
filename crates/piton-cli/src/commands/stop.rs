//! `piton stop`: a run that somebody drives is asked to stop; one that nobody drives is paused here and now.

use std::sync::Arc;
use std::time::Duration;

use piton::{Context, Requested, stop};
use serde_json::json;

use crate::arguments::Stop;
use crate::failure::{Exit, Failure};
use crate::resolve::run_id;
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Stop) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let run = run_id(&store, &arguments.run).await?;
    let grace = if arguments.now { Duration::ZERO } else { Duration::from_secs(arguments.grace) };
    let context = Context::system(Arc::clone(&store));
    let came = stop(&context, &run, &arguments.message, Some(grace)).await?;
    store.close().await?;
    let (status, note) = match &came {
        Requested::Done => ("paused", format!("run {run} is paused; `piton resume {run}` goes on")),
        Requested::Asked(holder) => {
            ("asked", format!("process {} on {} was asked to stop run {run}", holder.pid, holder.host))
        }
        Requested::Already => ("already", format!("run {run} doesn't run")),
    };
    if session.output.is_json() {
        session.output.object(&json!({"run": run.as_str(), "status": status}))?;
    } else {
        session.output.note(&note);
    }
    Ok(Exit::Done)
}
