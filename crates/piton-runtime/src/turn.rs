//! The right to write the next entries of a run.

use std::sync::Arc;

use piton_log::state::State;
use piton_log::{Chain, Draft, DraftPart};
use piton_store::StoreError;
use piton_types::{
    CheckpointRecord, CheckpointRef, Durability, EntryKind, Event, PartName, Parts, RunId, Seq, StepPath, Value,
    to_value,
};
use tokio::sync::MutexGuard;

use crate::core::{Core, RACES, Writer, carry_on};
use crate::fact::Fact;
use crate::pages::PAGE;
use crate::record::Origin;
use crate::step::StepDone;
use crate::{Pager, Run, RunError, StepRecord};

/// The right to write the next entries of a run. While a caller has it, no other caller of this process writes to the
/// run.
///
/// An engine writes several entries in one commit: it makes each entry ([`ended`](Self::ended),
/// [`intended`](Self::intended), [`marked`](Self::marked)), [adds](Self::add) them in order, and [commits](Self::commit)
/// them. An entry counts for this handle when it is made. A commit that fails breaks the handle.
#[derive(Debug)]
pub struct Turn<'a> {
    pub(crate) core: &'a Core,
    pub(crate) writer: MutexGuard<'a, Writer>,
    /// The entries of the next commit.
    chain: Chain,
    /// By entry of the next commit: the newest checkpoint before it and its parts, if the entry is a checkpoint.
    before: Vec<Option<(Option<Seq>, Parts)>>,
    /// How often a commit met entries of other processes.
    races: usize,
}

/// An entry that counts for this handle, and is to be written.
#[derive(Debug)]
pub struct Entry {
    kind: EntryKind,
    label: String,
    body: Value,
}

impl Run {
    /// Waits for the right to write the next entries.
    ///
    /// # Errors
    ///
    /// What went wrong with an earlier write whose caller stopped waiting for it.
    pub async fn turn(&self) -> Result<Turn<'_>, RunError> {
        let core = self.core();
        let writer = core.writer().await?;
        Ok(Turn { core, writer, chain: Chain::default(), before: Vec::new(), races: 0 })
    }
}

