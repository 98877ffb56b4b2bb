//! `piton restore --state`: puts a run's state back to a checkpoint. An entry of the log says so; nothing is deleted.

use std::sync::Arc;

use piton::{Context, StartAt};
use piton_store::RunLog;
use serde_json::json;

use crate::arguments::Consent;
use crate::arguments::files::Restore;
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::view;
use piton_app::Plan;
use piton_app::references::Reference;
use piton_app::references::{Target, resolve};
use piton_app::runs::back::{entails, put_back};

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
    let store = session.store().await?;
    let (log, entry) = match resolve(session, &store, reference).await? {
        Target::Entry(log, entry) | Target::Step(log, entry) => (log, entry),
        Target::Run(log) => {
            return Err(Failure::usage(format!("{} is a run; which of its checkpoints?", log.run())).hint(format!(
                "`piton log {}` shows them; write RUN@7, or RUN@- for the one before the newest.",
                log.run()
            )));
        }
        Target::Blob(..) => {
            return Err(Failure::usage(format!("{reference} is a value, not a checkpoint")));
        }
    };
    let (run, to) = (log.run().clone(), view::entry_id(log.run(), &entry));
    let context = Context::system(Arc::clone(&store));
    let at = StartAt::Entry(entry.seq);
    let mut plan = Plan::new(format!("put run {run} back to {to}"));
    entails(&mut plan, &context, &run, &at, entry.seq).await?;
    if usage_back {
        plan.line("what it had used by then is what it has used");
    }
    if !agreed(&plan, session, consent)? {
        store.close().await?;
        return Ok(Exit::Done);
    }
    put_back(&context, &run, at, usage_back, &format!("put back to {to}")).await?;
    let now = RunLog::open(Arc::clone(&store), &run).await?.newest_checkpoint().await?;
    store.close().await?;
    let checkpoint = now.map(|entry| view::entry_id(&run, &entry).to_string());
    if session.output.is_json() {
        let object =
            json!({"run": run.as_str(), "status": "paused", "restored": to.to_string(), "checkpoint": checkpoint});
        session.output.object(&object)?;
    } else {
        session
            .output
            .note(&format!("run {run} is as it was at {to}, and paused; `piton resume {run}` goes on from there"));
    }
    Ok(Exit::Done)
}
