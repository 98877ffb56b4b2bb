//! Driving a run: what it needs of the machine is put together, the work is done, and what it came to is told without
//! secrets. `run`, `resume` and `retry` differ only in the [`Work`].

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use piton::engine::RunFiles;
use piton_flow::{
    Companion, ConfigFile, Debugger, Document, FlowError, FlowOptions, Format, Given, Limits, ResumePolicy, RunOutcome,
    SafeStopSignal, Services, StartFlow, resume_durable, resume_with_document, run_durable,
};
use piton_log::RunLog;
use piton_runtime::{Context, Listener, WholeHistory, listen_for_nudges};
use piton_store::Store;
use piton_types::{Event, RunId, RunStatus};
use piton_workspace::{CHECKED_EVERY, SessionOptions, Workspace};

use crate::app::App;
use crate::documents::notices::{Notices, Telling};
use crate::documents::outside::Secrecy;
use crate::failure::Failure;
use crate::runs::fork::document_of;
use crate::store::keeping;

/// How the repository is watched while a run whose files are checkpointed is driven.
#[derive(Debug, Clone, Copy)]
pub struct DriftWatch {
    /// How often; zero for never.
    pub every: Duration,
    /// Whether the run stops when the same lines changed upstream.
    pub pauses: bool,
}

impl Default for DriftWatch {
    fn default() -> Self {
        Self { every: CHECKED_EVERY, pauses: false }
    }
}

/// A run whose files are checkpointed.
pub struct Along {
    /// Its files.
    pub workspace: Workspace,
    /// How the repository is watched.
    pub drift: DriftWatch,
}

impl Along {
    fn begin(self, stop: &SafeStopSignal) -> RunFiles {
        let files = RunFiles::new(self.workspace, SessionOptions::default()).drift_every(self.drift.every);
        if self.drift.pauses { files.stopping(stop.clone()) } else { files }
    }
}

/// What is done.
pub enum Work {
    /// A document is started, or the run of that id goes on.
    Start {
        /// The document.
        document: String,
        /// Its format.
        format: Format,
        /// What it is given.
        given: Given,
        /// What the run is called.
        name: String,
        /// What it is found by beside its name.
        labels: BTreeSet<String>,
        /// The configuration that was read.
        config: Option<ConfigFile>,
        /// What is done about surroundings that changed.
        policy: ResumePolicy,
    },
    /// A run goes on, by the document that its log has or by another one.
    Resume {
        /// Another document.
        document: Option<(String, Format)>,
        /// What is done about surroundings that changed.
        policy: ResumePolicy,
    },
}

impl Work {
    /// What is done about surroundings that changed.
    pub(crate) fn policy(&self) -> ResumePolicy {
        match self {
            Self::Start { policy, .. } | Self::Resume { policy, .. } => *policy,
        }
    }
}

/// A run that was started, resumed or is tried again, and can be driven now.
pub struct Prepared {
    pub(super) store: Arc<dyn Store>,
    /// The run.
    pub run: RunId,
    /// From where it goes on, in words, if it isn't new.
    pub notice: Option<String>,
    pub(super) services: Services,
    pub(super) limits: Limits,
    pub(super) along: Option<Along>,
    pub(super) work: Work,
}

impl Prepared {
    /// The document that the run goes by.
    pub(crate) async fn document(&self) -> Result<Document, Failure> {
        let (text, format) = match &self.work {
            Work::Start { document, format, .. } | Work::Resume { document: Some((document, format)), .. } => {
                (document, *format)
            }
            Work::Resume { document: None, .. } => {
                let log = RunLog::open(Arc::clone(&self.store), &self.run).await?;
                let then = WholeHistory::read(&log).await?;
                let kind = log.summary().await?.kind;
                let missing = || FlowError::NotAWorkflow { run: self.run.clone() };
                return Ok(document_of(&then, kind).ok_or_else(missing)?);
            }
        };
        Ok(Document::parse(text, format).map_err(FlowError::Document)?)
    }
}

