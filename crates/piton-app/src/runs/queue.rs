//! Runs that workers drive: putting one into the queue of the store, being a worker, looking at workers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use piton_flow::{
    FlowError, FlowOptions, RunOutcome, SafeStopSignal, Schedule, Services, StartFlow, create_durable, resume_durable,
};
use piton_log::RunLog;
use piton_runtime::{
    Context, Driver, History, Listener, RunError, Submission, Taken, Undriven, WorkerOptions, place_in_queue, submit,
    work,
};
pub use piton_store::Limit;
use piton_store::{Head, Store, StoreError, WorkerInfo};
use piton_types::{RunId, RunState, RunStatus, RunSummary, Timestamp};
use tokio::sync::watch;

use crate::app::App;
use crate::documents::notices::Notices;
use crate::documents::outside::{Secrecy, services};
use crate::failure::Failure;
use crate::runs::drive::Work;
use crate::runs::schedule::{follow, id_at, next_after};
use crate::runs::start::{self, StartRun};
use crate::shell::{Level, Shell};
use crate::store::keeping;
use crate::views::run::{QueueView, SubmittedView, WorkedView, WorkerView};
use crate::words;

/// What a worker must have for the run of a document: workers that have programs of steps can't drive it.
pub(crate) const DOCUMENT: &str = "document";

/// How long between two looks at a run that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How a run is to wait for a worker, which must have what the run is labelled with.
#[derive(Debug, Clone, Default)]
pub struct SubmitRun {
    /// The larger, the sooner.
    pub priority: i32,
    /// A guess at the work, in whatever unit the user has.
    pub estimated_complexity: Option<f64>,
    /// Not before this.
    pub due: Option<Timestamp>,
    /// Not before so long from now, by the clock of the store.
    pub later: Option<Duration>,
    /// Runs of one key that may be driven at once.
    pub limit: Option<Limit>,
    /// One run for each key: a second one with the same key is the first.
    pub dedupe: Option<String>,
    /// It begins again and again, by a pattern of cron.
    pub every: Option<String>,
}

/// The id that a run with this key has.
fn id_of(key: &str) -> Result<RunId, Failure> {
    let id = format!("key-{}", &blake3::hash(key.as_bytes()).to_hex()[..24]);
    id.parse().map_err(|error| Failure::internal("a key makes no id").because(&error))
}

/// Creates the run of a document and puts it into the queue. When this returns, a worker will drive it.
pub async fn put(app: &App, mut wanted: StartRun, mut how: SubmitRun) -> Result<SubmittedView, Failure> {
    let mut schedule = None;
    if let Some(every) = how.every.take() {
        let at = next_after(&every, app.now())?;
        let key = match &how.dedupe {
            Some(key) => key.clone(),
            None => format!("{every} {} {:?}", wanted.document.display(), wanted.inputs),
        };
        (wanted.id, how.due) = (Some(id_at(&key, at)?), Some(at));
        schedule = Some(Schedule { every, at });
    } else if let Some(key) = &how.dedupe {
        wanted.id = Some(id_of(key)?);
    }
    let prepared = start::prepare(app, wanted).await?;
    let Work::Start { document, format, given, name, labels, config, .. } = prepared.work else {
        return Err(Failure::internal("a start is no resume"));
    };
    let store = match prepared.services.get::<Arc<Secrecy>>() {
        Some(secrecy) => secrecy.over(prepared.store),
        None => prepared.store,
    };
    let queue = store.queue().ok_or_else(|| no_queue(&store))?;
    if let Some(later) = how.later {
        how.due = Some(queue.now().await?.after(later));
    }
    let context = Context::system(Arc::clone(&store));
    let is_new = store.head(&prepared.run).await?.is_none();
    let start = StartFlow {
        config,
        priority: how.priority,
        estimated_complexity: how.estimated_complexity,
        document,
        format,
        inputs: given.inputs,
        system: given.system,
        conversation: given.conversation,
        id: Some(prepared.run),
        name,
        folder: app.folder().to_str().map(str::to_owned),
        labels: labels.clone(),
        options: FlowOptions { services: prepared.services, limits: prepared.limits, ..FlowOptions::default() },
    };
    let run = create_durable(&context, start, schedule).await?;
    let labels = labels.into_iter().chain([DOCUMENT.to_owned()]).collect();
    let submission = Submission { labels, priority: how.priority, due: how.due, limit: how.limit };
    submit(&context, &run, submission).await?;
    let status = store.summary(&run).await?.map_or(RunStatus::Queued, |summary| summary.status);
    store.close().await?;
    Ok(SubmittedView { id: run.clone(), run, status, is_new })
}

