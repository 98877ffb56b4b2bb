//! A durable workflow from its start to its end, for a handle. While the run waits or is paused nothing of it is
//! loaded: a task that sleeps is all that is left, until the handle is used or a question's time is up.

use std::time::Duration;

use piton_runtime::{Context, Failure, Listener, Run, RunError};
use piton_types::{RunId, RunStatus};
use tokio::sync::watch;

use super::commands::{Command, Commands};
use super::durable::{Driven, FlowOptions, RunOutcome, resume_flow};
use super::signal::Given;
use super::status::{ExecutionStatus, OpenQuestion, StopReport};
use super::updates;
use crate::error::FlowError;

/// What becomes of a run that rests.
enum Next {
    /// It goes on.
    GoOn,
    /// It isn't gone on with here.
    Over(ExecutionStatus),
}

/// Drives a run to its end, and says how it ended. `status` is told when it rests, and when it goes on.
pub(crate) async fn supervise(
    context: Context,
    mut driven: Driven,
    options: FlowOptions,
    status: &watch::Sender<ExecutionStatus>,
    mut commands: Commands,
) -> Result<ExecutionStatus, FlowError> {
    let run = driven.id().clone();
    let mut last = None;
    loop {
        // Apart, so that a run that rests takes up no more than what it waits with.
        let outcome = Box::pin(driven.drive(&mut commands)).await?;
        if let Some(questions) = &commands.questions {
            questions.send_replace(outcome.questions.clone());
        }
        last = outcome.last_completed.clone().or(last);
        let rests = match ended(outcome) {
            Ok(over) => return Ok(over),
            Err(rests) => rests,
        };
        status.send_replace(rests.status.clone());
        let next = Resting { context: &context, run: &run, options: &options, rests: &rests }.next(&mut commands).await;
        match next? {
            Next::GoOn => {}
            Next::Over(ExecutionStatus::SafeStopped { interrupted_nodes, checkpoint_saved, .. }) => {
                let last_completed_node = last;
                return Ok(ExecutionStatus::SafeStopped { last_completed_node, interrupted_nodes, checkpoint_saved });
            }
            Next::Over(over) => return Ok(over),
        }
        if let Some(questions) = &commands.questions {
            questions.send_replace(Vec::new());
        }
        status.send_replace(ExecutionStatus::Running);
        driven = Box::pin(resume_flow(&context, &run, None, options.clone())).await?;
    }
}

/// A run that waits or is paused.
struct Rests {
    status: ExecutionStatus,
    questions: Vec<OpenQuestion>,
}

/// How a run ended; or how it rests.
fn ended(outcome: RunOutcome) -> Result<ExecutionStatus, Rests> {
    if let Some(stopped) = outcome.stopped
        && outcome.status != RunStatus::Cancelled
    {
        return Ok(stopped.into());
    }
    let reason = outcome.error.clone().unwrap_or_default();
    match outcome.status {
        RunStatus::Completed => Ok(match outcome.recovered_from {
            Some(original_error) => {
                ExecutionStatus::FailedWithRecovery { original_error, recovered_outputs: outcome.outputs }
            }
            None => ExecutionStatus::Completed(outcome.outputs),
        }),
        RunStatus::Cancelled => Ok(ExecutionStatus::Cancelled(reason)),
        RunStatus::Waiting | RunStatus::Paused => {
            let status = match outcome.questions.first() {
                Some(question) if reason.is_empty() => question.paused(),
                _ => ExecutionStatus::Paused { node_id: None, node_title: String::new(), prompt: reason },
            };
            Err(Rests { status, questions: outcome.questions })
        }
        _ => Ok(ExecutionStatus::Failed(reason)),
    }
}

/// Waits for a command or an answer to a run that rests.
struct Resting<'a> {
    context: &'a Context,
    run: &'a RunId,
    options: &'a FlowOptions,
    rests: &'a Rests,
}

/// Whatever takes up more than a wait is apart.
impl Resting<'_> {
    async fn next(&self, commands: &mut Commands) -> Result<Next, FlowError> {
        // A clone of the handle's own end keeps the queue from being given up while the run rests.
        let left = self.left();
        let late = async {
            match left {
                Some(left) => self.context.clock.sleep(left).await,
                None => std::future::pending().await,
            }
        };
        let mut late = std::pin::pin!(late);
        loop {
            let command = tokio::select! {
                biased;
                given = self.options.stop.given(None) => match given {
                    Given::Stop(_) => return Ok(self.stopped()),
                    Given::Abort => Command::Abort { reason: "aborted by a signal".to_owned() },
                },
                command = commands.next() => command,
                () = &mut late => return Ok(Next::GoOn),
            };
            match command {
                Command::Resume => return Ok(Next::GoOn),
                // It rests already.
                Command::Pause { .. } => {}
                Command::Stop { .. } => return Ok(self.stopped()),
                Command::Abort { reason } => {
                    return Box::pin(self.abort(reason)).await;
                }
                Command::Update { values, done } => {
                    let kept = Box::pin(self.update(values)).await.map_err(|error| error.to_string());
                    let _ = done.send(kept);
                }
            }
        }
    }

    /// How long the first question waits that doesn't wait for ever.
    fn left(&self) -> Option<Duration> {
        let now = self.context.clock.now();
        let ends = self.rests.questions.iter().filter_map(|question| question.timeout_at);
        ends.min().map(|end| end.since(now))
    }

    fn stopped(&self) -> Next {
        // Everything was saved when it came to rest.
        Next::Over(StopReport { checkpoint_saved: true, ..StopReport::default() }.into())
    }

    async fn abort(&self, reason: String) -> Result<Next, FlowError> {
        let run = self.open().await?;
        run.fail(Failure::new("aborted", reason.clone())).await?;
        Ok(Next::Over(ExecutionStatus::Failed(reason)))
    }

    async fn open(&self) -> Result<Run, RunError> {
        Run::resume(self.context, self.run, self.options.durability, Listener::default()).await
    }

    /// Writes an update into the log, and leaves the run as it was.
    async fn update(&self, values: Vec<(crate::Selector, piton_types::Value)>) -> Result<(), RunError> {
        let run = self.open().await?;
        updates::record(&run, &values).await?;
        let open: Vec<_> = run.open_questions().into_iter().map(|open| open.path).collect();
        if open.is_empty() || !run.leave(&open).await? {
            run.pause("its variables were changed").await?;
        }
        Ok(())
    }
}
