//! What the log of a run says (R4), without the process that wrote it: what is always wanted at once, the rest in
//! [pages](Pager). How much is read doesn't grow with the number of finished steps.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use piton_log::{RunLog, SealedEntry};
use piton_store::{Span, StoreError};
use piton_types::{
    CheckpointRef, Clock, EntryKind, Fence, Parts, Queued, RunId, RunState, RunStatus, Seq, StepPath, Timestamp,
    TokenUsage, Value,
};

use crate::fact::Fact;
use crate::index::{Base, IndexRecord, LastStep, Pages, Past, Totals};
use crate::line::Line;
use crate::record::{ClaimRecord, EffectRecord, Origin, QuestionRecord, StepRecord};
use crate::{Context, RunError, usage};

/// How many entries are read at a time on the way back to an index.
const STEPS: [usize; 2] = [32, 256];

/// A run as its log tells it.
#[derive(Debug, Clone)]
pub struct History {
    /// The document and inputs that it was created with.
    pub input: Value,
    /// How urgent it was when it was created: the larger, the sooner.
    pub priority: i32,
    /// A guess at its work when it was created.
    pub estimated_complexity: Option<f64>,
    /// The run that it comes from, if it is a fork or a step of another one.
    pub origin: Option<Origin>,
    /// The state that it is in.
    pub state: RunState,
    /// Who took it last, with which fence.
    pub claim: Option<(Fence, ClaimRecord)>,
    /// When it was last taken.
    pub claimed_at: Option<Timestamp>,
    /// How much there is of everything.
    pub totals: Totals,
    /// The attempt at a step that ended last, of those that count.
    pub last_step: Option<LastStep>,
    /// How many steps finished and count.
    pub finished: u64,
    /// The one of those that finished last.
    pub last_finished: Option<StepPath>,
    /// The effects that count of which it isn't known whether they took place.
    pub uncertain: Vec<EffectRecord>,
    /// The questions that wait for an answer.
    pub questions: Vec<QuestionRecord>,
    /// The newest checkpoint that counts, and its parts.
    pub checkpoint: Option<(Seq, Parts)>,
    /// Entries of lines that have a label: what others than the driver have noted, undone or not.
    pub notes: Vec<Seq>,
    /// How often it was queued again after a failure.
    pub retries: u32,
    /// How often it was taken over from a process that didn't end it.
    pub takeovers: u32,
    /// Raised by every fork, rollback and retry from a step.
    pub epoch: u32,
    /// When it was created.
    pub created_at: Timestamp,
    /// When a process first drove it.
    pub started_at: Option<Timestamp>,
    /// When it ended, if it did.
    pub ended_at: Option<Timestamp>,
    /// The time of its newest entry.
    pub updated_at: Timestamp,
    /// Its newest entry.
    pub head: Seq,
    /// Indexes that are damaged. What the history says is right all the same: it was read from an older index, or from
    /// the whole log.
    pub damaged_indexes: Vec<Seq>,
    /// The newest index.
    pub(crate) indexed: Option<Seq>,
    pub(crate) line: Line,
    pub(crate) past: Past,
}

/// Whether indexes are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The newest index, and what lies behind it.
    Index,
    /// The whole log.
    WholeLog,
}

/// An entry on the way back to an index.
pub(crate) struct Tale {
    pub(crate) entry: SealedEntry,
    pub(crate) fact: Fact,
    /// Whether it leads to the newest entry; else it was undone.
    pub(crate) counts: bool,
    /// Whether an index that was found says it already.
    in_line: bool,
    in_past: bool,
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

    /// Reads the log as far as the handle knows it.
    pub async fn read(log: &RunLog) -> Result<Self, StoreError> {
        Self::read_to(log, log.head().seq).await
    }

    /// Reads the log as it was when `to` was its newest entry.
    #[boxed]
    pub async fn read_to(log: &RunLog, to: Seq) -> Result<Self, StoreError> {
        Self::read_by(log, to, By::Index).await
    }

    pub(crate) async fn read_by(log: &RunLog, to: Seq, by: By) -> Result<Self, StoreError> {
        match Self::read_from(log, to, by).await {
            // A page of the index is damaged, or it leads to entries that are: the log itself may be whole.
            Err(error @ StoreError::Corrupt { .. }) if by == By::Index => {
                let mut history = Self::read_from(log, to, By::WholeLog).await.map_err(|_| error)?;
                history.damaged_indexes.extend(history.indexed);
                tracing::warn!(run = %log.run(), "the index of a run is damaged; its whole log was read");
                Ok(history)
            }
            read => read,
        }
    }

