//! The journal of a durable run: every node that ends is one entry of the run's log.
//!
//! - What the engine gives at once is one commit. It is durable when it is written, and told then. Only an intent that is
//!   alone needs no sync, if its work may be done again: one that is lost in a power cut is made again with the same key.
//! - Something outward is an effect (decision 5): its intent, with its key, stands in the log before it begins, and
//!   the entry of its end is the receipt.
//! - The entry of a node after which a checkpoint is wanted carries the parts `variables` and `engine`: what every
//!   node gave, and where the run is. Both cost what changed since the checkpoint before; without a checkpoint
//!   neither is made.
//! - A store that keeps nothing but the newest checkpoint is given the part `checkpoint` too: all of it, for its readers.
//! - Every entry of a node carries what was counted so far, so that limits count on.

use std::collections::BTreeMap;
use std::sync::{Mutex as Locked, MutexGuard, PoisonError};

use async_trait::async_trait;
use piton_log::{Content, DraftPart};
use piton_runtime::{Entry, FailureKind, Intended, Run, RunError, StepDone, StepStanding, Turn, Uncertain};
use piton_types::{
    CheckpointKind, CheckpointRecord, CheckpointRef, Clock, Durability, PartName, RunState, StepPath, TokenUsage,
    Trigger, Value,
};
use tokio::sync::Mutex;

use crate::checkpoint;
use crate::flow::Flow;
use crate::journal::{
    Beginning, Begun, Found, Happened, Journal, JournalError, NodeDone, OnUncertain, RunFacts, Written,
};
use crate::need::Services;
use crate::node::Effect;
use crate::outside::{AuditKind, Outside};
use crate::position::{EnginePart, Moved, Now, Position};
use crate::record;
use crate::tally::Tally;
use crate::uncertain;
use crate::variables::{Gave, Variables};

/// A journal over a run.
pub struct RunJournal<'a> {
    run: &'a Run,
    clock: &'a dyn Clock,
    outside: Option<&'a Outside>,
    facts: RunFacts,
    fingerprint: Value,
    everywhere: bool,
    /// The store keeps nothing but the newest checkpoint.
    in_full: bool,
    /// When this process began.
    began: std::time::Duration,
    counted: Locked<Tally>,
    book: Mutex<Book>,
}

/// What is known of the nodes that were given to the journal. Only who writes touches it.
#[derive(Debug)]
struct Book {
    /// Steps that began and haven't ended, and whether they wait for a person.
    begun: BTreeMap<StepPath, bool>,
    position: Position,
    parts: Parts,
}

/// The parts of checkpoints.
#[derive(Debug, Default)]
struct Parts {
    variables: Variables,
    engine: EnginePart,
    /// The part `checkpoint`, if the store wants it.
    whole: Option<Value>,
}

/// An entry that is to be written, and what it stands for.
struct Pending {
    /// Its place in the burst.
    place: usize,
    entry: Entry,
    step: StepPath,
    kind: Kind,
}

enum Kind {
    /// Work outside is about to begin; whether it may be done again without a question.
    Intent { is_repeatable: bool },
    /// A node ended, well or not, and no checkpoint is made there.
    End { is_finished: bool },
    /// A checkpoint, after a node or before one.
    Checkpoint(Box<Made>),
}

/// What a checkpoint carries, as of when it was made.
struct Made {
    /// What the node gave after which it is made.
    gave: Option<Gave>,
    moved: Moved,
    tally: Tally,
}

impl std::fmt::Debug for RunJournal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunJournal").field("run", self.run.id()).finish_non_exhaustive()
    }
}

