//! What counts of a run's log: the line of entries that leads to its end, without what was undone.
//!
//! The same fold serves whoever opens a run, whoever drives it and finds that others have added entries,
//! and whoever only looks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use piton_log::{RunLog, SealedEntry};
use piton_store::StoreError;
use piton_types::{EntryKind, Queued, RunState, StepPath, Value, from_value};
use serde::de::DeserializeOwned;

use crate::record::{
    AnswerRecord, ClaimRecord, EffectRecord, EffectStatus, FailureKind, IntentRecord, LogRecord, Order, Origin,
    QuestionRecord, ReceiptRecord, RequestRecord, RestoreRecord, StepRecord, Witness,
};

/// The body of an entry.
#[derive(Debug, Clone)]
pub(crate) enum Fact {
    Created(Box<Queued>, Option<Box<Origin>>),
    Claimed(ClaimRecord),
    State(RunState),
    Step(Arc<StepRecord>),
    Intent(IntentRecord),
    Receipt(ReceiptRecord),
    Asked(QuestionRecord),
    Answer(AnswerRecord),
    Requested(RequestRecord),
    Restored(RestoreRecord),
    Logged(LogRecord),
    /// A checkpoint, or a word about some: nothing that a run follows.
    Checkpoint,
}

/// The field of entry 0 that says where a run comes from.
pub(crate) const ORIGIN: &str = "origin";

impl Fact {
    /// Reads the body of an entry.
    pub(crate) async fn read(log: &RunLog, entry: &SealedEntry) -> Result<Self, StoreError> {
        if matches!(entry.kind, EntryKind::Checkpoint | EntryKind::Removed | EntryKind::FilesRestored) {
            return Ok(Self::Checkpoint);
        }
        let mut body = log.body(entry).await?;
        let origin = match &mut body {
            Value::Map(map) if entry.kind == EntryKind::Created => map.remove(ORIGIN),
            _ => None,
        };
        fn decode<T: DeserializeOwned>(log: &RunLog, entry: &SealedEntry, body: Value) -> Result<T, StoreError> {
            from_value(body).map_err(|error| {
                StoreError::corrupt(format!("the body of entry {} of run {}", entry.seq, log.run()), error.to_string())
            })
        }
        Ok(match entry.kind {
            EntryKind::Created => {
                let RunState::Queued(queued) = decode(log, entry, body)? else {
                    let what = format!("entry {} of run {}", entry.seq, log.run());
                    return Err(StoreError::corrupt(what, "it doesn't create a run"));
                };
                let origin = origin.map(|origin| decode(log, entry, origin)).transpose()?;
                Self::Created(Box::new(queued), origin.map(Box::new))
            }
            EntryKind::Claimed => Self::Claimed(decode(log, entry, body)?),
            EntryKind::StateChanged => Self::State(decode(log, entry, body)?),
            EntryKind::StepDone => Self::Step(Arc::new(decode(log, entry, body)?)),
            EntryKind::EffectIntent => Self::Intent(decode(log, entry, body)?),
            EntryKind::EffectReceipt => Self::Receipt(decode(log, entry, body)?),
            EntryKind::Asked => Self::Asked(decode(log, entry, body)?),
            EntryKind::Answer => Self::Answer(decode(log, entry, body)?),
            EntryKind::Requested => Self::Requested(decode(log, entry, body)?),
            EntryKind::Restored => Self::Restored(decode(log, entry, body)?),
            EntryKind::Logged => Self::Logged(decode(log, entry, body)?),
            EntryKind::Checkpoint | EntryKind::Removed | EntryKind::FilesRestored => Self::Checkpoint,
        })
    }

    /// The call that it belongs to.
    pub(crate) fn path(&self) -> Option<&StepPath> {
        match self {
            Self::Step(step) => Some(&step.path),
            Self::Intent(intent) => Some(&intent.path),
            Self::Asked(question) => Some(&question.path),
            _ => None,
        }
    }

    /// The state that the run is in since this entry, if it changed it.
    pub(crate) fn state(&self) -> Option<RunState> {
        match self {
            Self::Created(queued, _) => Some(RunState::Queued((**queued).clone())),
            Self::Claimed(claim) => Some(claim.state.clone()),
            Self::State(state) => Some(state.clone()),
            Self::Asked(question) => Some(question.state.clone()),
            _ => None,
        }
    }
}

/// A question and its answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    /// Without the question in a fork, which has only answers.
    pub(crate) question: Option<QuestionRecord>,
    pub(crate) answer: Option<AnswerRecord>,
}

