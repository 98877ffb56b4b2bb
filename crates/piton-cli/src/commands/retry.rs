//! `piton retry`: a run is tried again, from the step that failed or from an earlier one.

use std::sync::Arc;

use piton::{Context, History, RunError, StartAt, fork, resume_durable};
use piton_store::{RunLog, Store};
use piton_types::{CheckpointRef, RunId, RunKind, RunStatus, Seq};
use serde_json::json;

use crate::arguments::Retry;
use crate::arguments::files::DriftWatch;
use crate::commands::fork::changes;
use crate::commands::resume::along;
use crate::consent::agreed;
use crate::drive::drive;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use piton_app::Plan;
use piton_app::documents::outside::{services, without_secrets};
use piton_app::references::run_id;
use piton_app::runs::back::{entails, put_back, tries_again};

/// What is recorded never changes: a new run branches off before the step, with the changes, and is driven.
async fn with_changes(
    session: &Session,
    store: Arc<dyn Store>,
    run: &RunId,
    history: &History,
    arguments: &Retry,
) -> Result<Exit, Failure> {
    let Some(step) = &arguments.from else {
        return Err(Failure::usage("--set needs --from: the step that sees the changes first"));
    };
    let missing = || RunError::NoSuchStep { run: run.clone(), step: step.clone() };
    let first = history.first_entry(step).ok_or_else(missing)?;
    let at = CheckpointRef { run: run.clone(), seq: Seq(first.0.saturating_sub(1)) };
    let mut plan = Plan::new(format!("branch a new run off {at} with the changes, and go on with it from {step}"));
    plan.line(format!("run {run} stays as it is"));
    if !agreed(&plan, session, arguments.consent)? {
        store.close().await?;
        return Ok(Exit::Done);
    }
    let context = Context::system(Arc::clone(&store));
    let log = RunLog::open(Arc::clone(&store), run).await?;
    let kind = log.summary().await?.kind;
    let then = History::read_to(&log, at.seq).await?;
    let changed = changes(&log, &then, kind, arguments.set.clone()).await?;
    let id = fork(&context, &at, changed).await?;
    session.output.note(&format!("run {id} branched off {at}"));
    if kind != RunKind::Workflow {
        store.close().await?;
        session.output.note(&format!("the program that started {run} can go on with it"));
        return Ok(Exit::Done);
    }
    let services = services(session, arguments.config.as_deref())?;
    let new = id.clone();
    let along = along(session, &store, &id, DriftWatch::default()).await?;
    drive(session, store, &id, None, services, along, |context, options| async move {
        resume_durable(&context, &new, options).await
    })
    .await
}

pub(crate) async fn execute(session: &Session, arguments: &Retry) -> Result<Exit, Failure> {
    let store = without_secrets(session, session.store().await?, arguments.config.as_deref())?;
    let run = run_id(&store, &arguments.run).await?;
    let context = Context::system(Arc::clone(&store));
    let history = History::of(&context, &run).await?;
    let kind = store.summary(&run).await?.map(|summary| summary.kind);
    if !arguments.set.is_empty() {
        return with_changes(session, store, &run, &history, arguments).await;
    }
    let mut plan = Plan::new(match &arguments.from {
        Some(step) => format!("try run {run} again from step {step}"),
        None => format!("try run {run} again where it failed"),
    });
    if let Some(step) = &arguments.from {
        let first =
            history.first_entry(step).ok_or_else(|| RunError::NoSuchStep { run: run.clone(), step: step.clone() })?;
        let at = StartAt::Step(step.clone());
        entails(&mut plan, &context, &run, &at, Seq(first.0.saturating_sub(1))).await?;
        if !agreed(&plan, session, arguments.consent)? {
            store.close().await?;
            return Ok(Exit::Done);
        }
        put_back(&context, &run, at, false, &format!("to be tried again from {step}")).await?;
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
            tries_again(&mut plan, &history);
            agreed(&plan, session, arguments.consent)?;
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
    let along = along(session, &store, &run, DriftWatch::default()).await?;
    drive(session, store, &run, None, services, along, |context, options| async move {
        resume_durable(&context, &id, options).await
    })
    .await
}
