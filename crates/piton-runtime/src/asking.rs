//! Questions and orders for engines that name their steps themselves, such as workflows. Others use
//! [`wait_for`](crate::Scope::wait_for).
//!
//! While one question is open the engine may go on with everything else; only when nothing is left to do does it
//! [let go](Run::leave) of the run, and no process needs to be alive until there is an answer.

use std::future::Future as _;
use std::pin::pin;
use std::task::Poll;

use async_recursion::async_recursion as boxed;
use piton_types::{BlobId, Event, RunState, StepPath, Value};
use tokio::sync::watch;

use crate::core::Core;
use crate::fact::Fact;
use crate::record::{AnswerRecord, QuestionRecord, RequestRecord};
use crate::scope::Input;
use crate::{Deadline, Run, RunError, Wait};

impl Run {
    /// Asks a question, unless it was asked before. When it returns, the question is in the log and can be answered
    /// from anywhere; the run is waiting, and may go on with other things.
    ///
    /// `form` says what the answer should look like, in whatever words the engine and those who answer agree on.
    #[boxed]
    pub async fn ask(&self, path: &StepPath, question: &Wait, form: &Value) -> Result<(), RunError> {
        let core = self.core();
        core.check_ready()?;
        core.check_alone(path)?;
        let input = Input::new(path, &(&question.prompt, form))?;
        core.flush_lines().await?;
        core.recall(path).await?;
        let mut writer = core.writer().await?;
        let asked = core.known().line.questions.get(path).cloned();
        let (is_new, deadline) = match asked {
            Some(asked) if asked.answer.is_some() => return Ok(()),
            Some(asked) => (false, asked.question.and_then(|question| question.deadline)),
            None => (true, question.timeout.map(|timeout| Deadline::after(&core.context, timeout))),
        };
        let waits = matches!(core.known().state, RunState::Waiting(_));
        if is_new || !waits {
            let mut record = core.question(path, None, &input, question, deadline, true);
            record.form = form.clone();
            core.commit(&mut writer, Fact::Asked(record)).await?;
        }
        drop(writer);
        if is_new {
            let (run, prompt) = (core.id.clone(), question.prompt.clone());
            core.events.tell(|| Event::RunPaused { run, step: Some(path.clone()), prompt });
        }
        Ok(())
    }

    /// The answer to a question that was [asked](Self::ask), if there is one. When the time for it is up, that becomes
    /// the answer: [`AnswerRecord::timed_out`], for this and every other process.
    #[boxed]
    pub async fn answer_to(&self, path: &StepPath) -> Result<Option<AnswerRecord>, RunError> {
        let core = self.core();
        core.check_ready()?;
        if core.look().await? {
            // The bell rings for one; there may be others who wait.
            core.claim.iter().for_each(|claim| claim.nudged().notify_waiters());
        }
        core.recall(path).await?;
        let question = match core.known().line.questions.get(path).cloned() {
            None => return Err(RunError::NotAsked { run: core.id.clone(), step: Some(path.clone()) }),
            Some(asked) if asked.answer.is_some() => None,
            Some(asked) => asked.question,
        };
        let is_late = |question: &QuestionRecord| {
            question.deadline.as_ref().is_some_and(|deadline| deadline.left(&core.context).is_zero())
        };
        if let Some(question) = question {
            if !is_late(&question) {
                return Ok(None);
            }
            core.time_is_up(path, question.place, question.input_hash, Value::Null).await?;
        }
        core.go_on().await?;
        Ok(core.known().line.questions.get(path).and_then(|asked| asked.answer.clone()))
    }

    /// Ends when it is worth a look whether a question is answered: something was added to the log, or its time is
    /// up. May be dropped at any time.
    pub async fn news_of(&self, path: &StepPath) {
        let core = self.core();
        let deadline = {
            let known = core.known();
            let question = known.line.questions.get(path).and_then(|asked| asked.question.as_ref());
            question.and_then(|question| question.deadline.clone())
        };
        let Some(claim) = &core.claim else { return std::future::pending().await };
        let nudged = claim.nudged();
        let mut news = pin!(nudged.notified());
        let mut late = deadline.map(|deadline| core.context.clock.sleep(deadline.left(&core.context)));
        std::future::poll_fn(|cx| {
            if news.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            match &mut late {
                Some(late) => late.as_mut().poll(cx),
                None => Poll::Pending,
            }
        })
        .await;
    }

