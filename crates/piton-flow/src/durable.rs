//! The journal of a durable run: every node that ends is one entry of the run's log.
//!
//! - What follows from other results (templates, branches, code, containers, agents around their turns) needs no sync
//!   of its own. Before anything outward begins, all that finished is durable; the result of something outward is
//!   durable when it is recorded (decision 3 of the design).
//! - Something outward is an effect (decision 4): its intent, with its key, stands in the log before it begins, and
//!   the entry of its end is the receipt.
//! - A checkpoint after a node that touches nothing outside is synced beside the nodes that follow, and told of when that
//!   is done, if the store can do so.
//! - The entry of a node after which a checkpoint is wanted carries the parts `variables` and `engine`: what every
//!   node gave, and where the run is. Both cost what changed since the checkpoint before; without a checkpoint
//!   neither is made.
//! - Every entry of a node carries what was counted so far, so that limits count on.

use std::collections::BTreeMap;
use std::sync::{Mutex as Locked, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use piton_runtime::{FailureKind, Intended, Run, StepDone, StepStanding, Uncertain};
use piton_types::{
    CheckpointKind, CheckpointRecord, CheckpointRef, Clock, Durability, RunId, Seq, StepPath, TokenUsage, Trigger,
    Value,
};
use tokio::sync::{Mutex, Notify};

use crate::flow::Flow;
use crate::journal::{Beginning, Begun, Found, Journal, JournalError, NewCheckpoint, NodeDone, OnUncertain};
use crate::need::Services;
use crate::node::Effect;
use crate::outside::{AuditKind, Outside};
use crate::position::{Now, Position};
use crate::record;
use crate::tally::Tally;
use crate::uncertain;
use crate::variables::Variables;

/// A journal over a run.
pub struct RunJournal<'a> {
    run: &'a Run,
    clock: &'a dyn Clock,
    outside: Option<&'a Outside>,
    fingerprint: Value,
    everywhere: bool,
    /// What earlier processes had counted, and when this one began.
    before: Tally,
    began: Duration,
    counted: Locked<Tally>,
    /// Steps that began and haven't ended, and whether they wait for somebody.
    begun: Locked<BTreeMap<StepPath, bool>>,
    book: Mutex<Book<'a>>,
    saving: Locked<Saving>,
    /// There is something new in `saving`.
    wake: Notify,
}

/// Checkpoints on their way to the disk, and those that are there and nobody was told of.
#[derive(Debug, Default)]
struct Saving {
    /// In the order of the log.
    open: Vec<(StepPath, CheckpointRef)>,
    /// The newest entry that is known to be durable.
    synced: Seq,
}

impl Saving {
    /// An entry is durable, and all before it.
    fn is_durable(&mut self, seq: Seq) {
        self.synced = self.synced.max(seq);
    }

    /// Those that are durable.
    fn durable(&self) -> Vec<(StepPath, CheckpointRef)> {
        let count = self.open.partition_point(|(_, checkpoint)| checkpoint.seq <= self.synced);
        self.open[..count].to_vec()
    }
}

