//! Ending a run, or letting go of it: its last state goes into the log and the index in one commit.

use async_recursion::async_recursion as boxed;
use piton_types::{Completed, Event, Failed, RunState, Value, to_value};
use serde::Serialize;

use crate::core::Core;
use crate::fact::Fact;
use crate::progress::checks;
use crate::{Run, RunError, StepError};

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which kind of error, as a program would tell it.
    pub error_type: String,
    /// What happened.
    pub message: String,
    /// The causes of it, if there are any.
    pub trace: Option<String>,
    /// Whether a retry can help.
    pub recoverable: bool,
    /// The step that it failed of, if it was one: that is tried again when the run is.
    pub step: Option<String>,
}

impl Failure {
    /// A failure that a retry may mend.
    pub fn new(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        let (error_type, message) = (error_type.into(), message.into());
        Self { error_type, message, trace: None, recoverable: true, step: None }
    }
}

impl From<&RunError> for Failure {
    fn from(error: &RunError) -> Self {
        let error_type = match error {
            RunError::Held { .. } => "held",
            RunError::Refused { .. } => "refused",
            RunError::Illegal { .. } => "illegal_move",
            RunError::Changed { .. } => "changed",
            RunError::Step { .. } => "step",
            RunError::Effect { .. } => "effect",
            RunError::Stopped { .. } => "stopped",
            RunError::Waiting { .. } => "waiting",
            RunError::Unanswered { .. } => "timeout",
            RunError::NotAsked { .. } | RunError::WhichQuestion { .. } => "question",
            RunError::NoSuchStep { .. } | RunError::Alone { .. } => "no_such_step",
            RunError::Program { .. } => "program",
            RunError::Value { .. } => "value",
            RunError::Name(_) => "name",
            RunError::Broken { .. } | RunError::Store(_) => "store",
        };
        let step = match error {
            RunError::Step { step, .. } | RunError::Effect { step, .. } => Some(step.to_string()),
            _ => None,
        };
        let mut causes = Vec::new();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        Self {
            recoverable: !matches!(error, RunError::Changed { .. }),
            trace: (!causes.is_empty()).then(|| causes.join("\n")),
            step,
            ..Self::new(error_type, error.to_string())
        }
    }
}

impl<E: std::fmt::Display> From<&StepError<E>> for Failure {
    fn from(error: &StepError<E>) -> Self {
        match error {
            StepError::Run(error) => error.into(),
            StepError::Failed { step, .. } | StepError::Recorded { step, .. } => {
                Self { step: Some(step.to_string()), ..Self::new("step", error.to_string()) }
            }
        }
    }
}

/// How a run ended well, beside what it gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ending {
    /// How many steps failed without stopping it.
    pub exceptions: u32,
    /// The failure that it recovered from.
    pub recovered_from: Option<String>,
    /// What a run that follows it takes along, such as the variables of a conversation.
    pub kept: Value,
    /// The files that it changed, beside those that it named before.
    pub files_modified: Vec<String>,
}

impl Run {
    /// Ends the run well. When it returns, that is as durable as the run, and nothing can follow.
    pub async fn complete(&self, output: impl Serialize) -> Result<(), RunError> {
        self.complete_as(output, Ending::default()).await
    }

    /// Ends the run well although steps failed, after it recovered from a failure, or with something for a run that
    /// follows it.
    pub async fn complete_as(&self, output: impl Serialize, ending: Ending) -> Result<(), RunError> {
        let core = self.core();
        let Ending { exceptions, recovered_from, kept, files_modified } = ending;
        let output = to_value(&output).map_err(RunError::value("the output of the run"))?;
        let mut noted = core.known().line.noted.clone();
        noted.files.extend(files_modified);
        let completed = Completed {
            files_modified: noted.files.into_iter().collect(),
            verification: checks(&noted.verified)?,
            exceptions,
            recovered_from: recovered_from.clone(),
            kept,
            ..Completed::new(core.context.clock.now(), output.clone())
        };
        core.finish(RunState::Completed(completed)).await?;
        let (run, outputs) = (core.id.clone(), output);
        core.events.tell(|| match (recovered_from, exceptions) {
            (Some(error), _) => Event::RunRecovered { run, outputs, error },
            (None, 0) => Event::RunSucceeded { run, outputs },
            (None, exceptions) => Event::RunPartial { run, outputs, exceptions },
        });
        Ok(())
    }

    /// Ends the run badly. It can be opened again, which tries what failed once more.
    pub async fn fail(&self, failure: impl Into<Failure>) -> Result<(), RunError> {
        self.core().fail(failure.into()).await
    }

    /// Lets go of the run, to go on later, here or elsewhere.
    pub async fn pause(&self, reason: &str) -> Result<(), RunError> {
        self.pause_with(reason, None).await
    }

    /// [`pause`](Self::pause), with what a person should do before the run goes on; without it, where it goes on is said.
    #[boxed]
    pub async fn pause_with(&self, reason: &str, instructions: Option<String>) -> Result<(), RunError> {
        let core = self.core();
        let mut paused = core.paused(&*core.writer().await?, reason.to_owned());
        if let (RunState::Paused(paused), Some(instructions)) = (&mut paused, instructions) {
            paused.resume_instructions = Some(instructions);
        }
        core.finish(paused).await?;
        core.events.tell(|| Event::RunPaused { run: core.id.clone(), step: None, prompt: reason.to_owned() });
        Ok(())
    }
}

impl Core {
    pub(crate) async fn fail(&self, failure: Failure) -> Result<(), RunError> {
        let failed = Failed {
            at: self.context.clock.now(),
            error_type: failure.error_type,
            message: failure.message.clone(),
            trace: failure.trace,
            recoverable: failure.recoverable,
            retry_count: self.retries,
            step: failure.step,
        };
        self.finish(RunState::Failed(failed)).await?;
        self.events.tell(|| Event::RunFailed { run: self.id.clone(), error: failure.message });
        Ok(())
    }

    pub(crate) async fn finish(&self, next: RunState) -> Result<(), RunError> {
        self.check_ready()?;
        self.flush_lines().await?;
        let mut writer = self.writer().await?;
        self.commit(&mut writer, Fact::State(next)).await?;
        self.release().await;
        Ok(())
    }
}