    async fn read_from(log: &RunLog, to: Seq, by: By) -> Result<Self, StoreError> {
        Self::tell(log, find(log, to, by).await?).await
    }

    /// Puts together what was found.
    pub(crate) async fn tell(log: &RunLog, found: Found) -> Result<Self, StoreError> {
        let Found { mut tales, newest, line, past, damaged_indexes, indexed } = found;
        let entry = match tales.last().filter(|tale| tale.entry.seq == Seq(0)) {
            Some(tale) => tale.entry.clone(),
            None => log.entry(Seq(0)).await?,
        };
        let Fact::Created(queued, origin) = Fact::read(log, &entry).await? else {
            return Err(damaged(log, "its first entry doesn't create it"));
        };
        let newest = newest.unwrap_or((entry.at, entry.seq));
        let mut line = match line {
            Some((seq, record)) => {
                let pages = Pages::new(log.reader());
                pages.remember(seq, &record.pages);
                let root = record.root.map(|root| root.found_in(seq));
                Line::begin(record.line.clone(), Base::new(Arc::new(pages), root, newest.1)).await?
            }
            None => Line::tracked(),
        };
        let mut past = past.map_or_else(|| Past::new(&queued), |record| record.past.clone());
        let mut checkpoint = None;
        tales.reverse();
        for Tale { entry, fact, counts, in_line, in_past } in tales {
            if !in_past {
                past.take(&entry, &fact);
            }
            if counts && !in_line {
                line.prepare(&fact).await?;
                line.take(entry.seq, fact);
                if !entry.parts.is_empty() {
                    line.checkpoint = Some(entry.seq);
                    checkpoint = Some((entry.seq, entry.parts));
                }
            }
        }
        if let Some(seq) = line.checkpoint.filter(|_| checkpoint.is_none()) {
            checkpoint = Some((seq, log.entry(seq).await?.parts));
        }
        Ok(Self {
            input: queued.input,
            priority: queued.priority,
            estimated_complexity: queued.estimated_complexity,
            origin: origin.map(|origin| *origin),
            state: past.state.clone(),
            claim: past.claim.clone(),
            claimed_at: past.claimed_at,
            totals: past.totals,
            last_step: line.last_step.clone(),
            finished: line.finished,
            last_finished: line.last_finished.clone(),
            uncertain: line.uncertain().cloned().collect(),
            questions: line.open_questions().cloned().collect(),
            checkpoint,
            notes: past.notes.clone(),
            retries: past.retries,
            takeovers: past.takeovers,
            epoch: line.epoch,
            created_at: entry.at,
            started_at: past.started_at,
            ended_at: past.ended_at,
            updated_at: newest.0,
            head: newest.1,
            damaged_indexes,
            indexed,
            line,
            past,
        })
    }

    /// An index of all that it says.
    pub(crate) async fn index(&self, log: &RunLog) -> Result<IndexRecord, StoreError> {
        let changes = self.line.changes().await?;
        let (root, pages) = match self.line.base() {
            Some(base) => base.pages.update(base.root, changes).await?,
            None => Pages::new(log.reader()).update(None, changes).await?,
        };
        Ok(IndexRecord { line: self.line.head(), past: self.past.clone(), root, pages })
    }

    /// The first entry of a step, effect or question that counts, or of anything in a branch of that path.
    pub async fn first_entry(&self, path: &StepPath) -> Result<Option<Seq>, StoreError> {
        self.line.first(path).await
    }

    /// The newest attempt at a step that counts.
    pub async fn step(&self, path: &StepPath) -> Result<Option<Arc<StepRecord>>, StoreError> {
        match self.line.missing(path) {
            Some(base) => Ok(base.call(path).await?.step),
            None => Ok(self.line.steps.get(path).cloned()),
        }
    }

