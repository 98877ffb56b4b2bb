//! The right to write the next entry of a run.

use std::sync::Arc;

use piton_store::state::State;
use piton_store::{Chain, Chained, Draft, DraftPart, StoreError};
use piton_types::{
    CheckpointRecord, CheckpointRef, Durability, EntryKind, Event, PartName, Parts, RunId, Seq, StepPath, Value,
    to_value,
};
use tokio::sync::MutexGuard;

use crate::core::{Core, Writer, carry_on};
use crate::line::Fact;
use crate::outbox::{Closed, EndedStep};
use crate::step::{Recorded, StepDone};
use crate::{Run, RunError, StepRecord};

/// The right to write the next entry of a run, when all before it are in the log. While somebody has it, nobody else of
/// this process writes to the run.
#[derive(Debug)]
pub struct Turn<'a> {
    pub(crate) core: &'a Core,
    pub(crate) writer: MutexGuard<'a, Writer>,
    /// What is written together, if anything is.
    chain: Option<Together>,
    last: Seq,
    /// Nothing is recorded later meanwhile. Behind the writer, which goes first.
    _closed: Option<Closed<'a>>,
}

/// Entries that will be written together.
#[derive(Debug, Default)]
struct Together {
    chain: Chain,
    /// By entry, the newest checkpoint before it and its parts, if it is one itself.
    before: Vec<Option<(Option<Seq>, Parts)>>,
}

/// What became of entries that were to be written together.
pub(crate) struct Ended {
    /// How many are in the log; nothing if each was written by itself.
    pub(crate) appended: Option<usize>,
    /// Why the others aren't.
    pub(crate) error: Option<StoreError>,
}

impl Run {
    /// Waits for the right to write the next entry.
    ///
    /// # Errors
    ///
    /// Why something couldn't be written that was to be before.
    pub async fn turn(&self) -> Result<Turn<'_>, RunError> {
        let core = self.core();
        // So that steps are in the log in the order in which they count.
        let closed = core.outbox.close();
        Ok(Turn { _closed: Some(closed), ..Turn::new(core, core.writer().await?) })
    }
}

impl Core {
    /// The turn of what is first in the outbox.
    pub(crate) async fn next_turn(&self) -> Result<Turn<'_>, RunError> {
        Ok(Turn::new(self, self.next_writer().await?))
    }
}

impl<'a> Turn<'a> {
    fn new(core: &'a Core, writer: MutexGuard<'a, Writer>) -> Self {
        Self { core, writer, chain: None, last: Seq::default(), _closed: None }
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.core.id
    }

    /// A part of the newest checkpoint, to be edited; if there is none, a new state of `value`, which
    /// the next checkpoint can save.
    pub fn part_state_or(&self, name: &str, value: &Value) -> Result<State, RunError> {
        let log = &self.writer.log;
        if let Some(part) = self.writer.parts.get(&PartName::from(name)) {
            return Ok(log.state(part));
        }
        let mut state = log.new_state(value)?;
        state.set_source(log.source());
        Ok(state)
    }

    /// The newest attempt at a step, which may be one that is still to be written.
    pub fn recorded(&self, path: &StepPath) -> Option<Arc<StepRecord>> {
        self.core.known().line.steps.get(path).cloned()
    }

    /// The place of a step in the order in which they ended, if it ended well.
    pub fn order(&self, path: &StepPath) -> Option<u64> {
        let known = self.core.known();
        known.line.steps.get(path).filter(|step| step.is_finished())?;
        known.line.order.get(path).copied()
    }

    /// Goes through the newest attempt at every step that was written before this turn, in the order in which they
    /// ended.
    pub fn for_each_step(&self, look: impl FnMut(&StepRecord)) {
        let unmade = self.core.outbox.unmade();
        self.core.known().line.in_order(|step| !unmade.contains(&step.path)).for_each(look);
    }

