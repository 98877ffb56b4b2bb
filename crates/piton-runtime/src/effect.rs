//! Effects: actions on the outside world, with a ledger (decision 4 of the design).
//!
//! The intent, with its key, is in the log before the call, and the receipt after it. So after a crash
//! every effect is done, not done, or uncertain, and an uncertain one is never simply repeated: it is
//! looked up, called again with the same key if the other side knows keys, or put before a person.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use piton_store::Hashing;
use piton_types::{BlobId, Event, StepPath, TokenUsage, Value, WaitFor, from_value};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::attempt::Attempt;
use crate::core::Core;
use crate::deadline::millis;
use crate::fact::Fact;
use crate::record::{Compensation, EffectRecord, EffectStatus, IntentRecord, ReceiptRecord, Witness};
use crate::scope::{Input, Place};
use crate::step::{decode, store_output};
use crate::{Call, Deadline, FailureKind, RetryPolicy, RunError, Scope, Wait};

/// What to do about an effect of which it isn't known whether it took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uncertain {
    /// Ask a person, who answers with an [`EffectAnswer`].
    #[default]
    Ask,
    /// Call again with the same key: the other side recognises it and does nothing twice.
    CallAgain,
    /// It counts as failed.
    GiveUp,
}

/// How an effect is performed.
#[derive(Debug, Clone, Default)]
pub struct EffectOptions {
    /// What to do if it is uncertain and a probe, if there is one, can't tell.
    pub uncertain: Uncertain,
    /// How to take it back.
    pub compensation: Option<Compensation>,
    /// When it is tried again if it didn't take place; the run's policy, if nothing is said.
    pub retry: Option<RetryPolicy>,
    /// How long one call may take; then it is uncertain.
    pub timeout: Option<Duration>,
}

/// Why a call failed, and what that says about the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectFailure {
    /// It certainly didn't take place.
    NotDone(String),
    /// It may have: the connection broke after the request was sent.
    Uncertain(String),
}

impl EffectFailure {
    /// It certainly didn't take place.
    pub fn not_done(error: impl fmt::Display) -> Self {
        Self::NotDone(error.to_string())
    }

    /// It may have taken place.
    pub fn uncertain(error: impl fmt::Display) -> Self {
        Self::Uncertain(error.to_string())
    }
}

/// What a look at the world says about an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probed<T> {
    /// It took place, and gave this.
    Done(T),
    /// It didn't.
    NotDone,
    /// That can't be told.
    Unknown,
}

/// What a person says about an effect; the value to [`answer`](crate::answer) with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectAnswer {
    /// It took place, and gave this.
    Done(Value),
    /// It didn't, and is to be called again.
    NotDone,
    /// It is not to be called again, whatever became of it.
    GiveUp,
}

/// For an effect that has no probe.
type NoProbe<I, T> = fn(I, BlobId) -> std::future::Ready<Result<Probed<T>, EffectFailure>>;

impl Scope {
    /// Performs an action on the outside world once. `call` gets the key of the effect, which is the same
    /// for every attempt at it, in whichever process: pass it on to a service that recognises repetitions.
    ///
    /// It costs two commits: the intent before the call, the receipt after it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use piton_runtime::{Context, EffectFailure, EffectOptions, OpenRun, Run, RunError, Uncertain};
    /// # use piton_store_objects::ObjectStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RunError> {
    /// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
    /// # async fn post(_to: &str, _key: String) -> Result<u32, EffectFailure> { Ok(7) }
    /// let mut run = Run::open(&context, OpenRun::default()).await?;
    /// let options = EffectOptions { uncertain: Uncertain::CallAgain, ..EffectOptions::default() };
    /// let order = run.effect("order", options, "coffee", async |what, key| post(what, key.to_string()).await).await?;
    /// assert_eq!(order, 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`RunError::Effect`] if it didn't take place, or if that couldn't be found out; [`RunError::Changed`] if the log
    /// has another call at this place; what [`wait_for`](Self::wait_for) says if a person is asked.
    pub async fn effect<I, T, W>(
        &mut self,
        name: &str,
        options: EffectOptions,
        input: I,
        call: impl FnMut(I, BlobId) -> W + Send,
    ) -> Result<T, RunError>
    where
        I: Serialize + Clone + Send + Sync,
        T: Serialize + DeserializeOwned + Send,
        W: Future<Output = Result<T, EffectFailure>> + Send,
    {
        self.perform(name, options, input, call, None::<NoProbe<I, T>>).await
    }

