//! The questions of a durable run: in its log, answered from anywhere, consumed once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use piton_runtime::{AnswerRecord, Context, History, Listener, QuestionRecord, Run, RunError, Wait, answer};
use piton_types::{Event, RunId, StepPath, Value, WaitFor, from_value, to_value};
use tokio::sync::watch;

use super::status::OpenQuestion;
use crate::inbox::{Answered, Inbox, Question, Waiting};
use crate::journal::JournalError;

/// Asks by the log of a run.
pub(crate) struct RunInbox<'a> {
    run: &'a Run,
    events: &'a Listener,
    /// The questions that nodes wait for.
    waiting: Mutex<BTreeMap<StepPath, OpenQuestion>>,
    /// Is told of them.
    told: Option<watch::Sender<Vec<OpenQuestion>>>,
}

impl<'a> RunInbox<'a> {
    pub(crate) fn new(run: &'a Run, events: &'a Listener, told: Option<watch::Sender<Vec<OpenQuestion>>>) -> Self {
        Self { run, events, waiting: Mutex::default(), told }
    }

    /// Whether any node waits.
    pub(crate) fn waits(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Where.
    pub(crate) fn waiting(&self) -> Vec<StepPath> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<StepPath, OpenQuestion>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<StepPath, OpenQuestion>)) {
        let mut waiting = self.lock();
        change(&mut waiting);
        if let Some(told) = &self.told {
            told.send_replace(waiting.values().cloned().collect());
        }
    }

    async fn answered(&self, path: &StepPath, waiting: &Waiting<'_>) -> Result<AnswerRecord, RunError> {
        // An entry of another process makes the node look for its answer. If that entry is a stop, the node still waits.
        let _pausing = waiting.pausing();
        let mut asked = false;
        loop {
            if let Some(answer) = self.run.answer_to(path).await? {
                if asked {
                    self.change(|waiting| drop(waiting.remove(path)));
                }
                return Ok(answer);
            }
            if !std::mem::replace(&mut asked, true) {
                let open = self.run.open_questions().into_iter().find(|open| open.path == *path);
                self.change(|waiting| {
                    waiting.extend(open.map(|open| (open.path.clone(), open.into())));
                });
            }
            waiting.rest(self.run.news_of(path)).await;
        }
    }
}

#[async_trait]
impl Inbox for RunInbox<'_> {
    async fn ask(&self, question: Question, waiting: &Waiting<'_>) -> Result<Answered, JournalError> {
        let path = &question.step;
        let wait_for = if question.form.approval { WaitFor::HumanApproval } else { WaitFor::UserInput };
        let wait = Wait { wait_for, prompt: question.prompt, timeout: question.timeout };
        let form = to_value(&question.form)?;
        self.run.ask(path, &wait, &form).await?;
        let answer = self.answered(path, waiting).await?;
        self.events.tell(|| Event::RunResumed { run: self.run.id().clone(), step: Some(path.clone()) });
        Ok(if answer.timed_out { Answered::Late } else { Answered::Given(answer.value) })
    }
}

impl From<QuestionRecord> for OpenQuestion {
    fn from(record: QuestionRecord) -> Self {
        Self {
            step: record.path,
            token: record.token,
            prompt: record.prompt,
            form: from_value(record.form).ok(),
            timeout_at: record.deadline.map(|deadline| deadline.at),
        }
    }
}

/// Why a question wasn't answered. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The answer isn't what the question asks for.
    #[error("the answer to {step} is not valid: {problem}")]
    Invalid {
        /// The question.
        step: StepPath,
        /// What is wrong.
        problem: String,
    },
    /// There is no such question, or it can't be answered any more.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// The questions that a run waits for, of which each may be answered with [`answer_question`].
pub async fn open_questions(context: &Context, run: &RunId) -> Result<Vec<OpenQuestion>, RunError> {
    Ok(History::of(context, run).await?.questions.into_iter().map(OpenQuestion::from).collect())
}

/// Answers a question of a workflow, from any process, if the answer is what the question asks for. `which` is the
/// question's place, its token, or the id of the node that asks; without it, the only one that is open is meant.
///
/// When it returns, the answer is durable; a process that drives the run goes on, and if none does, the run can be resumed.
///
/// # Errors
///
/// As [`answer`](piton_runtime::answer), and [`AnswerError::Invalid`].
pub async fn answer_question(
    context: &Context,
    run: &RunId,
    which: Option<&str>,
    value: &Value,
    by: &str,
) -> Result<StepPath, AnswerError> {
    let open = open_questions(context, run).await?;
    let question = choose(run, open, which)?;
    let checked = question.check(value);
    let mut checked = checked.map_err(|problem| AnswerError::Invalid { step: question.step.clone(), problem })?;
    // What the answer leaves open the node fills in: the process that runs it knows the secrets that a default may be.
    if let Value::Map(fields) = &mut checked {
        fields.retain(|name, _| value.field(name).is_some_and(|given| *given != Value::Null));
    }
    Ok(answer(context, run, Some(&question.step), checked, by).await?)
}

/// The question that is meant.
pub fn choose(run: &RunId, mut open: Vec<OpenQuestion>, which: Option<&str>) -> Result<OpenQuestion, RunError> {
    if let Some(which) = which {
        // A node inside an iteration asks once for every item.
        let of_node = |step: &StepPath| {
            let last = step.as_str().rsplit('/').next().unwrap_or_default();
            last.split('#').next() == Some(which)
        };
        let exact = |open: &OpenQuestion| open.step.as_str() == which || open.token == which;
        match open.iter().any(exact) {
            true => open.retain(exact),
            false => open.retain(|open| of_node(&open.step)),
        }
    }
    let steps: Vec<StepPath> = open.iter().map(|open| open.step.clone()).collect();
    match (open.pop(), steps.len()) {
        (Some(only), 1) => Ok(only),
        (None, _) => Err(RunError::NotAsked { run: run.clone(), step: which.and_then(|which| which.parse().ok()) }),
        _ => Err(RunError::WhichQuestion { run: run.clone(), steps }),
    }
}