impl Turn<'_> {
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

    /// The number of the entry that is added next.
    pub fn next_entry(&self) -> Seq {
        let added = u32::try_from(self.chain.len()).unwrap_or(u32::MAX);
        Seq(self.writer.log.head().seq.0.saturating_add(1).saturating_add(added))
    }

    /// The attempts at steps that the log has behind an entry and that count, oldest first; without an entry all, with those
    /// that a fork has of its parent. What is made in this turn isn't among them.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn steps_behind(&self, entry: Option<Seq>) -> Result<Vec<Arc<StepRecord>>, RunError> {
        let log = &self.writer.log;
        let (mut pager, mut found) = (Pager::new(log), Vec::new());
        while pager.cursor().is_some_and(|cursor| entry.is_none_or(|entry| cursor.next > entry)) {
            let page = pager.entries(PAGE).await?.into_iter();
            for past in page.filter(|past| !past.undone && entry.is_none_or(|entry| past.entry.seq > entry)) {
                if !matches!(past.entry.kind, EntryKind::StepDone | EntryKind::Created) {
                    continue;
                }
                match Fact::read(log, &past.entry).await? {
                    Fact::Step(step) => found.push(step),
                    Fact::Created(_, Some(origin)) => {
                        if let Origin::Fork { steps, .. } = *origin {
                            found.extend(steps.into_iter().rev().map(Arc::new));
                        }
                    }
                    _ => {}
                }
            }
        }
        found.reverse();
        Ok(found)
    }

    /// The newest attempt at a step, if it is at hand: one of this process is.
    pub fn recorded(&self, path: &StepPath) -> Option<Arc<StepRecord>> {
        self.core.known().line.steps.get(path).cloned()
    }

    /// The entry of a step that ended, with the lines that were written until then.
    ///
    /// # Errors
    ///
    /// [`RunError::Stopped`] if the run is paused or cancelled; and if what the step gave can't be stored. Then the step
    /// doesn't count.
    pub fn ended(&mut self, done: StepDone) -> Result<Entry, RunError> {
        let core = self.core;
        core.check_writable(EntryKind::StepDone)?;
        let mut record = core.record_of(done)?;
        record.log = core.open_lines();
        let body = to_value(&record).map_err(RunError::value(format!("step {}", record.path)))?;
        let label = record.path.to_string();
        core.ran(&record.path);
        core.take_in(Seq::default(), Fact::Step(Arc::new(record)));
        Ok(Entry { kind: EntryKind::StepDone, label, body })
    }

    /// The entry of a checkpoint that is made by itself, and not after a step.
    ///
    /// # Errors
    ///
    /// If the record can't be stored.
    pub fn marked(&self, record: &CheckpointRecord) -> Result<Entry, RunError> {
        let body = to_value(record).map_err(RunError::value("a checkpoint's record"))?;
        Ok(Entry { kind: EntryKind::Checkpoint, label: record.description.clone(), body })
    }

    /// The entry of `fact`, which counts from now on.
    pub(crate) fn made(&mut self, kind: EntryKind, label: String, body: Value, fact: Fact) -> Result<Entry, RunError> {
        self.core.check_writable(kind)?;
        self.core.take_in(Seq::default(), fact);
        Ok(Entry { kind, label, body })
    }

    /// Adds an entry to the next commit, and returns the number that it will have. With any `parts` it is a checkpoint.
    ///
    /// # Errors
    ///
    /// What the store says. Then the handle is broken.
    pub async fn add(
        &mut self,
        entry: &Entry,
        parts: Vec<DraftPart<'_>>,
        durability: Durability,
    ) -> Result<Seq, RunError> {
        let core = self.core;
        let writer = &mut *self.writer;
        let mut draft = Draft::new(entry.kind, core.context.clock.now());
        draft.label.clone_from(&entry.label);
        draft.body = entry.body.clone();
        draft.fence = Some(core.fence);
        draft.durability = core.at_most(durability);
        draft.parts = parts;
        let is_checkpoint = !draft.parts.is_empty();
        if is_checkpoint {
            carry_on(&writer.parts, &mut draft.parts);
        }
        let seq = match writer.log.add_to_chain(&mut self.chain, &mut draft).await {
            Ok(seq) => seq,
            Err(error) => return Err(core.break_of(error)),
        };
        self.before.push(is_checkpoint.then(|| {
            let parts = writer.log.take_appended_parts();
            (writer.checkpoint.replace(seq), std::mem::replace(&mut writer.parts, parts))
        }));
        Ok(seq)
    }

    /// Whether the next commit has as many values as one should.
    pub fn is_full(&self) -> bool {
        self.chain.is_long()
    }

    /// Commits the entries that were added, and returns how many of them are in the log. If those are fewer, another
    /// process has written meanwhile, and its entries are taken in: the others are to be added again, with states that
    /// are loaded anew.
    ///
    /// # Errors
    ///
    /// What the store says. Then the handle is broken.
    pub async fn commit(&mut self) -> Result<usize, RunError> {
        let (chain, before) = (std::mem::take(&mut self.chain), std::mem::take(&mut self.before));
        let (core, writer) = (self.core, &mut *self.writer);
        let count = chain.len();
        let Err(error) = writer.log.append_chain(chain).await else { return Ok(count) };
        for (checkpoint, parts) in before.into_iter().rev().flatten() {
            (writer.checkpoint, writer.parts) = (checkpoint, parts);
        }
        self.races += 1;
        if !matches!(error, StoreError::Conflict { .. }) || self.races > RACES || core.absorb(writer).await? == 0 {
            return Err(core.break_of(error));
        }
        core.check_writable(EntryKind::StepDone)?;
        Ok(0)
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
        let seq = core.append_checkpoint(&mut self.writer, draft).await?;
        drop(self);
        let checkpoint = CheckpointRef { run: core.id.clone(), seq };
        core.events.tell(|| Event::CheckpointSaved { checkpoint: checkpoint.clone(), step: None });
        Ok(checkpoint)
    }
}
