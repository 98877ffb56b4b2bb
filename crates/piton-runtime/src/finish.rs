//! Ending a run: its last state goes into the log and the index in one commit.

use piton_store::Draft;
use piton_types::{Completed, EntryKind, Event, Failed, RunState, Value, to_value};
use serde::Serialize;

use crate::run::Writer;
use crate::{Run, RunError};

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which kind of error, as a program would tell it.
    pub error_type: String,
    /// What happened.
    pub message: String,
    /// Whether a retry can help.
    pub recoverable: bool,
}

impl Failure {
    /// A failure that a retry may mend.
    pub fn new(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self { error_type: error_type.into(), message: message.into(), recoverable: true }
    }
}

impl From<&RunError> for Failure {
    fn from(error: &RunError) -> Self {
        let error_type = match error {
            RunError::Held { .. } => "held",
            RunError::Illegal { .. } => "illegal_move",
            RunError::Changed { .. } => "changed",
            RunError::Step { .. } => "step",
            RunError::Value { .. } => "value",
            RunError::Name(_) => "name",
            RunError::Broken { .. } | RunError::Store(_) => "store",
        };
        Self { recoverable: !matches!(error, RunError::Changed { .. }), ..Self::new(error_type, error.to_string()) }
    }
}

impl Run {
    /// Ends the run well. When it returns, that is as durable as the run, and nothing can follow.
    pub async fn complete(&self, output: impl Serialize) -> Result<(), RunError> {
        let output = to_value(&output).map_err(RunError::value("the output of the run"))?;
        let at = self.context.clock.now();
        let completed = Completed { at, output: output.clone(), files_modified: Vec::new(), verification: Value::Null };
        self.end(RunState::Completed(completed)).await?;
        self.events.tell(&Event::RunSucceeded { run: self.id.clone(), outputs: output });
        Ok(())
    }

    /// Ends the run badly. It can be opened again, which tries what failed once more.
    pub async fn fail(&self, failure: impl Into<Failure>) -> Result<(), RunError> {
        let failure = failure.into();
        let failed = Failed {
            at: self.context.clock.now(),
            error_type: failure.error_type,
            message: failure.message.clone(),
            trace: None,
            recoverable: failure.recoverable,
            retry_count: self.retries,
        };
        self.end(RunState::Failed(failed)).await?;
        self.events.tell(&Event::RunFailed { run: self.id.clone(), error: failure.message });
        Ok(())
    }

    async fn end(&self, next: RunState) -> Result<(), RunError> {
        let mut writer = self.writer.lock().await;
        self.change_state(&mut writer, next).await?;
        let fence = writer.log.head().fence;
        // The log says that nobody drives it any more; the lease is only a hint, and clearing it may fail.
        if let Err(error) = self.context.store.release(&self.id, fence).await {
            tracing::warn!(run = %self.id, %error, "the lease of an ended run was not released");
        }
        Ok(())
    }

    async fn change_state(&self, writer: &mut Writer, next: RunState) -> Result<(), RunError> {
        let moved = self.known().state.move_to(next);
        let next = moved.map_err(|cause| RunError::Illegal { run: self.id.clone(), cause })?;
        let mut draft = Draft::new(EntryKind::StateChanged, self.context.clock.now());
        draft.label = next.status().to_string();
        draft.body = to_value(&next).map_err(RunError::value("the state of the run"))?;
        let mut summary = writer.summary.clone();
        summary.status = next.status();
        draft.index = Some(summary.clone());
        self.append(writer, draft).await?;
        writer.summary = summary;
        self.known().state = next;
        Ok(())
    }
}