/// What counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    /// The newest attempt at every step.
    pub(crate) steps: BTreeMap<StepPath, Arc<StepRecord>>,
    /// The order in which those attempts ended.
    pub(crate) order: HashMap<StepPath, u64>,
    /// What the engine had counted when the newest of them ended.
    pub(crate) tally: Value,
    /// Every effect.
    pub(crate) effects: BTreeMap<StepPath, EffectRecord>,
    /// Every question.
    pub(crate) questions: BTreeMap<StepPath, Asked>,
    /// Which call each scope made at which place.
    places: HashMap<String, BTreeMap<u32, StepPath>>,
    /// Failed calls that are to be tried again since the run was, and how many attempts there were then.
    pub(crate) reopened: BTreeMap<StepPath, u32>,
    /// What whoever drives it was asked to do, and hasn't yet.
    pub(crate) request: Option<RequestRecord>,
    /// Whether whoever asked last goes on holding the run.
    pub(crate) waiting_held: bool,
    /// Raised by everything after which an effect is another one.
    pub(crate) epoch: u32,
    /// The step that the run failed of.
    failed_of: Option<StepPath>,
    /// How many attempts were followed by another at the same step.
    replaced: u64,
}

impl Line {
    /// Which call a scope made at a place.
    pub(crate) fn at(&self, scope: &str, place: u32) -> Option<&StepPath> {
        self.places.get(scope)?.get(&place)
    }

    /// The steps that are wanted, in the order in which they ended.
    pub(crate) fn in_order(&self, is_wanted: impl Fn(&StepRecord) -> bool) -> impl Iterator<Item = &StepRecord> {
        let steps = self.steps.values().map(|step| &**step).filter(|step| is_wanted(step));
        let mut steps: Vec<_> = steps.collect();
        steps.sort_by_cached_key(|step| self.order.get(&step.path).copied());
        steps.into_iter()
    }

    /// Takes in the next entry that counts.
    pub(crate) fn take(&mut self, fact: Fact) {
        match fact {
            Fact::Created(_, Some(origin)) => self.inherit(*origin),
            Fact::Step(step) => {
                self.put(&step.path, step.place);
                if step.is_finished() {
                    self.reopened.remove(&step.path);
                } else if step.retry.is_some() {
                    self.reopen_inside(&step.path);
                }
                self.receive(&step);
                let newest = self.order.len() as u64 + self.replaced;
                self.replaced += u64::from(self.order.insert(step.path.clone(), newest).is_some());
                if !step.tally.is_null() {
                    self.tally = step.tally.clone();
                }
                self.steps.insert(step.path.clone(), step);
            }
            Fact::Intent(intent) => {
                self.put(&intent.path, intent.place);
                self.effects.insert(intent.path.clone(), EffectRecord { intent, receipt: None });
            }
            Fact::Receipt(receipt) => {
                // Whatever it says, that is what became of trying it again.
                if receipt.retry.is_none() {
                    self.reopened.remove(&receipt.path);
                }
                if let Some(effect) = self.effects.get_mut(&receipt.path) {
                    effect.receipt = Some(receipt);
                }
            }
            Fact::Asked(question) => {
                self.put(&question.path, question.place);
                self.waiting_held = question.held;
                // It may be said again by who lets go of the run just when somebody has answered.
                let before = self.questions.remove(&question.path);
                let is_same = |asked: &Asked| asked.question.as_ref().is_some_and(|old| old.token == question.token);
                let answer = before.filter(is_same).and_then(|asked| asked.answer);
                self.questions.insert(question.path.clone(), Asked { question: Some(question), answer });
            }
            Fact::Answer(answer) => {
                if let Some(asked) = self.questions.get_mut(&answer.path) {
                    asked.answer = Some(answer);
                }
            }
            Fact::Requested(request) => self.request = Some(request),
            Fact::Restored(restore) => self.epoch = restore.epoch,
            // Whoever goes on isn't to stop; but what was given up stays so, if nobody came to do it.
            Fact::Claimed(_) => self.keep_cancel(),
            Fact::State(RunState::Failed(failed)) => {
                self.failed_of = failed.step.as_ref().and_then(|step| step.parse().ok());
            }
            Fact::State(RunState::Queued(_)) => self.reopen(),
            // The way of a run that is given up leads through a pause.
            Fact::State(RunState::Paused(_)) => self.keep_cancel(),
            Fact::State(state) => {
                self.request = None;
                self.waiting_held &= !matches!(state, RunState::Waiting(_));
            }
            Fact::Created(_, None) | Fact::Logged(_) | Fact::Checkpoint => {}
        }
    }

    /// Forgets what was asked, unless it was to give the run up.
    fn keep_cancel(&mut self) {
        self.request = self.request.take().filter(|request| request.order == Order::Cancel);
    }