    /// Those of these steps that ended well and count, in the order in which they ended.
    pub async fn finished_among(&self, paths: Vec<StepPath>) -> Result<Vec<Arc<StepRecord>>, StoreError> {
        let mut found = Vec::new();
        for path in paths {
            let (step, order) = match self.line.missing(&path) {
                Some(base) => {
                    let recalled = base.call(&path).await?;
                    (recalled.step, recalled.entries.step.map(|(_, order)| order))
                }
                None => (self.line.steps.get(&path).cloned(), self.line.order.get(&path).copied()),
            };
            found.extend(step.filter(|step| step.is_finished()).map(|step| (order, step)));
        }
        found.sort_by_key(|(order, _)| *order);
        Ok(found.into_iter().map(|(_, step)| step).collect())
    }

    /// The steps and effects that count and failed, and aren't tried again unless the run is.
    pub async fn failed(&self) -> Result<Vec<StepPath>, StoreError> {
        self.line.failed().await
    }

    /// An effect that counts.
    pub(crate) async fn effect(&self, path: &StepPath) -> Result<Option<EffectRecord>, StoreError> {
        match self.line.missing(path) {
            Some(base) => Ok(base.call(path).await?.effect),
            None => Ok(self.line.effects.get(path).cloned()),
        }
    }

    /// The entry of the newest attempt at a step that counts; none for one that a fork has of its parent.
    pub async fn step_entry(&self, path: &StepPath) -> Result<Option<Seq>, StoreError> {
        self.line.step_entry(path).await
    }

    /// How often the run went on after something went wrong, each counted once: it was taken over from a process that
    /// died, tried again after it had failed, or an attempt at a step failed and was made again by itself.
    pub fn recovery_attempts(&self) -> u32 {
        self.retries + self.takeovers + u32::try_from(self.totals.repeated).unwrap_or(u32::MAX)
    }

    /// What the run used, of what counts; `None` if nothing says. A workflow counts with every node, an agent's context
    /// in the part `usage`, in which what was spent stays spent when the run goes back.
    pub async fn usage(&self, log: &RunLog) -> Result<Option<TokenUsage>, StoreError> {
        match &self.checkpoint {
            _ if !self.line.tally.is_null() => Ok(Some(usage::of_tally(&self.line.tally))),
            Some((_, parts)) => usage::of_parts(log, parts).await,
            None => Ok(None),
        }
    }

    /// How long it took from its first claim to its end, or has taken so far, by the wall clock.
    pub fn duration(&self, clock: &dyn Clock) -> Option<Duration> {
        let end = self.ended_at.unwrap_or_else(|| clock.now());
        self.started_at.map(|start| end.since(start))
    }

    /// The state of the run once it is queued again.
    pub(crate) fn queued_again(&self, created_at: Timestamp) -> Queued {
        let (priority, estimated_complexity) = (self.priority, self.estimated_complexity);
        Queued { created_at, priority, estimated_complexity, input: self.input.clone() }
    }

    /// The newest checkpoint by its name.
    pub fn last_checkpoint(&self, run: &RunId) -> Option<CheckpointRef> {
        self.checkpoint.as_ref().map(|(seq, _)| CheckpointRef { run: run.clone(), seq: *seq })
    }
}

impl Past {
    fn new(queued: &Queued) -> Self {
        Self {
            state: RunState::Queued(queued.clone()),
            claim: None,
            claimed_at: None,
            started_at: None,
            ended_at: None,
            retries: 0,
            takeovers: 0,
            totals: Totals::default(),
            is_claimed_only: false,
            checkpoint: None,
            removed: None,
            notes: Vec::new(),
        }
    }

