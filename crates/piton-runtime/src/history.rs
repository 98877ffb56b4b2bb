//! What the log of a run says (R4): read once, when a run is opened or looked at. Nothing of it needs the
//! process that wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use piton_log::{RunLog, SealedEntry};
use piton_store::{Span, StoreError};
use piton_types::{
    CheckpointRef, Clock, EntryKind, Fence, Parts, RunId, RunState, RunStatus, Seq, StepPath, Timestamp, Value,
};

use crate::line::{Fact, Line};
use crate::record::{
    AnswerRecord, ClaimRecord, EffectRecord, LogLine, Origin, QuestionRecord, RestoreRecord, StepRecord,
};
use crate::{Context, RunError};

/// A run as its log tells it.
#[derive(Debug, Clone)]
pub struct History {
    /// The document and inputs that it was created with.
    pub input: Value,
    /// The run that it comes from, if it is a fork or a step of another one.
    pub origin: Option<Origin>,
    /// The state that it is in.
    pub state: RunState,
    /// Who took it last, with which fence.
    pub claim: Option<(Fence, ClaimRecord)>,
    /// When it was last taken.
    pub claimed_at: Option<Timestamp>,
    /// Every attempt at every step, in the order in which they ended, with what was undone.
    pub steps: Vec<StepRecord>,
    /// The entry of each of `steps`.
    pub step_entries: Vec<Seq>,
    /// Every effect that counts.
    pub effects: Vec<EffectRecord>,
    /// The questions that wait for an answer.
    pub questions: Vec<QuestionRecord>,
    /// Every answer, with those that were undone.
    pub answers: Vec<AnswerRecord>,
    /// Every checkpoint, oldest first: an entry with parts.
    pub checkpoints: Vec<CheckpointInfo>,
    /// The newest checkpoint and its parts.
    pub checkpoint: Option<(Seq, Parts)>,
    /// Every time that it was put back.
    pub restores: Vec<(Seq, RestoreRecord)>,
    /// The lines that it wrote.
    pub log: Vec<LogLine>,
    /// How often it was queued again after a failure.
    pub retries: u32,
    /// How often it was taken over from a process that didn't end it.
    pub takeovers: u32,
    /// Raised by every fork, rollback and retry from a step.
    pub epoch: u32,
    /// When it was created.
    pub created_at: Timestamp,
    /// When somebody first drove it.
    pub started_at: Option<Timestamp>,
    /// When it ended, if it did.
    pub ended_at: Option<Timestamp>,
    /// The time of its newest entry.
    pub updated_at: Timestamp,
    /// Its newest entry.
    pub head: Seq,
    /// The first entry that counts of every step, effect and question.
    pub(crate) first: BTreeMap<StepPath, Seq>,
    /// The entries that were undone.
    undone: BTreeSet<Seq>,
    pub(crate) line: Line,
}

/// What a list of checkpoints shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// Its entry.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// What the entry records besides.
    pub kind: EntryKind,
    /// The name of the step, or a description.
    pub label: String,
    /// Its parts.
    pub parts: Parts,
    /// Whether the run was put back to before it.
    pub undone: bool,
}

impl History {
    /// The history of a run.
    ///
    /// # Errors
    ///
    /// `NotFound` from the store if there is no such run.
    pub async fn of(context: &Context, run: &RunId) -> Result<Self, RunError> {
        let log = RunLog::open(Arc::clone(&context.store), run).await?;
        Ok(Self::read(&log).await?)
    }

    /// Reads the whole log, as far as the handle knows it.
    pub async fn read(log: &RunLog) -> Result<Self, StoreError> {
        Self::read_to(log, log.head().seq).await
    }

    /// Reads the log as it was when `to` was its newest entry.
    pub async fn read_to(log: &RunLog, to: Seq) -> Result<Self, StoreError> {
        let entries = log.entries(Span { to, ..Span::ALL }).await?;
        let damaged = |detail: &str| StoreError::corrupt(format!("run {}", log.run()), detail);
        let first = entries.first().ok_or_else(|| damaged("entry 0 is missing"))?;
        let mut facts = Vec::with_capacity(entries.len());
        for entry in &entries {
            facts.push(Fact::read(log, entry).await?);
        }
        let Some(Fact::Created(queued, origin)) = facts.first() else {
            return Err(damaged("its first entry doesn't create it"));
        };
        let mut history = Self {
            input: queued.input.clone(),
            origin: origin.as_deref().cloned(),
            state: RunState::Queued((**queued).clone()),
            claim: None,
            claimed_at: None,
            steps: Vec::new(),
            step_entries: Vec::new(),
            effects: Vec::new(),
            questions: Vec::new(),
            answers: Vec::new(),
            checkpoints: Vec::new(),
            checkpoint: None,
            restores: Vec::new(),
            log: Vec::new(),
            retries: 0,
            takeovers: 0,
            epoch: 0,
            created_at: first.at,
            started_at: None,
            ended_at: None,
            updated_at: entries.last().map_or(first.at, |entry| entry.at),
            head: entries.last().map_or(first.seq, |entry| entry.seq),
            first: BTreeMap::new(),
            undone: undone(&entries, &facts).ok_or_else(|| damaged("it was put back to an entry that isn't there"))?,
            line: Line::default(),
        };
        for (entry, fact) in entries.iter().zip(&facts) {
            history.take(entry, fact);
        }
        history.effects = history.line.effects.values().cloned().collect();
        history.questions = history.line.open_questions().cloned().collect();
        history.epoch = history.line.epoch;
        Ok(history)
    }

