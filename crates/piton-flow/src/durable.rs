//! The journal of a durable run: every node that ends is one entry of the run's log.
//!
//! - What follows from other results (templates, branches, code, containers, agents around their turns) needs no sync of
//!   its own, and is written beside the nodes that follow, several at once. Nobody is told that a node finished before its
//!   result is in the log; until then it is in flight, and runs again if the process dies. Before anything outward begins,
//!   all that finished is durable; the result of something outward is durable when it is recorded (decision 3 of the
//!   design).
//! - Something outward is an effect (decision 4): its intent, with its key, stands in the log before it begins, and
//!   the entry of its end is the receipt.
//! - A checkpoint after a node that touches nothing outside is synced beside the nodes that follow, and told of when that
//!   is done, if the store can do so.
//! - The entry of a node after which a checkpoint is wanted carries the parts `variables` and `engine`: what every
//!   node gave, and where the run is. Both cost what changed since the checkpoint before; without a checkpoint
//!   neither is made.
//! - Every entry of a node carries what was counted so far, so that limits count on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex as Locked, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use piton_runtime::{EndedStep, FailureKind, Intended, Later, Run, RunError, StepDone, StepStanding, Turn, Uncertain};
use piton_store::DraftPart;
use piton_types::{
    CheckpointKind, CheckpointRecord, CheckpointRef, Clock, Durability, Event, RunId, Seq, StepPath, TokenUsage,
    Trigger, Value,
};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};

use crate::flow::Flow;
use crate::journal::{Beginning, Begun, Found, Journal, JournalError, NodeDone, OnUncertain};
use crate::need::Services;
use crate::node::Effect;
use crate::outside::{AuditKind, Outside};
use crate::position::{EnginePart, Moved, Now, Position};
use crate::record;
use crate::tally::Tally;
use crate::uncertain;
use crate::variables::{Gave, Variables};

/// What took so long is in the log before it counts: writing it takes a hundredth of that.
const WORTH_A_WAIT: Duration = Duration::from_millis(1);

/// How many events may be held back before a run waits for whoever listens.
const MANY_HELD: usize = 256;

/// A journal over a run.
pub struct RunJournal<'a> {
    run: &'a Run,
    clock: &'a dyn Clock,
    outside: Option<&'a Outside>,
    fingerprint: Arc<Value>,
    everywhere: bool,
    /// What earlier processes had counted, and when this one began.
    before: Tally,
    began: Duration,
    counted: Locked<Tally>,
    /// Steps that began and haven't ended, and whether they wait for somebody.
    begun: Locked<BTreeMap<StepPath, bool>>,
    /// As of the steps that were recorded, written or not.
    position: Locked<Position>,
    shared: Arc<Shared>,
}

/// What is written with, now or later.
#[derive(Debug)]
struct Shared {
    /// Only who has his turn to write touches it.
    book: Mutex<Book>,
    saving: Locked<Saving>,
    /// There is something new in `saving`.
    wake: Notify,
    /// The first of the events may be told.
    may_tell: Notify,
    run: RunId,
    /// What is written is as durable as the run asks for.
    is_relaxed: bool,
}

/// Results and checkpoints on their way to the disk, and what is there and nobody was told of.
#[derive(Debug, Default)]
struct Saving {
    /// How many results are still to be written.
    unwritten: usize,
    /// How many ever were to be, and how many of them are.
    recorded: u64,
    written: u64,
    /// Events in the order in which they happened, each with how many results had been recorded by then.
    held: VecDeque<(u64, Event)>,
    /// In the order of the log.
    open: VecDeque<(StepPath, CheckpointRef)>,
    /// Those of them that were written later, and of which the run's own log doesn't tell yet.
    made: Vec<(StepPath, CheckpointRef)>,
    /// The newest entry that is known to be durable.
    synced: Seq,
    /// The newest entry that was written without a sync.
    relaxed: Seq,
}

impl Saving {
    /// An entry is durable, and all before it.
    fn is_durable(&mut self, seq: Seq) {
        self.synced = self.synced.max(seq);
    }

    /// Those that are durable.
    fn durable(&self) -> Vec<(StepPath, CheckpointRef)> {
        let count = self.open.partition_point(|(_, checkpoint)| checkpoint.seq <= self.synced);
        self.open.range(..count).cloned().collect()
    }