    /// Whether a question was asked, answered or not.
    pub fn is_asked(&self, path: &StepPath) -> bool {
        self.core().known().line.questions.contains_key(path)
    }

    /// The questions that wait for an answer.
    pub fn open_questions(&self) -> Vec<QuestionRecord> {
        self.core().known().line.open_questions().cloned().collect()
    }

    /// Lets go of a run in which nothing is left to do but to wait for the answers to these questions. No process
    /// drives it from then on; the next process that opens it goes on.
    ///
    /// Returns `false`, and holds the run still, if there is something to do after all: one of them was answered or
    /// its time is up, or the run was asked to stop.
    #[boxed]
    pub async fn leave(&self, waits_for: &[StepPath]) -> Result<bool, RunError> {
        let core = self.core();
        core.check_ready()?;
        core.flush_lines().await?;
        let mut writer = core.writer().await?;
        core.absorb(&mut writer).await?;
        let still_open = |path: &StepPath| {
            let known = core.known();
            let question = known.line.open_questions().find(|open| open.path == *path);
            let deadline = question.map(|question| question.deadline.as_ref());
            deadline.is_some_and(|deadline| deadline.is_none_or(|deadline| !deadline.left(&core.context).is_zero()))
        };
        let may_leave = || core.known().line.request.is_none() && waits_for.iter().all(still_open);
        if !may_leave() {
            return Ok(false);
        }
        let open = self.open_questions();
        let Some(first) = open.into_iter().find(|open| waits_for.contains(&open.path)) else { return Ok(false) };
        core.commit(&mut writer, Fact::Asked(QuestionRecord { held: false, ..first })).await?;
        // It may have met an answer.
        if !may_leave() {
            return Ok(false);
        }
        core.release().await;
        Ok(true)
    }

    /// What the run is asked to do, from now on. An engine watches it, and when it has come to rest does it with
    /// [`obey`](Self::obey).
    pub fn orders(&self) -> watch::Receiver<Option<RequestRecord>> {
        self.core().orders.subscribe()
    }

    /// Does what the run was asked to do, if it was: it is paused or cancelled when this returns, or goes on waiting if
    /// it waited, and no process drives it. Nothing of the engine may be running.
    #[boxed]
    pub async fn obey(&self) -> Result<(), RunError> {
        let core = self.core();
        core.obey().await?;
        let first = self.open_questions().into_iter().next();
        if let Some(first) = first.filter(|_| matches!(self.state(), RunState::Waiting(_))) {
            let mut writer = core.writer().await?;
            core.commit(&mut writer, Fact::Asked(QuestionRecord { held: false, ..first })).await?;
        }
        Ok(())
    }
}

impl Core {
    /// No answer came in time: this is the answer.
    pub(crate) async fn time_is_up(
        &self,
        path: &StepPath,
        place: Option<u32>,
        input_hash: BlobId,
        value: Value,
    ) -> Result<(), RunError> {
        let mut writer = self.writer().await?;
        // An answer may have come just now.
        self.absorb(&mut writer).await?;
        let answered = self.known().line.questions.get(path).is_some_and(|asked| asked.answer.is_some());
        if !answered {
            let (path, at, by) = (path.clone(), self.context.clock.now(), String::new());
            let answer = AnswerRecord { path, place, input_hash, value, by, at, timed_out: true };
            self.commit(&mut writer, Fact::Answer(answer)).await?;
        }
        Ok(())
    }

    /// Takes in what others have added; says whether there was anything.
    pub(crate) async fn look(&self) -> Result<bool, RunError> {
        let mut writer = self.writer().await?;
        let head = self.context.store.head(&self.id).await?;
        let is_new = head.is_some_and(|head| head.seq > writer.log.head().seq);
        if is_new {
            self.absorb(&mut writer).await?;
        }
        Ok(is_new)
    }
}
