//! Opening a run: creating it, or taking it up where it was left.
//!
//! A claim is an entry like any other, so of several that try at once exactly one gets the next number
//! of the log; the others look again and find the run held. A crash after any of the commits in here
//! leaves a run that can be opened again.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use piton_log::{NewRun, RunLog};
use piton_store::StoreError;
use piton_types::{
    CheckpointRecord, CheckpointRef, Durability, EntryKind, Event, Fence, Holder, IllegalMove, InProgress, Queued,
    RunId, RunKind, RunState, RunStatus, RunSummary, Seq, StepPath, Value, from_value,
};
use tokio::sync::watch;

use crate::core::{Alone, Core, Known, Writer, draft};
use crate::fact::Fact;
use crate::fork::created_as;
use crate::index::EVERY;
use crate::lease::{LeaseWatch, Standing};
use crate::live::LiveClaim;
use crate::record::{ClaimRecord, Order, Origin};
use crate::{AtWork, Context, History, LeaseOptions, Listener, RetryPolicy, Run, RunError, Waits};

/// How often a lost race is run again. Each loss means that another process wrote, and the one that claimed
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
    /// What a new run is found by beside its name.
    pub labels: BTreeSet<String>,
    /// How urgent a new run is: the larger, the sooner.
    pub priority: i32,
    /// A guess at the work of a new run, in whatever unit the caller uses.
    pub estimated_complexity: Option<f64>,
    /// The document and inputs of a new run.
    pub body: Value,
    /// What acknowledged writes survive.
    pub durability: Durability,
    /// Who is told what happens.
    pub events: Listener,
    /// When failed steps are tried again, unless they say so themselves.
    pub retry: RetryPolicy,
    /// What to do while the run waits for an answer.
    pub waits: Waits,
    /// How signs of life are given, and whether to wait for a run that is held.
    pub lease: LeaseOptions,
    /// A holder whose time is up by the clock of the store, as a [worker](crate::work) learns: what it holds is taken over, even if
    /// its process lives. It is frozen or cut off, and can write nothing afterwards.
    pub overdue: Option<Holder>,
    /// Where a run that exists goes on.
    pub at: StartAt,
    /// If it goes on from an earlier entry: what it had used by then is what it has used (W5). Otherwise what was
    /// spent stays spent.
    pub usage_back: bool,
    /// Only a run that exists is opened; none is created.
    pub existing: bool,
    /// Who has a say in whether a run goes on.
    pub admission: Admission,
    /// How many entries the driver writes between two indexes of the log; 128 if nothing is said. Fewer make opening
    /// cheaper and the log larger.
    pub index_every: Option<u32>,
}

/// Why a run may not go on.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// Looks at what a run has done before it is claimed, and may refuse to go on with it: then nothing was written. What
/// it was shown is what the claim follows. A completed run goes on with nothing, so this isn't asked.
#[derive(Clone, Default)]
pub struct Admission(Option<Arc<Look>>);

type Look = dyn for<'a> Fn(&'a History) -> Looking<'a> + Send + Sync;

/// What a function that is asked for admission comes to.
pub type Looking<'a> = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>>;

impl Admission {
    /// Asks this function. It may be asked more than once, if others write to the run meanwhile.
    pub fn by(look: impl for<'a> Fn(&'a History) -> Looking<'a> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(look)))
    }

    async fn ask(&self, run: &RunId, history: &History) -> Result<(), RunError> {
        let Some(look) = &self.0 else { return Ok(()) };
        look(history).await.map_err(|cause| RunError::Refused { run: run.clone(), cause })
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Admission" } else { "Admission(open)" })
    }
}

/// What a run is opened for, besides being driven.
#[derive(Debug, Default)]
pub(crate) struct Purpose {
    /// Only one step may run.
    pub(crate) alone: Option<Alone>,
    /// The run that this one is a step of.
    pub(crate) child_of: Option<(RunId, StepPath)>,
}

