//! `piton fork`: a new run that has done what another one had at a checkpoint, with changes. It isn't driven yet.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use piton::workspace::Moment;
use piton::{
    Bundle, CheckpointRef, Context, FlowError, ForkRun, History, Kinds, Limits, Services, Setting, StepRecord,
    examine_history, fork, fork_into, run_alone,
};
use piton_store::{RunLog, Store, StoreError};
use piton_types::{PartName, RunId, RunKind, StepPath, Value, to_value};
use serde_json::json;

use crate::arguments::Fork;
use crate::arguments::files::Capture;
use crate::documents;
use crate::failure::{Exit, Failure};
use crate::files::open;
use crate::output::{Output, Verbosity, clean};
use crate::outside::{services, without_secrets};
use crate::place::Surroundings;
use crate::resolve::{Target, resolve};
use crate::session::Session;
use crate::view;

pub(crate) async fn execute(session: &Session, arguments: Fork) -> Result<Exit, Failure> {
    let store = without_secrets(session.store().await?, arguments.config.as_deref())?;
    let (log, entry) = match resolve(&store, &arguments.reference).await? {
        Target::Entry(log, entry) | Target::Step(log, entry) => (log, entry),
        Target::Run(log) => {
            let newest = log.entry(log.head().seq).await?;
            (log, newest)
        }
        Target::Blob(..) => {
            return Err(Failure::usage(format!("{} is a value, not a checkpoint", arguments.reference)));
        }
    };
    let at = view::entry_id(log.run(), &entry);
    let context = Context::system(Arc::clone(&store));
    let kind = log.summary().await?.kind;
    let history = History::read_to(&log, entry.seq).await?;
    let mut changed = changes(&log, &history, kind, arguments.set).await?;
    changed.id = arguments.id.clone();
    if let Some(path) = &arguments.document {
        let services = services(session, arguments.config.as_deref())?;
        with_document(&at.run, &history, path, &services, &mut changed)?;
    }
    if let Some(step) = &arguments.only {
        let services = services(session, arguments.config.as_deref())?;
        let tried = run_alone(&context, &at, step, changed, &services, &Kinds::builtin()).await;
        store.close().await?;
        return tell_tried(session, &at, &tried?);
    }
    if let Some(into) = &arguments.into {
        let fork = (kind != RunKind::Workspace && kind != RunKind::Guard).then_some(changed);
        let exit = fork_into_folder(session, &store, &at, fork, into, arguments.include_ignored).await?;
        store.close().await?;
        return Ok(exit);
    }
    let id = match fork(&context, &at, changed).await {
        Ok(id) => id,
        Err(piton::RunError::Store(StoreError::Conflict { run, .. } | StoreError::Fenced { run, .. })) => {
            return Err(Failure::fixable(format!("there is a run {run} already")).hint("choose another --id."));
        }
        Err(error) => return Err(error.into()),
    };
    store.close().await?;
    if session.output.is_json() {
        let object = json!({"id": id.as_str(), "run": id.as_str(), "status": "queued", "parent": at.to_string()});
        session.output.object(&object)?;
    } else {
        session.output.data(id.as_str())?;
        let next = match kind {
            RunKind::Workflow => format!("`piton resume {id}` goes on with it"),
            _ => "the program that started its parent can go on with it".to_owned(),
        };
        session.output.note(&format!("run {id} branched off {at}; {next}"));
    }
    Ok(Exit::Done)
}

/// Puts another document into a fork, which does again what the change affects.
fn with_document(
    run: &RunId,
    history: &History,
    path: &Path,
    services: &Services,
    fork: &mut ForkRun,
) -> Result<(), Failure> {
    let (Bundle { text, format, .. }, document) = documents::read_valid(path)?;
    let setting = Setting { kinds: &Kinds::builtin(), services, limits: &Limits::default() };
    let said = examine_history(run, history, Some(&document), setting)?;
    let impact = said.impact.unwrap_or_default();
    if !impact.lost.is_empty() {
        return Err(FlowError::PendingNodesGone { run: run.clone(), nodes: impact.lost }.into());
    }
    // What an earlier document replaced isn't the fork's.
    fork.without.extend("#document".parse::<StepPath>());
    for node in &impact.outdated {
        fork.without.push(node.parse().map_err(|_| Failure::fixable(format!("{} is no step", clean(node))))?);
    }
    if let Some(Value::Map(body)) = &mut fork.input {
        body.insert("document".to_owned(), text.into());
        body.insert("format".to_owned(), to_value(&format).unwrap_or_default());
        body.insert("fingerprint".to_owned(), to_value(&said.now).unwrap_or_default());
    }
    Ok(())
}

/// What came of one step that was tried out.
fn tell_tried(session: &Session, at: &CheckpointRef, step: &StepRecord) -> Result<Exit, Failure> {
    if session.output.is_json() {
        session.output.object(&json!({
            "step": step.path.as_str(), "parent": at.to_string(), "input": view::value_json(&step.input),
            "output": view::value_json(&step.output), "error": step.error, "duration_ms": step.duration_ms,
        }))?;
    } else if step.error.is_none() {
        session.output.data(&view::value_text(&step.output))?;
    }
    session.output.note(&format!("step {} was tried on {at}; nothing was recorded", clean(step.path.as_str())));
    match &step.error {
        None => Ok(Exit::Done),
        Some(error) => Err(Failure::fixable(format!("step {} failed", clean(step.path.as_str()))).cause(clean(error))),
    }
}

