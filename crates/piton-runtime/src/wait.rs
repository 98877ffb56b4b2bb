//! Waiting for an answer from outside: a person, or a service. The question is in the log, so it outlives
//! the process that asked; the answer becomes an entry of the same log, written by the process that has it, and only
//! one can be: it is the next number of a log in which the question is still open.

use std::sync::Arc;
use std::time::Duration;

use piton_log::RunLog;
use piton_store::StoreError;
use piton_types::{Event, InProgress, RunId, RunState, StepPath, Value, WaitFor, Waiting, from_value, to_value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::core::{Core, draft};
use crate::fact::Fact;
use crate::record::{AnswerRecord, QuestionRecord};
use crate::scope::{Input, Place};
use crate::{Context, Deadline, Failure, History, RunError, Scope};

/// How often a lost race for the next entry is run again.
const RACES: usize = 16;

/// How often a process that stays looks whether there is an answer. In the same process it is told.
const LOOK: Duration = Duration::from_millis(250);

/// What a process does that drives a run which waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waits {
    /// It stays, and goes on when the answer is there.
    #[default]
    Stay,
    /// It lets go of the run: the call returns [`RunError::Waiting`], and no process needs to be alive until the run is
    /// opened again.
    Leave,
}

/// What a run waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// For whom or what the run waits.
    pub wait_for: WaitFor,
    /// What to show.
    pub prompt: String,
    /// How long to wait; for ever, if nothing is said.
    pub timeout: Option<Duration>,
}

impl Wait {
    /// A question to the user, without an end.
    pub fn new(prompt: impl Into<String>) -> Self {
        Self { wait_for: WaitFor::UserInput, prompt: prompt.into(), timeout: None }
    }
}

impl Scope {
    /// Waits for an answer to the question `name`, delivered by [`answer`] from this process or any
    /// other. The run is waiting meanwhile. Each answer is used by the one call that asked for it, once;
    /// a process that goes on with the run gets the same one.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use piton_runtime::{Context, OpenRun, Wait, Run, RunError, Waits, answer};
    /// # use piton_store_objects::ObjectStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RunError> {
    /// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
    /// async fn publish(context: &Context) -> Result<bool, RunError> {
    ///     let open = OpenRun { id: Some("post".parse()?), waits: Waits::Leave, ..OpenRun::default() };
    ///     let mut run = Run::open(context, open).await?;
    ///     run.wait_for("approval", Wait::new("Publish it?")).await
    /// }
    /// assert!(matches!(publish(&context).await, Err(RunError::Waiting { .. })));
    ///
    /// // Another day, another process:
    /// answer(&context, &"post".parse()?, None, true, "Ada").await?;
    /// assert!(publish(&context).await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`RunError::Unanswered`] when the time is up, after which the run is failed;
    /// [`RunError::Waiting`] if the run was opened with [`Waits::Leave`].
    pub async fn wait_for<T: DeserializeOwned>(&mut self, name: &str, question: Wait) -> Result<T, RunError> {
        let (step, value) = self.wait(name, question, None).await?;
        from_value(value).map_err(RunError::value(format!("the answer to {step}")))
    }

    /// [`wait_for`](Self::wait_for), but when the time is up the answer is `otherwise`, for this and
    /// every other process that goes on with the run.
    pub async fn wait_for_or<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        question: Wait,
        otherwise: T,
    ) -> Result<T, RunError> {
        let otherwise = to_value(&otherwise).map_err(RunError::value(format!("the answer to {name}")))?;
        let (step, value) = self.wait(name, question, Some(otherwise)).await?;
        from_value(value).map_err(RunError::value(format!("the answer to {step}")))
    }

    async fn wait(
        &mut self,
        name: &str,
        question: Wait,
        otherwise: Option<Value>,
    ) -> Result<(StepPath, Value), RunError> {
        let place = self.place(name)?;
        let input = Input::new(&place.path, &question.prompt)?;
        self.core.check_place(&place, &input).await?;
        let answer = self.core.ask(&place.path, Some(&place), input, question, otherwise).await?;
        Ok((place.path, answer.value))
    }
}

