//! A case as a durable run, which may die at any call of its store and is then gone on with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use piton_flow::SecurityLevel;
use piton_flow::{Control, EventSink, Finished, FlowError, Host, RunJournal, run as run_flow};
use piton_runtime::{Context, Failure, History, OpenRun, Run, RunError, this_process};
use piton_store::{Store, StoreError};
use piton_types::Event;
use piton_types::{Durability, Holder, RunId, RunKind, RunState, Value, from_value, to_value};
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::run::{Ended, Setup, prepare};
use super::seen::Seen;
use super::world::{CaseClock, CaseInbox, CountedIds};

/// How an attempt at a case ended.
#[derive(Debug)]
pub(crate) enum Attempt {
    Ended(Ended),
    /// The store gave no more answers.
    Died(String),
}

/// What a completed run of a case has as its output.
#[derive(Debug, Serialize, Deserialize)]
struct Completed {
    status: String,
    outputs: BTreeMap<String, Value>,
    error: Option<String>,
}

/// Who drives a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// This process.
    This,
    /// A process that other processes will take for dead when this attempt is over.
    Mortal,
}

/// Starts the case's run on this store, or goes on with it.
///
/// The outer error is one of the case itself.
pub(crate) async fn drive(
    case: &Case,
    base: Option<&str>,
    store: Arc<dyn Store>,
    driver: Driver,
    seen: &Seen,
) -> Result<Attempt, String> {
    seen.begin();
    let setup = match prepare(case, base, SecurityLevel::Standard, None)? {
        Ok(setup) => setup,
        Err(error) => return Ok(Attempt::Ended(Ended::failed(&error))),
    };
    let mut context = Context::system(store);
    if driver == Driver::Mortal {
        // Above the highest number that a process can have.
        static NEXT: AtomicU32 = AtomicU32::new(1 << 23);
        context.holder = Holder { pid: NEXT.fetch_add(1, Ordering::Relaxed), started: 1, ..this_process() };
    }
    match go(case, &setup, &context, seen).await {
        Ok(ended) => Ok(Attempt::Ended(ended)),
        Err(FlowError::Run(RunError::Store(StoreError::Unavailable { detail })))
        | Err(FlowError::Run(RunError::Broken { cause: detail, .. })) => Ok(Attempt::Died(detail)),
        Err(error) => Err(error.to_string()),
    }
}

async fn go(case: &Case, setup: &Setup, context: &Context, seen: &Seen) -> Result<Ended, FlowError> {
    let id: RunId = "case".parse().map_err(RunError::from)?;
    match History::of(context, &id).await {
        Ok(history) => match history.state {
            RunState::Completed(completed) => return Ok(recorded(completed.output)),
            RunState::Failed(failed) => return Ok(Ended::failed(&failed.message)),
            _ => {}
        },
        Err(RunError::Store(StoreError::NotFound { .. })) => {}
        Err(error) => return Err(error.into()),
    }
    let open = OpenRun {
        id: Some(id),
        name: case.name.clone(),
        kind: RunKind::Workflow,
        durability: Durability::Durable,
        ..OpenRun::default()
    };
    let run = Run::open(context, open).await?;
    let clock = CaseClock::new(case.state.fake_time.as_ref().map(|time| time.fixed_timestamp));
    let ids = CountedIds::new(case.state.fake_id.as_ref().map_or("id", |id| id.prefix.as_str()));
    let (inbox, control) = (CaseInbox(case.state.answers.clone()), Control::default());
    let journal = RunJournal::new(&run, &setup.flow, &setup.services, &clock).with_checkpoints_everywhere();
    let hear = |event: &Event| seen.hear(event);
    let host = Host {
        services: &setup.services,
        limits: setup.limits.clone(),
        folder: Some(&case.folder),
        inbox: Some(&inbox),
        control: Some(&control),
        events: EventSink::Call(&hear),
        ..Host::new(&journal, &clock, &ids)
    };
    let ended = match run_flow(&setup.flow, setup.given.clone(), &host).await {
        Ok(finished) => Ended::from(finished),
        Err(FlowError::Journal(error)) => {
            return Err(match error.downcast::<RunError>() {
                Ok(error) => FlowError::Run(*error),
                Err(error) => FlowError::Journal(error),
            });
        }
        Err(error) => {
            let step = if let FlowError::Node { node, .. } = &error { Some(node.to_string()) } else { None };
            run.fail(Failure { step, ..Failure::new("node", error.to_string()) }).await?;
            return Ok(Ended::failed(&error));
        }
    };
    let completed =
        Completed { status: ended.status.to_owned(), outputs: ended.outputs.clone(), error: ended.error.clone() };
    run.complete(to_value(&completed).unwrap_or_default()).await?;
    Ok(ended)
}

/// A run that was completed before its driver died.
fn recorded(output: Value) -> Ended {
    match from_value::<Completed>(output) {
        Ok(Completed { status, outputs, error }) => {
            let status = if status == Ended::RECOVERED { Ended::RECOVERED } else { Ended::COMPLETED };
            Ended { status, outputs, error }
        }
        Err(error) => Ended::failed(&error),
    }
}

impl From<Finished> for Ended {
    fn from(finished: Finished) -> Self {
        let status = if finished.recovered_from.is_some() { Self::RECOVERED } else { Self::COMPLETED };
        Self { status, outputs: finished.outputs, error: finished.recovered_from }
    }
}
