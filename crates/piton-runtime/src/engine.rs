//! For engines that name their steps themselves, such as workflows: how a step stands, and that one which touches
//! the world is about to begin. Others use [`step`](crate::Scope::step) and [`effect`](crate::Scope::effect).

use std::time::Duration;

use piton_types::{BlobId, EntryKind, StepPath, TokenUsage, Value, to_value};

use crate::effect::{EffectAnswer, Uncertain, about};
use crate::fact::Fact;
use crate::record::{EffectStatus, IntentRecord};
use crate::scope::hash;
use crate::{Entry, Run, RunError, Turn};

/// How a step stands in the log.
#[derive(Debug, Clone, PartialEq)]
pub enum StepStanding {
    /// It is to run: it never ended, or failed and is tried again.
    Open {
        /// How often it failed since it was last begun anew.
        attempts: u32,
        /// How long to wait before the next attempt.
        wait: Duration,
    },
    /// It ended well.
    Finished {
        /// What it gave.
        output: Value,
        /// Its place in the order in which steps ended.
        order: u64,
        /// What it used.
        usage: TokenUsage,
    },
    /// It failed for good, and the engine dealt with that.
    Failed {
        /// Why.
        error: String,
        /// Its place in the order in which steps ended.
        order: u64,
    },
}

/// Whether a step that touches the world may begin.
#[derive(Debug, Clone, PartialEq)]
pub enum Intended {
    /// It may. The key is the same for every attempt that wasn't answered, in whichever process.
    Go {
        /// To be passed on to a service that recognises repetitions.
        key: BlobId,
    },
    /// A person says that it took place and gave this.
    Done(Value),
    /// It may have taken place before, and isn't to be done again.
    Unknown,
    /// It may have taken place before: a person is to be asked, at this place, and what that person says counts.
    Ask {
        /// The place of the question.
        question: StepPath,
        /// What to ask.
        prompt: String,
    },
}

impl Run {
    /// How a step of an engine stands.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn standing(&self, path: &StepPath) -> Result<StepStanding, RunError> {
        let core = self.core();
        core.recall(path).await?;
        let known = core.known();
        let line = &known.line;
        let anew = StepStanding::Open { attempts: 0, wait: Duration::ZERO };
        let Some(step) = line.steps.get(path) else { return Ok(anew) };
        let order = line.order.get(path).copied().unwrap_or_default();
        if step.is_finished() {
            return Ok(StepStanding::Finished { output: step.output.clone(), order, usage: step.usage });
        }
        let begun = line.reopened.get(path).copied();
        Ok(match &step.retry {
            Some(due) => {
                let attempts = step.attempt.saturating_sub(begun.unwrap_or_default());
                StepStanding::Open { attempts, wait: due.left(&core.context) }
            }
            None if begun == Some(step.attempt) => anew,
            None => StepStanding::Failed { error: step.error.clone().unwrap_or_default(), order },
        })
    }

    /// How often the run was tried again after it had failed.
    pub fn retries(&self) -> u32 {
        self.core().retries
    }

    /// What the engine had counted when the newest step ended; null if nothing.
    pub fn tally(&self) -> Value {
        self.core().known().line.tally.clone()
    }

    /// That another step may begin: the run is ours, its log can be written, and in a run of one step only that one may.
    /// An engine asks before each of its steps. What the run is told to do, an engine learns from its
    /// [`orders`](Self::orders).
    ///
    /// # Errors
    ///
    /// [`RunError::Stopped`] if the run is paused or cancelled, [`RunError::Alone`] if another step is tried out.
    pub fn admit(&self, path: &StepPath) -> Result<(), RunError> {
        let core = self.core();
        core.check_alone(path)?;
        core.check_ready()
    }
}

impl Turn<'_> {
    /// Whether a step that touches the world may begin; and if so, the entry that says that it is about to. The entry of
    /// its [end](Self::ended) is the receipt. Until then it is uncertain, and `uncertain` says what becomes of such a one
    /// when the run goes on. `said` is what a person said when [asked](Intended::Ask).
    ///
    /// # Errors
    ///
    /// As [`ended`](Self::ended).
    pub fn intended(
        &mut self,
        path: &StepPath,
        input: &Value,
        uncertain: Uncertain,
        said: Option<EffectAnswer>,
    ) -> Result<(Intended, Option<Entry>), RunError> {
        let core = self.core;
        if let Some(done) = core.known().line.steps.get(path).filter(|step| step.is_finished()) {
            return Ok((Intended::Done(done.output.clone()), None));
        }
        let before = core.known().line.effects.get(path).cloned();
        let (key, attempt, call) = match before {
            None => (core.effect_key(path, 0), 1, 0),
            Some(effect) => {
                let (intent, receipt) = (&effect.intent, &effect.receipt);
                match effect.status() {
                    // The process died in the middle, or there was no answer.
                    EffectStatus::Uncertain => {
                        match uncertain {
                            Uncertain::CallAgain => {}
                            // A step that tries again what wasn't answered does so by its own policy.
                            _ if receipt.as_ref().is_some_and(|receipt| receipt.retry.is_some()) => {}
                            Uncertain::GiveUp => return Ok((Intended::Unknown, None)),
                            Uncertain::Ask => match said {
                                None => {
                                    let (question, prompt) = about(intent)?;
                                    return Ok((Intended::Ask { question, prompt }, None));
                                }
                                Some(EffectAnswer::NotDone) => {}
                                Some(EffectAnswer::Done(output)) => return Ok((Intended::Done(output), None)),
                                Some(EffectAnswer::GiveUp) => return Ok((Intended::Unknown, None)),
                            },
                        }
                        (intent.key, intent.attempt + 1, intent.call)
                    }
                    _ => (core.effect_key(path, intent.call + 1), intent.attempt + 1, intent.call + 1),
                }
            }
        };
        let intent = IntentRecord {
            path: path.clone(),
            place: None,
            key,
            input_hash: hash(input)?,
            input: input.clone(),
            compensation: None,
            attempt,
            call,
        };
        let body = to_value(&intent).map_err(RunError::value(format!("the intent of step {path}")))?;
        let entry = self.made(EntryKind::EffectIntent, path.to_string(), body, Fact::Intent(intent))?;
        Ok((Intended::Go { key }, Some(entry)))
    }
}
