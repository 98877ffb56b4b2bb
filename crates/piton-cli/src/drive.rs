//! Driving a run from the command line: progress on stderr, signals, and how it ended as output and exit
//! code. `run` and `resume` differ only in how they begin.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use piton::{Context, Listener, RunError};
use piton::{FlowError, RunOutcome};
use piton_store::Store;
use piton_types::{Event, RunId, RunStatus, TokenUsage, Value};
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::output::{Output, clean};
use crate::session::Session;
use crate::signals::{Ended, until_stopped};
use crate::view;

/// Drives `run` by `work` until it ends or a signal comes, and tells the user; `notice` when it goes on.
pub(crate) async fn drive<W>(
    session: &Session,
    store: Arc<dyn Store>,
    run: &RunId,
    notice: Option<String>,
    work: impl FnOnce(Context, Listener) -> W,
) -> Result<Exit, Failure>
where
    W: Future<Output = Result<RunOutcome, FlowError>>,
{
    let started = Arc::new(AtomicBool::new(false));
    let listener = {
        let (output, started) = (Arc::clone(&session.output), Arc::clone(&started));
        Listener::new(move |event| {
            if matches!(event, Event::RunStarted { .. }) {
                started.store(true, Ordering::Relaxed);
            }
            match (event, &notice) {
                (Event::RunStarted { resumed: true, .. }, Some(notice)) => output.note(notice),
                _ => tell(&output, event),
            }
        })
    };
    let ended = until_stopped(work(Context::system(Arc::clone(&store)), listener)).await?;
    let exit = match ended {
        Ended::Finished(Ok(outcome)) => report(session, &outcome)?,
        Ended::Finished(Err(FlowError::Run(error @ (RunError::Waiting { .. } | RunError::Stopped { .. })))) => {
            store.close().await?;
            return put_aside(session, run, error);
        }
        Ended::Finished(Err(error)) => return Err(error.into()),
        Ended::Stopped(exit) => {
            stopped(session, run, started.load(Ordering::Relaxed))?;
            exit
        }
    };
    store.close().await?;
    Ok(exit)
}

/// A line of progress.
fn tell(output: &Output, event: &Event) {
    let line = match event {
        Event::RunStarted { run, resumed: false } => format!("run {run} started"),
        Event::RunStarted { run, resumed: true } => format!("run {run} goes on"),
        Event::StepStarted { step, .. } => format!("{step}: started"),
        Event::StepSkipped { step, .. } => format!("{step}: finished before, skipped"),
        Event::StepFinished { step, .. } => format!("{step}: finished"),
        Event::StepFailed { step, error, .. } => format!("{step}: failed: {error}"),
        Event::ResumeWarning { report, .. } => {
            format!("changed since the run was begun: {}", report.replace('\n', "; "))
        }
        Event::CheckpointSaved { checkpoint } => format!("checkpoint {checkpoint}"),
        // The end has a word of its own; what isn't known yet is no progress to tell of.
        _ => return,
    };
    output.note(&clean(&line));
}

/// How the run ended: the outputs as data, or an error.
fn report(session: &Session, outcome: &RunOutcome) -> Result<Exit, Failure> {
    let output = &session.output;
    let outputs = Value::Map(outcome.outputs.clone());
    if output.is_json() {
        let completed = outcome.status == RunStatus::Completed;
        let outputs = if completed { view::value_json(&outputs) } else { serde_json::Value::Null };
        output.object(&result(&outcome.run, outcome.status, outputs, outcome.error.as_deref(), outcome.usage))?;
    }
    match outcome.status {
        RunStatus::Completed => {
            output.note(&format!("run {} completed", outcome.run));
            if !output.is_json() {
                output.data(&view::value_text(&outputs))?;
            }
            Ok(Exit::Done)
        }
        RunStatus::Waiting => {
            output.note(&format!("run {} waits for an answer", outcome.run));
            Ok(Exit::Waiting)
        }
        status => {
            let failure = Failure::fixable(format!("run {} {status}", outcome.run))
                .hint(format!("what finished is kept. `piton resume {}` goes on from there.", outcome.run));
            Err(match &outcome.error {
                Some(error) => failure.cause(clean(error)),
                None => failure,
            })
        }
    }
}

/// The run waits for somebody, or was told to stop: it can be taken up again.
fn put_aside(session: &Session, run: &RunId, error: RunError) -> Result<Exit, Failure> {
    let waits = matches!(error, RunError::Waiting { .. });
    if session.output.is_json() {
        let status = if waits { RunStatus::Waiting } else { RunStatus::Paused };
        session.output.object(&result(
            run,
            status,
            serde_json::Value::Null,
            Some(&clean(&error.to_string())),
            TokenUsage::default(),
        ))?;
    }
    if !waits {
        return Err(error.into());
    }
    session.output.note(&clean(&error.to_string()));
    session.output.note(&format!("`piton answer {run} --set NAME=VALUE` answers, then `piton resume {run}` goes on"));
    Ok(Exit::Waiting)
}