impl<'a> RunJournal<'a> {
    /// The journal of `run`, which runs `flow` with these services. What the run has used before is counted on.
    pub fn new(run: &'a Run, flow: &'a Flow, services: &'a Services, clock: &'a dyn Clock) -> Self {
        let before = Tally::read(run.tally());
        let outside = services.get::<Outside>();
        if let Some(outside) = outside {
            outside.governor().resume(run.id(), before.used());
        }
        let facts = RunFacts { elapsed: before.elapsed(), retries: run.retries(), ..RunFacts::new(run.id().clone()) };
        let position = Position::new(&flow.graph);
        Self {
            run,
            clock,
            outside,
            facts,
            fingerprint: Value::Null,
            everywhere: false,
            in_full: !run.context().store.capabilities().history,
            began: clock.monotonic(),
            counted: Locked::new(before),
            book: Mutex::new(Book { begun: BTreeMap::new(), position, parts: Parts::default() }),
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
        self.counted().usage()
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
        let mut book = self.book.lock().await;
        if interrupted {
            book.begun.clear();
        }
        let turn = self.run.turn().await?;
        let Book { begun, position, parts } = &mut *book;
        position.begin(self.run).await?;
        let tally = self.tally();
        let moved = position.moved(None, &Now { begun, counted: &tally.value(), in_full: self.in_full });
        let made = Made { gave: None, moved, tally };
        let parts = parts.of(&turn, &made, &self.fingerprint, std::iter::empty()).await?;
        let saved = turn.save_checkpoint(&marked(trigger, description), parts, None).await?;
        self.note_saved(None, description)?;
        Ok(saved)
    }

    /// [`save`](Self::save) for a run that comes to rest, if the store keeps nothing but the newest checkpoint: another has
    /// what happened since in its log.
    pub(crate) async fn save_at_rest(&self, trigger: Trigger, description: &str) -> Result<(), JournalError> {
        if self.in_full && matches!(self.run.state(), RunState::InProgress(_)) {
            self.save(trigger, description, true).await?;
        }
        Ok(())
    }

    /// Says in the audit log and in the run's own that a checkpoint was made, at a step or at none.
    fn note_saved(&self, step: Option<&StepPath>, description: &str) -> Result<(), JournalError> {
        if let Some(outside) = self.outside {
            let now = self.clock.now();
            let line = outside.note(now, self.run.id(), step, AuditKind::CheckpointSaved, description)?;
            self.run.lines().write(line);
        }
        Ok(())
    }

    fn counted(&self) -> MutexGuard<'_, Tally> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted until now.
    fn tally(&self) -> Tally {
        let mut tally = *self.counted();
        let here = self.clock.monotonic().saturating_sub(self.began);
        tally.elapsed_ms = u64::try_from((self.facts.elapsed + here).as_millis()).unwrap_or(u64::MAX);
        if let Some(outside) = self.outside {
            let used = outside.governor().used(self.run.id());
            (tally.tool_calls, tally.requests) = (used.tool_calls, used.requests);
        }
        tally
    }

    /// Takes in the next thing that happened. It counts from now on; its entries are to be written.
    fn take(
        &self,
        happened: Happened,
        place: usize,
        book: &mut Book,
        turn: &mut Turn<'_>,
        pending: &mut Vec<Pending>,
    ) -> Result<Option<Begun>, JournalError> {
        match happened {
            Happened::Used(usage) => self.counted().add(usage),
            Happened::Line(line) => self.run.lines().write(line),
            Happened::Ended(done) => pending.push(self.ended(done, place, book, turn)?),
            Happened::Began(beginning) => return self.began(beginning, place, book, turn, pending).map(Some),
        }
        Ok(None)
    }

    fn began(
        &self,
        beginning: Beginning,
        place: usize,
        book: &mut Book,
        turn: &mut Turn<'_>,
        pending: &mut Vec<Pending>,
    ) -> Result<Begun, JournalError> {
        let step = beginning.step;
        // What asked before has its checkpoint.
        if beginning.checkpoint && !self.run.is_asked(&step) {
            let Book { begun, position, .. } = &mut *book;
            if self.in_full && beginning.waits && beginning.effect != Effect::Outward {
                // It is the last one that the store is given before a person is asked.
                begun.insert(step.clone(), true);
            }
            let tally = self.tally();
            let moved = position.moved(None, &Now { begun, counted: &tally.value(), in_full: self.in_full });
            let entry = turn.marked(&marked(Trigger::BeforeExternal, &before(&step)))?;
            let kind = Kind::Checkpoint(Box::new(Made { gave: None, moved, tally }));
            pending.push(Pending { place, entry, step: step.clone(), kind });
        }
        let mut key = None;
        if beginning.effect == Effect::Outward {
            let uncertain = match beginning.on_uncertain {
                OnUncertain::Retry => Uncertain::CallAgain,
                OnUncertain::Ask => Uncertain::Ask,
                OnUncertain::Fail => Uncertain::GiveUp,
            };
            let said = beginning.said.as_ref().map(uncertain::read);
            let (intended, entry) = turn.intended(&step, &beginning.inputs, uncertain, said)?;
            let kind = Kind::Intent { is_repeatable: beginning.on_uncertain == OnUncertain::Retry };
            pending.extend(entry.map(|entry| Pending { place, entry, step: step.clone(), kind }));
            match intended {
                Intended::Go { key: found } => key = Some(found.to_string()),
                Intended::Done(value) => return Ok(Begun::Done(value)),
                Intended::Unknown => return Ok(Begun::Unknown),
                Intended::Ask { question, prompt } => {
                    return Ok(Begun::Ask(Box::new(uncertain::ask(question, prompt))));
                }
            }
        }
        book.begun.insert(step, beginning.waits);
        Ok(Begun::Go { key })
    }

    fn ended(
        &self,
        done: NodeDone,
        place: usize,
        book: &mut Book,
        turn: &mut Turn<'_>,
    ) -> Result<Pending, JournalError> {
        let step = done.step.clone();
        let is_node = record::is_node(&step);
        if let (Ok(record), true) = (&done.result, is_node && !step.as_str().contains('/')) {
            let mut counted = self.counted();
            counted.steps += 1;
            counted.exceptions += record::exceptions(record);
        }
        let tally = self.tally();
        let counted = tally.value();
        book.begun.remove(&step);
        let kind = match &done.result {
            Ok(record) if (done.checkpoint || self.everywhere) && is_node => {
                let gave = Some(Gave::new(&step, record));
                let Book { begun, position, .. } = book;
                let now = Now { begun, counted: &counted, in_full: self.in_full };
                let moved = position.moved(Some((&step, record)), &now);
                Kind::Checkpoint(Box::new(Made { gave, moved, tally }))
            }
            Ok(record) => {
                book.position.finished(&step, record);
                Kind::End { is_finished: true }
            }
            Err(_) => Kind::End { is_finished: false },
        };
        let ended = StepDone {
            started_at: done.started_at,
            duration: done.duration,
            failure: if done.unanswered { FailureKind::Unanswered } else { FailureKind::Work },
            retry: done.retry,
            usage: done.usage,
            tally: counted,
            // What it takes in follows from the document and the results before it.
            is_compared: false,
            ..StepDone::new(done.step, done.inputs, done.result)
        };
        Ok(Pending { place, entry: turn.ended(ended)?, step, kind })
    }

    /// Writes entries, in one commit if the store can and they aren't large, and notes the checkpoints among them.
    async fn append(
        &self,
        pending: &[Pending],
        parts: &mut Parts,
        turn: &mut Turn<'_>,
        written: &mut [Written],
    ) -> Result<(), JournalError> {
        let durability = match pending {
            [Pending { kind: Kind::Intent { is_repeatable: true }, .. }] => Durability::Relaxed,
            _ => Durability::Durable,
        };
        let mut rest = pending;
        while !rest.is_empty() {
            let mut added = Vec::new();
            for (at, next) in rest.iter().enumerate() {
                let drafts = match &next.kind {
                    Kind::Checkpoint(made) => {
                        let finished = |pending: &&Pending| matches!(pending.kind, Kind::End { is_finished: true });
                        let earlier = rest[..at].iter().filter(finished).map(|earlier| &earlier.step);
                        parts.of(turn, made, &self.fingerprint, earlier).await?
                    }
                    _ => Vec::new(),
                };
                added.push(turn.add(&next.entry, drafts, durability).await?);
                if matches!(next.kind, Kind::End { is_finished: true }) {
                    parts.variables.finished(&next.step);
                }
                if turn.is_full() {
                    break;
                }
            }
            let count = turn.commit().await?;
            if count < added.len() {
                // Another process has written meanwhile.
                *parts = Parts::default();
            }
            for (next, seq) in rest[..count].iter().zip(added) {
                if let Kind::Checkpoint(made) = &next.kind {
                    let checkpoint = CheckpointRef { run: self.run.id().clone(), seq };
                    match (&made.gave, self.outside) {
                        (None, _) => self.note_saved(Some(&next.step), &before(&next.step))?,
                        (Some(_), Some(outside)) => {
                            let line = outside.made(self.clock.now(), &next.step, &checkpoint)?;
                            self.run.lines().write(line);
                        }
                        (Some(_), None) => {}
                    }
                    written[next.place].checkpoint = Some(checkpoint);
                }
            }
            rest = &rest[count..];
        }
        Ok(())
    }
}

/// What a checkpoint that isn't made after a node is about.
fn marked(trigger: Trigger, description: &str) -> CheckpointRecord {
    CheckpointRecord { kind: CheckpointKind::Node, ..CheckpointRecord::by(trigger).described(description) }
}

fn before(step: &StepPath) -> String {
    format!("before {step}")
}

impl Parts {
    /// The parts of a checkpoint. `earlier` are the steps of the same burst that finished before it.
    async fn of<'s>(
        &mut self,
        turn: &Turn<'_>,
        made: &Made,
        fingerprint: &Value,
        earlier: impl Iterator<Item = &'s StepPath>,
    ) -> Result<Vec<DraftPart<'_>>, RunError> {
        let known = self.engine.begin(turn, fingerprint).await?;
        let variables = self.variables.part(turn, known, made.gave.as_ref(), earlier).await?;
        let mut parts = vec![variables, self.engine.part(turn, &made.moved).await?];
        if let Some(whole) = &made.moved.whole {
            let whole = self.whole.insert(checkpoint::fields(turn.run().as_str(), whole, made.tally, fingerprint));
            let (name, schema) = (PartName::CHECKPOINT.into(), "piton.workflow-checkpoint".to_owned());
            parts.push(DraftPart { name, schema, version: 1, content: Content::Value(whole) });
        }
        Ok(parts)
    }
}