    /// Takes in the next entry, undone or not: it took place.
    fn take(&mut self, entry: &SealedEntry, fact: &Fact) {
        if !entry.parts.is_empty() {
            self.totals.checkpoints += 1;
            self.checkpoint = Some(entry.seq);
        }
        if entry.kind == EntryKind::Removed {
            self.removed = Some(entry.seq);
        }
        if entry.kind == EntryKind::Logged && !entry.label.is_empty() {
            self.notes.push(entry.seq);
        }
        let (before, was_claimed_only) = (self.state.status(), std::mem::take(&mut self.is_claimed_only));
        if let Some(state) = fact.state() {
            self.state = state;
            let over = matches!(self.state, RunState::Completed(_) | RunState::Failed(_) | RunState::Cancelled { .. });
            self.ended_at = over.then_some(entry.at);
        }
        match fact {
            Fact::Claimed(claim) => {
                // A process that took it and let go of it again before anything happened hasn't failed.
                let is_again =
                    was_claimed_only && self.claim.as_ref().is_some_and(|(_, old)| old.holder == claim.holder);
                self.takeovers += u32::from(before == RunStatus::InProgress && !is_again);
                self.is_claimed_only = true;
                self.started_at.get_or_insert(entry.at);
                self.claimed_at = Some(entry.at);
                self.claim = Some((entry.fence, claim.clone()));
            }
            Fact::State(RunState::Queued(_)) => self.retries += 1,
            Fact::Step(step) => {
                self.totals.attempts += 1;
                self.totals.finished += u64::from(step.is_finished());
                self.totals.repeated += u64::from(step.retry.is_some());
                self.totals.lines += step.log.len() as u64;
            }
            Fact::Receipt(receipt) => self.totals.repeated += u64::from(receipt.retry.is_some()),
            Fact::Answer(_) => self.totals.answers += 1,
            Fact::Restored(_) => self.totals.restores += 1,
            Fact::Logged(record) => self.totals.lines += record.log.len() as u64,
            _ => {}
        }
    }
}

/// What was found on the way back through a log.
pub(crate) struct Found {
    /// Newest first.
    pub(crate) tales: Vec<Tale>,
    /// The newest entry.
    newest: Option<(Timestamp, Seq)>,
    /// The newest index of what counts.
    line: Option<(Seq, Arc<IndexRecord>)>,
    /// The newest index of all.
    past: Option<Arc<IndexRecord>>,
    damaged_indexes: Vec<Seq>,
    indexed: Option<Seq>,
}

/// Goes back through a log until an index says the rest.
///
/// Each entry follows the one before it, save one that put the run back, which follows the entry that it was put back
/// to: what lies between was undone. An index among the undone ones says what took place, and not what counts.
pub(crate) async fn find(log: &RunLog, to: Seq, by: By) -> Result<Found, StoreError> {
    let mut found =
        Found { tales: Vec::new(), newest: None, line: None, past: None, damaged_indexes: Vec::new(), indexed: None };
    let (mut at, mut next) = (Some(to), Some(to));
    let mut steps = STEPS.into_iter().chain(std::iter::repeat(STEPS[1]));
    while let Some(upto) = at {
        let limit = if by == By::WholeLog { usize::MAX } else { steps.next().unwrap_or(STEPS[1]) };
        let page = log.entries(Span { to: upto, ..Span::newest(limit) }).await?;
        at = None;
        for entry in page {
            found.newest.get_or_insert((entry.at, entry.seq));
            at = entry.seq.0.checked_sub(1).map(Seq);
            let counts = next.is_some_and(|next| entry.seq <= next);
            if !counts && found.past.is_some() {
                // What was undone is of no interest any more.
                at = next;
                break;
            }
            let fact = match Fact::read(log, &entry).await {
                Err(StoreError::Corrupt { .. }) if entry.kind == EntryKind::Indexed => {
                    tracing::warn!(run = %log.run(), entry = %entry.seq, "an index of a run is damaged");
                    found.damaged_indexes.push(entry.seq);
                    Fact::Checkpoint
                }
                fact => fact?,
            };
            let (in_line, in_past) = (found.line.is_some(), found.past.is_some());
            if let Fact::Indexed(record) = &fact {
                found.indexed.get_or_insert(entry.seq);
                if by == By::Index {
                    found.past.get_or_insert_with(|| Arc::clone(record));
                    if counts {
                        found.line.get_or_insert_with(|| (entry.seq, Arc::clone(record)));
                    }
                }
            }
            if counts {
                next = match &fact {
                    Fact::Restored(restore) if restore.to >= entry.seq => {
                        return Err(damaged(log, "it was put back to an entry that isn't there"));
                    }
                    Fact::Restored(restore) => Some(restore.to),
                    _ => entry.seq.0.checked_sub(1).map(Seq),
                };
            }
            if found.line.is_some() && found.past.is_some() {
                return Ok(found);
            }
            found.tales.push(Tale { entry, fact, counts, in_line, in_past });
        }
        if by == By::WholeLog {
            break;
        }
    }
    Ok(found)
}

pub(crate) fn damaged(log: &RunLog, detail: &str) -> StoreError {
    StoreError::corrupt(format!("run {}", log.run()), detail)
}