    /// [`Run::record`].
    pub async fn record(&mut self, done: StepDone, parts: Vec<DraftPart<'_>>) -> Result<Recorded, RunError> {
        let durability = done.durability;
        let mut record = self.core.record_of(done)?;
        record.log = self.core.open_lines();
        let (attempt, path) = (record.attempt, record.path.clone());
        let fact = Fact::Step(Arc::new(record));
        let seq = self.core.commit_parts(&mut self.writer, fact, parts, durability).await?;
        self.core.ran(&path);
        Ok(Recorded { seq, attempt })
    }

    /// Writes a step that was recorded [later](Run::record_later). With any `parts` its entry is a checkpoint.
    pub async fn write(&mut self, step: &EndedStep, parts: Vec<DraftPart<'_>>) -> Result<(), RunError> {
        let core = self.core;
        let mut draft = step.draft();
        (draft.at, draft.parts) = (core.context.clock.now(), parts);
        core.outbox.made();
        let writer = &mut *self.writer;
        let Some(together) = &mut self.chain else {
            self.last = match draft.parts.is_empty() {
                true => core.append_with(writer, draft, Durability::Relaxed).await?,
                false => core.append_checkpoint(writer, draft, Durability::Relaxed).await?,
            };
            return Ok(());
        };
        core.check_writable(draft.kind)?;
        (draft.durability, draft.fence) = (Durability::Relaxed, Some(core.fence));
        let is_checkpoint = !draft.parts.is_empty();
        if is_checkpoint {
            carry_on(&writer.parts, &mut draft.parts);
        }
        self.last = writer.log.add_to_chain(&mut together.chain, &mut draft).await?;
        together.before.push(is_checkpoint.then(|| {
            let parts = writer.log.take_appended_parts();
            (writer.checkpoint.replace(self.last), std::mem::replace(&mut writer.parts, parts))
        }));
        Ok(())
    }

    /// [`Run::save_checkpoint`].
    pub async fn save_checkpoint(
        mut self,
        record: &CheckpointRecord,
        parts: Vec<DraftPart<'_>>,
        limit: Option<u64>,
    ) -> Result<CheckpointRef, RunError> {
        let core = self.core;
        let mut draft = Draft::new(EntryKind::Checkpoint, core.context.clock.now());
        draft.label.clone_from(&record.description);
        draft.body = to_value(record).map_err(RunError::value("a checkpoint's record"))?;
        draft.parts = parts;
        draft.limit = limit;
        let seq = core.append_checkpoint(&mut self.writer, draft, core.durability).await?;
        drop(self);
        let checkpoint = CheckpointRef { run: core.id.clone(), seq };
        core.events.tell(|| Event::CheckpointSaved { checkpoint: checkpoint.clone(), step: None });
        Ok(checkpoint)
    }

    /// The entry that was written last, or will be.
    pub(crate) const fn last(&self) -> Seq {
        self.last
    }

    /// What is written from now on is written together.
    pub(crate) fn begin_chain(&mut self) {
        self.chain = Some(Together::default());
    }

    /// Whether what is written together is enough.
    pub(crate) fn is_full(&self) -> bool {
        self.chain.as_ref().is_some_and(|together| together.chain.is_long())
    }

    /// Writes what is written together.
    pub(crate) async fn end_chain(&mut self) -> Ended {
        let Some(Together { chain, mut before }) = self.chain.take() else {
            return Ended { appended: None, error: None };
        };
        let writer = &mut *self.writer;
        let Chained { appended, error } = writer.log.append_chain(chain).await;
        if error.is_some() {
            for (checkpoint, parts) in before.drain(appended..).rev().flatten() {
                (writer.checkpoint, writer.parts) = (checkpoint, parts);
            }
        }
        Ended { appended: Some(appended), error }
    }

    /// Takes in what others have written, which a write has met.
    pub(crate) async fn meet(&mut self, error: StoreError) -> Result<(), RunError> {
        match self.core.absorb(&mut self.writer).await? {
            0 => Err(error.into()),
            _ => Ok(()),
        }
    }
}
