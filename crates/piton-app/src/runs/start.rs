//! Starting a document, or going on with the run of the given id.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use piton_flow::{Bundle, Conversation, FlowError, Given, Inputs, Limits, NextTurn, ResumePolicy, next_turn};
use piton_runtime::{Context, SystemRandom};
use piton_types::{RunId, RunStatus, Value};

use crate::app::App;
use crate::documents;
use crate::documents::configured::{self, configuration, configuration_of_turn};
use crate::documents::outside::{Secrecy, services};
use crate::failure::Failure;
use crate::files::{self, Capture};
use crate::runs::drive::{Along, DriftWatch, Prepared, Work};
use crate::runs::resume::{along, wait_for};
use crate::words::typed;

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
    /// The run's id; a run that exists goes on. Of a chat, the id of the conversation.
    pub id: Option<RunId>,
    /// Which turn of the conversation it is, from 1; found out if nothing is said.
    pub turn: Option<u32>,
    /// What a new run is found by beside its name.
    pub labels: BTreeSet<String>,
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
    /// A start of a document with nothing said.
    pub fn of(document: PathBuf) -> Self {
        Self {
            document,
            inputs: Inputs::new(),
            system: BTreeMap::new(),
            limits: Limits::default(),
            id: None,
            turn: None,
            labels: BTreeSet::new(),
            config: None,
            force: false,
            wait: None,
            files: false,
            drift: DriftWatch::default(),
        }
    }

    /// What is to be known of a chat before it is run; nothing if the document is none.
    ///
    /// # Errors
    ///
    /// If there is no such document, or it can't be read.
    pub async fn chat(&self, app: &App) -> Result<Option<Chat>, Failure> {
        let (_, document) = documents::read_valid(&self.document)?;
        if !document.is_chat {
            return Ok(None);
        }
        let turn = self.existing_turn(app).await?;
        let is_over = turn.as_ref().is_none_or(|turn| turn.status.is_some_and(RunStatus::is_final));
        Ok(Some(Chat {
            opening: document.opening(&self.inputs).filter(|_| turn.is_none()),
            suggested: if turn.is_none() { document.suggested_questions } else { Vec::new() },
            lacks_question: !self.system.contains_key("query") && is_over,
        }))
    }

    /// The newest turn of the conversation, if there is one. A folder without a store has none, and gets none.
    async fn existing_turn(&self, app: &App) -> Result<Option<NextTurn>, Failure> {
        let (Some(id), Ok(store)) = (&self.id, app.store().await) else { return Ok(None) };
        let conversation = Conversation { id: id.clone(), turn: None };
        let turn = next_turn(&Context::system(store), &conversation, Given::default()).await?;
        Ok(turn.status.is_some().then_some(turn))
    }
}

/// A chat that is about to be run.
#[derive(Debug, Clone)]
pub struct Chat {
    /// What it says before the first question.
    pub opening: Option<String>,
    /// What the user could ask first.
    pub suggested: Vec<String>,
    /// The user's question is missing, and no earlier one is without an answer.
    pub lacks_question: bool,
}

/// Reads the document and makes its run ready.
pub async fn prepare(app: &App, wanted: StartRun) -> Result<Prepared, Failure> {
    let (bundle, document) = documents::read_valid(&wanted.document)?;
    // What is wrong is said with the lines of the document, and not with those of what is recorded; and a refusal leaves
    // no store behind.
    document.validate().map_err(|problems| documents::invalid(&wanted.document, problems))?;
    let shown = wanted.document.display().to_string();
    if wanted.turn.is_some() && !document.is_chat {
        return Err(Failure::fixable(format!("{shown} is no chat, so it has no turns")));
    }
    if document.is_chat && !wanted.system.contains_key("query") && wanted.existing_turn(app).await?.is_none() {
        let question = document.suggested_questions.first().map_or("your question", String::as_str);
        let hint = format!("Say what the user asks: `{}`.", typed(&["piton", "run", &shown, question]));
        return Err(Failure::fixable(format!("{shown} is a chat, and there is no question")).hint(hint));
    }
    let name = wanted.document.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Bundle { text, format, .. } = bundle;
    // A refusal leaves no store behind.
    drop(services(app, wanted.config.as_deref())?);
    let store = match wanted.files {
        true => files::store_for_files(app, Capture::default()).await?,
        false => app.store_or_create().await?,
    };
    // Before anything else of the configuration: a run that goes on has its own, and a conversation that of its last turn.
    let mut config = wanted.config.clone();
    match &wanted.id {
        Some(run) if !document.is_chat && store.head(run).await?.is_some() => {
            config = configuration(app, &store, run, wanted.config.as_deref(), wanted.force).await?;
        }
        Some(id) if document.is_chat => {
            if let Some(turn) = wanted.existing_turn(app).await? {
                let question = wanted.system.get("query").and_then(Value::as_str);
                let again = |config: &str| {
                    let words = ["piton", "run", &shown, "--id", id.as_str(), "--config", config];
                    typed(&words.into_iter().chain(question).collect::<Vec<_>>())
                };
                let said = wanted.config.as_deref();
                config = configuration_of_turn(app, &store, &turn.run, said, wanted.force, again).await?;
            }
        }
        _ => {}
    }
    let services = services(app, config.as_deref())?;
    let mut given = Given { inputs: wanted.inputs, system: wanted.system, ..Given::default() };
    let run = match wanted.id {
        // Chosen here and not by the runtime: whatever happens, the caller knows what to resume.
        None => RunId::generate(app.now(), &SystemRandom),
        Some(id) if document.is_chat => {
            let store = match services.get::<Arc<Secrecy>>() {
                Some(secrecy) => secrecy.over(Arc::clone(&store)),
                None => Arc::clone(&store),
            };
            let (context, conversation) = (Context::system(store), Conversation { id, turn: wanted.turn });
            let turn = match next_turn(&context, &conversation, given.clone()).await {
                Err(FlowError::TurnOpen { run, .. }) if wanted.wait.is_some() => {
                    wait_for(app, &context.store, &run, wanted.wait).await?;
                    next_turn(&context, &conversation, given).await
                }
                found => found,
            }?;
            given = turn.given;
            let question = given.system.get("query").and_then(Value::as_str);
            if let (Some(RunStatus::Completed), None, Some(question)) = (turn.status, conversation.turn, question) {
                let (id, next) = (conversation.id.as_str(), (turn.number + 1).to_string());
                let again = typed(&["piton", "run", &shown, "--id", id, "--turn", &next, question]);
                app.note(&format!("asked before: this is the answer of then. `{again}` asks it again."));
            }
            turn.run
        }
        Some(id) => id,
    };
    if wanted.wait.is_some() && store.head(&run).await?.is_some() {
        wait_for(app, &store, &run, wanted.wait).await?;
    }
    let policy = if wanted.force { ResumePolicy::Force } else { ResumePolicy::Normal };
    let along = match wanted.files {
        true => {
            let workspace = files::open(app, &store, Capture::default()).await?;
            Some(Along { workspace, drift: wanted.drift })
        }
        // A run that goes on keeps what it was begun with.
        false => along(app, &store, &run, wanted.drift).await?,
    };
    let config = config.as_deref().map(configured::file_of).transpose()?;
    if let (Some(file), None) = (&config, store.head(&run).await?) {
        configured::remember(app, &store, &run, file)?;
    }
    let work = Work::Start { document: text, format, given, name, labels: wanted.labels, config, policy };
    Ok(Prepared { store, run, notice: None, services, limits: wanted.limits, along, work })
}