/// Where a run goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StartAt {
    /// Where it was left.
    #[default]
    End,
    /// Before a step, an effect, a question or a branch, which is done again, with everything that was
    /// recorded after it began.
    Step(StepPath),
    /// Just after an entry; everything behind it is done again.
    Entry(Seq),
}

impl Run {
    /// Opens a run, and creates it if there is none of that id. What only a new run needs is ignored
    /// for one that exists.
    ///
    /// A run that was left in progress by a process which is dead is taken over, a failed one is queued and
    /// tried again, one that waits or is paused goes on, and a completed one opens finished: its
    /// [`outcome`](Self::outcome) is there and its steps can be read, but nothing runs.
    ///
    /// With [`OpenRun::at`] it goes on earlier than where it was left: what lies between is undone, in the
    /// log, not in the world; [`undone_effects`](crate::undone_effects) says what the world keeps. Effects
    /// that are performed again have other keys.
    ///
    /// # Errors
    ///
    /// [`RunError::Held`] if its holder is alive, or on another host and not known to be dead;
    /// [`RunError::Illegal`] if it is cancelled, or completed and to go on earlier; [`RunError::Store`] if
    /// the store fails, after which it may be opened again, or if it is to go on earlier and the store keeps no history.
    #[boxed]
    pub async fn open(context: &Context, open: OpenRun) -> Result<Self, RunError> {
        Self::open_for(context, open, Purpose::default()).await
    }

    pub(crate) async fn open_for(context: &Context, open: OpenRun, purpose: Purpose) -> Result<Self, RunError> {
        let id = match &open.id {
            Some(id) => id.clone(),
            None => RunId::generate(context.clock.now(), &*context.random),
        };
        let log = match RunLog::open(Arc::clone(&context.store), &id).await {
            Err(StoreError::NotFound { .. }) if !open.existing => match create(context, &id, &open, &purpose).await {
                // Another process created it meanwhile, and perhaps claimed it too.
                Err(RunError::Store(StoreError::Conflict { .. } | StoreError::Fenced { .. })) => {
                    RunLog::open(Arc::clone(&context.store), &id).await?
                }
                created => created?,
            },
            opened => opened?,
        };
        take_up(context, log, open, purpose.alone).await
    }

    /// Creates a run that no process drives yet, if there is none of that id; says which it is.
    ///
    /// # Errors
    ///
    /// [`RunError::Store`] if the store fails.
    #[boxed]
    pub async fn create(context: &Context, open: OpenRun) -> Result<RunId, RunError> {
        let id = open.id.clone().unwrap_or_else(|| RunId::generate(context.clock.now(), &*context.random));
        match create(context, &id, &open, &Purpose::default()).await {
            Err(RunError::Store(StoreError::Conflict { .. } | StoreError::Fenced { .. })) => Ok(id),
            created => created.map(|_| id),
        }
    }

    /// Opens a run that exists; never creates one.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and `NotFound` from the store if there is no such run.
    #[boxed]
    pub async fn resume(
        context: &Context,
        id: &RunId,
        durability: Durability,
        events: Listener,
    ) -> Result<Self, RunError> {
        let open = OpenRun { id: Some(id.clone()), durability, events, existing: true, ..OpenRun::default() };
        Self::open(context, open).await
    }
}

async fn create(context: &Context, id: &RunId, open: &OpenRun, purpose: &Purpose) -> Result<RunLog, RunError> {
    let at = context.clock.now();
    let origin = purpose.child_of.clone().map(|(run, step)| Origin::Child { run, step });
    let queued = Queued {
        created_at: at,
        priority: open.priority,
        estimated_complexity: open.estimated_complexity,
        input: open.body.clone(),
    };
    let new = NewRun {
        name: open.name.clone(),
        kind: open.kind,
        status: RunStatus::Queued,
        folder: open.folder.clone(),
        labels: open.labels.clone(),
        body: created_as(queued, origin.as_ref())?,
        fence: Fence(0),
        durability: open.durability,
        ..NewRun::new(id.clone(), at)
    };
    Ok(RunLog::create(Arc::clone(&context.store), new).await?)
}

