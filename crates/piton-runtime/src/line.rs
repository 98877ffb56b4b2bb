//! What counts of a run's log: the line of entries that leads to its end, without what was undone.
//!
//! One fold makes it, for the process that opens a run, for the driver that meets entries of others, and for readers.
//! It begins with an empty line, or with an [index](crate::index): then calls that lie before the index are *recalled*
//! from it before an entry about them is taken in, or the program asks for them. What was recalled is held here, so a
//! line knows of a call all that the log has, or nothing yet.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use piton_store::StoreError;
use piton_types::{RunState, Seq, StepPath, Value, to_value};

use crate::fact::Fact;
use crate::index::{Base, CallIndex, Changes, LastStep, LineHead, Noted, Recalled, key};
use crate::record::{
    AnswerRecord, EffectRecord, EffectStatus, FailureKind, IntentRecord, Order, Origin, QuestionRecord, ReceiptRecord,
    RequestRecord, StepRecord, Witness,
};

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
    /// What the driver was asked to do, and hasn't done yet.
    pub(crate) request: Option<RequestRecord>,
    /// Whether the process that asked last goes on holding the run.
    pub(crate) waiting_held: bool,
    /// Raised by everything after which an effect is another one.
    pub(crate) epoch: u32,
    /// The step that the run failed of.
    failed_of: Option<StepPath>,
    /// How many attempts at steps ended.
    ended: u64,
    /// How many steps finished, and the one that did last.
    pub(crate) finished: u64,
    pub(crate) last_finished: Option<StepPath>,
    /// The attempt at a step that ended last.
    pub(crate) last_step: Option<LastStep>,
    /// The newest checkpoint.
    pub(crate) checkpoint: Option<Seq>,
    /// What the program said of its work.
    pub(crate) noted: Noted,
    /// The index that it began with, and what was recalled from it.
    base: Option<Arc<Base>>,
    recalled: HashSet<StepPath>,
    recalled_places: HashSet<(String, u32)>,
    /// The last place of scopes, as of the index.
    last_before: HashMap<String, u32>,
    /// For the next index, if one may be made of it.
    tracked: Option<Box<Tracked>>,
}

/// What changed since the index that a line began with.
#[derive(Debug, Clone, Default)]
struct Tracked {
    /// The entries of every call that was recalled or taken in.
    calls: HashMap<StepPath, CallIndex>,
    /// Calls of which something changed.
    changed: BTreeSet<StepPath>,
    /// The first entry of calls and of all that is around them, as far as it was taken in.
    firsts: BTreeMap<StepPath, Seq>,
    /// Calls at places.
    places: BTreeSet<(String, u32)>,
}

impl Line {
    /// A line that remembers where things stand in the log.
    pub(crate) fn tracked() -> Self {
        Self { tracked: Some(Box::default()), ..Self::default() }
    }

    /// A line that begins with an index. What must be at hand at all times is recalled at once.
    pub(crate) async fn begin(head: LineHead, base: Base) -> Result<Self, StoreError> {
        let open = head.open;
        let mut line = Self {
            tally: head.tally,
            request: head.request,
            waiting_held: head.waiting_held,
            epoch: head.epoch,
            failed_of: head.failed_of,
            ended: head.ended,
            finished: head.finished,
            last_finished: head.last_finished,
            last_step: head.last_step,
            checkpoint: head.checkpoint,
            noted: head.noted,
            base: Some(Arc::new(base)),
            ..Self::tracked()
        };
        for path in open {
            line.recall(&path).await?;
        }
        Ok(line)
    }

    /// The index that it began with, if a call isn't recalled from it.
    pub(crate) fn missing(&self, path: &StepPath) -> Option<Arc<Base>> {
        self.base.as_ref().filter(|_| !self.recalled.contains(path)).cloned()
    }

    /// The same for the call at a place.
    pub(crate) fn missing_place(&self, scope: &str, place: u32) -> Option<Arc<Base>> {
        let is_known = self.places.get(scope).is_some_and(|calls| calls.contains_key(&place));
        let base = self.base.as_ref().filter(|_| !is_known)?;
        (!self.recalled_places.contains(&(scope.to_owned(), place))).then(|| Arc::clone(base))
    }