    /// [`effect`](Self::effect), with a look at the world that tells whether an uncertain one took place.
    pub async fn effect_with_probe<I, T, W, P>(
        &mut self,
        name: &str,
        options: EffectOptions,
        input: I,
        call: impl FnMut(I, BlobId) -> W + Send,
        probe: impl FnMut(I, BlobId) -> P + Send,
    ) -> Result<T, RunError>
    where
        I: Serialize + Clone + Send + Sync,
        T: Serialize + DeserializeOwned + Send,
        W: Future<Output = Result<T, EffectFailure>> + Send,
        P: Future<Output = Result<Probed<T>, EffectFailure>> + Send,
    {
        self.perform(name, options, input, call, Some(probe)).await
    }

    async fn perform<I, T, W, P>(
        &mut self,
        name: &str,
        options: EffectOptions,
        input: I,
        mut call: impl FnMut(I, BlobId) -> W + Send,
        mut probe: Option<impl FnMut(I, BlobId) -> P + Send>,
    ) -> Result<T, RunError>
    where
        I: Serialize + Clone + Send + Sync,
        T: Serialize + DeserializeOwned + Send,
        W: Future<Output = Result<T, EffectFailure>> + Send,
        P: Future<Output = Result<Probed<T>, EffectFailure>> + Send,
    {
        let place = self.place(name)?;
        let stored = Input::new(&place.path, &input)?;
        let core = &*self.core;
        core.check_place(&place, &stored).await?;
        let path = &place.path;
        loop {
            let (found, reopened) = {
                let known = core.known();
                (known.line.effects.get(path).cloned(), known.line.reopened.get(path).copied())
            };
            let again = match &found {
                None => true,
                Some(effect) if effect.intent.input_hash != stored.hash => {
                    let expected = Call { step: path.clone(), input: Some(effect.intent.input.clone()) };
                    return Err(core.changed(expected, &place, &stored));
                }
                Some(effect) => {
                    let next = next(effect, reopened);
                    match next {
                        Next::Return => return ended(effect),
                        Next::After(due) => {
                            core.check_ready()?;
                            core.pause(due.left(&core.context)).await;
                            true
                        }
                        Next::Call => true,
                        Next::FindOut => {
                            let probe = probe.as_mut().map(|probe| probe(input.clone(), effect.intent.key));
                            core.resolve(effect, &options, probe).await?
                        }
                    }
                }
            };
            if again {
                core.call(&place, &stored, &options, |key| call(input.clone(), key)).await?;
            }
        }
    }
}

/// What is to be done about an effect that the log has.
enum Next {
    /// It is over.
    Return,
    /// It is called again then.
    After(Deadline),
    /// It is called again.
    Call,
    /// It isn't known whether it took place.
    FindOut,
}

fn next(effect: &EffectRecord, reopened: Option<u32>) -> Next {
    let tried_again = reopened == Some(effect.intent.attempt);
    match (effect.status(), &effect.receipt) {
        // The process died between the two entries.
        (_, None) => Next::FindOut,
        (EffectStatus::Done | EffectStatus::Compensated, _) => Next::Return,
        (_, Some(ReceiptRecord { retry: Some(due), .. })) => Next::After(due.clone()),
        (EffectStatus::NotDone, _) if tried_again => Next::Call,
        // The run is tried again. What was uncertain still is.
        (EffectStatus::Uncertain, _) if tried_again => Next::FindOut,
        _ => Next::Return,
    }
}

/// What an effect that is over gave.
fn ended<T: DeserializeOwned>(effect: &EffectRecord) -> Result<T, RunError> {
    let step = effect.intent.path.clone();
    let receipt = effect.receipt.as_ref();
    let (status, message) = match effect.status() {
        EffectStatus::Done => return decode(&step, receipt.map_or(Value::Null, |receipt| receipt.output.clone())),
        EffectStatus::Compensated => (EffectStatus::NotDone, "it was taken back".to_owned()),
        status => (status, receipt.and_then(|receipt| receipt.error.clone()).unwrap_or_default()),
    };
    Err(RunError::Effect { step, status, message })
}

