//! What all handles of one driven run share: its log, what is known of it, and what it was asked to do.
//!
//! The invariant: what is believed here is what the log has. Writes go through [`Core::commit`], one at a
//! time, and a write that fails breaks the handle: from then on nothing is run and nothing is written,
//! because what the log has is no longer known here.
//!
//! Others may add entries that need no claim (an answer, a request to stop). A write that meets one takes
//! it in and is tried again behind it; a writer with a higher fence ends this handle. A write whose
//! future was dropped, by a time limit say, is waited for by the next one, and what it wrote is taken in
//! like an entry of others.
//!
//! The entries of a [turn](crate::Turn) that are to be one commit are believed from when they are made. If that commit
//! fails, the handle is broken.

use std::sync::{Mutex, MutexGuard};

use piton_log::{Content, Draft, DraftPart, RunLog, SealedEntry};
use piton_store::StoreError;
use piton_types::{
    CheckpointRef, Durability, EntryKind, Event, Fence, Holder, IllegalMove, Parts, Paused, RunId, RunState, RunStatus,
    RunSummary, Seq, StepPath, Value, to_value,
};
use tokio::sync::watch;

use crate::fact::Fact;
use crate::line::Line;
use crate::live::LiveClaim;
use crate::record::{LogLine, Order, RequestRecord};
use crate::{Context, LeaseOptions, Listener, RetryPolicy, RunError, Waits};

/// How often a write is tried again behind entries of others.
pub(crate) const RACES: usize = 64;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: RunId,
    pub(crate) context: Context,
    pub(crate) durability: Durability,
    pub(crate) events: Listener,
    pub(crate) input: Value,
    pub(crate) retries: u32,
    pub(crate) retry: RetryPolicy,
    pub(crate) waits: Waits,
    pub(crate) lease: LeaseOptions,
    /// Whose runs are taken over, for runs that are steps of this one.
    pub(crate) overdue: Option<Holder>,
    /// How many entries come between two indexes.
    pub(crate) index_every: u32,
    /// For a run that only one step is tried out in: which one.
    pub(crate) alone: Option<Alone>,
    /// The fence that all writes carry.
    pub(crate) fence: Fence,
    pub(crate) writer: tokio::sync::Mutex<Writer>,
    pub(crate) known: Mutex<Known>,
    /// What was asked last; tells running steps.
    pub(crate) orders: watch::Sender<Option<RequestRecord>>,
    /// Held as long as a handle exists; a completed run has no claim.
    pub(crate) claim: Option<LiveClaim>,
}

/// The one step that may run.
#[derive(Debug, Clone)]
pub(crate) struct Alone {
    /// The first that isn't recorded, if nothing is said.
    pub(crate) step: Option<StepPath>,
}

/// What writes need, one at a time.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: RunLog,
    /// The run's index row, as last written.
    pub(crate) summary: RunSummary,
    /// The parts of the newest checkpoint.
    pub(crate) parts: Parts,
    /// The newest checkpoint.
    pub(crate) checkpoint: Option<Seq>,
    /// A write whose future was dropped may be in the log, and isn't taken in yet.
    pub(crate) is_behind: bool,
    /// The newest index, or the entry after which none could be written.
    pub(crate) indexed: Seq,
}

/// What is known without asking the store.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) state: RunState,
    pub(crate) line: Line,
    /// How many steps began on this handle.
    pub(crate) begun: u32,
    /// How many steps are running.
    pub(crate) busy: u32,
    /// Lines that no entry has yet.
    pub(crate) lines: Vec<LogLine>,
    /// The step that ran alone.
    pub(crate) ran_alone: Option<StepPath>,
    /// Why nothing more may be written.
    pub(crate) broken: Option<String>,
}

/// A step that is running.
#[derive(Debug)]
pub(crate) struct Busy<'a>(&'a Core);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.known().busy -= 1;
    }
}

