//! The handle of a workflow that runs.

use std::sync::Arc;
use std::time::Duration;

use piton_types::{Event, RunId, StepPath, Value};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::commands::Command;
use super::memory::MemoryInbox;
use super::signal::GRACE;
use super::status::{ExecutionStatus, OpenQuestion};
use super::told::Told;
use crate::engine::Inputs;
use crate::selector::Selector;

/// Why a command did nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The workflow is over.
    #[error("the workflow is over")]
    Ended,
    /// It isn't paused, or asks nothing.
    #[error("the workflow waits for nothing")]
    NotPaused,
    /// Several questions are open; say which one is answered.
    #[error("the workflow waits for several answers: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    WhichQuestion(Vec<StepPath>),
    /// The answer isn't what the question asks for. The question is still open.
    #[error("the answer is not valid: {0}")]
    Invalid(String),
    /// Variables are named `node.variable` or `conversation.variable`.
    #[error("{0:?} names no variable")]
    NoVariable(String),
    /// It couldn't be kept.
    #[error("it was not kept: {0}")]
    NotKept(String),
    /// The log refuses it.
    #[cfg(feature = "checkpoint")]
    #[error(transparent)]
    Run(#[from] piton_runtime::RunError),
}

/// How answers get to the run.
#[derive(Clone)]
pub(crate) enum Answers {
    /// To the task that runs it here.
    Memory(Arc<MemoryInbox>),
    /// Into its log.
    #[cfg(feature = "checkpoint")]
    Log(piton_runtime::Context),
}

/// A workflow that runs in a task of its own. Dropping the handle doesn't end it.
///
/// Commands return when they were taken, not when they were done: [`wait`](Self::wait) and
/// [`wait_or_paused`](Self::wait_or_paused) tell what came of them. After the end each of them is
/// [`HandleError::Ended`].
pub struct WorkflowHandle {
    pub(crate) run: RunId,
    pub(crate) status: watch::Receiver<ExecutionStatus>,
    pub(crate) questions: watch::Receiver<Vec<OpenQuestion>>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) events: Told,
    pub(crate) answers: Answers,
}

impl WorkflowHandle {
    /// The run's id, by which it can be found in its store.
    pub const fn workflow_id(&self) -> &RunId {
        &self.run
    }

    /// How the workflow stands. It is paused as soon as a question is open, although other branches may go on.
    pub fn status(&self) -> ExecutionStatus {
        let status = self.status.borrow().clone();
        match (status, self.questions.borrow().first()) {
            (ExecutionStatus::Running, Some(question)) => question.paused(),
            (status, _) => status,
        }
    }

    /// The questions that wait for an answer.
    pub fn questions(&self) -> Vec<OpenQuestion> {
        if self.status.borrow().is_over() {
            return Vec::new();
        }
        self.questions.borrow().clone()
    }

    /// Waits for the end.
    pub async fn wait(&self) -> ExecutionStatus {
        let mut status = self.status.clone();
        match status.wait_for(ExecutionStatus::is_over).await {
            Ok(status) => status.clone(),
            Err(_) => gone(),
        }
    }

    /// Waits for the end, or until the workflow waits for a person.
    pub async fn wait_or_paused(&self) -> ExecutionStatus {
        let (mut status, mut questions) = (self.status.clone(), self.questions.clone());
        loop {
            status.borrow_and_update();
            questions.borrow_and_update();
            match self.status() {
                ExecutionStatus::Running => {}
                status => return status,
            }
            tokio::select! {
                changed = status.changed() => {
                    if changed.is_err() {
                        return gone();
                    }
                }
                Ok(()) = questions.changed() => {}
            }
        }
    }