#[async_trait]
impl Journal for RunJournal<'_> {
    fn facts(&self) -> &RunFacts {
        &self.facts
    }

    async fn find(&self, step: &StepPath) -> Result<Found, JournalError> {
        Ok(match self.run.standing(step).await? {
            StepStanding::Open { attempts, wait } => Found::Open { attempts, wait },
            StepStanding::Finished { output, order, usage } => Found::Finished { record: output, order, usage },
            StepStanding::Failed { error, order } => Found::Failed { message: error, order },
        })
    }

    fn admit(&self, step: &StepPath) -> Result<(), JournalError> {
        Ok(self.run.admit(step)?)
    }

    async fn write(&self, burst: Vec<Happened>) -> Result<Vec<Written>, JournalError> {
        let mut book = self.book.lock().await;
        for happened in &burst {
            let (step, checkpoint) = match happened {
                Happened::Began(beginning) => (&beginning.step, beginning.checkpoint),
                Happened::Ended(done) => (&done.step, done.checkpoint || self.everywhere),
                _ => continue,
            };
            // What the log has of it is asked for below, at once.
            self.run.recorded(step).await?;
            if checkpoint {
                book.position.begin(self.run).await?;
            }
        }
        let mut turn = self.run.turn().await?;
        let (mut written, mut pending, mut failed) = (vec![Written::default(); burst.len()], Vec::new(), None);
        for (place, happened) in burst.into_iter().enumerate() {
            match self.take(happened, place, &mut book, &mut turn, &mut pending) {
                Ok(begun) => written[place].begun = begun,
                // What came before it counts all the same.
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        self.append(&pending, &mut book.parts, &mut turn, &mut written).await?;
        failed.map_or(Ok(written), Err)
    }
}