impl Core {
    /// Waits until the question is answered. `place` is that of the call, if it is one of its own.
    pub(crate) async fn ask(
        &self,
        path: &StepPath,
        place: Option<&Place>,
        input: Input,
        question: Wait,
        otherwise: Option<Value>,
    ) -> Result<AnswerRecord, RunError> {
        self.recall(path).await?;
        loop {
            let asked = self.known().line.questions.get(path).cloned();
            let recorded = asked.as_ref().and_then(|asked| match (&asked.question, &asked.answer) {
                (Some(question), _) => Some(question.input_hash),
                (None, answer) => answer.as_ref().map(|answer| answer.input_hash),
            });
            if let Some((recorded, place)) = recorded.zip(place).filter(|(recorded, _)| *recorded != input.hash) {
                tracing::debug!(%recorded, "another question was asked here");
                let expected = crate::Call { step: path.clone(), input: None };
                return Err(self.changed(expected, place, &input));
            }
            if let Some(answer) = asked.as_ref().and_then(|asked| asked.answer.clone()) {
                self.go_on().await?;
                return Ok(answer);
            }
            self.check_alone(path)?;
            let deadline = match asked.and_then(|asked| asked.question) {
                Some(asked) => asked.deadline,
                None => question.timeout.map(|timeout| Deadline::after(&self.context, timeout)),
            };
            let left = deadline.as_ref().map(|deadline| deadline.left(&self.context));
            if left.is_some_and(|left| left.is_zero()) {
                self.give_up_waiting(path, place, &input, otherwise.clone()).await?;
                continue;
            }
            self.put_question(path, place, &input, &question, deadline).await?;
            if self.waits == Waits::Leave {
                return Err(self.leave(path, &question));
            }
            self.look_for_answer(left.map_or(LOOK, |left| left.min(LOOK))).await?;
            if self.known().line.request.is_some() {
                // A run that waits is at rest already: the process that drives it only has to let go.
                self.obey().await?;
                self.let_go(path, place, &input, &question).await?;
                self.check_ready()?;
                return Err(self.leave(path, &question));
            }
        }
    }

    /// Writes the question down, unless it is there and the run waits.
    async fn put_question(
        &self,
        path: &StepPath,
        place: Option<&Place>,
        input: &Input,
        question: &Wait,
        deadline: Option<Deadline>,
    ) -> Result<(), RunError> {
        let open = {
            let known = self.known();
            let open =
                known.line.open_questions().any(|open| open.path == *path && open.held == (self.waits == Waits::Stay));
            open && matches!(known.state, RunState::Waiting(_))
        };
        if open {
            return self.check_ready();
        }
        self.flush_lines().await?;
        let record = self.question(path, place, input, question, deadline, self.waits == Waits::Stay);
        let mut writer = self.writer().await?;
        self.commit(&mut writer, Fact::Asked(record)).await?;
        drop(writer);
        let (run, prompt) = (self.id.clone(), question.prompt.clone());
        self.events.tell(|| Event::RunPaused { run, step: Some(path.clone()), prompt });
        if self.waits == Waits::Leave {
            self.release().await;
        }
        Ok(())
    }

    pub(crate) fn question(
        &self,
        path: &StepPath,
        place: Option<&Place>,
        input: &Input,
        question: &Wait,
        deadline: Option<Deadline>,
        held: bool,
    ) -> QuestionRecord {
        let state = RunState::Waiting(Waiting {
            wait_for: question.wait_for,
            prompt: question.prompt.clone(),
            timeout_at: deadline.as_ref().map(|deadline| deadline.at),
        });
        let before = self.known().line.questions.get(path).and_then(|asked| asked.question.clone());
        let (token, form) = before.map_or_else(|| (self.token(), Value::Null), |before| (before.token, before.form));
        QuestionRecord {
            path: path.clone(),
            place: place.map(|place| place.number),
            input_hash: input.hash,
            wait_for: question.wait_for,
            prompt: question.prompt.clone(),
            deadline,
            held,
            state,
            token,
            form,
        }
    }