    /// Whether the first of the events may be told.
    fn may_tell(&self) -> bool {
        self.held.front().is_some_and(|(recorded, _)| *recorded <= self.written)
    }

    /// Whether something was written that nobody has synced since.
    fn is_unsynced(&self) -> bool {
        self.relaxed > self.synced
    }
}

/// The parts of checkpoints.
#[derive(Debug, Default)]
struct Book {
    variables: Variables,
    engine: EnginePart,
}

impl Book {
    /// The parts of a checkpoint; with what a node gave, if it is made after one.
    async fn parts(
        &mut self,
        turn: &Turn<'_>,
        gave: Option<&Gave>,
        moved: &Moved,
        fingerprint: &Value,
    ) -> Result<Vec<DraftPart<'_>>, RunError> {
        // Before anything is waited for: whoever waits may be dropped.
        self.engine.take(moved);
        Ok(vec![self.variables.part(turn, gave).await?, self.engine.part(turn, moved, fingerprint).await?])
    }
}

impl std::fmt::Debug for RunJournal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunJournal").field("run", self.run.id()).finish_non_exhaustive()
    }
}

fn lock<T>(locked: &Locked<T>) -> MutexGuard<'_, T> {
    locked.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> RunJournal<'a> {
    /// The journal of `run`, which runs `flow` with these services. What the run has used before is counted on.
    pub fn new(run: &'a Run, flow: &'a Flow, services: &'a Services, clock: &'a dyn Clock) -> Self {
        let before = Tally::read(run.tally());
        let outside = services.get::<Outside>();
        if let Some(outside) = outside {
            outside.governor().resume(run.id(), before.used());
        }
        let shared = Shared {
            book: Mutex::default(),
            saving: Locked::default(),
            wake: Notify::new(),
            may_tell: Notify::new(),
            run: run.id().clone(),
            is_relaxed: run.is_relaxed(),
        };
        Self {
            run,
            clock,
            outside,
            fingerprint: Arc::default(),
            everywhere: false,
            before,
            began: clock.monotonic(),
            counted: Locked::new(before),
            begun: Locked::default(),
            position: Locked::new(Position::new(&flow.graph)),
            shared: Arc::new(shared),
        }
    }

    /// The fingerprint that the run was begun with, for its checkpoints.
    #[must_use]
    pub fn begun_with(mut self, fingerprint: Value) -> Self {
        self.fingerprint = Arc::new(fingerprint);
        self
    }

    /// Makes a checkpoint after every node, whatever the document says.
    #[must_use]
    pub fn with_checkpoints_everywhere(mut self) -> Self {
        self.everywhere = true;
        self
    }

    /// What the run has used in all, in earlier processes too.
    pub fn usage(&self) -> TokenUsage {
        lock(&self.counted).usage()
    }

    /// Makes a checkpoint of where the run is. Nodes that were interrupted are ready again in it.
    ///
    /// # Errors
    ///
    /// As [`Run::save_checkpoint`], and what the audit log says.
    pub async fn save(
        &self,
        trigger: Trigger,
        description: &str,
        interrupted: bool,
    ) -> Result<CheckpointRef, JournalError> {
        if interrupted {
            lock(&self.begun).clear();
        }
        self.save_before(trigger, description, None).await
    }

    async fn save_before(
        &self,
        trigger: Trigger,
        description: &str,
        step: Option<&StepPath>,
    ) -> Result<CheckpointRef, JournalError> {
        let turn = self.run.turn().await?;
        let mut book = self.shared.book.lock().await;
        let mut checkpoint = CheckpointRecord::by(trigger).described(description);
        checkpoint.kind = CheckpointKind::Node;
        let moved = self.moved(None, &self.tally().value())?;
        let parts = book.parts(&turn, None, &moved, &self.fingerprint).await?;
        let saved = turn.save_checkpoint(&checkpoint, parts, None).await?;
        drop(book);
        self.saving().is_durable(saved.seq);
        if let Some(outside) = self.outside {
            let now = self.clock.now();
            let line = outside.note(now, self.run.id(), step, AuditKind::CheckpointSaved, description)?;
            self.run.lines().write(line);
        }
        Ok(saved)
    }

    /// Where the run is, for a checkpoint; with `node` finished, if it is made after one.
    fn moved(&self, node: Option<(&StepPath, &Value)>, counted: &Value) -> Result<Moved, RunError> {
        let begun = lock(&self.begun);
        lock(&self.position).moved(self.run, node, &Now { begun: &begun, counted })
    }

    /// Lets the run's own log tell of the checkpoints that were written later.
    fn note_made(&self) -> Result<(), JournalError> {
        let made = std::mem::take(&mut self.saving().made);
        if let Some(outside) = self.outside {
            for (step, checkpoint) in made {
                self.run.lines().write(outside.made(self.clock.now(), &step, &checkpoint)?);
            }
        }
        Ok(())
    }

    fn saving(&self) -> MutexGuard<'_, Saving> {
        lock(&self.shared.saving)
    }

    /// What a checkpoint after a node carries.
    fn checkpoint(&self, step: &StepPath, record: &Value, counted: &Value) -> Result<Checkpoint, RunError> {
        let gave = Gave::new(self.run, step, record)?;
        let moved = self.moved(Some((step, record)), counted)?;
        Ok(Checkpoint { gave, moved, fingerprint: Arc::clone(&self.fingerprint) })
    }

    /// What was counted until now.
    fn tally(&self) -> Tally {
        let mut tally = *lock(&self.counted);
        let here = self.clock.monotonic().saturating_sub(self.began);
        tally.elapsed_ms = u64::try_from((self.before.elapsed() + here).as_millis()).unwrap_or(u64::MAX);
        if let Some(outside) = self.outside {
            let used = outside.governor().used(self.run.id());
            (tally.tool_calls, tally.requests) = (used.tool_calls, used.requests);
        }
        tally
    }
}

