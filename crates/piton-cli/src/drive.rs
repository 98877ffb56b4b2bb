//! Driving a run from the command line: progress on stderr, signals, and how it ended as output and exit
//! code. `run` and `resume` differ only in how they begin.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use piton::workspace::{RunFiles, SessionOptions, Workspace};
use piton::{Companion, FlowError, FlowOptions, RunOutcome, SafeStopSignal};
use piton::{Context, Listener, Services, listen_for_nudges};
use piton_store::Store;
use piton_types::{Event, RunId, RunStatus, TokenUsage, Value};
use serde_json::json;

use crate::arguments::files::DriftWatch;
use crate::failure::{Exit, Failure};
use crate::live::TICK;
use crate::output::{Output, clean};
use crate::questions;
use crate::session::Session;
use crate::signals::{Ended, until_ended};
use crate::view;
use piton_app::documents::notices::Notices;
use piton_app::documents::outside::Secrecy;
use piton_app::runs::usage::usage_json;
use piton_app::store::keeping;

/// A run whose files are checkpointed.
pub(crate) struct Along {
    pub(crate) workspace: Workspace,
    pub(crate) drift: DriftWatch,
}

impl Along {
    fn begin(self, stop: &SafeStopSignal) -> RunFiles {
        let files = RunFiles::new(self.workspace, SessionOptions::default()).drift_every(self.drift.drift_every);
        if self.drift.pause_on_drift { files.stopping(stop.clone()) } else { files }
    }
}

/// Where a run works now if it is of this folder and the folder was moved since.
fn moved_to(session: &Session, folder: Option<&str>) -> Option<PathBuf> {
    let here = &session.surroundings.folder;
    let is_moved = session.residence().has(folder) && folder != Some(&*here.to_string_lossy());
    is_moved.then(|| here.clone())
}

/// Drives `run` by `work` until it ends, waits or is stopped, and tells the user; `notice` when it goes on.
pub(crate) async fn drive<W>(
    session: &Session,
    store: Arc<dyn Store>,
    run: &RunId,
    notice: Option<String>,
    services: Services,
    along: Option<Along>,
    work: impl FnOnce(Context, FlowOptions) -> W,
) -> Result<Exit, Failure>
where
    W: Future<Output = Result<RunOutcome, FlowError>>,
{
    let secrecy = services.get::<Arc<Secrecy>>().cloned();
    let store = match &secrecy {
        Some(secrecy) => secrecy.over(store),
        None => store,
    };
    // Whoever stops the run or answers is heard at once; without it, within a second.
    if let Err(error) = listen_for_nudges() {
        session.output.detail(&format!("other processes are heard only once a second: {error}"));
    }
    let started = Arc::new(AtomicBool::new(false));
    let view = View::begin(session);
    let events = {
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
    let telling = services.get::<Notices>().and_then(Notices::start);
    let events = telling.iter().fold(events, |events, telling| telling.listener(events));
    let stop = SafeStopSignal::new();
    let files = along.map(|along| Arc::new(along.begin(&stop)));
    let companion = files.clone().map(|files| files as Arc<dyn Companion>);
    let folder = store.summary(run).await?.and_then(|summary| moved_to(session, summary.folder.as_deref()));
    let options = FlowOptions { events, services, stop: stop.clone(), companion, folder, ..FlowOptions::default() };
    let work = work(Context::system(Arc::clone(&store)), options);
    let ended = until_ended(&session.output, &stop, work).await;
    drop(view);
    let ended = ended?;
    if let Some(problem) = files.and_then(|files| files.problem()) {
        session.output.warn(&format!("a checkpoint of the files could not be made: {}", clean(&problem.to_string())));
    }
    if let Some(telling) = telling {
        telling.finish(session).await;
    }
    let exit = match ended {
        (Ended::Finished(Ok(mut outcome)), signal) => {
            if let Some(secrecy) = &secrecy {
                for error in outcome.error.iter_mut().chain(&mut outcome.recovered_from) {
                    *error = secrecy.shown(error);
                }
            }
            keeping::in_passing(session, &store, None).await;
            store.close().await?;
            return report(session, &outcome, signal);
        }
        (Ended::Finished(Err(error)), _) => return Err(error.into()),
        (Ended::Stopped(exit), _) => {
            dropped(session, run, started.load(Ordering::Relaxed))?;
            exit
        }
    };
    store.close().await?;
    Ok(exit)
}

/// The live view while a run is being driven, if there is a terminal for it.
struct View {
    output: Arc<Output>,
    ticking: Option<tokio::task::JoinHandle<()>>,
}

impl View {
    fn begin(session: &Session) -> Self {
        let output = Arc::clone(&session.output);
        let dumb = session.variable("TERM").is_some_and(|name| name == "dumb");
        let ticking = output.begin_live(dumb).then(|| {
            let output = Arc::clone(&output);
            tokio::spawn(async move {
                let mut ticks = tokio::time::interval(TICK);
                ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    output.tick();
                }
            })
        });
        Self { output, ticking }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.ticking.iter().for_each(tokio::task::JoinHandle::abort);
        self.output.end_live();
    }
}