    /// Something that only who was told of a question knows.
    fn token(&self) -> String {
        let mut bytes = [0; 16];
        self.context.random.fill(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// No answer came: the answer is what was to be taken then, or the run fails.
    async fn give_up_waiting(
        &self,
        path: &StepPath,
        place: Option<&Place>,
        input: &Input,
        otherwise: Option<Value>,
    ) -> Result<(), RunError> {
        let Some(value) = otherwise else {
            let error = RunError::Unanswered { step: path.clone() };
            self.fail(Failure::from(&error)).await?;
            return Err(error);
        };
        self.time_is_up(path, place.map(|place| place.number), input.hash, value).await
    }

    /// Sleeps until another task of this process added to the log or the time is up, then takes in what is new.
    async fn look_for_answer(&self, longest: Duration) -> Result<(), RunError> {
        if let Some(claim) = &self.claim {
            let nudged = claim.nudged();
            self.pause_or(longest, nudged.notified()).await;
        }
        self.look().await.map(drop)
    }

    /// The last open question was answered: the run is in progress again.
    pub(crate) async fn go_on(&self) -> Result<(), RunError> {
        let mut writer = self.writer().await?;
        let (waiting, open) = {
            let known = self.known();
            (matches!(known.state, RunState::Waiting(_)), known.line.open_questions().next().is_some())
        };
        if !waiting || open {
            return Ok(());
        }
        let now = self.context.clock.now();
        let state = RunState::InProgress(InProgress {
            current: None,
            step: None,
            iteration: 0,
            started_at: now,
            last_activity_at: now,
            context: Value::Null,
            last_progress: None,
        });
        self.commit(&mut writer, Fact::State(state)).await.map(drop)
    }

    /// Says that no process holds the run while it waits.
    async fn let_go(
        &self,
        path: &StepPath,
        place: Option<&Place>,
        input: &Input,
        question: &Wait,
    ) -> Result<(), RunError> {
        let mut writer = self.writer().await?;
        let open = self.known().line.open_questions().find(|open| open.path == *path).cloned();
        if let Some(open) = open.filter(|_| matches!(self.known().state, RunState::Waiting(_))) {
            let record = self.question(path, place, input, question, open.deadline, false);
            self.commit(&mut writer, Fact::Asked(record)).await?;
            self.release().await;
        }
        Ok(())
    }

    fn leave(&self, path: &StepPath, question: &Wait) -> RunError {
        RunError::Waiting { run: self.id.clone(), step: path.clone(), prompt: question.prompt.clone() }
    }
}

/// Answers a question of a run, from any process. When it returns, the answer is durable; the process that drives the
/// run goes on, and if there is none, the run can be resumed.
///
/// Without a `question`, the only one that is open is meant. Of several who answer at once exactly one
/// does; the others get [`RunError::NotAsked`]. After its time a question takes no answer:
/// [`RunError::Unanswered`].
pub async fn answer(
    context: &Context,
    run: &RunId,
    question: Option<&StepPath>,
    value: impl Serialize,
    by: &str,
) -> Result<StepPath, RunError> {
    let value = to_value(&value).map_err(RunError::value("the answer"))?;
    let mut log = RunLog::open(Arc::clone(&context.store), run).await?;
    let not_asked = || RunError::NotAsked { run: run.clone(), step: question.cloned() };
    for _ in 0..RACES {
        let history = History::read(&log).await?;
        if !matches!(history.state, RunState::Waiting(_) | RunState::InProgress(_)) {
            return Err(not_asked());
        }
        let open = &history.questions;
        let asked = match question {
            Some(path) => open.iter().find(|open| open.path == *path).ok_or_else(not_asked)?,
            None => match &open[..] {
                [] => return Err(not_asked()),
                [only] => only,
                several => {
                    let steps = several.iter().map(|open| open.path.clone()).collect();
                    return Err(RunError::WhichQuestion { run: run.clone(), steps });
                }
            },
        };
        if asked.deadline.as_ref().is_some_and(|deadline| deadline.left(context).is_zero()) {
            return Err(RunError::Unanswered { step: asked.path.clone() });
        }
        let record = AnswerRecord {
            path: asked.path.clone(),
            place: asked.place,
            input_hash: asked.input_hash,
            value: value.clone(),
            by: by.to_owned(),
            at: context.clock.now(),
            timed_out: false,
        };
        let mut entry = draft(run, &Fact::Answer(record))?;
        entry.at = context.clock.now();
        match log.append(entry).await {
            Ok(_) => {
                crate::stop::nudge(context, &history);
                crate::queue::wake(context, run).await?;
                return Ok(asked.path.clone());
            }
            Err(StoreError::Conflict { .. } | StoreError::Fenced { .. }) => drop(log.refresh().await?),
            Err(error) => return Err(error.into()),
        }
    }
    Err(StoreError::Unavailable { detail: "others write to the run all the time".to_owned() }.into())
}
