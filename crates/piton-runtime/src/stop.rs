//! Stopping and giving up runs from outside.
//!
//! If the run has no driver, it is done here and now. If it has one, the request becomes an entry of the log: the
//! driver's next write finds it there, and between writes the driver looks once a second; on the same host it is nudged
//! to look at once.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use piton_log::RunLog;
use piton_store::StoreError;
use piton_types::{Holder, IllegalMove, Paused, RunId, RunState, RunStatus, RunSummary};

use crate::core::{draft, instructions};
use crate::deadline::millis;
use crate::fact::Fact;
use crate::lease::{LeaseWatch, Standing};
use crate::record::{ClaimRecord, Order, RequestRecord};
use crate::{Context, History, LeaseOptions, RunError, live, platform};

/// How often a lost race for the next entry is run again.
const RACES: usize = 16;

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requested {
    /// The run had no driver: it is paused or cancelled now.
    Done,
    /// Its driver was asked, and does it as soon as its steps allow.
    Asked(Holder),
    /// It was so already.
    Already,
}

/// Stops a run, to go on later: at the next step boundary of its driver. Steps that run may go on
/// for `grace`; without it, until they end.
///
/// # Errors
///
/// [`RunError::Illegal`] if the run isn't in progress, queued excepted: there is nothing to stop yet.
#[boxed]
pub async fn stop(
    context: &Context,
    run: &RunId,
    reason: &str,
    grace: Option<Duration>,
) -> Result<Requested, RunError> {
    let grace_ms = grace.map(millis);
    request(context, run, RequestRecord { order: Order::Stop { grace_ms }, reason: reason.to_owned() }).await
}

/// Gives a run up for good. A run in progress is paused first; steps that run are cut short.
///
/// # Errors
///
/// [`RunError::Illegal`] if it is completed.
#[boxed]
pub async fn cancel(context: &Context, run: &RunId, reason: &str) -> Result<Requested, RunError> {
    request(context, run, RequestRecord { order: Order::Cancel, reason: reason.to_owned() }).await
}

async fn request(context: &Context, run: &RunId, request: RequestRecord) -> Result<Requested, RunError> {
    let mut log = RunLog::open(Arc::clone(&context.store), run).await?;
    for _ in 0..RACES {
        let history = History::read(&log).await?;
        let ttl = LeaseOptions::default().ttl;
        let standing = LeaseWatch::default().judge(context, run, &history, ttl).await?;
        let steps = match (&history.claim, standing) {
            (Some(_), Standing::Held) => vec![Fact::Requested(request.clone())],
            _ => alone(context, run, &history, &request)?,
        };
        if steps.is_empty() {
            return Ok(Requested::Already);
        }
        match append_all(context, &mut log, steps).await {
            Ok(()) => {
                return Ok(match &history.claim {
                    Some((_, claim)) if standing == Standing::Held => {
                        nudge(context, &history);
                        Requested::Asked(claim.holder.clone())
                    }
                    _ => Requested::Done,
                });
            }
            Err(RunError::Store(StoreError::Conflict { .. } | StoreError::Fenced { .. })) => {
                log.refresh().await?;
            }
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Unavailable { detail: "others write to the run all the time".to_owned() }.into())
}

/// Does what was asked of a run that has no driver any more.
pub(crate) async fn carry_out(
    context: &Context,
    log: &mut RunLog,
    history: &History,
    request: &RequestRecord,
) -> Result<(), RunError> {
    let facts = alone(context, log.run(), history, request)?;
    append_all(context, log, facts).await
}

/// The entries that do it where the run has no driver.
fn alone(context: &Context, run: &RunId, history: &History, request: &RequestRecord) -> Result<Vec<Fact>, RunError> {
    let at = context.clock.now();
    let reason = request.reason.clone();
    let checkpoint = history.last_checkpoint(run);
    let instructions = Some(instructions(run, history.last_finished.as_ref(), checkpoint.as_ref()));
    let paused = RunState::Paused(Paused { at, reason: reason.clone(), resume_instructions: instructions, checkpoint });
    let cancelled = Fact::State(RunState::Cancelled { at, reason });
    let from = history.state.status();
    let illegal = |to| Err(RunError::Illegal { run: run.clone(), cause: IllegalMove { from, to } });
    // A claim, so that the old driver can't come back.
    let taken = || {
        let claim = ClaimRecord { holder: context.holder.clone(), claim: 0, state: history.state.clone() };
        [Fact::Claimed(claim), Fact::State(paused.clone())]
    };
    Ok(match (request.order, from) {
        (Order::Stop { .. }, RunStatus::Paused | RunStatus::Waiting) | (_, RunStatus::Cancelled) => Vec::new(),
        (Order::Stop { .. }, RunStatus::InProgress) => taken().into(),
        (Order::Stop { .. }, _) => return illegal(RunStatus::Paused),
        (Order::Cancel, RunStatus::InProgress) => taken().into_iter().chain([cancelled]).collect(),
        (Order::Cancel, RunStatus::Queued | RunStatus::Paused | RunStatus::Waiting) => vec![cancelled],
        (Order::Cancel, RunStatus::Failed) => {
            vec![Fact::State(RunState::Queued(history.queued_again(at))), cancelled]
        }
        (Order::Cancel, RunStatus::Completed) => return illegal(RunStatus::Cancelled),
    })
}

async fn append_all(context: &Context, log: &mut RunLog, facts: Vec<Fact>) -> Result<(), RunError> {
    for fact in facts {
        let mut entry = draft(log.run(), &fact)?;
        entry.at = context.clock.now();
        if matches!(fact, Fact::Claimed(_)) {
            entry.fence = Some(log.head().fence.next());
        }
        if let Some(state) = fact.state() {
            entry.index = Some(RunSummary { status: state.status(), ..log.summary().await? });
        }
        log.append(entry).await?;
    }
    Ok(())
}

/// Tells the driver of a run to look at its log, if it is on this host. Nothing depends on it.
pub(crate) fn nudge(context: &Context, history: &History) {
    let Some((_, claim)) = &history.claim else { return };
    if live::nudge(&claim.holder, claim.claim) || claim.holder == context.holder {
        return;
    }
    if claim.holder.host == context.holder.host && claim.holder.boot == context.holder.boot {
        platform::nudge(claim.holder.pid, claim.holder.started);
    }
}