    /// Remembers what was recalled of a call.
    pub(crate) fn remember(&mut self, path: &StepPath, recalled: Recalled) {
        if !self.recalled.insert(path.clone()) {
            return;
        }
        let Recalled { entries, step, effect, asked } = recalled;
        if let Some((step, (_, order))) = step.zip(entries.step) {
            self.steps.insert(path.clone(), step);
            self.order.insert(path.clone(), order);
        }
        if let Some(effect) = effect {
            self.effects.insert(path.clone(), effect);
        }
        if let Some(asked) = asked {
            self.questions.insert(path.clone(), asked);
        }
        if let Some(reopened) = entries.reopened {
            self.reopened.insert(path.clone(), reopened);
        }
        if let Some(tracked) = self.tracked.as_deref_mut().filter(|_| entries != CallIndex::default()) {
            tracked.calls.insert(path.clone(), entries);
        }
    }

    /// Remembers which call a scope made at a place, if any.
    pub(crate) fn remember_place(&mut self, scope: &str, place: u32, path: Option<StepPath>) {
        self.recalled_places.insert((scope.to_owned(), place));
        if let Some(path) = path {
            self.places.entry(scope.to_owned()).or_default().entry(place).or_insert(path);
        }
    }

    /// Recalls a call, if that wasn't done.
    pub(crate) async fn recall(&mut self, path: &StepPath) -> Result<(), StoreError> {
        if let Some(base) = self.missing(path) {
            let recalled = base.call(path).await?;
            self.remember(path, recalled);
        }
        Ok(())
    }

    /// Recalls what [`take`](Self::take) needs to take in this entry.
    pub(crate) async fn prepare(&mut self, fact: &Fact) -> Result<(), StoreError> {
        let Some(base) = self.base.clone() else { return Ok(()) };
        for path in needs(&base, fact).await? {
            self.recall(&path).await?;
        }
        match fact {
            Fact::State(RunState::Queued(_)) => self.prepare_reopen(&base).await,
            _ => Ok(()),
        }
    }

    /// Recalls the failed calls that [`reopen`](Self::reopen) looks at, and the last places of their scopes.
    async fn prepare_reopen(&mut self, base: &Base) -> Result<(), StoreError> {
        let mut failed = match &self.failed_of {
            Some(named) => base.failed(&key::failed_inside(named)).await?,
            None => base.failed("f").await?,
        };
        failed.extend(self.failed_of.clone());
        for path in &failed {
            self.recall(path).await?;
        }
        let calls = self.steps.keys().chain(self.effects.keys()).filter(|path| self.is_failed(path));
        let scopes: HashSet<String> = calls.map(|path| scope_of(path).to_owned()).collect();
        for scope in scopes {
            if let Some(last) = base.last(&scope).await? {
                self.last_before.insert(scope, last);
            }
        }
        Ok(())
    }

    /// The run is tried again: [`reopen`](Self::reopen), with what is needed for it.
    pub(crate) async fn reopen_run(&mut self) -> Result<(), StoreError> {
        if let Some(base) = self.base.clone() {
            self.prepare_reopen(&base).await?;
        }
        self.reopen();
        Ok(())
    }

    /// Takes over from a line of the whole log what isn't recalled yet. From then on it needs no index.
    pub(crate) fn complete(&mut self, whole: Self) {
        let Self { steps, mut order, effects, questions, places, reopened, .. } = whole;
        let known = std::mem::take(&mut self.recalled);
        let is_new = |path: &StepPath| !known.contains(path);
        for (path, step) in steps.into_iter().filter(|(path, _)| is_new(path)) {
            self.order.extend(order.remove_entry(&path));
            self.steps.insert(path, step);
        }
        self.effects.extend(effects.into_iter().filter(|(path, _)| is_new(path)));
        self.questions.extend(questions.into_iter().filter(|(path, _)| is_new(path)));
        self.reopened.extend(reopened.into_iter().filter(|(path, _)| is_new(path)));
        for (scope, calls) in places {
            let own = self.places.entry(scope).or_default();
            for (place, path) in calls {
                own.entry(place).or_insert(path);
            }
        }
        self.base = None;
    }

    /// It belongs to a driver now, which makes no index of it.
    pub(crate) fn untrack(&mut self) {
        self.tracked = None;
    }

    /// The first entry of a call that counts, or of anything inside it.
    pub(crate) async fn first(&self, path: &StepPath) -> Result<Option<Seq>, StoreError> {
        let before = match &self.base {
            Some(base) => base.entries(path).await?.and_then(|entries| entries.first),
            None => None,
        };
        let since = || self.tracked.as_ref().and_then(|tracked| tracked.firsts.get(path).copied());
        Ok(before.or_else(since))
    }

