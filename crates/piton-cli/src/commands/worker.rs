//! `piton worker run|ls|drain`: driving runs that wait in the queue.

use std::sync::Arc;
use std::time::Duration;

use piton_app::runs::queue::{WorkerRun, drain, work_until_stopped, workers};
use piton_flow::SafeStopSignal;
use piton_runtime::Listener;
use piton_types::Event;

use crate::arguments::scale::{Worker, WorkerAction};
use crate::failure::{Exit, Failure};
use crate::output::{Output, clean};
use crate::session::Session;
use crate::signals::{Ended, until_ended};
use crate::table::{Table, took};

pub(crate) async fn execute(session: &Session, arguments: Worker) -> Result<Exit, Failure> {
    match arguments.action {
        WorkerAction::Run { concurrency, labels, name, hold, until_empty, config } => {
            let labels = labels.into_iter().collect();
            run(session, WorkerRun { name, labels, concurrency, config, hold, until_empty }).await
        }
        WorkerAction::Ls => list(session).await,
        WorkerAction::Drain { name, .. } => {
            let drained = drain(session, name.as_deref()).await?;
            for worker in &drained {
                session.output.note(&clean(&format!("worker {worker} takes no more runs, and ends within seconds")));
            }
            if session.output.is_json() {
                session.output.list(&drained)?;
            }
            Ok(Exit::Done)
        }
    }
}

async fn run(session: &Session, wanted: WorkerRun) -> Result<Exit, Failure> {
    let stop = SafeStopSignal::new();
    let output = Arc::clone(&session.output);
    let events = Listener::new(move |event| tell(&output, event));
    let (ended, _) = until_ended(&session.output, &stop, work_until_stopped(session, wanted, &stop, events)).await?;
    match ended {
        Ended::Finished(worked) => {
            let worked = worked?;
            let runs = if worked.runs == 1 { "one run".to_owned() } else { format!("{} runs", worked.runs) };
            session.output.note(&format!("this worker took {runs}"));
            if session.output.is_json() {
                session.output.view(&worked)?;
            }
            // One that was asked to end, and did so in peace, has done what it should.
            Ok(Exit::Done)
        }
        Ended::Stopped(exit) => {
            session.output.warn("stopped; what this worker had goes to others when its hold ends");
            Ok(exit)
        }
    }
}

fn tell(output: &Output, event: &Event) {
    let line = match event {
        Event::RunStarted { run, resumed: false } => format!("run {run} started"),
        Event::RunStarted { run, resumed: true } => format!("run {run} goes on"),
        Event::StepFailed { run, step, error, .. } => format!("run {run}: {step} failed: {error}"),
        Event::RunPaused { run, prompt, .. } => format!("run {run} asks: {prompt}"),
        Event::RunSucceeded { run, .. } => format!("run {run} completed"),
        Event::RunFailed { run, error, .. } => format!("run {run} failed: {error}"),
        _ => return,
    };
    output.note(&clean(&line));
}

async fn list(session: &Session) -> Result<Exit, Failure> {
    let (workers, output) = (workers(session).await?, &session.output);
    if output.is_json() {
        output.list(&workers)?;
    } else if workers.is_empty() {
        output.note("no worker takes runs from this store; `piton worker run` is one");
    } else {
        let mut table = Table::with_heading(&["WORKER", "RUNS", "OF", "LABELS", "SEEN", "STATE"]);
        for worker in &workers {
            let silent = Duration::from_millis(worker.silent_for_ms);
            let state = match (silent > Duration::from_secs(30), worker.draining) {
                (true, _) => "silent",
                (_, true) => "draining",
                _ => "working",
            };
            table.row(vec![
                clean(&worker.name),
                worker.runs.to_string(),
                worker.concurrency.to_string(),
                clean(&worker.labels.join(",")),
                format!("{} ago", took(silent)),
                state.to_owned(),
            ]);
        }
        output.data(&table.render(output.width()))?;
    }
    Ok(Exit::Done)
}