async fn take_up(context: &Context, mut log: RunLog, open: OpenRun, alone: Option<Alone>) -> Result<Run, RunError> {
    let mut races = 0;
    let mut watch = LeaseWatch::default();
    let started = context.clock.monotonic();
    loop {
        let mut history = History::read(&log).await?;
        let mut summary = log.summary().await?;
        let status = history.state.status();
        if status == RunStatus::Completed && open.at == StartAt::End {
            return Ok(Run::new(assemble(context, log, history, summary, None, open)));
        }
        if status.is_final() {
            let cause = IllegalMove { from: status, to: RunStatus::InProgress };
            return Err(RunError::Illegal { run: log.run().clone(), cause });
        }
        if !is_overdue(&open, &history)
            && watch.judge(context, log.run(), &history, open.lease.ttl).await? == Standing::Held
        {
            let waited = context.clock.monotonic().saturating_sub(started);
            let left = open.lease.wait.unwrap_or_default().saturating_sub(waited);
            if left.is_zero() {
                return Err(held(log.run(), &history));
            }
            context.clock.sleep(left.min(look_every(open.lease.ttl))).await;
            log.refresh().await?;
            continue;
        }
        // The run was given up, and its driver died before it could do so.
        if let Some(request) = history.line.request.as_ref().filter(|request| request.order == Order::Cancel) {
            match crate::stop::carry_out(context, &mut log, &history, request).await {
                Err(RunError::Store(StoreError::Conflict { .. } | StoreError::Fenced { .. })) if races < RACES => {
                    races += 1;
                    log.refresh().await?;
                }
                done => done?,
            }
            continue;
        }
        // Before anything is written: what can't be done changes nothing.
        if open.at != StartAt::End {
            context.check_history("go back to an earlier entry")?;
        }
        let target = crate::restore::target(log.run(), &history, &open.at).await?;
        open.admission.ask(log.run(), &history).await?;
        let resumed = history.claim.is_some();
        match claim(context, &mut log, &history, &mut summary, open.durability).await {
            Ok(claim) => {
                beat(context, &log).await;
                history.state = claim.1;
                history.line.request = None;
                if status == RunStatus::Failed {
                    history.retries += 1;
                    history.line.reopen_run().await?;
                }
                let (ttl, at, usage_back) = (open.lease.ttl, open.at.clone(), open.usage_back);
                let mut core = assemble(context, log, history, summary, Some(claim.0), open);
                core.alone = alone;
                let core = Arc::new(core);
                if let Some(target) = target {
                    core.restore(target, &at, usage_back).await?;
                }
                crate::watch::start(&core, ttl);
                core.events.tell(|| Event::RunStarted { run: core.id.clone(), resumed });
                if resumed {
                    core.tell_checkpoint().await?;
                }
                return Ok(Run { scope: crate::Scope::outermost(core) });
            }
            Err(RunError::Store(StoreError::Conflict { .. } | StoreError::Fenced { .. })) if races < RACES => {
                races += 1;
                log.refresh().await?;
            }
            Err(error) => return Err(error),
        }
    }
}

impl Core {
    /// Tells from which checkpoint the run goes on, if it has one.
    async fn tell_checkpoint(&self) -> Result<(), RunError> {
        if !self.events.listens() {
            return Ok(());
        }
        let writer = self.writer().await?;
        let Some(seq) = writer.checkpoint else { return Ok(()) };
        let entry = writer.log.entry(seq).await?;
        let step = match entry.kind {
            EntryKind::StepDone => entry.label.parse().ok(),
            EntryKind::Checkpoint => {
                let record: Option<CheckpointRecord> = from_value(writer.log.body(&entry).await?).ok();
                record.and_then(|record| record.step).map(|step| step.path)
            }
            _ => None,
        };
        let checkpoint = CheckpointRef { run: self.id.clone(), seq };
        self.events.tell(|| Event::CheckpointResumed { checkpoint, step });
        Ok(())
    }
}

