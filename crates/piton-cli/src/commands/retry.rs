//! `piton retry`: a run is tried again, from the step that failed or from an earlier one.

use piton_app::runs::retry::{Ready, RetryRun, Retrying};
use piton_app::views::run::ReadyView;
use piton_types::RunStatus;

use crate::arguments::Retry;
use crate::consent::agreed;
use crate::drive::drive;
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Retry) -> Result<Exit, Failure> {
    let wanted = RetryRun {
        run: arguments.run.clone(),
        from: arguments.from.clone(),
        set: arguments.set.clone(),
        config: arguments.config.clone(),
    };
    let retrying = Retrying::plan(session, &wanted).await?;
    let asks = retrying.needs_consent() || arguments.consent.dry_run;
    if asks && !agreed(&retrying.plan, session, arguments.consent)? {
        return Ok(Exit::Done);
    }
    let Ready { run, branched, queued, drive: prepared } = retrying.carry_out(session, &wanted).await?;
    let output = &session.output;
    if let Some(at) = &branched {
        output.note(&format!("run {run} branched off {at}"));
    }
    if queued {
        if output.is_json() {
            output.view(&ReadyView { run: run.clone(), status: RunStatus::Queued })?;
        }
        output.note(&format!("a worker tries run {run} again"));
        return Ok(Exit::Done);
    }
    let Some(prepared) = prepared else {
        if let Some(at) = branched {
            output.note(&format!("the program that started {} can go on with it", at.run));
            return Ok(Exit::Done);
        }
        if output.is_json() {
            output.view(&ReadyView { run: run.clone(), status: RunStatus::Paused })?;
        }
        output.note(&format!("run {run} is ready; the program that started it must go on with it"));
        return Ok(Exit::Done);
    };
    drive(session, prepared).await
}
