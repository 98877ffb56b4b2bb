//! All that the log of a run says, at once: for comparing runs, for engines, and for tests. It takes as much memory as
//! the log has; [`History`] doesn't.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use piton_log::RunLog;
use piton_store::StoreError;
use piton_types::{RunId, Seq, StepPath};

use crate::fact::Fact;
use crate::history::{By, find};
use crate::pages::CheckpointInfo;
use crate::record::{AnswerRecord, EffectRecord, LogLine, RestoreRecord, StepRecord};
use crate::{Context, History, RunError};

/// A run with everything that its log tells.
#[derive(Debug, Clone)]
pub struct WholeHistory {
    history: History,
    /// Every attempt at every step, in the order in which they ended, with what was undone.
    pub steps: Vec<StepRecord>,
    /// The entry of each of `steps`.
    pub step_entries: Vec<Seq>,
    /// Every effect that counts.
    pub effects: Vec<EffectRecord>,
    /// Every answer, with those that were undone.
    pub answers: Vec<AnswerRecord>,
    /// Every checkpoint, oldest first: an entry with parts.
    pub checkpoints: Vec<CheckpointInfo>,
    /// Every time that it was put back.
    pub restores: Vec<(Seq, RestoreRecord)>,
    /// The lines that it wrote.
    pub log: Vec<LogLine>,
    /// The entries that were undone.
    undone: BTreeSet<Seq>,
}

impl Deref for WholeHistory {
    type Target = History;

    fn deref(&self) -> &History {
        &self.history
    }
}

impl WholeHistory {
    /// Everything about a run.
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
        let found = find(log, to, By::WholeLog).await?;
        let (mut steps, mut step_entries, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        let (mut checkpoints, mut restores, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        let mut undone = BTreeSet::new();
        for tale in found.tales.iter().rev() {
            let seq = tale.entry.seq;
            if !tale.counts {
                undone.insert(seq);
            }
            if !tale.entry.parts.is_empty() {
                checkpoints.push(CheckpointInfo::new(&tale.entry, !tale.counts));
            }
            match &tale.fact {
                Fact::Step(step) => {
                    lines.extend(step.log.iter().cloned());
                    steps.push((**step).clone());
                    step_entries.push(seq);
                }
                Fact::Answer(answer) => answers.push(answer.clone()),
                Fact::Restored(restore) => restores.push((seq, restore.clone())),
                Fact::Logged(record) => lines.extend(record.log.iter().cloned()),
                _ => {}
            }
        }
        let history = History::tell(log, found).await?;
        let effects = history.line.effects.values().cloned().collect();
        Ok(Self { history, steps, step_entries, effects, answers, checkpoints, restores, log: lines, undone })
    }

    /// Whether the run was put back to before this entry.
    pub fn is_undone(&self, seq: Seq) -> bool {
        self.undone.contains(&seq)
    }

    /// The steps that ended well and count, in the order in which they ended.
    pub fn finished(&self) -> Vec<&StepRecord> {
        self.history.line.in_order(StepRecord::is_finished).collect()
    }

    /// The newest attempt at a step that counts, and that of every other is in `steps`.
    pub fn step(&self, path: &StepPath) -> Option<&StepRecord> {
        self.history.line.steps.get(path).map(|step| &**step)
    }

    /// The history, which has every step at hand.
    pub(crate) fn into_history(self) -> History {
        self.history
    }
}
