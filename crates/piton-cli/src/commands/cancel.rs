//! `piton cancel`: gives a run up for good, after showing what that means.

use piton_app::runs::steer::Cancelling;

use crate::arguments::Cancel;
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Cancel) -> Result<Exit, Failure> {
    let cancelling = Cancelling::plan(session, &arguments.run).await?;
    if let Some(plan) = &cancelling.plan
        && !agreed(plan, session, arguments.consent)?
    {
        return Ok(Exit::Done);
    }
    let (came, holder) = cancelling.carry_out(&arguments.message).await?;
    if session.output.is_json() {
        session.output.view(&came)?;
        return Ok(Exit::Done);
    }
    let run = &came.run;
    session.output.note(&match (came.request, holder) {
        ("done", _) => format!("run {run} is cancelled"),
        (_, Some(holder)) => format!("process {} on {} was asked to give run {run} up", holder.pid, holder.host),
        (_, None) => format!("run {run} was cancelled before"),
    });
    Ok(Exit::Done)
}