/// What the work comes to.
pub type Ended<'a> = Pin<Box<dyn Future<Output = Result<RunOutcome, FlowError>> + Send + 'a>>;

/// A run that is ready to be driven.
pub struct Driving {
    store: Arc<dyn Store>,
    run: RunId,
    secrecy: Option<Arc<Secrecy>>,
    files: Option<Arc<RunFiles>>,
    telling: Option<Telling>,
    #[cfg(feature = "otlp")]
    tracing: Option<crate::traces::Tracing>,
    started: Arc<AtomicBool>,
    stop: SafeStopSignal,
    context: Context,
    options: FlowOptions,
}

impl Driving {
    /// Puts together what a run needs. `events` is told what happens.
    pub async fn prepare(app: &App, prepared: Prepared, events: Listener) -> Result<(Self, Work), Failure> {
        let Prepared { store, run, services, limits, along, work, .. } = prepared;
        let secrecy = services.get::<Arc<Secrecy>>().cloned();
        let store = match &secrecy {
            Some(secrecy) => secrecy.over(store),
            None => store,
        };
        // A process that stops the run or answers is heard at once; without it, within a second.
        if let Err(error) = listen_for_nudges() {
            app.detail(&format!("other processes are heard only once a second: {error}"));
        }
        let started = Arc::new(AtomicBool::new(false));
        let events = {
            let (started, next) = (Arc::clone(&started), events);
            Listener::new(move |event| {
                if matches!(event, Event::RunStarted { .. }) {
                    started.store(true, Ordering::Relaxed);
                }
                next.pass_on(event);
            })
        };
        let telling = services.get::<Notices>().and_then(Notices::start);
        let events = telling.iter().fold(events, |events, telling| telling.listener(events));
        #[cfg(feature = "otlp")]
        let tracing = crate::traces::Tracing::start(app, Arc::clone(&store))?;
        #[cfg(feature = "otlp")]
        let events = tracing.iter().fold(events, |events, tracing| tracing.listener(events));
        let stop = SafeStopSignal::new();
        let files = along.map(|along| Arc::new(along.begin(&stop)));
        let companion = files.clone().map(|files| files as Arc<dyn Companion>);
        let folder = store.summary(&run).await?.and_then(|summary| moved_to(app, summary.folder.as_deref()));
        let options =
            FlowOptions { events, services, limits, stop: stop.clone(), companion, folder, ..FlowOptions::default() };
        let context = Context::system(Arc::clone(&store));
        let driving = Self {
            store,
            run,
            secrecy,
            files,
            telling,
            #[cfg(feature = "otlp")]
            tracing,
            started,
            stop,
            context,
            options,
        };
        Ok((driving, work))
    }

    /// Stops the run in peace, or at once.
    pub fn stop(&self) -> SafeStopSignal {
        self.stop.clone()
    }

    /// Has its nodes asked for by a debugger.
    pub(crate) fn debug(&mut self, debugger: Arc<dyn Debugger>) {
        self.options.debugger = Some(debugger);
    }

    /// From now on another run is driven.
    pub(crate) fn turn_to(&mut self, run: RunId) {
        self.run = run;
    }