    /// The entry of the newest attempt at a step.
    pub(crate) async fn step_entry(&self, path: &StepPath) -> Result<Option<Seq>, StoreError> {
        let since = self.tracked.as_ref().and_then(|tracked| tracked.calls.get(path)?.step);
        let step = match (since, &self.base) {
            (None, Some(base)) => base.entries(path).await?.and_then(|entries| entries.step),
            (since, _) => since,
        };
        Ok(step.map(|(seq, _)| seq).filter(|seq| *seq != Seq(0)))
    }

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

    /// Takes in entry `seq`, which is the next that counts, and for which it was [prepared](Self::prepare).
    pub(crate) fn take(&mut self, seq: Seq, fact: Fact) {
        if let Some(path) = fact.path() {
            if self.base.is_some() {
                self.recalled.insert(path.clone());
            }
            if let Some(tracked) = &mut self.tracked {
                tracked.changed.insert(path.clone());
                // What a fork inherits began elsewhere.
                if fact.begins().is_some() && seq != Seq(0) {
                    tracked.begin(path, seq);
                }
            }
        }
        match fact {
            Fact::Created(_, Some(origin)) => self.inherit(*origin),
            Fact::Step(step) => {
                self.put(&step.path, step.place);
                if step.is_finished() {
                    self.reopened.remove(&step.path);
                    // What sums up others isn't one.
                    if !step.path.as_str().contains("/#") {
                        let before = self.steps.get(&step.path).is_some_and(|before| before.is_finished());
                        self.finished += u64::from(!before);
                        self.last_finished = Some(step.path.clone());
                    }
                } else if step.retry.is_some() {
                    self.reopen_inside(&step.path);
                }
                let received = self.receive(&step);
                let order = self.ended;
                self.ended += 1;
                self.order.insert(step.path.clone(), order);
                if let Some(call) = self.call(&step.path) {
                    call.step = Some((seq, order));
                    if received {
                        call.receipt = Some(seq);
                    }
                }
                if !step.tally.is_null() {
                    self.tally = step.tally.clone();
                }
                let (path, error, started_at) = (step.path.clone(), step.error.clone(), step.started_at);
                self.last_step = Some(LastStep { path, error, started_at });
                self.steps.insert(step.path.clone(), step);
            }
            Fact::Intent(intent) => {
                self.put(&intent.path, intent.place);
                if let Some(call) = self.call(&intent.path) {
                    (call.intent, call.receipt) = (Some(seq), None);
                }
                self.effects.insert(intent.path.clone(), EffectRecord { intent, receipt: None });
            }
            Fact::Receipt(receipt) => {
                // Whatever it says, that is what became of trying it again.
                if receipt.retry.is_none() {
                    self.reopened.remove(&receipt.path);
                }
                if let Some(effect) = self.effects.get_mut(&receipt.path) {
                    let path = receipt.path.clone();
                    effect.receipt = Some(receipt);
                    if let Some(call) = self.call(&path) {
                        call.receipt = Some(seq);
                    }
                }
            }
            Fact::Asked(question) => {
                self.put(&question.path, question.place);
                self.waiting_held = question.held;
                // The driver may say it again as it lets go of the run, just when an answer has come.
                let before = self.questions.remove(&question.path);
                let is_same = |asked: &Asked| asked.question.as_ref().is_some_and(|old| old.token == question.token);
                let answer = before.filter(is_same).and_then(|asked| asked.answer);
                if let Some(call) = self.call(&question.path) {
                    call.question = Some(seq);
                    call.answer = call.answer.filter(|_| answer.is_some());
                }
                self.questions.insert(question.path.clone(), Asked { question: Some(question), answer });
            }
            Fact::Answer(answer) => {
                if self.questions.contains_key(&answer.path)
                    && let Some(call) = self.call(&answer.path)
                {
                    call.answer = Some(seq);
                }
                if let Some(asked) = self.questions.get_mut(&answer.path) {
                    asked.answer = Some(answer);
                }
            }
            Fact::Requested(request) => self.request = Some(request),
            Fact::Restored(restore) => self.epoch = restore.epoch,
            // A driver that goes on isn't to stop; but a run that was given up stays so until a driver does it.
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
            Fact::Logged(record) => self.noted.take(record),
            Fact::Created(_, None) | Fact::Indexed(_) | Fact::Checkpoint => {}
        }
    }

    /// Forgets what was asked, unless it was to give the run up.
    fn keep_cancel(&mut self) {
        self.request = self.request.take().filter(|request| request.order == Order::Cancel);
    }

    /// The entries of a call, if they are tracked.
    fn call(&mut self, path: &StepPath) -> Option<&mut CallIndex> {
        let calls = &mut self.tracked.as_deref_mut()?.calls;
        if !calls.contains_key(path) {
            calls.insert(path.clone(), CallIndex::default());
        }
        calls.get_mut(path)
    }