impl Core {
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no code that holds this lock panics")
    }

    /// That work may begin: this handle drives the run, and no write failed.
    pub(crate) fn check_ready(&self) -> Result<(), RunError> {
        let known = self.known();
        if let Some(cause) = &known.broken {
            return Err(RunError::Broken { run: self.id.clone(), cause: cause.clone() });
        }
        match &known.state {
            // While one branch waits for an answer the others go on.
            RunState::InProgress(_) | RunState::Waiting(_) => Ok(()),
            RunState::Paused(Paused { reason, .. }) | RunState::Cancelled { reason, .. } if self.claim.is_some() => {
                Err(RunError::Stopped { run: self.id.clone(), reason: reason.clone() })
            }
            state => {
                let cause = IllegalMove { from: state.status(), to: RunStatus::InProgress };
                Err(RunError::Illegal { run: self.id.clone(), cause })
            }
        }
    }

    /// A step begins, unless the run was asked to stop.
    pub(crate) async fn begin(&self) -> Result<Busy<'_>, RunError> {
        self.check_ready()?;
        {
            let mut known = self.known();
            if known.line.request.is_none() {
                known.busy += 1;
                return Ok(Busy(self));
            }
        }
        self.obey().await?;
        Err(self.stopped())
    }

    /// A step ended. If the run was asked to stop and this was the last one, it does.
    pub(crate) async fn end(&self, busy: Busy<'_>) -> Result<(), RunError> {
        drop(busy);
        if self.known().line.request.is_some() { self.obey().await } else { Ok(()) }
    }

    pub(crate) fn stopped(&self) -> RunError {
        let reason = match (&self.known().state, &self.known_request()) {
            (RunState::Paused(Paused { reason, .. }) | RunState::Cancelled { reason, .. }, _) => reason.clone(),
            (_, Some(request)) => request.reason.clone(),
            _ => String::new(),
        };
        RunError::Stopped { run: self.id.clone(), reason }
    }

    /// Does what was asked, unless steps are still running: then the last of them does.
    pub(crate) async fn obey(&self) -> Result<(), RunError> {
        let mut writer = self.writer().await?;
        let (request, waiting) = {
            let known = self.known();
            let Some(request) = known.line.request.clone().filter(|_| known.busy == 0) else { return Ok(()) };
            match known.state {
                RunState::InProgress(_) => (request, false),
                RunState::Waiting(_) => (request, true),
                _ => return Ok(()),
            }
        };
        let (at, reason) = (self.context.clock.now(), request.reason.clone());
        if !waiting {
            let paused = self.paused(&writer, reason.clone());
            self.commit(&mut writer, Fact::State(paused)).await?;
        }
        if request.order == Order::Cancel {
            self.commit(&mut writer, Fact::State(RunState::Cancelled { at, reason: reason.clone() })).await?;
            self.events.tell(|| Event::RunCancelled { run: self.id.clone(), reason });
        } else if !waiting {
            self.events.tell(|| Event::RunPaused { run: self.id.clone(), step: None, prompt: reason });
        }
        self.release().await;
        Ok(())
    }

    /// The state of a run that stops now.
    pub(crate) fn paused(&self, writer: &Writer, reason: String) -> RunState {
        let checkpoint = writer.checkpoint.map(|seq| CheckpointRef { run: self.id.clone(), seq });
        let instructions = instructions(&self.id, self.known().line.last_finished.as_ref(), checkpoint.as_ref());
        let at = self.context.clock.now();
        RunState::Paused(Paused { at, reason, resume_instructions: Some(instructions), checkpoint })
    }

    fn known_request(&self) -> Option<RequestRecord> {
        self.orders.borrow().clone()
    }

    /// Asks this very handle to stop, without the log.
    pub(crate) fn request(&self, request: RequestRecord) {
        self.known().line.request = Some(request.clone());
        self.orders.send_replace(Some(request));
    }

    /// Ends when a running step must: the run is to be given up, or the time that was left to it is over.
    pub(crate) async fn interrupted(&self) {
        let mut orders = self.orders.subscribe();
        loop {
            let order = orders.borrow_and_update().as_ref().map(|request| request.order);
            match order {
                Some(Order::Cancel) => return,
                Some(Order::Stop { grace_ms: Some(grace) }) => {
                    self.context.clock.sleep(std::time::Duration::from_millis(grace)).await;
                    return;
                }
                _ => {}
            }
            if orders.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Ends when anything was asked.
    pub(crate) async fn asked(&self) {
        let mut orders = self.orders.subscribe();
        // The sender is ours and lives as long as we do.
        drop(orders.wait_for(Option::is_some).await);
    }

    /// Waits for one's turn to write. What is known then is what the log had after the last write of this handle.
    pub(crate) async fn writer(&self) -> Result<tokio::sync::MutexGuard<'_, Writer>, RunError> {
        let mut writer = self.writer.lock().await;
        // The future that does that may be dropped as well.
        writer.is_behind |= writer.log.is_unsettled();
        if writer.is_behind {
            writer.log.settle().await;
            self.absorb(&mut writer).await?;
            writer.is_behind = false;
        }
        self.index_if_due(&mut writer).await;
        Ok(writer)
    }

    /// Appends an entry as durable as the run is, and takes it in.
    pub(crate) async fn commit(&self, writer: &mut Writer, fact: Fact) -> Result<Seq, RunError> {
        self.commit_parts(writer, fact, Vec::new(), self.durability).await
    }

    /// Appends an entry, and takes it in. With any parts it is a checkpoint.
    pub(crate) async fn commit_parts(
        &self,
        writer: &mut Writer,
        fact: Fact,
        parts: Vec<DraftPart<'_>>,
        durability: Durability,
    ) -> Result<Seq, RunError> {
        self.check_move(&fact)?;
        self.prepare(&fact).await?;
        let mut draft = draft(&self.id, &fact)?;
        draft.at = self.context.clock.now();
        draft.parts = parts;
        if let Some(state) = fact.state() {
            draft.index = Some(RunSummary { status: state.status(), ..writer.summary.clone() });
        }
        let index = draft.index.clone();
        let seq = if draft.parts.is_empty() {
            self.append_with(writer, draft, durability).await?
        } else {
            self.append_checkpoint(writer, draft).await?
        };
        if let Some(index) = index {
            writer.summary = index;
        }
        self.take_in(seq, fact);
        Ok(seq)
    }

    /// That the run may go to the state that an entry puts it in.
    fn check_move(&self, fact: &Fact) -> Result<(), RunError> {
        let Some(next) = fact.state() else { return Ok(()) };
        let state = self.known().state.clone();
        // Two questions may be open at once.
        if state.status() == RunStatus::Waiting && next.status() == RunStatus::Waiting {
            return Ok(());
        }
        state.move_to(next).map(drop).map_err(|cause| RunError::Illegal { run: self.id.clone(), cause })
    }

    /// Takes in an entry that was written, or that will be with the next commit.
    pub(crate) fn take_in(&self, seq: Seq, fact: Fact) {
        let mut known = self.known();
        if let Some(state) = fact.state() {
            known.state = state;
        }
        match &fact {
            Fact::Step(step) => known.cross_off(&step.log),
            Fact::Logged(lines) => known.cross_off(&lines.log),
            _ => {}
        }
        let before = known.line.request.is_some();
        known.line.take(seq, fact);
        if before || known.line.request.is_some() {
            self.orders.send_replace(known.line.request.clone());
        }
    }

    /// What an entry survives that needs `durability`: never more than what the run asks for.
    pub(crate) fn at_most(&self, durability: Durability) -> Durability {
        if self.durability == Durability::Relaxed { Durability::Relaxed } else { durability }
    }

    /// A write failed: nothing more is written by this handle.
    pub(crate) fn break_of(&self, error: StoreError) -> RunError {
        self.known().broken = Some(error.to_string());
        error.into()
    }

    /// Appends an entry at the end of the log, wherever that is by now.
    pub(crate) async fn append_with(
        &self,
        writer: &mut Writer,
        mut draft: Draft<'_>,
        durability: Durability,
    ) -> Result<Seq, RunError> {
        let is_checkpoint = !draft.parts.is_empty();
        let own = draft.parts.len();
        self.check_writable(draft.kind)?;
        draft.durability = self.at_most(durability);
        draft.fence = Some(self.fence);
        for _ in 0..RACES {
            if is_checkpoint {
                // Parts of the newest checkpoint that the draft leaves out are carried on.
                draft.parts.truncate(own);
                carry_on(&writer.parts, &mut draft.parts);
            }
            let error = match writer.log.append_draft(&mut draft).await {
                Ok(seq) => return Ok(seq),
                // These are found before anything is written.
                Err(error @ (StoreError::Invalid { .. } | StoreError::TooLarge { .. })) => return Err(error.into()),
                Err(error) => error,
            };
            if !matches!(error, StoreError::Conflict { .. }) {
                return Err(self.break_of(error));
            }
            let added = self.absorb(writer).await?;
            if added == 0 {
                return Err(self.break_of(error));
            }
            self.check_writable(draft.kind)?;
        }
        Err(StoreError::Unavailable { detail: "others write to the run all the time".to_owned() }.into())
    }

    /// A state may follow a pause (giving up does); nothing else may.
    pub(crate) fn check_writable(&self, kind: EntryKind) -> Result<(), RunError> {
        match self.check_ready() {
            Err(RunError::Stopped { .. }) if kind == EntryKind::StateChanged => Ok(()),
            other => other,
        }
    }

    /// Takes in what others have added to the log, and returns how many entries that were.
    pub(crate) async fn absorb(&self, writer: &mut Writer) -> Result<usize, RunError> {
        match self.read_added(&writer.log).await {
            Ok((added, facts)) => {
                writer.log.advance(&added);
                for (entry, fact) in added.iter().zip(facts) {
                    self.absorb_entry(writer, entry, fact);
                }
                Ok(added.len())
            }
            Err(error) => Err(self.break_of(error)),
        }
    }

    /// What others have added. Nothing is taken in before all of it is read: the future may be dropped in between.
    async fn read_added(&self, log: &RunLog) -> Result<(Vec<SealedEntry>, Vec<Fact>), StoreError> {
        let added = log.added().await?;
        let mut facts = Vec::with_capacity(added.len());
        for entry in &added {
            if entry.fence > self.fence {
                let run = self.id.clone();
                return Err(StoreError::Fenced { run, held: self.fence, current: entry.fence });
            }
            let fact = Fact::read(log, entry).await?;
            self.prepare(&fact).await?;
            facts.push(fact);
        }
        Ok((added, facts))
    }

    fn absorb_entry(&self, writer: &mut Writer, entry: &SealedEntry, fact: Fact) {
        if let Some(state) = fact.state() {
            writer.summary.status = state.status();
        }
        if !entry.parts.is_empty() {
            writer.parts.clone_from(&entry.parts);
            writer.checkpoint = Some(entry.seq);
        }
        if matches!(fact, Fact::Indexed(_)) {
            writer.indexed = entry.seq;
        }
        self.take_in(entry.seq, fact);
    }

    /// Tells the store's index that the run has no driver any more. The log has that already; the lease is
    /// only a hint, and clearing it may fail.
    pub(crate) async fn release(&self) {
        if let Err(error) = self.context.store.release(&self.id, self.fence).await {
            tracing::warn!(run = %self.id, %error, "the lease of a run was not released");
        }
    }
}

