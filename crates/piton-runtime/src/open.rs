//! Opening a run: creating it, or taking it up where it was left.
//!
//! A claim is an entry like any other, so of several that try at once exactly one gets the next number
//! of the log; the others look again and find the run held. A crash after any of the commits in here
//! leaves a run that can be opened again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use piton_store::{Draft, NewRun, RunLog, StoreError};
use piton_types::{
    Durability, EntryKind, Event, Fence, IllegalMove, InProgress, Queued, RunId, RunKind, RunState, RunStatus,
    RunSummary, Value, to_value,
};

use crate::live::{self, LiveClaim};
use crate::run::{Known, Writer};
use crate::{ClaimRecord, Context, History, Listener, Liveness, Run, RunError, liveness};

/// How often a lost race is run again. Each loss means that somebody else wrote, and whoever claimed
/// the run then holds it; to lose this often takes as many who claimed it and died at once.
const RACES: usize = 16;

/// A run to be opened.
#[derive(Debug, Clone, Default)]
pub struct OpenRun {
    /// Its id; without one, a new run with a generated id.
    pub id: Option<RunId>,
    /// What a new run is called.
    pub name: String,
    /// What kind of work a new run is.
    pub kind: RunKind,
    /// The working directory that a new run belongs to.
    pub folder: Option<String>,
    /// The document and inputs of a new run.
    pub body: Value,
    /// What acknowledged writes survive.
    pub durability: Durability,
    /// Who is told what happens.
    pub events: Listener,
}

impl Run {
    /// Opens a run, and creates it if there is none of that id. What only a new run needs is ignored
    /// for one that exists.
    ///
    /// A run that was left in progress by a process which is dead on this host is taken over, a failed
    /// one is queued and tried again, a completed one opens finished: its
    /// [`outcome`](Self::outcome) is there and its steps can be read, but nothing runs.
    ///
    /// # Errors
    ///
    /// [`RunError::Held`] if its holder is alive, or on another host; [`RunError::Illegal`] if it is
    /// cancelled; [`RunError::Store`] if the store fails, after which it may be opened again.
    pub async fn open(context: &Context, open: OpenRun) -> Result<Self, RunError> {
        let id = match &open.id {
            Some(id) => id.clone(),
            None => RunId::generate(context.clock.now(), &*context.random),
        };
        let log = match RunLog::open(Arc::clone(&context.store), &id).await {
            Err(StoreError::NotFound { .. }) => match create(context, &id, &open).await {
                // Somebody else created it meanwhile, and perhaps claimed it too.
                Err(RunError::Store(StoreError::Conflict { .. } | StoreError::Fenced { .. })) => {
                    RunLog::open(Arc::clone(&context.store), &id).await?
                }
                created => created?,
            },
            opened => opened?,
        };
        take_up(context, log, open.durability, open.events).await
    }

    /// Opens a run that exists; never creates one.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and `NotFound` from the store if there is no such run.
    pub async fn resume(
        context: &Context,
        id: &RunId,
        durability: Durability,
        events: Listener,
    ) -> Result<Self, RunError> {
        let log = RunLog::open(Arc::clone(&context.store), id).await?;
        take_up(context, log, durability, events).await
    }

    /// The document and inputs that a run was created with, if there is one of that id. Takes nothing
    /// and changes nothing.
    pub async fn input_of(context: &Context, id: &RunId) -> Result<Option<Value>, RunError> {
        match RunLog::open(Arc::clone(&context.store), id).await {
            Err(StoreError::NotFound { .. }) => Ok(None),
            log => Ok(Some(History::read_input(&log?).await?)),
        }
    }
}

async fn create(context: &Context, id: &RunId, open: &OpenRun) -> Result<RunLog, RunError> {
    let at = context.clock.now();
    let queued =
        RunState::Queued(Queued { created_at: at, priority: 0, estimated_complexity: None, input: open.body.clone() });
    let new = NewRun {
        id: id.clone(),
        name: open.name.clone(),
        kind: open.kind,
        status: RunStatus::Queued,
        parent: None,
        folder: open.folder.clone(),
        body: to_value(&queued).map_err(RunError::value("the body of the run"))?,
        at,
        fence: Fence(0),
        durability: open.durability,
    };
    Ok(RunLog::create(Arc::clone(&context.store), new).await?)
}