    /// The run.
    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }

    /// Its store, clock and process.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// What is kept out of what is shown.
    pub(crate) fn secrecy(&self) -> Option<&Arc<Secrecy>> {
        self.secrecy.as_ref()
    }

    /// Whether the run has begun.
    pub fn has_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Drives the run until it ends, waits or is stopped. The future may be dropped at any moment: what is in the log is
    /// whole, and what isn't runs again when the run is resumed.
    pub fn go<'a>(&'a self, app: &'a App, work: Work) -> Ended<'a> {
        let options = self.options.clone();
        Box::pin(async move {
            match work {
                Work::Start { document, format, given, name, labels, config, policy } => {
                    let start = StartFlow {
                        config,
                        priority: 0,
                        estimated_complexity: None,
                        document,
                        format,
                        inputs: given.inputs,
                        system: given.system,
                        conversation: given.conversation,
                        id: Some(self.run.clone()),
                        name,
                        folder: app.folder().to_str().map(str::to_owned),
                        labels,
                        options: FlowOptions { policy, ..options },
                    };
                    run_durable(&self.context, start).await
                }
                Work::Resume { document, policy } => {
                    let options = FlowOptions { policy, ..options };
                    match document {
                        Some(document) => resume_with_document(&self.context, &self.run, document, options).await,
                        None => resume_durable(&self.context, &self.run, options).await,
                    }
                }
            }
        })
    }

    /// What a run came to, without secrets; what is due in the store is done.
    pub async fn finish(mut self, app: &App, ended: Result<RunOutcome, FlowError>) -> Result<RunOutcome, Failure> {
        self.warn(app).await;
        #[cfg(feature = "otlp")]
        if let Some(tracing) = self.tracing.take() {
            let (status, error) = match &ended {
                Ok(outcome) => (outcome.status.to_string(), outcome.error.clone()),
                Err(error) => ("interrupted".to_owned(), Some(error.to_string())),
            };
            let error = error.map(|error| self.secrecy.as_ref().map_or_else(|| error.clone(), |it| it.shown(&error)));
            tracing.finish(app, &status, error.as_deref()).await;
        }
        let mut outcome = ended?;
        if let Some(secrecy) = &self.secrecy {
            for error in outcome.error.iter_mut().chain(&mut outcome.recovered_from) {
                *error = secrecy.shown(error);
            }
            for question in &mut outcome.questions {
                question.prompt = secrecy.shown(&question.prompt);
                question.form = question.form.take().map(|form| secrecy.shown_form(&form)).transpose()?;
            }
        }
        if outcome.status == RunStatus::Completed {
            keeping::on_completion(app, &self.store, &self.run).await;
        }
        keeping::in_passing(app, &self.store).await;
        self.store.close().await?;
        Ok(outcome)
    }

    /// The same for work that was dropped where it stood.
    pub async fn abandon(mut self, app: &App) -> Result<(), Failure> {
        self.warn(app).await;
        #[cfg(feature = "otlp")]
        if let Some(tracing) = self.tracing.take() {
            tracing.finish(app, "interrupted", None).await;
        }
        Ok(self.store.close().await?)
    }

    async fn warn(&mut self, app: &App) {
        if let Some(problem) = self.files.take().and_then(|files| files.problem()) {
            app.warn(&format!("a checkpoint of the files could not be made: {problem}"));
        }
        if let Some(telling) = self.telling.take() {
            telling.finish(app).await;
        }
    }
}

/// Where a run works now if it is of this folder and the folder was moved since.
fn moved_to(app: &App, folder: Option<&str>) -> Option<PathBuf> {
    let here = app.folder();
    let is_moved = app.residence().has(folder) && folder != Some(&*here.to_string_lossy());
    is_moved.then(|| here.to_owned())
}

/// Why a run that was driven is neither completed nor waiting for an answer.
pub fn failure_of(outcome: &RunOutcome) -> Failure {
    let (run, status) = (&outcome.run, outcome.status);
    let what = match status {
        RunStatus::Paused | RunStatus::Waiting => "was stopped".to_owned(),
        RunStatus::Cancelled => "was cancelled".to_owned(),
        status => status.to_string(),
    };
    let mut failure = Failure::fixable(format!("run {run} {what}"));
    if let Some(error) = &outcome.error {
        failure = failure.cause(error);
    }
    for cut in outcome.stopped.iter().flat_map(|stopped| &stopped.interrupted) {
        failure = failure.cause(format!("{cut} was cut short and runs again"));
    }
    for (step, error) in outcome.stopped.iter().flat_map(|stopped| &stopped.failed) {
        failure = failure.cause(format!("{step} failed meanwhile: {error}"));
    }
    match status {
        RunStatus::Cancelled => failure,
        _ => failure.hint(format!("what finished is kept. `piton resume {run}` goes on from there.")),
    }
}
