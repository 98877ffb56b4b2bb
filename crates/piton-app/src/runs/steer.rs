//! Stopping a run, and giving it up for good. A run that another process drives is asked; one that none drives is
//! changed here and now.

use std::sync::Arc;
use std::time::Duration;

use piton_agents::SESSION;
use piton_runtime::{Context, History, LeaseOptions, LeaseWatch, Requested, RunError, Standing};
use piton_store::Store;
use piton_types::{Holder, IllegalMove, RunId, RunStatus, Value};

use crate::app::App;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::references::run_id;
use crate::views::run::RequestView;

/// What became of a request, and the process that was asked.
pub type Answered = (RequestView, Option<Holder>);

/// Stops a run, to go on later. Steps that run get `grace` to end.
pub async fn stop(app: &App, run: &RunId, why: &str, grace: Duration) -> Result<Answered, Failure> {
    let store = app.store().await?;
    let run = run_id(app, &store, run).await?;
    let context = Context::system(Arc::clone(&store));
    obeyed(&context, &run, &History::of(&context, &run).await?).await?;
    let came = piton_runtime::stop(&context, &run, why, Some(grace)).await?;
    told(&store, run, came).await
}

/// A coding agent that only reports what it does takes no requests while it lives.
async fn obeyed(context: &Context, run: &RunId, history: &History) -> Result<(), Failure> {
    let is_reported = matches!(&history.input, Value::Map(input) if input.contains_key(SESSION));
    if !is_reported || LeaseWatch::default().look(context, run, LeaseOptions::default().ttl).await? != Standing::Held {
        return Ok(());
    }
    let Some(lease) = context.store.lease(run).await? else { return Ok(()) };
    let Holder { pid, host, .. } = lease.holder;
    Err(Failure::refused(format!("run {run} is a session of a coding agent that takes no requests, and goes on"))
        .cause(format!("process {pid} on {host} reports what it does by hooks; Piton doesn't drive it"))
        .hint(format!("end it there, or with `kill {pid}`; `piton undo {run}` takes back what it did.")))
}

/// A run that is to be given up.
pub struct Cancelling {
    store: Arc<dyn Store>,
    run: RunId,
    /// What that means; `None` if it was given up before.
    pub plan: Option<Plan>,
}

impl Cancelling {
    /// Finds out what giving a run up means.
    pub async fn plan(app: &App, run: &RunId) -> Result<Self, Failure> {
        let store = app.store().await?;
        let run = run_id(app, &store, run).await?;
        let context = Context::system(Arc::clone(&store));
        let history = History::of(&context, &run).await?;
        obeyed(&context, &run, &history).await?;
        let from = history.state.status();
        if from == RunStatus::Completed {
            let cause = IllegalMove { from, to: RunStatus::Cancelled };
            return Err(RunError::Illegal { run, cause }.into());
        }
        let plan = (from != RunStatus::Cancelled).then(|| {
            let mut plan = Plan::new(format!("cancel run {run} for good"));
            plan.line(format!("it is {from}"));
            match history.finished {
                0 => {}
                1 => plan.line("1 finished step stays in its log"),
                many => plan.line(format!("{many} finished steps stay in its log")),
            }
            plan
        });
        Ok(Self { store, run, plan })
    }

    /// Gives it up.
    pub async fn carry_out(self, why: &str) -> Result<Answered, Failure> {
        let came = match self.plan {
            Some(_) => piton_runtime::cancel(&Context::system(Arc::clone(&self.store)), &self.run, why).await?,
            None => Requested::Already,
        };
        told(&self.store, self.run, came).await
    }
}

async fn told(store: &Arc<dyn Store>, run: RunId, came: Requested) -> Result<Answered, Failure> {
    let status = store.summary(&run).await?.map(|summary| summary.status);
    store.close().await?;
    let (request, holder) = match came {
        Requested::Done => ("done", None),
        Requested::Asked(holder) => ("asked", Some(holder)),
        Requested::Already => ("already", None),
    };
    Ok((RequestView { id: run.clone(), run, status, request }, holder))
}
