//! Starting a document, or going on with the run of the given id.

use std::path::PathBuf;

use piton_flow::{Bundle, FlowError, Inputs, ResumePolicy};
use piton_runtime::SystemRandom;
use piton_types::RunId;

use crate::app::App;
use crate::documents;
use crate::documents::outside::services;
use crate::failure::Failure;
use crate::files::{self, Capture};
use crate::runs::drive::{Along, DriftWatch, Prepared, Work};
use crate::runs::resume::{along, wait_for};

/// What a start is asked for.
#[derive(Debug, Clone)]
pub struct StartRun {
    /// The file of the document.
    pub document: PathBuf,
    /// What it is given.
    pub inputs: Inputs,
    /// The run's id; a run that exists goes on.
    pub id: Option<RunId>,
    /// Models, knowledge bases, credentials, limits.
    pub config: Option<PathBuf>,
    /// A run that exists goes on although its surroundings changed.
    pub force: bool,
    /// Waits so many seconds for another process that drives it.
    pub wait: Option<u64>,
    /// Its files are checkpointed.
    pub files: bool,
    /// How the repository is watched.
    pub drift: DriftWatch,
}

/// Reads the document and makes its run ready.
pub async fn prepare(app: &App, wanted: StartRun) -> Result<Prepared, Failure> {
    let bundle = documents::read(&wanted.document)?.map_err(FlowError::Document)?;
    if !bundle.files.is_empty() {
        // What is wrong is said with the lines of the document, and not with those of what is recorded.
        bundle.document().and_then(|document| document.validate()).map_err(FlowError::Document)?;
    }
    let Bundle { text, format, .. } = bundle;
    let name = wanted.document.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // Chosen here and not by the runtime: whatever happens, the caller knows what to resume.
    let run = wanted.id.unwrap_or_else(|| RunId::generate(app.now(), &SystemRandom));
    let store = app.store_or_create().await?;
    if wanted.wait.is_some() && store.head(&run).await?.is_some() {
        wait_for(app, &store, &run, wanted.wait).await?;
    }
    let services = services(app, wanted.config.as_deref())?;
    let policy = if wanted.force { ResumePolicy::Force } else { ResumePolicy::Normal };
    let along = match wanted.files {
        true => {
            let workspace = files::open(app, &store, Capture::default()).await?;
            Some(Along { workspace, drift: wanted.drift })
        }
        // A run that goes on keeps what it was begun with.
        false => along(app, &store, &run, wanted.drift).await?,
    };
    let work = Work::Start { document: text, format, inputs: wanted.inputs, name, policy };
    Ok(Prepared { store, run, notice: None, services, along, work })
}