/// Progress: in the live view, or a line.
fn tell(output: &Output, event: &Event) {
    let in_view = output.show_live(event);
    let line = match event {
        Event::RunStarted { run, resumed: false } => format!("run {run} started"),
        Event::RunStarted { run, resumed: true } => format!("run {run} goes on"),
        // The live view has had it.
        Event::StepStarted { .. }
        | Event::StepSkipped { .. }
        | Event::StepFinished { .. }
        | Event::StepFailed { .. }
        | Event::StepRetried { .. }
        | Event::CheckpointSaved { .. }
            if in_view =>
        {
            return;
        }
        Event::StepStarted { step, .. } => format!("{step}: started"),
        Event::StepSkipped { step, .. } => format!("{step}: finished before, skipped"),
        Event::StepFinished { step, .. } => format!("{step}: finished"),
        Event::StepFailed { step, error, .. } => format!("{step}: failed: {error}"),
        Event::ResumeWarning { report, .. } => {
            format!("changed since the run was begun: {}", report.replace('\n', "; "))
        }
        Event::StepRetried { step, attempt, error, .. } => format!("{step}: attempt {attempt} failed: {error}"),
        Event::RunPaused { step: Some(step), prompt, .. } => format!("{step}: asks: {prompt}"),
        Event::RunResumed { step: Some(step), .. } => format!("{step}: answered"),
        Event::CheckpointSaved { checkpoint, step: None } => format!("checkpoint {checkpoint}"),
        Event::CheckpointSaved { checkpoint, step: Some(step) } => format!("{step}: checkpoint {checkpoint}"),
        // The end has a word of its own; what isn't known yet is no progress to tell of.
        _ => return,
    };
    output.note(&clean(&line));
}

/// How the run stands: the outputs as data, the questions, or an error.
fn report(session: &Session, outcome: &RunOutcome, signal: Option<Exit>) -> Result<Exit, Failure> {
    let (output, run) = (&session.output, &outcome.run);
    if output.is_json() {
        output.object(&result(outcome))?;
    }
    match outcome.status {
        RunStatus::Completed => {
            let exceptions = match outcome.exceptions {
                0 => String::new(),
                1 => ", although one node failed".to_owned(),
                many => format!(", although {many} nodes failed"),
            };
            match &outcome.recovered_from {
                Some(error) => output.note(&format!("run {run} recovered from a failure: {}", clean(error))),
                None => output.note(&format!("run {run} completed{exceptions}")),
            }
            if !output.is_json() {
                output.data(&view::value_text(&Value::Map(outcome.outputs.clone())))?;
            }
            Ok(Exit::Done)
        }
        RunStatus::Waiting if signal.is_none() && outcome.stopped.is_none() => {
            questions::show(output, run, &outcome.questions);
            Ok(Exit::Waiting)
        }
        status => {
            let what = match status {
                RunStatus::Paused | RunStatus::Waiting => "was stopped".to_owned(),
                RunStatus::Cancelled => "was cancelled".to_owned(),
                status => status.to_string(),
            };
            let mut failure = Failure::fixable(format!("run {run} {what}"));
            if let Some(error) = &outcome.error {
                failure = failure.cause(clean(error));
            }
            for cut in outcome.stopped.iter().flat_map(|stopped| &stopped.interrupted) {
                failure = failure.cause(clean(&format!("{cut} was cut short and runs again")));
            }
            for (step, error) in outcome.stopped.iter().flat_map(|stopped| &stopped.failed) {
                failure = failure.cause(clean(&format!("{step} failed meanwhile: {error}")));
            }
            if status != RunStatus::Cancelled {
                failure = failure.hint(format!("what finished is kept. `piton resume {run}` goes on from there."));
            }
            match signal {
                Some(exit) => Ok(output.failure_with(&failure, exit)),
                None => Err(failure),
            }
        }
    }
}

/// Three signals came: the run can be taken up again.
fn dropped(session: &Session, run: &RunId, started: bool) -> Result<(), Failure> {
    if session.output.is_json() {
        let status = if started { RunStatus::InProgress } else { RunStatus::Queued };
        let usage = TokenUsage::default();
        session.output.object(&json!({
            "id": run.as_str(), "run": run.as_str(), "status": status, "outputs": null,
            "error": "stopped by a signal", "usage": usage_json(Some(usage)),
        }))?;
    }
    session.output.warn(&if started {
        format!("run {run} was stopped; what finished is kept. `piton resume {run}` goes on from there.")
    } else {
        format!("stopped before run {run} started")
    });
    Ok(())
}

/// The one object that `run --json` ends with.
fn result(outcome: &RunOutcome) -> serde_json::Value {
    let outputs = match outcome.status {
        RunStatus::Completed => view::value_json(&Value::Map(outcome.outputs.clone())),
        _ => serde_json::Value::Null,
    };
    let status = match &outcome.recovered_from {
        Some(_) => json!("failed_with_recovery"),
        None => json!(outcome.status),
    };
    let mut object = json!({
        "id": outcome.run.as_str(),
        "run": outcome.run.as_str(),
        "status": status,
        "outputs": outputs,
        "error": outcome.error.as_ref().or(outcome.recovered_from.as_ref()),
        "usage": usage_json(Some(outcome.usage)),
    });
    if outcome.exceptions > 0 {
        object["exceptions"] = json!(outcome.exceptions);
    }
    if !outcome.questions.is_empty() {
        object["questions"] = outcome.questions.iter().map(questions::json).collect();
    }
    if let Some(stopped) = &outcome.stopped {
        object["stopped"] = json!({
            "last_completed_node": stopped.last_completed.as_ref().map(ToString::to_string),
            "interrupted_nodes": stopped.interrupted.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "checkpoint_saved": stopped.checkpoint_saved,
        });
    }
    object
}
