//! `piton retry`: a run is tried again, from the step that failed or from an earlier one.

use std::sync::Arc;

use piton::{Context, History, RunError, StartAt, resume_durable};
use piton_types::{Durability, RunKind, RunStatus, Seq};
use serde_json::json;

use crate::arguments::Retry;
use crate::back::{entails, put_back};
use crate::consent::Plan;
use crate::drive::drive;
use crate::failure::{Exit, Failure};
use crate::outside::services;
use crate::resolve::run_id;
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Retry) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let run = run_id(&store, &arguments.run).await?;
    let context = Context::system(Arc::clone(&store));
    let history = History::of(&context, &run).await?;
    let kind = store.summary(&run).await?.map(|summary| summary.kind);
    let mut plan = Plan::new(match &arguments.from {
        Some(step) => format!("try run {run} again from step {step}"),
        None => format!("try run {run} again where it failed"),
    });
    if let Some(step) = &arguments.from {
        let first =
            history.first_entry(step).ok_or_else(|| RunError::NoSuchStep { run: run.clone(), step: step.clone() })?;
        let at = StartAt::Step(step.clone());
        entails(&mut plan, &context, &run, &at, Seq(first.0.saturating_sub(1))).await?;
        if !plan.agreed(session, arguments.consent)? {
            store.close().await?;
            return Ok(Exit::Done);
        }
        put_back(&context, &run, at, &format!("to be tried again from {step}")).await?;
    } else {
        let status = history.state.status();
        if status != RunStatus::Failed {
            let hint = if status.is_final() {
                format!("`piton fork {run}` branches a new run off it.")
            } else {
                format!("`piton retry {run} --from STEP` does a step again, `piton resume {run}` goes on.")
            };
            return Err(Failure::refused(format!("run {run} is {status}, not failed")).hint(hint));
        }
        if arguments.consent.dry_run {
            plan.agreed(session, arguments.consent)?;
            store.close().await?;
            return Ok(Exit::Done);
        }
    }
    if kind != Some(RunKind::Workflow) {
        store.close().await?;
        if session.output.is_json() {
            session.output.object(&json!({"run": run.as_str(), "status": "paused"}))?;
        }
        session.output.note(&format!("run {run} is ready; the program that started it must go on with it"));
        return Ok(Exit::Done);
    }
    let id = run.clone();
    let services = services(session, arguments.config.as_deref())?;
    drive(session, store, &run, None, |context, events| async move {
        resume_durable(&context, &id, Durability::Durable, events, &services).await
    })
    .await
}
