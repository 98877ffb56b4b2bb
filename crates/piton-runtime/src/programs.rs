//! Programs of steps that workers drive: registered by name in each worker, created and queued by name anywhere.
//!
//! A run of a program asks for a worker that has the program, by the label `program:NAME`, so that no other takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use piton_types::{RunId, RunStatus};
use tokio::sync::watch;

use crate::{Context, Driver, OpenRun, Run, RunError, Submission, Taken, Undriven, WorkerOptions, stop, submit, work};

/// Why a program came to nothing.
pub type ProgramError = Box<dyn std::error::Error + Send + Sync>;

type Driven = Pin<Box<dyn Future<Output = Result<(), ProgramError>> + Send>>;
type Program = dyn Fn(Run) -> Driven + Send + Sync;

/// The programs that a worker has.
///
/// ```
/// # use piton_runtime::*;
/// # use piton_store_sqlite::{SqliteOptions, SqliteStore};
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let store = SqliteStore::open(folder.path().join("runs.db"), SqliteOptions::default())?;
/// # let context = Context::system(Arc::new(store));
/// let run = submit_program(&context, "count", OpenRun { body: "bees".into(), ..OpenRun::default() }, Submission::default()).await?;
///
/// // In this process, another one, or on another machine:
/// let programs = Programs::new(&context).with("count", |mut run: Run| async move {
///     let topic = run.input().as_str().unwrap_or_default().to_owned();
///     let length: usize = run.step("length", topic, async |topic| Ok::<_, std::io::Error>(topic.len())).await?;
///     run.complete(length).await
/// });
/// let options = WorkerOptions { until_empty: true, ..WorkerOptions::new("worker-1") };
/// let (_drain, drained) = tokio::sync::watch::channel(false);
/// assert_eq!(programs.work(options, drained).await?, 1);
/// assert_eq!(context.store.summary(&run).await?.unwrap().status, piton_types::RunStatus::Completed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Programs {
    context: Context,
    programs: BTreeMap<String, Arc<Program>>,
    /// The runs that are driven, which end in peace when the worker does.
    driven: Arc<Mutex<BTreeSet<RunId>>>,
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.programs.keys()).finish()
    }
}

impl Programs {
    /// None yet.
    pub fn new(context: &Context) -> Self {
        Self { context: context.clone(), programs: BTreeMap::new(), driven: Arc::default() }
    }

    /// Adds a program, or replaces the one of that name. It gets the run, goes through its steps, and ends it
    /// ([`Run::complete`], [`Run::fail`]). What it gives back as an error is tried again, by the worker's rules.
    #[must_use]
    pub fn with<P, W, E>(mut self, name: impl Into<String>, program: P) -> Self
    where
        P: Fn(Run) -> W + Send + Sync + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<ProgramError>,
    {
        let driven = move |run: Run| -> Driven {
            let work = program(run);
            Box::pin(async move { work.await.map_err(Into::into) })
        };
        self.programs.insert(name.into(), Arc::new(driven));
        self
    }

    /// Drives runs of these programs, as [`work`] does.
    ///
    /// # Errors
    ///
    /// As [`work`].
    pub async fn work(self, mut options: WorkerOptions, drain: watch::Receiver<bool>) -> Result<u64, RunError> {
        options.info.labels.extend(self.programs.keys().map(|name| label(name)));
        let context = self.context.clone();
        work(&context, &options, Arc::new(self), drain).await
    }

    fn note(&self, run: &RunId, begins: bool) {
        let mut driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = if begins { driven.insert(run.clone()) } else { driven.remove(run) };
    }
}

/// What a worker must have to drive runs of a program.
fn label(name: &str) -> String {
    format!("program:{name}")
}

/// Creates a run of a program, with what `open` says of it, and puts it into the queue. A run of that id that is there stays as
/// it is. When this returns, a worker that has the program will drive it, whatever happens to this process.
///
/// # Errors
///
/// As [`submit`].
pub async fn submit_program(
    context: &Context,
    name: &str,
    open: OpenRun,
    mut submission: Submission,
) -> Result<RunId, RunError> {
    let run = Run::create(context, OpenRun { name: name.to_owned(), ..open }).await?;
    submission.labels.insert(label(name));
    submit(context, &run, submission).await?;
    Ok(run)
}

#[async_trait]
impl Driver for Programs {
    async fn drive(&self, taken: &Taken) -> Result<(), Undriven> {
        let id = &taken.waiting.run;
        let problem = |error: &dyn fmt::Display| Undriven::Problem(error.to_string());
        let summary = self.context.store.summary(id).await.map_err(|error| problem(&error))?;
        let name = summary.map(|summary| summary.name).unwrap_or_default();
        let program =
            self.programs.get(&name).ok_or_else(|| problem(&format!("this worker has no program {name:?}")))?;
        let open =
            OpenRun { id: Some(id.clone()), existing: true, overdue: taken.overdue.clone(), ..OpenRun::default() };
        let run = match Run::open(&self.context, open).await {
            Ok(run) => run,
            Err(RunError::Held { .. }) => return Err(Undriven::Held),
            Err(error) => return Err(problem(&error)),
        };
        if run.outcome().is_some() {
            return Ok(());
        }
        self.note(id, true);
        let driven = program(run).await;
        self.note(id, false);
        // Stopped, waiting for an answer, failed, completed: then the log says what came of it.
        match self.context.store.summary(id).await.map_err(|error| problem(&error))?.map(|summary| summary.status) {
            Some(RunStatus::InProgress) => Err(match driven {
                Err(error) => problem(&error),
                Ok(()) => problem(&"the program came back without having ended the run"),
            }),
            _ => Ok(()),
        }
    }

    fn stop(&self, grace: Duration) {
        let driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for run in driven {
            let context = self.context.clone();
            tokio::spawn(async move {
                if let Err(error) = stop(&context, &run, "the worker ends", Some(grace)).await {
                    tracing::warn!(%run, %error, "a run could not be stopped; it goes on elsewhere when its hold ends");
                }
            });
        }
    }
}