/// What writes need, one at a time.
#[derive(Debug)]
struct Book<'a> {
    /// The newest entry that was written without a sync.
    relaxed: Seq,
    variables: Variables,
    position: Position<'a>,
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
        let book =
            Book { relaxed: Seq::default(), variables: Variables::new(run), position: Position::new(&flow.graph) };
        Self {
            run,
            clock,
            outside,
            fingerprint: Value::Null,
            everywhere: false,
            before,
            began: clock.monotonic(),
            counted: Locked::new(before),
            begun: Locked::default(),
            book: Mutex::new(book),
            saving: Locked::default(),
            wake: Notify::new(),
        }
    }

    /// The fingerprint that the run was begun with, for its checkpoints.
    #[must_use]
    pub fn begun_with(mut self, fingerprint: Value) -> Self {
        self.fingerprint = fingerprint;
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
        let mut book = self.book.lock().await;
        self.save_in(&mut book, trigger, description, None).await
    }

    async fn save_in(
        &self,
        book: &mut Book<'_>,
        trigger: Trigger,
        description: &str,
        step: Option<&StepPath>,
    ) -> Result<CheckpointRef, JournalError> {
        let mut checkpoint = CheckpointRecord::by(trigger).described(description);
        checkpoint.kind = CheckpointKind::Node;
        let begun = lock(&self.begun).clone();
        let now = Now { begun: &begun, counted: self.tally().value(), fingerprint: &self.fingerprint };
        let parts = vec![book.variables.part(self.run, None).await?, book.position.part(self.run, None, now).await?];
        let saved = self.run.save_checkpoint(&checkpoint, parts, None).await?;
        lock(&self.saving).is_durable(saved.seq);
        if let Some(outside) = self.outside {
            let now = self.clock.now();
            let line = outside.note(now, self.run.id(), step, AuditKind::CheckpointSaved, description)?;
            self.run.lines().write(line);
        }
        Ok(saved)
    }

    /// Whether something was written that nobody has synced since.
    fn is_unsynced(&self, book: &Book<'_>) -> bool {
        book.relaxed > lock(&self.saving).synced
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
            let mut book = self.book.lock().await;
            let description = format!("before {}", beginning.step);
            self.save_in(&mut book, Trigger::BeforeExternal, &description, Some(beginning.step)).await?;
        }
        let mut key = None;
        if beginning.effect == Effect::Outward {
            let uncertain = match beginning.on_uncertain {
                OnUncertain::Retry => Uncertain::CallAgain,
                OnUncertain::Ask => Uncertain::Ask,
                OnUncertain::Fail => Uncertain::GiveUp,
            };
            // Whoever begins beside us waits here until what both depend on is durable.
            let book = self.book.lock().await;
            // An intent that is lost in a power cut is made again with the same key; only if a repetition must be
            // known of does it need a sync for its own sake.
            let must = self.is_unsynced(&book) || beginning.on_uncertain != OnUncertain::Retry;
            let durability = if must { Durability::Durable } else { Durability::Relaxed };
            let said = beginning.said.map(uncertain::read);
            match self.run.intend(beginning.step, beginning.inputs, uncertain, said, durability).await? {
                Intended::Go { key: found } => key = Some(found.to_string()),
                Intended::Done(value) => return Ok(Begun::Done(value)),
                Intended::Unknown => return Ok(Begun::Unknown),
                Intended::Ask { question, prompt } => {
                    return Ok(Begun::Ask(Box::new(uncertain::ask(question, prompt))));
                }
            }
            if must {
                // What came before it is durable too.
                lock(&self.saving).is_durable(book.relaxed);
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

    async fn record(&self, done: NodeDone<'_>) -> Result<Option<NewCheckpoint>, JournalError> {
        let mut book = self.book.lock().await;
        let is_outermost = !done.step.as_str().contains('/');
        if let (Ok(record), true) = (done.result, is_outermost) {
            let mut counted = lock(&self.counted);
            counted.steps += 1;
            counted.exceptions += record::exceptions(record);
        }
        let is_checkpoint = (done.checkpoint || self.everywhere) && done.result.is_ok();
        let is_saved_later = is_checkpoint && done.effect == Effect::Pure && self.run.syncs_later();
        let durability = if done.effect == Effect::Pure && (!is_checkpoint || is_saved_later) {
            Durability::Relaxed
        } else {
            Durability::Durable
        };
        let tally = self.tally().value();
        let step = StepDone {
            started_at: done.started_at,
            duration: done.duration,
            failure: if done.unanswered { FailureKind::Unanswered } else { FailureKind::Work },
            retry: done.retry,
            tally: tally.clone(),
            durability,
            ..StepDone::new(done.step.clone(), done.inputs.clone(), done.result.cloned().map_err(str::to_owned))
        };
        let Book { relaxed, variables, position } = &mut *book;
        let parts = match done.result {
            Ok(record) if is_checkpoint => {
                let begun = lock(&self.begun).clone();
                let now = Now { begun: &begun, counted: tally, fingerprint: &self.fingerprint };
                let node = Some((done.step, record));
                vec![variables.part(self.run, node).await?, position.part(self.run, node, now).await?]
            }
            _ => Vec::new(),
        };
        let recorded = self.run.record(step, parts).await?;
        lock(&self.begun).remove(done.step);
        if let (Ok(record), false) = (done.result, is_checkpoint) {
            variables.finished(done.step.clone());
            position.finished(done.step, record);
        }
        let checkpoint = is_checkpoint.then(|| CheckpointRef { run: self.run.id().clone(), seq: recorded.seq });
        let mut saving = lock(&self.saving);
        match durability {
            Durability::Durable => saving.is_durable(recorded.seq),
            Durability::Relaxed => *relaxed = recorded.seq,
        }
        // Behind others that nobody was told of yet, it is told of after them.
        let is_told_later = is_saved_later || !saving.open.is_empty();
        if let (Some(checkpoint), true) = (&checkpoint, is_told_later) {
            saving.open.push((done.step.clone(), checkpoint.clone()));
            self.wake.notify_one();
        }
        Ok(checkpoint.map(|checkpoint| NewCheckpoint { checkpoint, is_told_later }))
    }

    fn is_saving(&self) -> bool {
        !lock(&self.saving).open.is_empty()
    }

    async fn saved(&self) -> Result<Vec<(StepPath, CheckpointRef)>, JournalError> {
        while !self.is_saving() {
            self.wake.notified().await;
        }
        let saved = lock(&self.saving).durable();
        if !saved.is_empty() {
            return Ok(saved);
        }
        let newest = lock(&self.saving).open.last().map(|(_, checkpoint)| checkpoint.seq);
        self.run.sync().await?;
        let mut saving = lock(&self.saving);
        saving.is_durable(newest.unwrap_or_default());
        Ok(saving.durable())
    }

    fn told(&self, checkpoint: &CheckpointRef) {
        lock(&self.saving).open.retain(|(_, open)| open != checkpoint);
    }
}
