//! A case in several acts: the same run on one store, begun, stopped by whatever happens, and gone on with, each time in
//! surroundings that the act describes. `acts.toml` (or .yml, .json) says what each act comes to, which nodes ran in it
//! and which were only skipped, what was checkpointed, what was written down, and whether anything is left to resume.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use piton_flow::{Audit, AuditEntry, AuditError, SecurityLevel};
use piton_flow::{FlowError, FlowOptions, ResumePolicy, RunOutcome, StartFlow, answer_question, run_durable};
use piton_log::EmbeddedStore;
use piton_runtime::{Context, Listener};
use piton_store::Store;
use piton_store::{CheckpointStore, MemoryCheckpointStore};
use piton_store_objects::{FileCheckpointStore, FolderOptions, ObjectStore};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::Event;
use piton_types::{RunId, RunStatus, Value, to_value};
use serde::Deserialize;

use super::case::{Case, MockAnswer};
use super::compare;
use super::http::MockHttp;
use super::run::{Ended, differences, prepare, start};

/// What the file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acts {
    /// Where the run is kept.
    #[serde(default)]
    pub(crate) store: Kept,
    /// One after the other.
    pub(crate) acts: Vec<Act>,
}

/// Where a run is kept: in one of our stores, or in an application's own.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kept {
    #[default]
    Memory,
    File,
    Sqlite,
    CheckpointMemory,
    CheckpointFile,
}

/// One time that the run is driven.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Act {
    /// How strict the outside is held.
    #[serde(default)]
    level: SecurityLevel,
    /// It goes on whatever changed.
    #[serde(default)]
    force: bool,
    /// What people answer before, by node.
    #[serde(default)]
    answers: BTreeMap<String, Value>,
    /// What the HTTP server says in this act; without it, what `state` says.
    mock_server: Option<Vec<MockAnswer>>,
    /// What it comes to: `completed`, `failed`, `failed_with_recovery`, `waiting`, `paused` or `refused`.
    status: String,
    error_contains: Option<String>,
    outputs: Option<BTreeMap<String, Value>>,
    /// The nodes that began, in order.
    ran: Option<Vec<String>>,
    /// The nodes that had finished before.
    skipped: Option<Vec<String>>,
    /// The nodes after which a checkpoint was saved.
    saved_after: Option<Vec<String>>,
    /// Whether there is something to resume afterwards.
    resumable: Option<bool>,
    /// Texts of which each is in a line of the audit log of this act, as in `force_resume_with_changes`.
    #[serde(default)]
    audited: Vec<String>,
}

/// Plays all acts, and says what differs from what should have come out.
pub(crate) async fn play(case: &Case, acts: &Acts) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let stage = Stage::new(acts.store);
    let mut last = None;
    for (number, act) in acts.acts.iter().enumerate() {
        let (ended, found) = stage.act(case, act, folder.path()).await?;
        if !found.is_empty() {
            return Ok(found.into_iter().map(|line| format!("act {}: {line}", number + 1)).collect());
        }
        last = Some(ended);
    }
    Ok(last.map_or_else(|| vec!["there are no acts".to_owned()], |ended| differences(case, &ended)))
}

/// What is there from one act to the next.
struct Stage {
    kept: Kept,
    memory: Arc<ObjectStore>,
    checkpoints: Arc<MemoryCheckpointStore>,
}

impl Stage {
    fn new(kept: Kept) -> Self {
        Self { kept, memory: Arc::new(ObjectStore::in_memory()), checkpoints: Arc::new(MemoryCheckpointStore::new()) }
    }

    /// The application's own store, if it is one.
    fn own(&self, folder: &Path) -> Result<Option<Arc<dyn CheckpointStore>>, String> {
        Ok(match self.kept {
            Kept::CheckpointMemory => Some(Arc::clone(&self.checkpoints) as _),
            Kept::CheckpointFile => {
                let store = FileCheckpointStore::open(folder.join("checkpoints")).map_err(|error| error.to_string())?;
                Some(Arc::new(store))
            }
            Kept::Memory | Kept::File | Kept::Sqlite => None,
        })
    }

    /// The store, opened anew.
    fn open(&self, folder: &Path) -> Result<Arc<dyn Store>, String> {
        if let Some(own) = self.own(folder)? {
            return Ok(Arc::new(EmbeddedStore::new(own)));
        }
        Ok(match self.kept {
            Kept::File => {
                let store = ObjectStore::in_folder(folder.join("store"), &FolderOptions::default());
                Arc::new(store.map_err(|error| error.to_string())?)
            }
            Kept::Sqlite => {
                let store = SqliteStore::open(folder.join("store.db"), SqliteOptions::default().with_create(true));
                Arc::new(store.map_err(|error| error.to_string())?)
            }
            _ => Arc::clone(&self.memory) as _,
        })
    }

