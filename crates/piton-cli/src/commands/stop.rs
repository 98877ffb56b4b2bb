//! `piton stop`: a run that a process drives is asked to stop; one that none drives is paused here and now.

use std::time::Duration;

use piton_app::runs::steer;

use crate::arguments::Stop;
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Stop) -> Result<Exit, Failure> {
    let grace = if arguments.now { Duration::ZERO } else { Duration::from_secs(arguments.grace) };
    let (came, holder) = steer::stop(session, &arguments.run, &arguments.message, grace).await?;
    if session.output.is_json() {
        session.output.view(&came)?;
        return Ok(Exit::Done);
    }
    let run = &came.run;
    session.output.note(&match (came.request, holder, came.status) {
        ("done", ..) => format!("run {run} is paused; `piton resume {run}` goes on"),
        (_, Some(holder), _) => format!("process {} on {} was asked to stop run {run}", holder.pid, holder.host),
        (_, None, Some(status)) => format!("no process drives run {run}: it is {status}"),
        (_, None, None) => format!("no process drives run {run}"),
    });
    Ok(Exit::Done)
}