    /// What happens from now on; the first who asks gets everything from the begin. Who is a thousand events behind
    /// is told how many it missed: no listener holds the workflow up.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.listen()
    }

    /// Goes on after a pause, or with answers that were given elsewhere.
    pub async fn resume(&self) -> Result<(), HandleError> {
        self.send(Command::Resume).await
    }

    /// Answers the question that the workflow waits for, and goes on.
    pub async fn resume_with_input(&self, input: Inputs) -> Result<(), HandleError> {
        let questions = self.questions();
        match &questions[..] {
            [] if self.status.borrow().is_over() => Err(HandleError::Ended),
            [] => Err(HandleError::NotPaused),
            [only] => self.answer(&only.step, input, "").await,
            several => Err(HandleError::WhichQuestion(several.iter().map(|open| open.step.clone()).collect())),
        }
    }

    /// Answers one of several questions, and goes on. `by` is who answers, for the log.
    pub async fn answer(&self, question: &StepPath, input: Inputs, by: &str) -> Result<(), HandleError> {
        let questions = self.questions();
        let open = questions.iter().find(|open| open.step == *question).ok_or(HandleError::NotPaused)?;
        let value = open.check(&Value::Map(input)).map_err(HandleError::Invalid)?;
        match &self.answers {
            Answers::Memory(inbox) => {
                // Nothing is kept, not even that.
                let _ = by;
                if inbox.answer(question, value) { Ok(()) } else { Err(HandleError::NotPaused) }
            }
            #[cfg(feature = "checkpoint")]
            Answers::Log(context) => {
                let by = if by.is_empty() { "handle" } else { by };
                piton_runtime::answer(context, &self.run, Some(question), value, by).await?;
                self.send(Command::Resume).await?;
                // Who asks next how the workflow stands doesn't find the question that was just answered.
                let (mut status, mut questions) = (self.status.clone(), self.questions.clone());
                let answered = questions.wait_for(|asked| asked.iter().all(|other| other.token != open.token));
                tokio::select! {
                    _ = answered => {}
                    _ = status.wait_for(ExecutionStatus::is_over) => {}
                }
                Ok(())
            }
        }
    }

    /// Stops the workflow in peace: nothing new begins, what runs may end within half a minute, everything is saved.
    pub async fn safe_stop(&self) -> Result<(), HandleError> {
        self.safe_stop_within(GRACE).await
    }

    /// The same, with another time.
    pub async fn safe_stop_within(&self, grace: Duration) -> Result<(), HandleError> {
        self.send(Command::Stop { grace: Some(grace) }).await
    }

    /// Holds the workflow up: nothing new begins, what runs ends. [`resume`](Self::resume) goes on.
    pub async fn pause(&self) -> Result<(), HandleError> {
        self.pause_because("paused by its handle").await
    }

    /// The same, with a reason to show.
    pub async fn pause_because(&self, reason: impl Into<String>) -> Result<(), HandleError> {
        self.send(Command::Pause { reason: reason.into() }).await
    }

    /// Ends the workflow at once: it is failed, and isn't gone on with unless a caller says so.
    pub async fn abort(&self, reason: impl Into<String>) -> Result<(), HandleError> {
        self.send(Command::Abort { reason: reason.into() }).await
    }

    /// Sets variables before the next node begins, by `node.variable`. With a store they are kept when this returns.
    pub async fn update_variables(
        &self,
        variables: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<(), HandleError> {
        let mut values = Vec::new();
        for (name, value) in variables {
            let selector = Selector::new(name.split('.').map(str::to_owned).collect());
            values.push((selector.map_err(|_| HandleError::NoVariable(name))?, value));
        }
        let (done, told) = oneshot::channel();
        self.send(Command::Update { values, done }).await?;
        told.await.map_err(|_| HandleError::Ended)?.map_err(HandleError::NotKept)
    }

    async fn send(&self, command: Command) -> Result<(), HandleError> {
        if self.status.borrow().is_over() {
            return Err(HandleError::Ended);
        }
        self.commands.send(command).await.map_err(|_| HandleError::Ended)
    }
}

/// The task that ran it is gone without a word.
fn gone() -> ExecutionStatus {
    ExecutionStatus::Failed("the task that ran the workflow has panicked".to_owned())
}

impl std::fmt::Debug for WorkflowHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkflowHandle").field("run", &self.run).field("status", &self.status()).finish_non_exhaustive()
    }
}