    async fn act(&self, case: &Case, act: &Act, folder: &Path) -> Result<(Ended, Vec<String>), String> {
        let mock = start(act.mock_server.clone().unwrap_or_else(|| case.state.mock_server.clone())).await?;
        let base = mock.as_ref().map(MockHttp::url);
        let notes = Notes::default();
        let setup = prepare(case, base.as_deref(), act.level, Some(Arc::new(notes.clone())))?;
        let setup = match setup {
            Ok(setup) => setup,
            Err(error) => return Ok((Ended::failed(&error), vec![error.to_string()])),
        };
        let context = Context::system(self.open(folder)?);
        let id: RunId = "case".parse().map_err(|error| format!("{error}"))?;
        for (node, answer) in &act.answers {
            answer_question(&context, &id, Some(node), answer, "case").await.map_err(|error| error.to_string())?;
        }
        let seen = Seen::default();
        let options = FlowOptions {
            services: setup.services,
            limits: setup.limits,
            policy: if act.force { ResumePolicy::Force } else { ResumePolicy::Normal },
            events: seen.listener(),
            ..FlowOptions::default()
        };
        let start = StartFlow {
            config: None,
            priority: 0,
            estimated_complexity: None,
            document: case.text.clone(),
            format: case.format,
            inputs: case.inputs.clone(),
            system: BTreeMap::new(),
            conversation: BTreeMap::new(),
            id: Some(id.clone()),
            name: case.name.clone(),
            folder: case.folder.to_str().map(str::to_owned),
            labels: Default::default(),
            options,
        };
        let ended = run_durable(&context, start).await;
        let (status, ended) = judged(ended);
        let resumable = match self.own(folder)? {
            Some(own) => own.load(id.as_str()).await.map_err(|error| error.to_string())?.is_some(),
            None => {
                let summary = context.store.summary(&id).await.map_err(|error| error.to_string())?;
                summary.is_some_and(|summary| !summary.status.is_final())
            }
        };
        context.store.close().await.map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        if status != act.status {
            let because = ended.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
            found.push(format!("status: expected {}, got {status}{because}", act.status));
        }
        if let Some(wanted) = &act.error_contains
            && !ended.error.as_ref().is_some_and(|error| error.contains(wanted))
        {
            found.push(format!("error: expected one with {wanted:?}, got {:?}", ended.error));
        }
        if let Some(outputs) = &act.outputs {
            found.extend(compare::outputs(outputs, &ended.outputs, false));
        }
        let seen = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (what, wanted, got) in [
            ("ran", &act.ran, &seen.ran),
            ("skipped", &act.skipped, &seen.skipped),
            ("saved_after", &act.saved_after, &seen.saved_after),
        ] {
            if wanted.as_ref().is_some_and(|wanted| wanted != got) {
                found.push(format!(
                    "{what}: expected {}, got {}",
                    wanted.iter().flatten().cloned().collect::<Vec<_>>().join(", "),
                    got.join(", ")
                ));
            }
        }
        if act.resumable.is_some_and(|wanted| wanted != resumable) {
            found.push(format!("resumable: expected {}, got {resumable}", !resumable));
        }
        let noted = notes.0.lock().unwrap_or_else(PoisonError::into_inner);
        for wanted in act.audited.iter().filter(|wanted| !noted.iter().any(|line| line.contains(*wanted))) {
            found.push(format!("audited: expected a line with {wanted:?}, got {noted:?}"));
        }
        Ok((ended, found))
    }
}

/// What an act came to, in a word and in full.
fn judged(ended: Result<RunOutcome, FlowError>) -> (&'static str, Ended) {
    match ended {
        Ok(RunOutcome { status, outputs, error, recovered_from, .. }) => {
            let word = match status {
                RunStatus::Completed if recovered_from.is_some() => Ended::RECOVERED,
                RunStatus::Completed => Ended::COMPLETED,
                RunStatus::Waiting => "waiting",
                RunStatus::Paused => "paused",
                _ => Ended::FAILED,
            };
            (word, Ended { status: word, outputs, error: error.or(recovered_from) })
        }
        Err(error @ (FlowError::ResumeRejected { .. } | FlowError::PendingNodesGone { .. })) => {
            ("refused", Ended { status: "refused", ..Ended::failed(&error) })
        }
        Err(error) => (Ended::FAILED, Ended::failed(&error)),
    }
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Nodes>>);

#[derive(Default)]
struct Nodes {
    ran: Vec<String>,
    skipped: Vec<String>,
    saved_after: Vec<String>,
}

impl Seen {
    fn listener(&self) -> Listener {
        let seen = self.clone();
        Listener::new(move |event| {
            let mut nodes = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Only whole nodes: parts of their work have a place inside them.
            match event {
                Event::StepStarted { step, .. } if !step.as_str().contains('/') => nodes.ran.push(step.to_string()),
                Event::StepSkipped { step, .. } if !step.as_str().contains('/') => nodes.skipped.push(step.to_string()),
                Event::CheckpointSaved { step: Some(step), .. } => nodes.saved_after.push(step.to_string()),
                _ => {}
            }
        })
    }
}

/// The lines of the audit log.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Audit for Notes {
    fn record(&self, entry: &AuditEntry) -> Result<(), AuditError> {
        let kind = to_value(&entry.kind)?.as_str().unwrap_or_default().to_owned();
        let line = format!("{kind} {} {}", entry.step, entry.detail);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        Ok(())
    }
}