#[async_trait]
impl Journal for RunJournal<'_> {
    fn run(&self) -> &RunId {
        self.run.id()
    }

    fn elapsed(&self) -> Duration {
        self.before.elapsed()
    }

    fn retries(&self) -> u32 {
        self.run.retries()
    }

    async fn find(&self, step: &StepPath) -> Result<Found, JournalError> {
        Ok(match self.run.standing(step) {
            StepStanding::Open { attempts, wait } => Found::Open { attempts, wait },
            StepStanding::Finished { output, order } => Found::Finished { record: output, order },
            StepStanding::Failed { error, order } => Found::Failed { message: error, order },
        })
    }

    async fn begin(&self, beginning: Beginning<'_>) -> Result<Begun, JournalError> {
        // It is about to run, unless somebody asked the run to stop.
        self.run.ready_for(beginning.step).await?;
        // What asked before has its checkpoint.
        if beginning.checkpoint && !self.run.is_asked(beginning.step) {
            let description = format!("before {}", beginning.step);
            self.save_before(Trigger::BeforeExternal, &description, Some(beginning.step)).await?;
        }
        let mut key = None;
        if beginning.effect == Effect::Outward {
            let uncertain = match beginning.on_uncertain {
                OnUncertain::Retry => Uncertain::CallAgain,
                OnUncertain::Ask => Uncertain::Ask,
                OnUncertain::Fail => Uncertain::GiveUp,
            };
            // Whoever begins beside us waits here until what both depend on is durable.
            let mut turn = self.run.turn().await?;
            let (is_unsynced, relaxed) = {
                let saving = self.saving();
                (saving.is_unsynced(), saving.relaxed)
            };
            // An intent that is lost in a power cut is made again with the same key; only if a repetition must be
            // known of does it need a sync for its own sake.
            let must = is_unsynced || beginning.on_uncertain != OnUncertain::Retry;
            let durability = if must { Durability::Durable } else { Durability::Relaxed };
            let said = beginning.said.map(uncertain::read);
            match turn.intend(beginning.step, beginning.inputs, uncertain, said, durability).await? {
                Intended::Go { key: found } => key = Some(found.to_string()),
                Intended::Done(value) => return Ok(Begun::Done(value)),
                Intended::Unknown => return Ok(Begun::Unknown),
                Intended::Ask { question, prompt } => {
                    return Ok(Begun::Ask(Box::new(uncertain::ask(question, prompt))));
                }
            }
            if must {
                // What came before it is durable too.
                self.saving().is_durable(relaxed);
            }
        }
        lock(&self.begun).insert(beginning.step.clone(), beginning.waits);
        Ok(Begun::Go { key })
    }

    fn used(&self, usage: TokenUsage) {
        lock(&self.counted).add(usage);
    }

    fn line(&self, line: String) {
        self.run.lines().write(line);
    }

    async fn record(&self, done: NodeDone<'_>) -> Result<Option<CheckpointRef>, JournalError> {
        let is_outermost = !done.step.as_str().contains('/');
        if let (Ok(record), true) = (&done.result, is_outermost) {
            let mut counted = lock(&self.counted);
            counted.steps += 1;
            counted.exceptions += record::exceptions(record);
        }
        let is_checkpoint = (done.checkpoint || self.everywhere) && done.result.is_ok();
        let needs_no_sync = self.shared.is_relaxed || !is_checkpoint || self.run.syncs_later();
        let is_relaxed = done.effect == Effect::Pure && needs_no_sync;
        let mut step = StepDone {
            started_at: done.started_at,
            duration: done.duration,
            failure: if done.unanswered { FailureKind::Unanswered } else { FailureKind::Work },
            retry: done.retry,
            durability: if is_relaxed { Durability::Relaxed } else { Durability::Durable },
            // What it takes in follows from the document and the results before it.
            is_compared: false,
            ..StepDone::new(done.step.clone(), done.inputs.clone(), done.result)
        };
        let runs_ahead = is_relaxed && step.result.is_ok() && done.duration < WORTH_A_WAIT;
        if runs_ahead && Handle::try_current().is_ok() {
            let later = |step: &mut StepDone| {
                step.tally = self.tally().value();
                lock(&self.begun).remove(&step.path);
                let Ok(record) = &step.result else { unreachable!("it ended well") };
                let checkpoint = match is_checkpoint {
                    true => Some(self.checkpoint(&step.path, record, &step.tally)?),
                    false => {
                        lock(&self.position).finished(&step.path, record);
                        None
                    }
                };
                Ok(Box::new(NodeResult::new(&self.shared, step.path.clone(), checkpoint)) as Box<dyn Later>)
            };
            self.run.record_later(step, later).await?;
            return Ok(None);
        }
        let mut turn = self.run.turn().await?;
        // This entry can say so.
        self.note_made()?;
        let mut book = self.shared.book.lock().await;
        step.tally = self.tally().value();
        let (checkpoint, output) = match &step.result {
            Ok(record) if is_checkpoint => (Some(self.checkpoint(done.step, record, &step.tally)?), None),
            Ok(record) => (None, Some(record.clone())),
            Err(_) => (None, None),
        };
        let parts = match &checkpoint {
            Some(made) => book.parts(&turn, Some(&made.gave), &made.moved, &made.fingerprint).await?,
            None => Vec::new(),
        };
        let recorded = turn.record(step, parts).await?;
        lock(&self.begun).remove(done.step);
        if let Some(output) = output {
            book.variables.finished(done.step);
            lock(&self.position).finished(done.step, &output);
        }
        let mut saving = self.saving();
        if is_relaxed {
            saving.relaxed = recorded.seq;
        }
        if self.shared.is_relaxed || !is_relaxed {
            saving.is_durable(recorded.seq);
        }
        let checkpoint = is_checkpoint.then(|| CheckpointRef { run: self.run.id().clone(), seq: recorded.seq });
        if let (Some(checkpoint), Some(outside)) = (&checkpoint, self.outside) {
            self.run.lines().write(outside.made(self.clock.now(), done.step, checkpoint)?);
        }
        // It isn't durable yet, or behind others that nobody was told of, and is told of after them.
        let is_told_later = saving.synced < recorded.seq || !saving.open.is_empty();
        if let (Some(checkpoint), true) = (&checkpoint, is_told_later) {
            saving.open.push_back((done.step.clone(), checkpoint.clone()));
            self.shared.wake.notify_one();
            return Ok(None);
        }
        Ok(checkpoint)
    }

    async fn kept(&self) -> Result<(), JournalError> {
        Ok(self.run.catch_up().await?)
    }

    fn is_ahead(&self) -> bool {
        let saving = self.saving();
        saving.recorded > saving.written || !saving.held.is_empty()
    }

    fn hold(&self, event: Event) -> bool {
        let mut saving = self.saving();
        let recorded = saving.recorded;
        saving.held.push_back((recorded, event));
        if saving.may_tell() {
            self.shared.may_tell.notify_one();
        }
        saving.held.len() >= MANY_HELD
    }

    async fn releasable(&self) {
        while !self.saving().may_tell() {
            self.shared.may_tell.notified().await;
        }
    }

    fn release(&self) -> Option<Event> {
        let mut saving = self.saving();
        if !saving.may_tell() {
            return None;
        }
        saving.held.pop_front().map(|(_, event)| event)
    }

    fn is_saving(&self) -> bool {
        let saving = self.saving();
        saving.unwritten > 0 || !saving.open.is_empty()
    }

    async fn saved(&self) -> Result<Vec<(StepPath, CheckpointRef)>, JournalError> {
        loop {
            self.note_made()?;
            let (newest, saved) = {
                let saving = self.saving();
                (saving.open.back().map(|(_, checkpoint)| checkpoint.seq), saving.durable())
            };
            if !saved.is_empty() {
                return Ok(saved);
            }
            if let Some(newest) = newest {
                self.run.sync().await?;
                self.saving().is_durable(newest);
                continue;
            }
            self.shared.wake.notified().await;
            self.run.check_written()?;
            // Everything is kept that was to be.
            if !self.is_saving() {
                return Ok(Vec::new());
            }
        }
    }

    fn told(&self, checkpoint: &CheckpointRef) {
        // Most often they are told in order.
        let mut saving = self.saving();
        match saving.open.front() {
            Some((_, first)) if first == checkpoint => drop(saving.open.pop_front()),
            _ => saving.open.retain(|(_, open)| open != checkpoint),
        }
    }
}