impl Core {
    /// One attempt: intent, call, receipt.
    async fn call<T: Serialize + DeserializeOwned, W: Future<Output = Result<T, EffectFailure>>>(
        &self,
        place: &Place,
        input: &Input,
        options: &EffectOptions,
        call: impl FnOnce(BlobId) -> W,
    ) -> Result<(), RunError> {
        let (run, path) = (self.id.clone(), place.path.clone());
        if let Some(alone) = &self.alone {
            return Err(RunError::Alone { step: path, only: alone.step.clone() });
        }
        let busy = self.begin().await?;
        let (before, base) = {
            let known = self.known();
            let before = known.line.effects.get(&path).map(|effect| (effect.intent.key, effect.intent.attempt));
            (before, known.line.reopened.get(&path).copied().unwrap_or(0))
        };
        let (key, attempts) = before.unwrap_or_else(|| (self.effect_key(&path, 0), 0));
        let intent = IntentRecord {
            path: path.clone(),
            place: Some(place.number),
            key,
            input_hash: input.hash,
            input: input.value.clone(),
            compensation: options.compensation.clone(),
            attempt: attempts + 1,
            call: 0,
        };
        let mut writer = self.writer().await?;
        self.commit(&mut writer, Fact::Intent(intent)).await?;
        drop(writer);
        self.events.tell(|| Event::StepStarted { run: run.clone(), step: path.clone(), title: None });
        let started = self.context.clock.monotonic();
        let ended = self.attempt(call(key), options.timeout).await;
        let (status, output, error) = match ended {
            Attempt::Ended(Ok(output)) => match store_output(&path, &output) {
                Ok((output, _)) => (EffectStatus::Done, output, None),
                // It took place, but what came of it can't be stored.
                Err(message) => (EffectStatus::Uncertain, Value::Null, Some(message)),
            },
            Attempt::Ended(Err(EffectFailure::NotDone(message))) => (EffectStatus::NotDone, Value::Null, Some(message)),
            Attempt::Ended(Err(EffectFailure::Uncertain(message))) => {
                (EffectStatus::Uncertain, Value::Null, Some(message))
            }
            Attempt::Panicked(said) => (EffectStatus::Uncertain, Value::Null, Some(format!("it panicked: {said}"))),
            Attempt::TimedOut(limit) => {
                (EffectStatus::Uncertain, Value::Null, Some(format!("it took longer than {limit:?}")))
            }
            Attempt::Interrupted => {
                // No receipt: the process that goes on finds it uncertain, as after a crash.
                self.end(busy).await?;
                return Err(self.stopped());
            }
        };
        let policy = options.retry.as_ref().unwrap_or(&self.retry);
        let repeatable = status == EffectStatus::NotDone || options.uncertain == Uncertain::CallAgain;
        let spent = attempts + 1 - base.min(attempts);
        let retry = error
            .as_ref()
            .filter(|message| repeatable && policy.allows(spent, FailureKind::Work, message))
            .map(|_| Deadline::after(&self.context, policy.pause(spent, &*self.context.random)));
        let receipt = ReceiptRecord {
            path: path.clone(),
            key,
            status,
            output,
            error: error.clone(),
            retry,
            by: Witness::Call,
            duration_ms: millis(self.context.clock.monotonic().saturating_sub(started)),
        };
        self.put_receipt(receipt).await?;
        self.events.tell(|| match error {
            None => {
                let duration = self.context.clock.monotonic().saturating_sub(started);
                Event::StepFinished { run, step: path, duration, usage: TokenUsage::default() }
            }
            Some(error) => Event::StepFailed { run, step: path, error },
        });
        self.end(busy).await
    }

    async fn put_receipt(&self, receipt: ReceiptRecord) -> Result<(), RunError> {
        let mut writer = self.writer().await?;
        self.commit(&mut writer, Fact::Receipt(receipt)).await.map(drop)
    }