/// How often a process that waits for a run looks whether its holder lives.
fn look_every(ttl: Duration) -> Duration {
    (ttl / 8).clamp(Duration::from_millis(10), Duration::from_secs(1))
}

fn is_overdue(open: &OpenRun, history: &History) -> bool {
    open.overdue.is_some() && open.overdue.as_ref() == history.claim.as_ref().map(|(_, claim)| &claim.holder)
}

fn held(run: &RunId, history: &History) -> RunError {
    match &history.claim {
        Some((_, claim)) => {
            RunError::Held { run: run.clone(), holder: claim.holder.clone(), since: history.claimed_at }
        }
        None => unreachable!("a run that is held was claimed"),
    }
}

/// Makes the run ours: the next entry of its log, with a higher fence than any before.
async fn claim(
    context: &Context,
    log: &mut RunLog,
    history: &History,
    summary: &mut RunSummary,
    durability: Durability,
) -> Result<(LiveClaim, RunState), RunError> {
    if history.state.status() == RunStatus::Failed {
        let queued = history.queued_again(context.clock.now());
        write(context, log, Fact::State(RunState::Queued(queued)), summary, durability).await?;
    }
    let claim = LiveClaim::new(&context.holder, &*context.random);
    let now = context.clock.now();
    let started_at = match history.claim.as_ref().map(|(_, claim)| &claim.state) {
        Some(RunState::InProgress(before)) => before.started_at,
        _ => now,
    };
    let AtWork { current, step, iteration, last_progress, .. } = history.at_work();
    let state = RunState::InProgress(InProgress {
        current,
        step: step.map(|step| step.to_string()),
        iteration,
        started_at,
        last_activity_at: now,
        context: Value::Null,
        last_progress,
    });
    let record = ClaimRecord { holder: context.holder.clone(), claim: claim.number(), state: state.clone() };
    write(context, log, Fact::Claimed(record), summary, durability).await?;
    Ok((claim, state))
}

async fn write(
    context: &Context,
    log: &mut RunLog,
    fact: Fact,
    summary: &mut RunSummary,
    durability: Durability,
) -> Result<(), RunError> {
    let mut entry = draft(log.run(), &fact)?;
    if let Some(state) = fact.state() {
        summary.status = state.status();
    }
    if matches!(fact, Fact::Claimed(_)) {
        entry.fence = Some(log.head().fence.next());
    }
    entry.at = context.clock.now();
    entry.index = Some(summary.clone());
    entry.durability = durability;
    log.append(entry).await?;
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
    open: OpenRun,
) -> Core {
    let (checkpoint, parts) = history.checkpoint.map_or_else(Default::default, |(seq, parts)| (Some(seq), parts));
    let mut line = history.line;
    line.untrack();
    let known =
        Known { state: history.state, line, begun: 0, busy: 0, lines: Vec::new(), ran_alone: None, broken: None };
    Core {
        id: log.run().clone(),
        context: context.clone(),
        durability: open.durability,
        events: open.events.redacted(context.store.redaction()),
        input: history.input,
        retries: history.retries,
        retry: open.retry,
        waits: open.waits,
        lease: open.lease,
        overdue: open.overdue,
        alone: None,
        fence: log.head().fence,
        index_every: open.index_every.unwrap_or(EVERY).max(1),
        writer: tokio::sync::Mutex::new(Writer {
            log,
            summary,
            parts,
            checkpoint,
            is_behind: false,
            indexed: history.indexed.unwrap_or_default(),
        }),
        known: Mutex::new(known),
        orders: watch::Sender::new(None),
        claim,
    }
}
