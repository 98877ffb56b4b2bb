//! A run is tried again, from the step that failed or from an earlier one.

use std::path::PathBuf;
use std::sync::Arc;

use piton_flow::{Limits, ResumePolicy};
use piton_log::RunLog;
use piton_runtime::{Context, History, RunError, StartAt, WholeHistory, place_in_queue, wake};
use piton_store::Store;
use piton_types::{CheckpointRef, RunId, RunKind, RunStatus, Seq, StepPath, Value};

use crate::app::App;
use crate::documents::configured::{self, configuration};
use crate::documents::outside::{services, without_secrets};
use crate::failure::Failure;
use crate::plan::Plan;
use crate::references::run_id;
use crate::runs::back::{entails, put_back, tries_again};
use crate::runs::drive::{DriftWatch, Prepared, Work};
use crate::runs::fork::changes;
use crate::runs::resume::along;

/// What a retry is asked for.
#[derive(Debug, Clone)]
pub struct RetryRun {
    /// The run, or the unique beginning of its id.
    pub run: RunId,
    /// The first step to do again; the one that failed if none is named.
    pub from: Option<StepPath>,
    /// What is to be different from there on: then a new run branches off.
    pub set: Vec<(String, Value)>,
    /// Models, knowledge bases, credentials, limits.
    pub config: Option<PathBuf>,
}

/// A retry that is planned.
pub struct Retrying {
    store: Arc<dyn Store>,
    run: RunId,
    kind: Option<RunKind>,
    how: How,
    /// What it means.
    pub plan: Plan,
}

enum How {
    /// It goes on where it failed.
    WhereItFailed,
    /// It is put back first.
    From(StepPath),
    /// It is in the queue, and a worker tries it again.
    ByWorker,
    /// What is recorded never changes: a new run branches off before the step, with the changes.
    Branch(CheckpointRef),
}

/// A run that is ready to go on.
pub struct Ready {
    /// The run.
    pub run: RunId,
    /// Where it branched off, if it is a new one.
    pub branched: Option<CheckpointRef>,
    /// A worker takes it.
    pub queued: bool,
    /// It can be driven, if it is a workflow; else the program that started it must go on with it.
    pub drive: Option<Prepared>,
}

impl Retrying {
    /// Finds out what a retry means.
    pub async fn plan(app: &App, wanted: &RetryRun) -> Result<Self, Failure> {
        let store = without_secrets(app, app.store().await?, wanted.config.as_deref())?;
        let run = run_id(app, &store, &wanted.run).await?;
        let context = Context::system(Arc::clone(&store));
        let history = History::of(&context, &run).await?;
        let kind = store.summary(&run).await?.map(|summary| summary.kind);
        let first = async |step: &StepPath| -> Result<Seq, Failure> {
            let first = history.first_entry(step).await?;
            Ok(first.ok_or_else(|| RunError::NoSuchStep { run: run.clone(), step: step.clone() })?)
        };
        let (how, plan) = match &wanted.from {
            None if !wanted.set.is_empty() => {
                return Err(Failure::usage("--set needs --from: the step that sees the changes first"));
            }
            None => match place_in_queue(&context, &run).await? {
                Some(place) if place.worker.is_none() && history.state.status() != RunStatus::Waiting => {
                    (How::ByWorker, Plan::new(format!("have a worker try run {run} again now")))
                }
                _ => (How::WhereItFailed, where_it_failed(&run, &history).await?),
            },
            Some(step) if wanted.set.is_empty() => {
                let mut plan = Plan::new(format!("try run {run} again from step {step}"));
                let before = Seq(first(step).await?.0.saturating_sub(1));
                entails(&mut plan, &context, &run, &StartAt::Step(step.clone()), before).await?;
                (How::From(step.clone()), plan)
            }
            Some(step) => {
                let at = CheckpointRef { run: run.clone(), seq: Seq(first(step).await?.0.saturating_sub(1)) };
                let what = format!("branch a new run off {at} with the changes, and go on with it from {step}");
                let mut plan = Plan::new(what);
                plan.line(format!("run {run} stays as it is"));
                (How::Branch(at), plan)
            }
        };
        Ok(Self { store, run, kind, how, plan })
    }

    /// Whether it changes what counts, so that a person should agree first.
    pub fn needs_consent(&self) -> bool {
        !matches!(self.how, How::WhereItFailed | How::ByWorker)
    }

    /// Makes the run, or the new one, ready to go on.
    pub async fn carry_out(self, app: &App, wanted: &RetryRun) -> Result<Ready, Failure> {
        let Self { store, run, kind, how, .. } = self;
        let context = Context::system(Arc::clone(&store));
        // A branch has no record of its own; the run that it branches off does.
        let begun = run.clone();
        let (run, branched) = match how {
            How::WhereItFailed => (run, None),
            How::ByWorker => {
                wake(&context, &run).await?;
                store.close().await?;
                return Ok(Ready { run, branched: None, queued: true, drive: None });
            }
            How::From(step) => {
                let reason = format!("to be tried again from {step}");
                put_back(&context, &run, StartAt::Step(step), false, &reason).await?;
                (run, None)
            }
            How::Branch(at) => {
                let log = RunLog::open(Arc::clone(&store), &run).await?;
                let then = WholeHistory::read_to(&log, at.seq).await?;
                let changed = changes(&log, &then, log.summary().await?.kind, wanted.set.clone()).await?;
                let branch = piton_runtime::fork(&context, &at, changed).await?;
                configured::inherit(app, (&store, &at.run), (&store, &branch)).await?;
                (branch, Some(at))
            }
        };
        if kind != Some(RunKind::Workflow) {
            store.close().await?;
            return Ok(Ready { run, branched, queued: false, drive: None });
        }
        let config = configuration(app, &store, &begun, wanted.config.as_deref(), false).await?;
        let services = services(app, config.as_deref())?;
        let along = along(app, &store, &run, DriftWatch::default()).await?;
        let work = Work::Resume { document: None, policy: ResumePolicy::Normal };
        let limits = Limits::default();
        let drive = Prepared { store, run: run.clone(), notice: None, services, limits, along, work };
        Ok(Ready { run, branched, queued: false, drive: Some(drive) })
    }
}

async fn where_it_failed(run: &RunId, history: &History) -> Result<Plan, Failure> {
    let status = history.state.status();
    if status != RunStatus::Failed {
        let hint = if status.is_final() {
            format!("`piton fork {run}` branches a new run off it.")
        } else {
            format!("`piton retry {run} --from STEP` does a step again, `piton resume {run}` goes on.")
        };
        return Err(Failure::refused(format!("run {run} is {status}, not failed")).hint(hint));
    }
    let mut plan = Plan::new(format!("try run {run} again where it failed"));
    tries_again(&mut plan, history).await?;
    Ok(plan)
}
