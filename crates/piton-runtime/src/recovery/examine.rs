//! Before a run goes on: find, check, settle, tell.

use std::fmt;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use piton_log::RunLog;
use piton_store::StoreError;
use piton_types::RunId;

use super::report::Severity;
use super::{
    Ask, Change, ChangePolicies, Changes, Choice, Environment, PortError, Question, ResumeNotice, Search,
    ValidationReport, newest_whole, validate,
};
use crate::{Context, History};

/// What a recovery needs from outside.
#[derive(Clone)]
pub struct Recovery<'a> {
    /// The store and the clock.
    pub context: &'a Context,
    /// What is around the run.
    pub environment: &'a dyn Environment,
    /// Who knows what changed.
    pub changes: &'a [&'a dyn Changes],
    /// What is done about it.
    pub policies: ChangePolicies,
    /// Who is asked.
    pub ask: &'a dyn Ask,
}

/// A run that may go on.
#[derive(Debug)]
pub struct Examined {
    /// What to tell the user.
    pub notice: ResumeNotice,
    /// What was found.
    pub report: ValidationReport,
    /// Where it goes on from.
    pub search: Search,
    /// Whether the log can be read to its end, so that the run itself can go on; otherwise only a fork from the
    /// checkpoint can.
    pub readable: bool,
    /// What changed, and what was done about it.
    pub settled: Vec<(Change, Choice)>,
}

/// A run that doesn't go on yet. Nothing was done.
#[derive(Debug)]
pub struct Stopped {
    /// What the user would have been told.
    pub notice: ResumeNotice,
    /// What was found.
    pub report: ValidationReport,
    /// What wasn't answered.
    pub unanswered: Vec<Question>,
    /// What a policy or a person decided against.
    pub aborted: Vec<String>,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} doesn't go on by itself", self.notice.run)?;
        for reason in &self.aborted {
            write!(f, "\n{reason}: abort")?;
        }
        for question in &self.unanswered {
            let choices: Vec<_> = question.choices.iter().map(ToString::to_string).collect();
            write!(f, "\n{}: {}?", question.text, choices.join(", "))?;
        }
        write!(f, "\n{}", self.report)
    }
}

/// Why a run doesn't go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// A person has to decide first. Nothing was done.
    #[error("{0}")]
    Stopped(Box<Stopped>),
    /// What changed can't be found out, or a choice can't be carried out. To try again does no harm.
    #[error("what changed around run {run} can't be settled")]
    Port {
        /// The run.
        run: RunId,
        /// Why.
        #[source]
        cause: PortError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Recovery<'_> {
    /// Finds out whether and from where a run can go on, and settles what changed. The run itself isn't touched:
    /// to repeat this after a crash is safe.
    ///
    /// # Errors
    ///
    /// [`RecoveryError::Stopped`] if something is left that wasn't decided, or was decided against.
    #[boxed]
    pub async fn examine(&self, run: &RunId) -> Result<Examined, RecoveryError> {
        let search = newest_whole(&self.context.store, run).await?;
        let report = validate(&search, self.environment).await;
        let history = self.history(run).await?;
        let name = match self.context.store.summary(run).await {
            // What the run is called isn't worth failing for.
            Err(StoreError::Corrupt { .. }) => String::new(),
            summary => summary?.map(|summary| summary.name).unwrap_or_default(),
        };
        let notice = ResumeNotice::new(run, &name, &search, history.as_ref());
        let port = |cause| RecoveryError::Port { run: run.clone(), cause };

        let (mut decided, mut unanswered, mut aborted) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(whole) = &search.whole {
            for changes in self.changes {
                for change in changes.since(whole).await.map_err(port)? {
                    match self.settle(*changes, &change).await {
                        Ok(Choice::Abort) => aborted.push(change.to_string()),
                        Ok(choice) => decided.push((*changes, change, choice)),
                        Err(question) => unanswered.push(question),
                    }
                }
            }
        }
        for finding in report.findings.iter().filter(|finding| finding.severity == Severity::Error) {
            let question = Question { text: finding.message.clone(), choices: vec![Choice::Ignore, Choice::Abort] };
            match self.ask.ask(&question).await.filter(|choice| question.choices.contains(choice)) {
                Some(Choice::Ignore) => {}
                Some(_) => aborted.push(question.text),
                None => unanswered.push(question),
            }
        }
        if !(unanswered.is_empty() && aborted.is_empty()) {
            return Err(RecoveryError::Stopped(Box::new(Stopped { notice, report, unanswered, aborted })));
        }
        let mut settled = Vec::with_capacity(decided.len());
        for (changes, change, choice) in decided {
            changes.carry_out(&change, choice).await.map_err(port)?;
            settled.push((change, choice));
        }
        Ok(Examined { notice, report, search, readable: history.is_some(), settled })
    }

    /// By policy if it can be carried out, else by asking; the question if no answer comes.
    async fn settle(&self, changes: &dyn Changes, change: &Change) -> Result<Choice, Question> {
        let possible = |choice: Choice| choice == Choice::Abort || changes.can(choice);
        if let Some(choice) = self.policies.choice(change).filter(|choice| possible(*choice)) {
            return Ok(choice);
        }
        let choices = change.choices().iter().copied().filter(|choice| possible(*choice)).collect();
        let question = Question { text: change.to_string(), choices };
        match self.ask.ask(&question).await {
            Some(choice) if question.choices.contains(&choice) => Ok(choice),
            _ => Err(question),
        }
    }

    /// What the log says, if it can be read to its end.
    async fn history(&self, run: &RunId) -> Result<Option<History>, StoreError> {
        let read = async {
            let log = RunLog::open(Arc::clone(&self.context.store), run).await?;
            History::read(&log).await
        };
        match read.await {
            Ok(history) => Ok(Some(history)),
            Err(StoreError::Corrupt { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }
}

impl fmt::Debug for Recovery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovery").field("policies", &self.policies).finish_non_exhaustive()
    }
}
