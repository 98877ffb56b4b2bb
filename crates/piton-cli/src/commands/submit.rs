//! `piton submit`: puts the run of a document into the queue, for a worker to drive.

use piton_app::runs::queue::{Limit, SubmitRun, put, wait_until_over};
use piton_app::views::run::QueueView;
use piton_types::RunStatus;

use crate::arguments::scale::Submit;
use crate::commands::run::started;
use crate::drive::report;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: Submit) -> Result<Exit, Failure> {
    let how = SubmitRun {
        priority: arguments.priority,
        estimated_complexity: arguments.complexity,
        due: arguments.at,
        later: arguments.later,
        limit: arguments.limit.map(|(key, at_once)| Limit { key, at_once }),
        dedupe: arguments.dedupe,
        every: arguments.every,
    };
    let submitted = put(session, started(arguments.start)?, how).await?;
    let (run, output) = (&submitted.run, &session.output);
    let was = if submitted.is_new { "is queued" } else { "was there before" };
    output.note(&format!("run {run} {was}"));
    if !arguments.wait {
        if output.is_json() {
            output.view(&submitted)?;
        } else {
            output.data(run.as_str())?;
        }
        return Ok(Exit::Done);
    }
    let tell = |status: RunStatus, place: Option<&QueueView>| {
        let worker = place.and_then(|place| place.worker.as_deref());
        let problem = place.and_then(|place| place.problem.as_deref()).map(|problem| format!(": {problem}"));
        let with = worker.map(|worker| format!(" with worker {worker}")).unwrap_or_default();
        output.note(&clean(&format!("run {run}: {status}{with}{}", problem.unwrap_or_default())));
    };
    let outcome = wait_until_over(session, run, &tell).await?;
    report(session, &outcome, None)
}
