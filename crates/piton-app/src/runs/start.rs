//! Starting a document, or going on with the run of the given id.

use std::collections::BTreeMap;
use std::path::PathBuf;

use piton_flow::{Bundle, FlowError, Given, Inputs, Limits, ResumePolicy};
use piton_runtime::SystemRandom;
use piton_types::{RunId, Value};

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
    /// System variables, such as `query`, `files`, `user_id`.
    pub system: BTreeMap<String, Value>,
    /// How far it may go.
    pub limits: Limits,
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

impl StartRun {
    /// Whether the document is a chat and the user's question is missing.
    ///
    /// # Errors
    ///
    /// If there is no such document, or it can't be read.
    pub fn lacks_question(&self) -> Result<bool, Failure> {
        let bundle = documents::read(&self.document)?.map_err(FlowError::Document)?;
        Ok(!self.system.contains_key("query") && bundle.document().map_err(FlowError::Document)?.is_chat)
    }
}

/// Whether there is such a run. A folder without a store has none, and gets none.
async fn exists(app: &App, run: &RunId) -> Result<bool, Failure> {
    match app.store().await {
        Ok(store) => Ok(store.head(run).await?.is_some()),
        Err(_) => Ok(false),
    }
}

/// Reads the document and makes its run ready.
pub async fn prepare(app: &App, wanted: StartRun) -> Result<Prepared, Failure> {
    let bundle = documents::read(&wanted.document)?.map_err(FlowError::Document)?;
    let document = bundle.document().map_err(FlowError::Document)?;
    if !bundle.files.is_empty() {
        // What is wrong is said with the lines of the document, and not with those of what is recorded.
        document.validate().map_err(FlowError::Document)?;
    }
    let Bundle { text, format, .. } = bundle;
    let name = wanted.document.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // Chosen here and not by the runtime: whatever happens, the caller knows what to resume.
    let is_named = wanted.id.is_some();
    let run = wanted.id.unwrap_or_else(|| RunId::generate(app.now(), &SystemRandom));
    if !wanted.system.contains_key("query") && document.is_chat && !(is_named && exists(app, &run).await?) {
        let shown = wanted.document.display();
        let hint = format!("Say what the user asks: `piton run {shown} \"your question\"`.");
        return Err(Failure::fixable(format!("{shown} is a chat, and there is no question")).hint(hint));
    }
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
    let given = Given { inputs: wanted.inputs, system: wanted.system, ..Given::default() };
    let work = Work::Start { document: text, format, given, name, policy };
    Ok(Prepared { store, run, notice: None, services, limits: wanted.limits, along, work })
}
