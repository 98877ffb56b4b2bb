//! `piton restore --state`: puts a run's state back to a checkpoint.

use piton_app::Reference;
use piton_app::runs::put_back::PuttingBack;

use crate::arguments::Consent;
use crate::arguments::files::Restore;
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Restore) -> Result<Exit, Failure> {
    let consent = Consent { yes: arguments.change.yes, dry_run: arguments.change.dry_run };
    put_state_back(session, &arguments.reference, arguments.usage, consent).await
}

pub(crate) async fn put_state_back(
    session: &Session,
    reference: &Reference,
    usage_back: bool,
    consent: Consent,
) -> Result<Exit, Failure> {
    let putting_back = PuttingBack::plan(session, reference, usage_back).await?;
    if !agreed(&putting_back.plan, session, consent)? {
        return Ok(Exit::Done);
    }
    let done = putting_back.carry_out().await?;
    if session.output.is_json() {
        session.output.view(&done)?;
    } else {
        let (run, to) = (&done.run, &done.restored);
        session
            .output
            .note(&format!("run {run} is as it was at {to}, and paused; `piton resume {run}` goes on from there"));
    }
    Ok(Exit::Done)
}