async fn take_up(
    context: &Context,
    mut log: RunLog,
    durability: Durability,
    events: Listener,
) -> Result<Run, RunError> {
    let mut races = 0;
    loop {
        let history = History::read(&log).await?;
        let mut summary = log.summary().await?;
        if history.state.status() == RunStatus::Completed {
            return Ok(assemble(context, log, history, summary, None, durability, events));
        }
        check_free(context, log.run(), &history)?;
        let resumed = history.claim.is_some();
        match claim(context, &mut log, &history, &mut summary, durability).await {
            Ok((claim, state)) => {
                beat(context, &log).await;
                let retries = history.retries + u32::from(history.state.status().may_become(RunStatus::Queued));
                let history = History { state, retries, ..history };
                let run = assemble(context, log, history, summary, Some(claim), durability, events);
                run.events.tell(&Event::RunStarted { run: run.id.clone(), resumed });
                return Ok(run);
            }
            Err(RunError::Store(StoreError::Conflict { .. } | StoreError::Fenced { .. })) if races < RACES => {
                races += 1;
                log.refresh().await?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// That nobody drives the run and that it may go on.
fn check_free(context: &Context, run: &RunId, history: &History) -> Result<(), RunError> {
    let (from, to) = (history.state.status(), RunStatus::InProgress);
    if from == to {
        let Some((_, claim)) = &history.claim else { return Ok(()) };
        let free = if claim.holder == context.holder {
            !live::is_live(&claim.holder, claim.claim)
        } else {
            liveness(&claim.holder, &context.holder) == Liveness::Dead
        };
        return if free { Ok(()) } else { Err(RunError::Held { run: run.clone(), holder: claim.holder.clone() }) };
    }
    if from.may_become(to) || from.may_become(RunStatus::Queued) {
        return Ok(());
    }
    Err(RunError::Illegal { run: run.clone(), cause: IllegalMove { from, to } })
}

/// Makes the run ours: the next entry of its log, with a higher fence than any before.
async fn claim(
    context: &Context,
    log: &mut RunLog,
    history: &History,
    summary: &mut RunSummary,
    durability: Durability,
) -> Result<(LiveClaim, RunState), RunError> {
    if history.state.status().may_become(RunStatus::Queued) {
        queue_again(context, log, history, summary, durability).await?;
    }
    let claim = LiveClaim::new(&context.holder, &*context.random);
    let now = context.clock.now();
    let started_at = match history.claim.as_ref().map(|(_, claim)| &claim.state) {
        Some(RunState::InProgress(before)) => before.started_at,
        _ => now,
    };
    let state = RunState::InProgress(InProgress {
        current: None,
        step: None,
        iteration: 0,
        started_at,
        last_activity_at: now,
        context: Value::Null,
        last_progress: history.steps.last().map(|step| step.path.to_string()),
    });
    let record = ClaimRecord { holder: context.holder.clone(), claim: claim.number(), state: state.clone() };
    summary.status = RunStatus::InProgress;
    let mut draft = Draft::new(EntryKind::Claimed, now);
    draft.body = to_value(&record).map_err(RunError::value("the claim of the run"))?;
    draft.fence = Some(log.head().fence.next());
    draft.index = Some(summary.clone());
    draft.durability = durability;
    log.append(draft).await?;
    Ok((claim, state))
}

/// A failed run becomes a queued one before it is claimed.
async fn queue_again(
    context: &Context,
    log: &mut RunLog,
    history: &History,
    summary: &mut RunSummary,
    durability: Durability,
) -> Result<(), RunError> {
    let at = context.clock.now();
    let input = history.input.clone();
    let state = RunState::Queued(Queued { created_at: at, priority: 0, estimated_complexity: None, input });
    summary.status = RunStatus::Queued;
    let mut draft = Draft::new(EntryKind::StateChanged, at);
    draft.label = state.status().to_string();
    draft.body = to_value(&state).map_err(RunError::value("the state of the run"))?;
    draft.index = Some(summary.clone());
    draft.durability = durability;
    log.append(draft).await?;
    Ok(())
}

/// Tells the store's index who has the run. The log has it already, so a failure costs only the hint.
async fn beat(context: &Context, log: &RunLog) {
    if let Err(error) = context.store.beat(log.run(), log.head().fence, &context.holder).await {
        tracing::warn!(run = %log.run(), %error, "the lease of a claimed run was not recorded");
    }
}

fn assemble(
    context: &Context,
    log: RunLog,
    history: History,
    summary: RunSummary,
    claim: Option<LiveClaim>,
    durability: Durability,
    events: Listener,
) -> Run {
    let steps = history.newest_steps();
    let parts = history.checkpoint.map(|(_, parts)| parts).unwrap_or_default();
    Run {
        id: log.run().clone(),
        context: context.clone(),
        durability,
        events,
        input: history.input,
        retries: history.retries,
        writer: tokio::sync::Mutex::new(Writer { log, summary, parts, writing: false }),
        known: Mutex::new(Known { state: history.state, steps, uses: HashMap::new(), begun: 0, broken: None }),
        _claim: claim,
    }
}
