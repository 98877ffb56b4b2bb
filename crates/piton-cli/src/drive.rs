//! Driving a run from the command line: progress on stderr, signals, and how it ended as output and exit code.

use std::sync::{Arc, Mutex, PoisonError};

use piton_app::runs::drive::{Driving, Prepared, failure_of};
use piton_app::views::run::OutcomeView;
use piton_flow::RunOutcome;
use piton_runtime::Listener;
use piton_types::{Event, RunId, RunStatus, StepPath};

use crate::failure::{Exit, Failure};
use crate::live::{TICK, Titles};
use crate::output::{Output, clean};
use crate::questions;
use crate::session::Session;
use crate::signals::{Ended, until_ended};
use crate::view::{check_line, value_text};

/// Drives a run until it ends, waits or is stopped, and tells the user.
pub(crate) async fn drive(session: &Session, prepared: Prepared) -> Result<Exit, Failure> {
    let (run, notice) = (prepared.run.clone(), prepared.notice.clone());
    let events = progress(session, notice);
    let view = View::begin(session);
    let (driving, work) = Driving::prepare(session, prepared, events).await?;
    let ended = until_ended(&session.output, &driving.stop(), driving.go(session, work)).await;
    drop(view);
    match ended? {
        (Ended::Finished(ended), signal) => report(session, &driving.finish(session, ended).await?, signal),
        (Ended::Stopped(exit), _) => {
            let started = driving.has_started();
            driving.abandon(session).await?;
            dropped(session, &run, started)?;
            Ok(exit)
        }
    }
}

/// Tells what happens. A run that goes on is told of by the notice.
pub(crate) fn progress(session: &Session, notice: Option<String>) -> Listener {
    let output = Arc::clone(&session.output);
    let titles = Mutex::new(Titles::default());
    Listener::new(move |event| match (event, &notice) {
        (Event::RunStarted { resumed: true, .. }, Some(notice)) => output.note(&clean(notice)),
        _ => tell(&output, event, &mut titles.lock().unwrap_or_else(PoisonError::into_inner)),
    })
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
fn tell(output: &Output, event: &Event, titles: &mut Titles) {
    let in_view = output.show_live(event);
    if let Event::StepStarted { step, title: Some(title), .. } = event {
        titles.learn(step.as_str(), title);
    }
    let name = |step: &StepPath| titles.of(step.as_str());
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
        Event::StepStarted { step, .. } => format!("{}: started", name(step)),
        Event::StepSkipped { step, .. } => format!("{}: finished before, skipped", name(step)),
        Event::StepFinished { step, .. } => format!("{}: finished", name(step)),
        Event::StepFailed { step, error, .. } => format!("{}: failed: {error}", name(step)),
        Event::ResumeWarning { report, .. } => {
            format!("changed since the run was begun: {}", report.replace('\n', "; "))
        }
        Event::StepRetried { step, attempt, error, .. } => format!("{}: attempt {attempt} failed: {error}", name(step)),
        Event::RunPaused { step: Some(step), prompt, .. } => format!("{}: asks: {prompt}", name(step)),
        Event::RunResumed { step: Some(step), .. } => format!("{}: answered", name(step)),
        Event::CheckpointSaved { checkpoint, step: None } => format!("checkpoint {checkpoint}"),
        Event::CheckpointSaved { checkpoint, step: Some(step) } => format!("{}: checkpoint {checkpoint}", name(step)),
        // The end has a word of its own; what isn't known yet is no progress to tell of.
        _ => return,
    };
    output.note(&clean(&line));
}

/// How the run stands: the outputs as data, the questions, or an error.
pub(crate) fn report(session: &Session, outcome: &RunOutcome, signal: Option<Exit>) -> Result<Exit, Failure> {
    let (output, run) = (&session.output, &outcome.run);
    let view = OutcomeView::from(outcome);
    if output.is_json() {
        output.view(&view)?;
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
                output.data(&value_text(&view.outputs))?;
            }
            outcome.verification.iter().for_each(|check| output.note(&check_line(check)));
            let is_wrong = outcome.verification.iter().any(|check| !check.passed);
            Ok(if is_wrong { Exit::Of(1) } else { Exit::Done })
        }
        RunStatus::Waiting if signal.is_none() && outcome.stopped.is_none() => {
            questions::show(output, run, &view.questions);
            Ok(Exit::Waiting)
        }
        _ => match signal {
            Some(exit) => Ok(output.failure_with(&failure_of(outcome), exit)),
            None => Err(failure_of(outcome)),
        },
    }
}

/// Three signals came: the run can be taken up again.
pub(crate) fn dropped(session: &Session, run: &RunId, started: bool) -> Result<(), Failure> {
    if session.output.is_json() {
        session.output.view(&OutcomeView::dropped(run, started))?;
    }
    session.output.warn(&if started {
        format!("run {run} was stopped; what finished is kept. `piton resume {run}` goes on from there.")
    } else {
        format!("stopped before run {run} started")
    });
    Ok(())
}