    fn put(&mut self, path: &StepPath, place: Option<u32>) {
        let (Some(place), scope) = (place, scope_of(path)) else { return };
        match self.places.get_mut(scope) {
            Some(calls) => drop(calls.insert(place, path.clone())),
            None => drop(self.places.insert(scope.to_owned(), BTreeMap::from([(place, path.clone())]))),
        }
    }

    /// A step of an engine ended: that is the receipt of what it intended.
    fn receive(&mut self, step: &StepRecord) {
        let Some(effect) = self.effects.get_mut(&step.path).filter(|effect| effect.intent.place.is_none()) else {
            return;
        };
        effect.receipt = Some(ReceiptRecord {
            path: step.path.clone(),
            key: effect.intent.key,
            status: match step.failure {
                _ if step.is_finished() => EffectStatus::Done,
                Some(FailureKind::Timeout | FailureKind::Unanswered) => EffectStatus::Uncertain,
                _ => EffectStatus::NotDone,
            },
            output: Value::Null,
            error: step.error.clone(),
            retry: step.retry.clone(),
            by: Witness::Call,
            duration_ms: step.duration_ms,
        });
    }

    /// A step that has others inside is tried again: so are those of them that failed.
    fn reopen_inside(&mut self, path: &StepPath) {
        let failed = self.inside(path).filter(|step| !step.is_finished() && step.retry.is_none());
        let failed: Vec<_> = failed.map(|step| (step.path.clone(), step.attempt)).collect();
        self.reopened.extend(failed);
    }

    /// The steps inside another.
    fn inside<'a>(&'a self, path: &StepPath) -> impl Iterator<Item = &'a Arc<StepRecord>> {
        let prefix = format!("{path}/");
        // Paths with the same beginning stand together, but not right behind it: '#' comes before '/'.
        self.steps
            .range(path.clone()..)
            .take_while({
                let path = path.to_string();
                move |(other, _)| other.as_str().starts_with(&path)
            })
            .filter(move |(other, _)| other.as_str().starts_with(&prefix))
            .map(|(_, step)| step)
    }

    /// What a fork has of its parent.
    fn inherit(&mut self, origin: Origin) {
        let Origin::Fork { epoch, steps, effects, answers, .. } = origin else { return };
        self.epoch = epoch;
        for step in steps {
            self.take(Fact::Step(Arc::new(step)));
        }
        for effect in effects {
            self.take(Fact::Intent(effect.intent));
            effect.receipt.into_iter().for_each(|receipt| self.take(Fact::Receipt(receipt)));
        }
        for answer in answers {
            self.put(&answer.path, answer.place);
            self.questions.insert(answer.path.clone(), Asked { question: None, answer: Some(answer) });
        }
    }

    /// The run is tried again after a failure: so is the call that it failed of. If it doesn't say which,
    /// all failed calls after which their scope made no other; the program has dealt with those before.
    pub(crate) fn reopen(&mut self) {
        let named = self.failed_of.take();
        let is_last = |line: &Self, path: &StepPath, place: Option<u32>| {
            let (Some(place), Some(calls)) = (place, line.places.get(scope_of(path))) else { return true };
            calls.last_key_value().is_none_or(|(last, _)| *last <= place)
        };
        let failed: Vec<_> = self
            .steps
            .values()
            .filter(|step| !step.is_finished() && step.retry.is_none())
            .filter(|step| match &named {
                Some(named) => step.path == *named || is_inside(&step.path, named),
                None => is_last(self, &step.path, step.place),
            })
            .map(|step| (step.path.clone(), step.attempt))
            .collect();
        let effects: Vec<_> = self
            .effects
            .values()
            .filter(|effect| effect.intent.place.is_some())
            .filter(|effect| effect.receipt.as_ref().is_some_and(|receipt| receipt.error.is_some()))
            .filter(|effect| match &named {
                Some(named) => effect.intent.path == *named,
                None => is_last(self, &effect.intent.path, effect.intent.place),
            })
            .map(|effect| (effect.intent.path.clone(), effect.intent.attempt))
            .collect();
        self.reopened.extend(failed.into_iter().chain(effects));
    }

    /// The questions that wait for an answer.
    pub(crate) fn open_questions(&self) -> impl Iterator<Item = &QuestionRecord> {
        self.questions.values().filter(|asked| asked.answer.is_none()).filter_map(|asked| asked.question.as_ref())
    }
}

/// Whether a step is a part of another.
pub(crate) fn is_inside(path: &StepPath, outer: &StepPath) -> bool {
    path.as_str().strip_prefix(outer.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

/// The scope that a path belongs to; empty for the outermost.
pub(crate) fn scope_of(path: &StepPath) -> &str {
    path.as_str().rsplit_once('/').map_or("", |(scope, _)| scope)
}