    fn put(&mut self, path: &StepPath, place: Option<u32>) {
        let (Some(place), scope) = (place, scope_of(path)) else { return };
        match self.places.get_mut(scope) {
            Some(calls) => drop(calls.insert(place, path.clone())),
            None => drop(self.places.insert(scope.to_owned(), BTreeMap::from([(place, path.clone())]))),
        }
        if let Some(tracked) = &mut self.tracked {
            tracked.places.insert((scope.to_owned(), place));
        }
    }

    /// A step of an engine ended: that is the receipt of what it intended. Says whether there was such an intent.
    fn receive(&mut self, step: &StepRecord) -> bool {
        let Some(effect) = self.effects.get_mut(&step.path).filter(|effect| effect.intent.place.is_none()) else {
            return false;
        };
        effect.receipt = Some(receipt_of(&effect.intent, step));
        true
    }

    /// A step that has others inside is tried again: so are those of them that failed.
    fn reopen_inside(&mut self, path: &StepPath) {
        let failed = self.inside(path).filter(|step| !step.is_finished() && step.retry.is_none());
        let failed: Vec<_> = failed.map(|step| (step.path.clone(), step.attempt)).collect();
        self.reopen_all(failed);
    }

    fn reopen_all(&mut self, failed: Vec<(StepPath, u32)>) {
        if let Some(tracked) = &mut self.tracked {
            tracked.changed.extend(failed.iter().map(|(path, _)| path.clone()));
        }
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
            self.take(Seq(0), Fact::Step(Arc::new(step)));
        }
        for effect in effects {
            self.take(Seq(0), Fact::Intent(effect.intent));
            effect.receipt.into_iter().for_each(|receipt| self.take(Seq(0), Fact::Receipt(receipt)));
        }
        for answer in answers {
            self.put(&answer.path, answer.place);
            if let Some(tracked) = &mut self.tracked {
                tracked.changed.insert(answer.path.clone());
            }
            if let Some(call) = self.call(&answer.path) {
                call.answer = Some(Seq(0));
            }
            self.questions.insert(answer.path.clone(), Asked { question: None, answer: Some(answer) });
        }
    }

    /// The last place at which a scope made a call.
    fn last_place(&self, scope: &str) -> Option<u32> {
        let since = self.places.get(scope).and_then(|calls| calls.last_key_value()).map(|(last, _)| *last);
        since.max(self.last_before.get(scope).copied())
    }

    /// The run is tried again after a failure: so is the call that it failed of. If it doesn't say which,
    /// all failed calls after which their scope made no other; the program has dealt with those before.
    fn reopen(&mut self) {
        let named = self.failed_of.take();
        let is_last = |line: &Self, path: &StepPath, place: Option<u32>| {
            let (Some(place), Some(last)) = (place, line.last_place(scope_of(path))) else { return true };
            last <= place
        };
        let failed = self
            .steps
            .values()
            .filter(|step| !step.is_finished() && step.retry.is_none())
            .filter(|step| match &named {
                Some(named) => step.path == *named || is_inside(&step.path, named),
                None => is_last(self, &step.path, step.place),
            })
            .map(|step| (step.path.clone(), step.attempt));
        let effects = self
            .effects
            .values()
            .filter(|effect| effect.intent.place.is_some())
            .filter(|effect| effect.receipt.as_ref().is_some_and(|receipt| receipt.error.is_some()))
            .filter(|effect| match &named {
                Some(named) => effect.intent.path == *named,
                None => is_last(self, &effect.intent.path, effect.intent.place),
            })
            .map(|effect| (effect.intent.path.clone(), effect.intent.attempt));
        let all = failed.chain(effects).collect();
        self.reopen_all(all);
    }

    /// The questions that wait for an answer.
    pub(crate) fn open_questions(&self) -> impl Iterator<Item = &QuestionRecord> {
        self.questions.values().filter(|asked| asked.answer.is_none()).filter_map(|asked| asked.question.as_ref())
    }

    /// The effects of which it isn't known whether they took place.
    pub(crate) fn uncertain(&self) -> impl Iterator<Item = &EffectRecord> {
        self.effects.values().filter(|effect| effect.status() == EffectStatus::Uncertain)
    }

    /// The head of an index of it.
    pub(crate) fn head(&self) -> LineHead {
        let questions = self.open_questions().map(|question| question.path.clone());
        let open: BTreeSet<_> = questions.chain(self.uncertain().map(|effect| effect.intent.path.clone())).collect();
        LineHead {
            ended: self.ended,
            finished: self.finished,
            last_finished: self.last_finished.clone(),
            last_step: self.last_step.clone(),
            tally: self.tally.clone(),
            request: self.request.clone(),
            waiting_held: self.waiting_held,
            epoch: self.epoch,
            failed_of: self.failed_of.clone(),
            checkpoint: self.checkpoint,
            noted: self.noted.clone(),
            open: open.into_iter().collect(),
        }
    }

    /// The index that it began with.
    pub(crate) fn base(&self) -> Option<&Arc<Base>> {
        self.base.as_ref()
    }

    /// What changed in the map of calls since the index that it began with.
    pub(crate) async fn changes(&self) -> Result<Changes, StoreError> {
        let mut changes = Changes::new();
        let Some(tracked) = &self.tracked else { return Ok(changes) };
        let value = |value: Result<Value, _>| {
            value.map_err(|error: piton_types::ValueError| StoreError::Invalid {
                what: "an index".to_owned(),
                detail: error.to_string(),
            })
        };
        for path in &tracked.changed {
            let mut call = tracked.calls.get(path).cloned().unwrap_or_default();
            let before = call.failed;
            call.first = call.first.or_else(|| tracked.firsts.get(path).copied());
            call.reopened = self.reopened.get(path).copied();
            call.failed = self.is_failed(path);
            if before != call.failed {
                changes.insert(key::failed(path), call.failed.then_some(Value::Null));
            }
            if call != CallIndex::default() {
                changes.insert(key::call(path), Some(value(to_value(&call))?));
            }
        }
        for (path, first) in tracked.firsts.iter().filter(|(path, _)| !tracked.changed.contains(path)) {
            let known = match &self.base {
                Some(base) => base.entries(path).await?,
                None => None,
            };
            let mut call = known.unwrap_or_default();
            if call.first.is_none() {
                call.first = Some(*first);
                changes.insert(key::call(path), Some(value(to_value(&call))?));
            }
        }
        let mut scopes = BTreeSet::new();
        for (scope, place) in &tracked.places {
            if let Some(path) = self.at(scope, *place) {
                changes.insert(key::place(scope, *place), Some(path.as_str().into()));
            }
            scopes.insert(scope);
        }
        for scope in scopes {
            let before = match &self.base {
                Some(base) => base.last(scope).await?,
                None => None,
            };
            if let Some(last) = self.last_place(scope).max(before) {
                changes.insert(key::last(scope), Some(last.into()));
            }
        }
        Ok(changes)
    }

    /// The calls that failed and aren't tried again unless the run is.
    pub(crate) async fn failed(&self) -> Result<Vec<StepPath>, StoreError> {
        let mut failed = match &self.base {
            Some(base) => base.failed("f").await?,
            None => Vec::new(),
        };
        failed.retain(|path| !self.recalled.contains(path));
        let known: BTreeSet<_> = self.steps.keys().chain(self.effects.keys()).collect();
        failed.extend(known.into_iter().filter(|path| self.is_failed(path)).cloned());
        Ok(failed)
    }

    /// Whether a call failed and isn't tried again unless the run is.
    fn is_failed(&self, path: &StepPath) -> bool {
        let step = self.steps.get(path).is_some_and(|step| !step.is_finished() && step.retry.is_none());
        let effect = self.effects.get(path).filter(|effect| effect.intent.place.is_some());
        step || effect.and_then(|effect| effect.receipt.as_ref()).is_some_and(|receipt| receipt.error.is_some())
    }
}

impl Tracked {
    /// A call began, or went on: so did all that is around it.
    fn begin(&mut self, path: &StepPath, seq: Seq) {
        let text = path.as_str();
        let around = text.match_indices('/').filter_map(|(end, _)| text[..end].parse().ok());
        for path in around.chain([path.clone()]) {
            self.firsts.entry(path).or_insert(seq);
        }
    }
}

/// The calls of an index that must be known before an entry is taken in.
pub(crate) async fn needs(base: &Base, fact: &Fact) -> Result<Vec<StepPath>, StoreError> {
    let mut needs: Vec<_> = fact.path().cloned().into_iter().collect();
    if let Fact::Step(step) = fact
        && !step.is_finished()
        && step.retry.is_some()
    {
        needs.extend(base.failed(&key::failed_inside(&step.path)).await?);
    }
    Ok(needs)
}

/// What the end of an engine's step says of the effect that it was.
pub(crate) fn receipt_of(intent: &IntentRecord, step: &StepRecord) -> ReceiptRecord {
    ReceiptRecord {
        path: step.path.clone(),
        key: intent.key,
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