    /// Finds out about an uncertain effect: by a probe, by the policy, by a person. Says whether it is to
    /// be called again; if not, its receipt says what is known.
    async fn resolve<T: Serialize + DeserializeOwned>(
        &self,
        effect: &EffectRecord,
        options: &EffectOptions,
        probe: Option<impl Future<Output = Result<Probed<T>, EffectFailure>>>,
    ) -> Result<bool, RunError> {
        self.check_ready()?;
        let intent = &effect.intent;
        if let Some(alone) = &self.alone {
            return Err(RunError::Alone { step: intent.path.clone(), only: alone.step.clone() });
        }
        let known = |status, output, error, by| ReceiptRecord {
            path: intent.path.clone(),
            key: intent.key,
            status,
            output,
            error,
            retry: None,
            by,
            duration_ms: 0,
        };
        let probed = match probe {
            Some(probe) => self.attempt(probe, options.timeout).await,
            None => Attempt::Ended(Ok(Probed::Unknown)),
        };
        match probed {
            Attempt::Ended(Ok(Probed::Done(output))) => {
                let (output, _) = store_output(&intent.path, &output).map_err(|message| RunError::Effect {
                    step: intent.path.clone(),
                    status: EffectStatus::Done,
                    message,
                })?;
                self.put_receipt(known(EffectStatus::Done, output, None, Witness::Probe)).await?;
                return Ok(false);
            }
            Attempt::Ended(Ok(Probed::NotDone)) => return Ok(true),
            Attempt::Interrupted => {
                self.obey().await?;
                return Err(self.stopped());
            }
            _ => {}
        }
        match options.uncertain {
            Uncertain::CallAgain => return Ok(true),
            Uncertain::GiveUp => {
                let error = Some("it isn't known whether it took place".to_owned());
                self.put_receipt(known(EffectStatus::Uncertain, Value::Null, error, Witness::Call)).await?;
                return Ok(false);
            }
            Uncertain::Ask => {}
        }
        let (said, by) = self.ask_about(intent).await?;
        match said {
            EffectAnswer::NotDone => return Ok(true),
            EffectAnswer::Done(output) => {
                self.put_receipt(known(EffectStatus::Done, output, None, by)).await?;
            }
            EffectAnswer::GiveUp => {
                let error = Some("it isn't known whether it took place, and it is not to be called again".to_owned());
                self.put_receipt(known(EffectStatus::Uncertain, Value::Null, error, by)).await?;
            }
        }
        Ok(false)
    }

    /// Asks a person what became of an effect.
    async fn ask_about(&self, intent: &IntentRecord) -> Result<(EffectAnswer, Witness), RunError> {
        let (question, prompt) = about(intent)?;
        let asked = Wait { wait_for: WaitFor::HumanApproval, prompt, timeout: None };
        let input = Input::new(&question, &asked.prompt)?;
        let answer = self.ask(&question, None, input, asked, None).await?;
        let by = Witness::Person(answer.by);
        let said = from_value(answer.value).map_err(RunError::value(format!("the answer to {question}")))?;
        Ok((said, by))
    }

    /// The key of an effect: the same for every attempt, another one after everything that raises the
    /// epoch, and in every other run.
    pub(crate) fn effect_key(&self, path: &StepPath, call: u32) -> BlobId {
        let epoch = self.known().line.epoch;
        let call = if call == 0 { String::new() } else { format!("\n{call}") };
        let name = format!("piton effect\n{}\n{epoch}\n{path}{call}", self.id);
        Hashing::PLAIN.blob(name.as_bytes())
    }
}

/// The question what became of an effect.
pub(crate) fn about(intent: &IntentRecord) -> Result<(StepPath, String), RunError> {
    let question = format!("{}#?{}", intent.path, intent.attempt).parse()?;
    Ok((question, format!("Did {} take place? Its key is {}.", intent.path, intent.key)))
}

/// The key of taking an effect back.
pub(crate) fn compensation_key(effect: BlobId) -> BlobId {
    Hashing::PLAIN.blob(format!("piton compensation\n{effect}").as_bytes())
}