/// The files of the checkpoint in a new folder, and the run, if it is one that goes on, in that folder's store.
async fn fork_into_folder(
    session: &Session,
    store: &Arc<dyn Store>,
    at: &CheckpointRef,
    fork: Option<ForkRun>,
    into: &Path,
    include_ignored: bool,
) -> Result<Exit, Failure> {
    let workspace = open(session, store, Capture { include_ignored: false, force: true }).await?;
    let timeline = workspace.timeline().await?;
    // The files as they were then: of the run itself, or else of the folder.
    let own = |moment: &&Moment| moment.checkpoint.run == at.run && moment.checkpoint.seq <= at.seq;
    let Some(moment) = timeline.moments.iter().rfind(own) else {
        return Err(Failure::fixable(format!("run {} has no checkpoint of files by {at}", at.run))
            .hint("`piton log --checkpoints` shows which do; `piton save` makes one."));
    };
    let into = std::path::absolute(into)
        .map_err(|error| Failure::fixable(format!("can't find {}", into.display())).because(&error))?;
    let done = workspace.export(moment.snapshot, &into, include_ignored).await?;
    let folder = into.canonicalize().unwrap_or_else(|_| into.clone());
    let mut run = None;
    if let Some(fork) = fork {
        let there = Session::new(
            Output::new(session.output.is_json(), Verbosity::Quiet, true),
            Surroundings { folder: folder.clone(), option: None, variable: None, ..session.surroundings.clone() },
            session.lookup(),
        );
        let target = there.store_or_create().await?;
        let (from, to) = (Context::system(Arc::clone(store)), Context::system(Arc::clone(&target)));
        run = Some(fork_into(&from, &to, at, fork).await?);
        target.close().await?;
    }
    let shown = clean(&folder.to_string_lossy());
    if session.output.is_json() {
        session.output.object(&json!({
            "id": run.as_ref().map(RunId::as_str),
            "run": run.as_ref().map(RunId::as_str),
            "parent": at.to_string(),
            "folder": folder.to_string_lossy(),
            "files": done.files,
            "cloned": done.cloned,
            "ignored": done.ignored,
        }))?;
        return Ok(Exit::Done);
    }
    session.output.data(&shown)?;
    session.output.note(&match &run {
        Some(run) => format!("{} files of {at}; `piton -C {shown} resume {run}` goes on with the run", done.files),
        None => format!("{} files of {at}", done.files),
    });
    Ok(Exit::Done)
}

/// What the settings mean for this run: fields of what steps gave, inputs, variables.
pub(crate) async fn changes(
    log: &RunLog,
    history: &History,
    kind: RunKind,
    settings: Vec<(String, Value)>,
) -> Result<ForkRun, Failure> {
    let mut input = history.input.clone();
    let mut outputs: BTreeMap<StepPath, Value> = BTreeMap::new();
    let mut variables = match history.checkpoint.as_ref().and_then(|(_, parts)| parts.get(&PartName::VARIABLES.into()))
    {
        Some(part) => Some(log.load(part.root).await?),
        None => None,
    };
    let mut changed_variables = false;
    let original = history.input.field("inputs").cloned();
    for (name, value) in settings {
        let mut known = false;
        if let Some((step, field)) = name.rsplit_once('.')
            && let Ok(step) = step.parse::<StepPath>()
            && let Some(record) = history.step(&step).filter(|record| record.is_finished())
        {
            let output = outputs.entry(step).or_insert_with(|| record.output.clone());
            known = set_field(output, field, &value);
        }
        known |= match (kind, &mut input) {
            // A workflow's inputs are one level down, and its start node has given them out already.
            (RunKind::Workflow, Value::Map(body)) => {
                let is_input = body.get_mut("inputs").is_some_and(|inputs| set_field(inputs, &name, &value));
                if is_input {
                    let started =
                        |record: &&StepRecord| record.is_finished() && Some(&record.input) == original.as_ref();
                    for record in history.steps.iter().filter(started) {
                        let output = outputs.entry(record.path.clone()).or_insert_with(|| record.output.clone());
                        set_field(output, &name, &value);
                    }
                }
                is_input
            }
            (_, input) => set_field(input, &name, &value),
        };
        if let Some(variables) = &mut variables
            && kind != RunKind::Workflow
            && set_field(variables, &name, &value)
        {
            (known, changed_variables) = (true, true);
        }
        if !known {
            return Err(Failure::fixable(format!("run {} has no input or variable {}", log.run(), clean(&name))).hint(
                format!(
                    "`piton show {} --steps` shows what its steps gave: STEP.NAME changes a field of that.",
                    log.run()
                ),
            ));
        }
    }
    let mut fork = ForkRun { input: Some(input), outputs, ..ForkRun::default() };
    if let Some(variables) = variables.filter(|_| changed_variables) {
        fork.parts.insert(PartName::VARIABLES.into(), variables);
    }
    Ok(fork)
}

/// Changes a field that a map has. Says whether it has it.
fn set_field(map: &mut Value, name: &str, value: &Value) -> bool {
    match map {
        Value::Map(entries) => match entries.get_mut(name) {
            Some(field) => {
                *field = value.clone();
                true
            }
            None => false,
        },
        _ => false,
    }
}