/// A signal came: the run can be taken up again.
fn stopped(session: &Session, run: &RunId, started: bool) -> Result<(), Failure> {
    if session.output.is_json() {
        let status = if started { RunStatus::InProgress } else { RunStatus::Queued };
        session.output.object(&result(
            run,
            status,
            serde_json::Value::Null,
            Some("stopped by a signal"),
            TokenUsage::default(),
        ))?;
    }
    session.output.warn(&if started {
        format!("run {run} was stopped; what finished is kept. `piton resume {run}` goes on from there.")
    } else {
        format!("stopped before run {run} started")
    });
    Ok(())
}

/// The one object that `run --json` ends with.
fn result(
    run: &RunId,
    status: RunStatus,
    outputs: serde_json::Value,
    error: Option<&str>,
    usage: TokenUsage,
) -> serde_json::Value {
    json!({
        "id": run.as_str(),
        "run": run.as_str(),
        "status": status,
        "outputs": outputs,
        "error": error,
        "usage": {"input": usage.input, "output": usage.output, "total": usage.total(), "cost": usage.cost},
    })
}

impl From<FlowError> for Failure {
    fn from(error: FlowError) -> Self {
        match error {
            FlowError::Document(problems) => problems
                .iter()
                .fold(Self::fixable("the document is not valid"), |failure, problem| {
                    failure.cause(clean(&problem.to_string()))
                })
                .hint("nothing was run."),
            FlowError::Inputs(problems) => problems
                .iter()
                .fold(Self::fixable("the inputs are not valid"), |failure, problem| {
                    failure.cause(clean(&problem.to_string()))
                })
                .hint("nothing was run. Inputs are given with `-i NAME=TEXT` or `--inputs FILE`."),
            FlowError::Run(error) => error.into(),
            FlowError::Differs { ref run, .. } => {
                let hint = format!("choose another --id, or go on with its own document: `piton resume {run}`.");
                Self::refused(error.to_string()).hint(hint)
            }
            FlowError::ResumeRejected { run, diagnostic } => diagnostic
                .changes
                .iter()
                .fold(Self::refused(format!("run {run} was begun in other surroundings")), |failure, change| {
                    failure.cause(clean(&format!("{}: {}: {}", change.severity, change.component, change.description)))
                })
                .hint(format!("nothing was changed. `piton resume {run} --force` goes on all the same.")),
            FlowError::NotAWorkflow { ref run } => Self::fixable(error.to_string())
                .hint(format!("the program that started it must go on with it; `piton show {run}` shows what it did.")),
            error => Self::fixable(error.to_string()).causes_of(&error),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Store(error) => error.into(),
            RunError::Held { .. } => Self::refused(error.to_string()).hint(
                "nothing was changed. `--wait` waits for that process, `piton stop RUN` stops it; a run is driven by one process at a time.",
            ),
            RunError::Stopped { ref run, .. } => {
                let hint = format!("what finished is kept. `piton resume {run}` goes on from there.");
                Self::fixable(error.to_string()).hint(hint)
            }
            RunError::NotAsked { ref run, .. } => {
                Self::fixable(clean(&error.to_string())).hint(format!("`piton show {run}` shows how it stands."))
            }
            RunError::WhichQuestion { .. } => {
                Self::fixable(clean(&error.to_string())).hint("say which one with `--question STEP`.")
            }
            RunError::NoSuchStep { ref run, .. } => Self::fixable(clean(&error.to_string()))
                .hint(format!("nothing was changed. `piton show {run} --steps` shows its steps.")),
            RunError::Illegal { ref run, .. } => Self::refused(error.to_string())
                .causes_of(&error)
                .hint(format!("nothing was changed; `piton fork {run}` branches a new run off it.")),
            RunError::Changed { .. } => Self::refused(error.to_string())
                .hint("nothing was run. Go on with the program that began it, or start a new run."),
            RunError::Broken { ref run, .. } => {
                let hint = format!("what the log has is safe: `piton resume {run}` goes on from there.");
                Self::fixable(error.to_string()).hint(hint)
            }
            RunError::Name(_) => Self::usage(error.to_string()),
            error => Self::fixable(error.to_string()).causes_of(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use piton_types::Holder;

    use super::*;

    #[test]
    fn a_run_that_somebody_drives_is_refused() {
        let holder = Holder { host: "box".to_owned(), boot: String::new(), pid: 7, started: 0 };
        let failure = Failure::from(RunError::Held { run: "r".parse().unwrap(), holder, since: None });
        assert_eq!(failure.exit, Exit::Refused);
        insta::assert_snapshot!(failure.render(str::to_owned), @r"
        error: run r is being driven by process 7 on box

        hint: nothing was changed. `--wait` waits for that process, `piton stop RUN` stops it; a run is driven by one process at a time.
        ");
    }

    #[test]
    fn a_run_with_another_document_is_refused() {
        let failure = Failure::from(FlowError::Differs { run: "r".parse().unwrap(), what: "a document" });
        assert_eq!(failure.exit, Exit::Refused);
    }
}