    /// The document and inputs alone.
    pub(crate) async fn read_input(log: &RunLog) -> Result<Value, StoreError> {
        match Fact::read(log, &log.entry(Seq(0)).await?).await? {
            Fact::Created(queued, _) => Ok(queued.input),
            _ => Err(StoreError::corrupt(format!("run {}", log.run()), "its first entry doesn't create it")),
        }
    }

    fn take(&mut self, entry: &SealedEntry, fact: &Fact) {
        let counts = !self.undone.contains(&entry.seq);
        if counts {
            if let Some(path) = fact.path() {
                self.first.entry(path.clone()).or_insert(entry.seq);
            }
            self.line.take(fact.clone());
        }
        if !entry.parts.is_empty() {
            self.checkpoints.push(CheckpointInfo {
                seq: entry.seq,
                at: entry.at,
                kind: entry.kind,
                label: entry.label.clone(),
                parts: entry.parts.clone(),
                undone: !counts,
            });
            if counts {
                self.checkpoint = Some((entry.seq, entry.parts.clone()));
            }
        }
        // Who drove it, and how it ended, isn't undone: it took place.
        let before = self.state.status();
        if let Some(state) = fact.state() {
            self.state = state;
            let over = matches!(self.state, RunState::Completed(_) | RunState::Failed(_) | RunState::Cancelled { .. });
            self.ended_at = over.then_some(entry.at);
        }
        match fact {
            Fact::Claimed(claim) => {
                self.takeovers += u32::from(before == RunStatus::InProgress);
                self.started_at.get_or_insert(entry.at);
                self.claimed_at = Some(entry.at);
                self.claim = Some((entry.fence, claim.clone()));
            }
            Fact::State(RunState::Queued(_)) => self.retries += 1,
            Fact::Step(step) => {
                self.log.extend(step.log.iter().cloned());
                self.steps.push((**step).clone());
                self.step_entries.push(entry.seq);
            }
            Fact::Answer(answer) => self.answers.push(answer.clone()),
            Fact::Restored(restore) => self.restores.push((entry.seq, restore.clone())),
            Fact::Logged(record) => self.log.extend(record.log.iter().cloned()),
            _ => {}
        }
    }

    /// Whether the run was put back to before this entry.
    pub fn is_undone(&self, seq: Seq) -> bool {
        self.undone.contains(&seq)
    }

    /// The first entry of a step, effect or question that counts, or of anything in a branch of that path.
    pub fn first_entry(&self, path: &StepPath) -> Option<Seq> {
        let below = |other: &StepPath| {
            other.as_str().strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.first.iter().filter(|(other, _)| below(other)).map(|(_, seq)| *seq).min()
    }

    /// How often the run went on after something went wrong, by itself or because somebody resumed it:
    /// takeovers, retries of the run, and attempts at steps beyond the first.
    pub fn recovery_attempts(&self) -> u32 {
        let again = self.steps.iter().filter(|step| step.attempt > 1).count();
        self.retries + self.takeovers + u32::try_from(again).unwrap_or(u32::MAX)
    }

    /// How long it took from its first claim to its end, or has taken so far, by the wall clock.
    pub fn duration(&self, clock: &dyn Clock) -> Option<Duration> {
        let end = self.ended_at.unwrap_or_else(|| clock.now());
        self.started_at.map(|start| end.since(start))
    }

    /// The newest checkpoint by its name.
    pub fn last_checkpoint(&self, run: &RunId) -> Option<CheckpointRef> {
        self.checkpoint.as_ref().map(|(seq, _)| CheckpointRef { run: run.clone(), seq: *seq })
    }

    /// The steps that ended well and count, in the order in which they ended.
    pub fn finished(&self) -> Vec<&StepRecord> {
        let mut steps: Vec<_> =
            self.line.steps.values().map(|step| &**step).filter(|step| step.is_finished()).collect();
        steps.sort_by_key(|step| self.line.order.get(&step.path).copied());
        steps
    }

    /// The newest attempt at a step that counts, and that of every other is in `steps`.
    pub fn step(&self, path: &StepPath) -> Option<&StepRecord> {
        self.line.steps.get(path).map(|step| &**step)
    }
}

/// The entries that don't lead to the newest one: each entry follows the one before it, save one that put
/// the run back, which follows the entry that it was put back to. `None` if that lies ahead.
fn undone(entries: &[SealedEntry], facts: &[Fact]) -> Option<BTreeSet<Seq>> {
    let mut undone = BTreeSet::new();
    let mut next = entries.last()?.seq;
    for (entry, fact) in entries.iter().zip(facts).rev() {
        if entry.seq > next {
            undone.insert(entry.seq);
            continue;
        }
        next = match fact {
            Fact::Restored(restore) if restore.to >= entry.seq => return None,
            Fact::Restored(restore) => restore.to,
            _ => Seq(entry.seq.0.saturating_sub(1)),
        };
    }
    Some(undone)
}