/// Adds the parts that aren't there.
pub(crate) fn carry_on(parts: &Parts, to: &mut Vec<DraftPart<'_>>) {
    for (name, part) in parts {
        if to.iter().all(|given| given.name != *name) {
            to.push(DraftPart {
                name: name.clone(),
                schema: part.schema.clone(),
                version: part.version,
                content: Content::Stored(part.root),
            });
        }
    }
}

/// The entry that says `fact`.
/// How a run that was stopped goes on.
pub(crate) fn instructions(run: &RunId, last: Option<&StepPath>, checkpoint: Option<&CheckpointRef>) -> String {
    let behind = last.map_or_else(String::new, |step| format!(" behind {step}, which finished last"));
    let checkpoint = checkpoint.map_or_else(String::new, |name| format!("; its newest checkpoint is {name}"));
    format!("resume {run}: it goes on{behind}, and nothing that finished is done again{checkpoint}")
}

/// An entry that says this.
pub(crate) fn draft(run: &RunId, fact: &Fact) -> Result<Draft<'static>, RunError> {
    let (kind, label, body) = match fact {
        Fact::Claimed(claim) => (EntryKind::Claimed, String::new(), to_value(claim)),
        Fact::State(state) => (EntryKind::StateChanged, state.status().to_string(), to_value(state)),
        Fact::Step(step) => (EntryKind::StepDone, step.path.to_string(), to_value(&**step)),
        Fact::Intent(intent) => (EntryKind::EffectIntent, intent.path.to_string(), to_value(intent)),
        Fact::Receipt(receipt) => (EntryKind::EffectReceipt, receipt.path.to_string(), to_value(receipt)),
        Fact::Asked(question) => (EntryKind::Asked, question.path.to_string(), to_value(question)),
        Fact::Answer(answer) => (EntryKind::Answer, answer.path.to_string(), to_value(answer)),
        Fact::Requested(request) => (EntryKind::Requested, request.reason.clone(), to_value(request)),
        Fact::Restored(restore) => (EntryKind::Restored, restore.reason.clone(), to_value(restore)),
        Fact::Logged(lines) => (EntryKind::Logged, String::new(), to_value(lines)),
        Fact::Indexed(record) => (EntryKind::Indexed, String::new(), to_value(&**record)),
        Fact::Created(..) | Fact::Checkpoint => unreachable!("a run is created by `create`, a checkpoint by `save`"),
    };
    let mut draft = Draft::new(kind, piton_types::Timestamp::default());
    draft.body = body.map_err(|error| RunError::value(format!("an entry of run {run}"))(error))?;
    draft.label = label;
    Ok(draft)
}
