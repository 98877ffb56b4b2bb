//! What lies before the entries that were read: calls, looked up in the newest index when they are asked for.

use std::collections::HashMap;
use std::sync::Arc;

use piton_store::StoreError;
use piton_types::{Seq, StepPath, from_value};
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::{CallIndex, PageRef, Pages, key};
use crate::fact::Fact;
use crate::line::{Asked, receipt_of};
use crate::record::{AnswerRecord, EffectRecord, Origin, StepRecord};

/// The calls of an index.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) pages: Arc<Pages>,
    pub(crate) root: Option<PageRef>,
    /// The newest entry that was read.
    pub(crate) end: Seq,
    inherited: OnceCell<Inherited>,
}

/// What a fork has of its parent, by path.
#[derive(Debug, Default)]
struct Inherited {
    steps: HashMap<StepPath, Arc<StepRecord>>,
    effects: HashMap<StepPath, EffectRecord>,
    answers: HashMap<StepPath, AnswerRecord>,
}

/// What an index has of a call.
#[derive(Debug, Default)]
pub(crate) struct Recalled {
    pub(crate) entries: CallIndex,
    pub(crate) step: Option<Arc<StepRecord>>,
    pub(crate) effect: Option<EffectRecord>,
    pub(crate) asked: Option<Asked>,
}

impl Base {
    pub(crate) fn new(pages: Arc<Pages>, root: Option<PageRef>, end: Seq) -> Self {
        Self { pages, root, end, inherited: OnceCell::new() }
    }

    fn corrupt(&self, detail: impl Into<String>) -> StoreError {
        StoreError::corrupt(format!("the index of run {}", self.pages.log().run()), detail)
    }

    async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        let Some(value) = self.pages.get(self.root, key).await? else { return Ok(None) };
        from_value(value).map(Some).map_err(|error| self.corrupt(error.to_string()))
    }

    /// Which entries count of a call.
    pub(crate) async fn entries(&self, path: &StepPath) -> Result<Option<CallIndex>, StoreError> {
        self.get(&key::call(path)).await
    }

    /// Which call a scope made at a place.
    pub(crate) async fn at(&self, scope: &str, place: u32) -> Result<Option<StepPath>, StoreError> {
        self.get(&key::place(scope, place)).await
    }

    /// The last place at which a scope made a call.
    pub(crate) async fn last(&self, scope: &str) -> Result<Option<u32>, StoreError> {
        self.get(&key::last(scope)).await
    }

    /// The failed calls whose keys begin so.
    pub(crate) async fn failed(&self, prefix: &str) -> Result<Vec<StepPath>, StoreError> {
        let found = self.pages.scan(self.root, prefix).await?;
        let path = |key: &String| key[1..].parse().map_err(|_| self.corrupt(format!("{key:?} is no path")));
        found.iter().map(|(key, _)| path(key)).collect()
    }

    /// All that counts of a call.
    pub(crate) async fn call(&self, path: &StepPath) -> Result<Recalled, StoreError> {
        let Some(entries) = self.entries(path).await? else { return Ok(Recalled::default()) };
        let mut recalled = Recalled::default();
        if let Some((seq, _)) = entries.step {
            recalled.step = Some(self.step(seq, path).await?);
        }
        if let Some(seq) = entries.intent {
            let mut effect = self.intent(seq, path).await?;
            match entries.receipt {
                None => effect.receipt = None,
                // What came with the intent.
                Some(receipt) if receipt == seq => {}
                Some(receipt) => {
                    effect.receipt = Some(match self.fact(receipt).await? {
                        Fact::Receipt(receipt) if receipt.path == *path => receipt,
                        Fact::Step(step) if step.path == *path => receipt_of(&effect.intent, &step),
                        _ => return Err(self.wrong(receipt, path)),
                    });
                }
            }
            recalled.effect = Some(effect);
        }
        let question = match entries.question {
            None => None,
            Some(seq) => match self.fact(seq).await? {
                Fact::Asked(question) if question.path == *path => Some(question),
                _ => return Err(self.wrong(seq, path)),
            },
        };
        let answer = match entries.answer {
            None => None,
            Some(Seq(0)) => self.inherited().await?.answers.get(path).cloned(),
            Some(seq) => match self.fact(seq).await? {
                Fact::Answer(answer) if answer.path == *path => Some(answer),
                _ => return Err(self.wrong(seq, path)),
            },
        };
        if question.is_some() || answer.is_some() {
            recalled.asked = Some(Asked { question, answer });
        }
        recalled.entries = entries;
        Ok(recalled)
    }

    fn wrong(&self, seq: Seq, path: &StepPath) -> StoreError {
        self.corrupt(format!("entry {seq} isn't what it says of {path}"))
    }

    async fn fact(&self, seq: Seq) -> Result<Fact, StoreError> {
        let log = self.pages.log();
        Fact::read(log, &log.entry(seq).await?).await
    }

    async fn step(&self, seq: Seq, path: &StepPath) -> Result<Arc<StepRecord>, StoreError> {
        if seq == Seq(0) {
            let inherited = self.inherited().await?.steps.get(path).cloned();
            return inherited.ok_or_else(|| self.wrong(seq, path));
        }
        match self.fact(seq).await? {
            Fact::Step(step) if step.path == *path => Ok(step),
            _ => Err(self.wrong(seq, path)),
        }
    }

    async fn intent(&self, seq: Seq, path: &StepPath) -> Result<EffectRecord, StoreError> {
        if seq == Seq(0) {
            let inherited = self.inherited().await?.effects.get(path).cloned();
            return inherited.ok_or_else(|| self.wrong(seq, path));
        }
        match self.fact(seq).await? {
            Fact::Intent(intent) if intent.path == *path => Ok(EffectRecord { intent, receipt: None }),
            _ => Err(self.wrong(seq, path)),
        }
    }

    /// What entry 0 of a fork has. It is read as a whole, once.
    async fn inherited(&self) -> Result<&Inherited, StoreError> {
        let read = async || {
            let Fact::Created(_, Some(origin)) = self.fact(Seq(0)).await? else { return Ok(Inherited::default()) };
            let Origin::Fork { steps, effects, answers, .. } = *origin else { return Ok(Inherited::default()) };
            Ok(Inherited {
                steps: steps.into_iter().map(|step| (step.path.clone(), Arc::new(step))).collect(),
                effects: effects.into_iter().map(|effect| (effect.intent.path.clone(), effect)).collect(),
                answers: answers.into_iter().map(|answer| (answer.path.clone(), answer)).collect(),
            })
        };
        self.inherited.get_or_try_init(read).await
    }
}