pub(crate) fn no_queue(store: &Arc<dyn Store>) -> Failure {
    let url = store.url();
    Failure::fixable(format!("the store {url} has no queue")).hint(
        "nothing was created. Stores in SQLite and in PostgreSQL have one: `--store sqlite:runs.db` names such a store.",
    )
}

/// Waits until a run that was submitted is over or asks something. `tell` hears how it stands when that changes.
pub async fn wait_until_over(
    app: &App,
    run: &RunId,
    tell: &(dyn Fn(RunStatus, Option<&QueueView>) + Sync),
) -> Result<RunOutcome, Failure> {
    let store = app.store().await?;
    let context = Context::system(Arc::clone(&store));
    let (mut told, mut line) = (None, Line::default());
    let status = loop {
        let summary = store.summary(run).await?.ok_or_else(|| StoreError::no_run(run))?;
        let place = place_in_queue(&context, run).await?.map(QueueView::from);
        let now = (summary.status, place.as_ref().and_then(|place| place.worker.clone()));
        if told.as_ref() != Some(&now) {
            line.end(app);
            tell(summary.status, place.as_ref());
            told = Some(now);
        }
        let is_asleep = place.as_ref().is_none_or(|place| place.worker.is_none());
        match summary.status {
            status if status.is_final() => break status,
            // A run that failed and is tried again is due; a dead letter isn't.
            RunStatus::Failed if place.as_ref().is_none_or(|place| place.due.is_none()) => break RunStatus::Failed,
            RunStatus::Waiting if is_asleep => break RunStatus::Waiting,
            RunStatus::Paused if place.is_none() => break RunStatus::Paused,
            _ => {
                line.show(app, &context, &summary).await?;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    };
    line.end(app);
    let outcome = outcome(&context, run, status).await?;
    store.close().await?;
    Ok(outcome)
}

/// One line, shown and overwritten, that says how far a run has come.
#[derive(Default)]
struct Line {
    head: Option<Head>,
    words: String,
    is_shown: bool,
}

impl Line {
    async fn show(&mut self, app: &App, context: &Context, run: &RunSummary) -> Result<(), Failure> {
        if !app.shell().shows_progress() || run.status != RunStatus::InProgress {
            return Ok(());
        }
        let head = context.store.head(&run.id).await?;
        if head != self.head {
            let at_work = History::of(context, &run.id).await?.at_work();
            let far = at_work.progress.map(|progress| format!("{} %", progress.get()));
            let step = at_work.step.map(|step| step.to_string());
            let parts: Vec<String> = [step, at_work.last_progress, far].into_iter().flatten().collect();
            (self.head, self.words) = (head, parts.join(", "));
        }
        let at_work = words::took(app.now().since(run.created_at));
        app.shell().progress(Some(&format!("run {}: {} ({at_work})", run.id, self.words)));
        self.is_shown = true;
        Ok(())
    }

    fn end(&mut self, app: &App) {
        if std::mem::take(&mut self.is_shown) {
            app.shell().progress(None);
        }
    }
}

async fn outcome(context: &Context, run: &RunId, status: RunStatus) -> Result<RunOutcome, Failure> {
    if status == RunStatus::Completed {
        return Ok(resume_durable(context, run, FlowOptions::default()).await?);
    }
    let log = RunLog::open(Arc::clone(&context.store), run).await?;
    let history = History::read(&log).await?;
    let usage = history.usage(&log).await?.unwrap_or_default();
    let error = match history.state {
        RunState::Failed(failed) => Some(failed.message),
        RunState::Cancelled { reason, .. } => Some(reason),
        RunState::Paused(paused) => Some(paused.reason),
        _ => None,
    };
    let questions = history.questions.into_iter().map(Into::into).collect();
    Ok(RunOutcome { error, usage, questions, ..RunOutcome::new(run, status) })
}

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkerRun {
    /// What it is called; the host and the process if nothing is said.
    pub name: Option<String>,
    /// What it has.
    pub labels: BTreeSet<String>,
    /// How many runs it drives at once.
    pub concurrency: u32,
    /// Models, knowledge bases, credentials, limits.
    pub config: Option<PathBuf>,
    /// For how long it holds a run without a sign of life.
    pub hold: Duration,
    /// It ends when nothing is due, or will be soon.
    pub until_empty: bool,
}

/// Works until `stop` is triggered, the worker is asked to drain or, if it was told so, the queue is empty. `events` hears
/// what happens to the runs that it drives.
pub async fn work_until_stopped(
    app: &App,
    wanted: WorkerRun,
    stop: &SafeStopSignal,
    events: Listener,
) -> Result<WorkedView, Failure> {
    let services = services(app, wanted.config.as_deref())?;
    let store = app.store_or_create().await?;
    if store.queue().is_none() {
        return Err(no_queue(&store));
    }
    let shared = match services.get::<Arc<Secrecy>>() {
        Some(secrecy) => secrecy.over(Arc::clone(&store)),
        None => Arc::clone(&store),
    };
    let context = Context::system(shared);
    let telling = services.get::<Notices>().and_then(Notices::start);
    let events = telling.iter().fold(events, |events, telling| telling.listener(events));
    let name = wanted.name.unwrap_or_else(|| {
        let (host, pid) = (&context.holder.host, context.holder.pid);
        format!("{}-{pid}", host.chars().take(12).collect::<String>())
    });
    let standard = WorkerOptions::new(name.clone());
    let labels = wanted.labels.into_iter().chain([DOCUMENT.to_owned()]).collect();
    let info = WorkerInfo { name, labels, concurrency: wanted.concurrency, holder: None };
    let options = WorkerOptions { info, hold: wanted.hold, until_empty: wanted.until_empty, ..standard };
    app.note(&format!("worker {} takes runs from {}", options.info.name, context.store.url()));
    let folder = app.folder().to_owned();
    let (shell, stop_of_runs) = (app.shared_shell(), stop.clone());
    let driver = Arc::new(FlowDriver { context: context.clone(), services, stop: stop_of_runs, events, folder, shell });
    let (drain, drained) = watch::channel(false);
    let signal = {
        let stop = stop.clone();
        tokio::spawn(async move {
            stop.cancelled().await;
            let _ = drain.send(true);
        })
    };
    let worked = work(&context, &options, driver, drained).await;
    signal.abort();
    if let Some(telling) = telling {
        telling.finish(app).await;
    }
    store.close().await?;
    Ok(WorkedView { worker: options.info.name, runs: worked? })
}

/// Drives runs of documents.
struct FlowDriver {
    context: Context,
    services: Services,
    stop: SafeStopSignal,
    events: Listener,
    /// Where runs work whose own folder isn't on this machine.
    folder: PathBuf,
    shell: Arc<dyn Shell>,
}

#[async_trait]
impl Driver for FlowDriver {
    async fn drive(&self, taken: &Taken) -> Result<(), Undriven> {
        let Taken { waiting: taken, overdue } = taken;
        follow(&self.context, taken).await.map_err(|error| Undriven::Problem(with_causes(&error)))?;
        let summary = self.context.store.summary(&taken.run).await;
        let own = summary.map_err(|error| Undriven::Problem(with_causes(&error)))?.and_then(|summary| summary.folder);
        let is_elsewhere = own.is_some_and(|folder| !Path::new(&folder).is_dir());
        let options = FlowOptions {
            overdue: overdue.clone(),
            folder: is_elsewhere.then(|| self.folder.clone()),
            services: self.services.clone(),
            stop: self.stop.clone(),
            events: self.events.clone(),
            ..FlowOptions::default()
        };
        match resume_durable(&self.context, &taken.run, options).await {
            Ok(_) => Ok(()),
            Err(FlowError::Run(RunError::Held { .. })) => Err(Undriven::Held),
            Err(error) => Err(Undriven::Problem(with_causes(&error))),
        }
    }

    fn stop(&self, grace: Duration) {
        self.stop.trigger(grace.as_secs());
    }

    async fn keep_house(&self) -> Result<(), StoreError> {
        if let Some(kept) = keeping::by_a_worker(&self.context).await? {
            self.shell.tell(Level::Detail, &keeping::words(&kept));
        }
        Ok(())
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The workers of the store.
pub async fn workers(app: &App) -> Result<Vec<WorkerView>, Failure> {
    let store = app.look().await?;
    let queue = store.queue().ok_or_else(|| no_queue(&store))?;
    let workers = queue.workers().await?.into_iter().map(WorkerView::from).collect();
    store.close().await?;
    Ok(workers)
}

/// Asks workers to take no more runs and to end: one by its name, or all. Says which.
pub async fn drain(app: &App, name: Option<&str>) -> Result<Vec<String>, Failure> {
    let store = app.store().await?;
    let queue = store.queue().ok_or_else(|| no_queue(&store))?;
    let mut drained = Vec::new();
    for worker in queue.workers().await? {
        let worker = worker.info.name;
        if name.is_none_or(|name| name == worker) && queue.drain(&worker).await? {
            drained.push(worker);
        }
    }
    store.close().await?;
    match name {
        Some(name) if drained.is_empty() => {
            Err(Failure::fixable(format!("there is no worker {name}")).hint("`piton worker ls` shows which there are."))
        }
        _ => Ok(drained),
    }
}
