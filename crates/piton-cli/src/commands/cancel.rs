//! `piton cancel`: gives a run up for good, after showing what that means.

use std::sync::Arc;

use piton::{Context, History, Requested, RunError, cancel};
use piton_types::{IllegalMove, RunStatus};

use crate::arguments::Cancel;
use crate::commands::stop::told;
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use piton_app::Plan;
use piton_app::references::run_id;
use piton_app::runs::back::finished;

pub(crate) async fn execute(session: &Session, arguments: &Cancel) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let run = run_id(&store, &arguments.run).await?;
    let context = Context::system(Arc::clone(&store));
    let history = History::of(&context, &run).await?;
    let from = history.state.status();
    if from == RunStatus::Completed {
        let cause = IllegalMove { from, to: RunStatus::Cancelled };
        return Err(RunError::Illegal { run, cause }.into());
    }
    if from == RunStatus::Cancelled {
        store.close().await?;
        return told(session, &run, Some(from), "already", &format!("run {run} was cancelled before"));
    }
    let mut plan = Plan::new(format!("cancel run {run} for good"));
    plan.line(format!("it is {from}"));
    let finished = finished(&history).len();
    let steps = if finished == 1 { "step stays" } else { "steps stay" };
    if finished > 0 {
        plan.line(format!("{finished} finished {steps} in its log"));
    }
    if !agreed(&plan, session, arguments.consent)? {
        store.close().await?;
        return Ok(Exit::Done);
    }
    let came = cancel(&context, &run, &arguments.message).await?;
    let status = store.summary(&run).await?.map(|summary| summary.status);
    store.close().await?;
    let (request, note) = match &came {
        Requested::Done => ("done", format!("run {run} is cancelled")),
        Requested::Asked(holder) => {
            ("asked", format!("process {} on {} was asked to give run {run} up", holder.pid, holder.host))
        }
        Requested::Already => ("already", format!("run {run} was cancelled before")),
    };
    told(session, &run, status, request, &note)
}