/// What a node gave, to be written.
struct NodeResult {
    shared: Arc<Shared>,
    step: StepPath,
    /// What it is to carry, if a checkpoint is wanted.
    checkpoint: Option<Checkpoint>,
    is_queued: bool,
}

/// What a checkpoint after a node carries, as of when the node ended.
struct Checkpoint {
    gave: Gave,
    moved: Moved,
    fingerprint: Arc<Value>,
}

impl NodeResult {
    fn new(shared: &Arc<Shared>, step: StepPath, checkpoint: Option<Checkpoint>) -> Self {
        Self { shared: Arc::clone(shared), step, checkpoint, is_queued: false }
    }
}

impl Drop for NodeResult {
    fn drop(&mut self) {
        if self.is_queued {
            lock(&self.shared.saving).unwritten -= 1;
            // Whoever waits for it, or hears that it can't be written.
            self.shared.wake.notify_one();
        }
    }
}

#[async_trait]
impl Later for NodeResult {
    async fn write(&mut self, turn: &mut Turn<'_>, step: &EndedStep) -> Result<(), RunError> {
        let mut book = self.shared.book.lock().await;
        match &self.checkpoint {
            Some(Checkpoint { gave, moved, fingerprint }) => {
                let parts = book.parts(turn, Some(gave), moved, fingerprint).await?;
                turn.write(step, parts).await
            }
            None => {
                turn.write(step, Vec::new()).await?;
                book.variables.finished(&self.step);
                Ok(())
            }
        }
    }

    fn queued(&mut self) {
        self.is_queued = true;
        let mut saving = lock(&self.shared.saving);
        saving.unwritten += 1;
        saving.recorded += 1;
    }

    fn again(&mut self) {
        // Nobody else has it: it isn't their turn.
        if let Ok(mut book) = self.shared.book.try_lock() {
            *book = Book::default();
        }
    }

    fn written(self: Box<Self>, seq: Seq) {
        let mut saving = lock(&self.shared.saving);
        saving.written += 1;
        saving.relaxed = seq;
        if self.shared.is_relaxed {
            saving.is_durable(seq);
        }
        if self.checkpoint.is_some() {
            let checkpoint = CheckpointRef { run: self.shared.run.clone(), seq };
            saving.made.push((self.step.clone(), checkpoint.clone()));
            saving.open.push_back((self.step.clone(), checkpoint));
        }
        if saving.may_tell() {
            self.shared.may_tell.notify_one();
        }
    }
}
