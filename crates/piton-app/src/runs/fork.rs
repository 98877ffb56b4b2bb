//! A new run that has done what another one had at a checkpoint, with changes. It isn't driven yet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_flow::{
    Bundle, Document, Flow, FlowError, Format, Host, Ids, Inputs, Kinds, Limits, NoJournal, NodeSpec, Services,
    Setting, examine_history, run as run_flow, run_alone,
};
use piton_log::RunLog;
use piton_runtime::{Context, ForkRun, History, StepRecord, SystemClock, SystemRandom, WholeHistory, fork_into};
use piton_store::{Store, StoreError};
use piton_types::CheckpointRef;
use piton_types::{Clock as _, PartName, RunId, RunKind, RunStatus, Seq, StepPath, Value, from_value, to_value};
use piton_workspace::{ExportOptions, Moment, Record, WorkspaceError};
use serde_json::json;

use crate::app::App;
use crate::documents;
use crate::documents::configured;
use crate::documents::outside::{services, without_secrets};
use crate::failure::Failure;
use crate::files::{self, Capture};
use crate::references::{Reference, Target, resolve};
use crate::shell::Silent;
use crate::views::entry::entry_id;
use crate::views::run::{ForkedFolder, ForkedView, TriedView, UsedView};
use crate::views::value_json;

/// What a fork is asked for.
#[derive(Debug, Clone)]
pub struct Forking {
    /// The entry to branch off; of a run, its newest.
    pub at: Reference,
    /// What is to be different: an input, a variable, or a field of what a step gave as `STEP.NAME`.
    pub set: Vec<(String, Value)>,
    /// The new run's id.
    pub id: Option<RunId>,
    /// Another document: what finished and isn't affected by the change stays done.
    pub document: Option<PathBuf>,
    /// Only this step is tried, in memory: no run is made.
    pub only: Option<StepPath>,
    /// The step is tried in the folder itself, and not in a copy of it.
    pub in_place: bool,
    /// With the files of the checkpoint in this new folder.
    pub into: Option<PathBuf>,
    /// With what ignore files hide, too.
    pub include_ignored: bool,
    /// Models, knowledge bases, credentials, limits.
    pub config: Option<PathBuf>,
}

/// What came of it.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
pub enum Forked {
    /// A new run.
    Run(ForkedView),
    /// A new folder, and a new run in its store if it is one that goes on.
    Folder(ForkedFolder),
    /// A step that was tried.
    Tried(TriedView),
}

/// Branches a run off, or tries a step.
pub async fn fork(app: &App, wanted: Forking) -> Result<Forked, Failure> {
    let store = without_secrets(app, app.store().await?, wanted.config.as_deref())?;
    let (log, entry) = match resolve(app, &store, &wanted.at).await? {
        Target::Entry(log, entry) | Target::Step(log, entry) => (log, entry),
        Target::Run(log) => {
            let newest = log.entry(log.head().seq).await?;
            (log, newest)
        }
        Target::Blob(..) | Target::File(..) => {
            return Err(Failure::usage(format!("{} is not a checkpoint", wanted.at)));
        }
    };
    let at = entry_id(log.run(), &entry);
    let context = Context::system(Arc::clone(&store));
    let summary = log.summary().await?;
    let kind = summary.kind;
    let history = WholeHistory::read_to(&log, entry.seq).await?;
    let other = wanted.document.as_deref().map(documents::read_valid).transpose()?;
    let document = match &other {
        Some((_, document)) => Some(document.clone()),
        None => document_of(&history, kind),
    };
    let used = used_already(&at.run, &history, document.as_ref(), &wanted.set).await?;
    let mut changed = changes_by(&log, &history, kind, document.as_ref(), wanted.set).await?;
    changed.id = wanted.id;
    if app.residence().has(summary.folder.as_deref()) {
        // It may have been moved since.
        work_in(app.folder(), &mut changed);
    }
    if let Some(other) = other {
        let services = services(app, wanted.config.as_deref())?;
        with_document(&at.run, &history, other, &services, &mut changed).await?;
    }
    if let Some(step) = &wanted.only {
        let services = services(app, wanted.config.as_deref())?;
        let mut scratch = None;
        match (document.as_ref().is_none_or(|document| may_run_programs(document, step)), wanted.in_place) {
            (true, true) => app.warn("what this step runs acts on the real folder; `piton undo` doesn't know of it"),
            (true, false) => {
                let copy = Scratch::of(app, &store, &at).await?;
                work_in(&copy.folder, &mut changed);
                scratch = Some(copy);
            }
            (false, _) => {}
        }
        let tried = run_alone(&context, &at, step, changed, &services, &Kinds::builtin()).await;
        store.close().await?;
        return Ok(Forked::Tried(tried_view(at, tried?, scratch.map(|scratch| scratch.files_of))));
    }
    let forked = match &wanted.into {
        Some(into) => {
            let fork = (kind != RunKind::Workspace && kind != RunKind::Guard).then_some(changed);
            Forked::Folder(fork_into_folder(app, &store, at, fork, into, wanted.include_ignored).await?)
        }
        None => match piton_runtime::fork(&context, &at, changed).await {
            Ok(id) => {
                configured::inherit(app, (&store, &at.run), (&store, &id)).await?;
                Forked::Run(ForkedView { run: id.clone(), id, status: RunStatus::Queued, parent: at, used, kind })
            }
            Err(piton_runtime::RunError::Store(StoreError::Conflict { run, .. } | StoreError::Fenced { run, .. })) => {
                return Err(Failure::fixable(format!("there is a run {run} already")).hint("choose another --id."));
            }
            Err(error) => return Err(error.into()),
        },
    };
    store.close().await?;
    Ok(forked)
}

/// Says in which folder the programs of a workflow that is forked work.
fn work_in(folder: &Path, fork: &mut ForkRun) {
    if let Some((Value::Map(body), folder)) = fork.input.as_mut().zip(folder.to_str())
        && body.contains_key("document")
    {
        body.insert("folder".to_owned(), folder.into());
    }
}

/// Puts another document into a fork, which does again what the change affects.
async fn with_document(
    run: &RunId,
    history: &History,
    (Bundle { text, format, .. }, document): (Bundle, Document),
    services: &Services,
    fork: &mut ForkRun,
) -> Result<(), Failure> {
    let setting = Setting { kinds: &Kinds::builtin(), services, limits: &Limits::default() };
    let said = examine_history(run, history, Some(&document), setting).await?;
    let impact = said.impact.unwrap_or_default();
    if !impact.lost.is_empty() {
        return Err(FlowError::PendingNodesGone { run: run.clone(), nodes: impact.lost }.into());
    }
    // What an earlier document replaced isn't the fork's.
    fork.without.extend("#document".parse::<StepPath>());
    for node in &impact.outdated {
        let step: StepPath = node.parse().map_err(|_| Failure::fixable(format!("{node} is no step")))?;
        // A start node that is done again gives out the new inputs by itself.
        if start_of(&document).is_some_and(|start| start.id.as_str() == node) {
            fork.outputs.remove(&step);
        }
        fork.without.push(step);
    }
    if let Some(Value::Map(body)) = &mut fork.input {
        body.insert("document".to_owned(), text.into());
        body.insert("format".to_owned(), to_value(&format).unwrap_or_default());
        body.insert("fingerprint".to_owned(), to_value(&said.now).unwrap_or_default());
    }
    Ok(())
}

/// Kinds of nodes whose work is done by programs, which act on the folder that they are started in.
const PROGRAMS: [&str; 3] = ["command", "agent", "tool"];

/// Whether a step may run programs; one that isn't known may.
fn may_run_programs(document: &Document, step: &StepPath) -> bool {
    let names: Vec<&str> = step.as_str().split('/').collect();
    let known: Vec<&NodeSpec> = document.nodes.iter().filter(|node| names.contains(&node.id.as_str())).collect();
    // A container has nodes of its own, which may be anything.
    let is_plain = |node: &&NodeSpec| {
        !PROGRAMS.contains(&node.kind.as_str()) && !["iteration", "loop", "workflow"].contains(&node.kind.as_str())
    };
    known.is_empty() || !known.iter().all(is_plain)
}

/// A copy of the folder to try a step in. It is gone with this.
struct Scratch {
    _around: tempfile::TempDir,
    folder: PathBuf,
    files_of: CheckpointRef,
}

impl Scratch {
    /// With the files of the run's newest checkpoint by then; of the folder as it is now if the run has none.
    async fn of(app: &App, store: &Arc<dyn Store>, at: &CheckpointRef) -> Result<Self, Failure> {
        let workspace = files::open(app, store, Capture::ACCEPTED).await?;
        let timeline = workspace.timeline().await?;
        let own =
            |moment: &&Moment| moment.checkpoint.run == at.run && moment.checkpoint.seq <= at.seq && !moment.removed;
        let (snapshot, files_of) = match timeline.moments.iter().rfind(own) {
            Some(moment) => (moment.snapshot, moment.checkpoint.clone()),
            None => {
                let saved = workspace.save(Record::manual("before a step was tried"), &Arc::default()).await?;
                (saved.snapshot, saved.checkpoint)
            }
        };
        let fail = |error: std::io::Error| {
            Failure::fixable("no copy of the folder can be made to try the step in").because(&error)
        };
        let around = tempfile::tempdir().map_err(fail)?;
        let folder = around.path().canonicalize().map_err(fail)?.join("folder");
        let options = ExportOptions { ignored: true, ..ExportOptions::default() };
        workspace.export(snapshot, &folder, options).await?;
        Ok(Self { _around: around, folder, files_of })
    }
}

/// The settings that finished steps had used: they keep what they gave, which the user may not expect.
async fn used_already(
    run: &RunId,
    history: &WholeHistory,
    document: Option<&Document>,
    settings: &[(String, Value)],
) -> Result<Vec<UsedView>, Failure> {
    let Some(flow) = document.and_then(|document| Flow::build(document, &Kinds::builtin()).ok()) else {
        return Ok(Vec::new());
    };
    let start = document.and_then(start_of).map(|start| start.id.as_str());
    let mut used = Vec::new();
    for (name, _) in settings {
        let source =
            name.rsplit_once('.').filter(|(step, _)| step.parse().is_ok_and(|step| history.step(&step).is_some()));
        let Some((node, variable)) = source.or(start.map(|start| (start, name.as_str()))) else { continue };
        let mut by = Vec::new();
        for reader in flow.readers(node, variable) {
            if let Ok(path) = reader.parse::<StepPath>()
                && history.step(&path).is_some_and(StepRecord::is_finished)
                && let Some(seq) = history.step_entry(&path).await?
            {
                by.push((seq, path));
            }
        }
        by.sort();
        if let Some(before) = by.first().and_then(|(seq, _)| seq.0.checked_sub(1)) {
            let before = CheckpointRef { run: run.clone(), seq: Seq(before) };
            used.push(UsedView { name: name.clone(), by: by.into_iter().map(|(_, path)| path).collect(), before });
        }
    }
    Ok(used)
}

/// What came of one step that was tried out.
fn tried_view(parent: CheckpointRef, step: StepRecord, files: Option<CheckpointRef>) -> TriedView {
    TriedView {
        input: value_json(&step.input),
        output: value_json(&step.output),
        step: step.path,
        parent,
        files,
        error: step.error,
        duration_ms: step.duration_ms,
    }
}

/// The files of the checkpoint in a new folder, and the run, if it is one that goes on, in that folder's store.
async fn fork_into_folder(
    app: &App,
    store: &Arc<dyn Store>,
    at: CheckpointRef,
    fork: Option<ForkRun>,
    into: &Path,
    include_ignored: bool,
) -> Result<ForkedFolder, Failure> {
    let workspace = files::open(app, store, Capture::ACCEPTED).await?;
    let timeline = workspace.timeline().await?;
    // The files as they were then: of the run itself, or else of the folder.
    let own = |moment: &&Moment| moment.checkpoint.run == at.run && moment.checkpoint.seq <= at.seq;
    let found = timeline.find(&at).map(|place| &timeline.moments[place]);
    let Some(moment) = found.or_else(|| timeline.moments.iter().rfind(own)) else {
        return Err(Failure::fixable(format!("run {} has no checkpoint of files by {at}", at.run))
            .hint("`piton log --checkpoints` shows which do; `piton save` makes one."));
    };
    let into = std::path::absolute(into)
        .map_err(|error| Failure::fixable(format!("can't find {}", into.display())).because(&error))?;
    let options = ExportOptions { ignored: include_ignored, ..ExportOptions::default() };
    let done = workspace.export(moment.snapshot, &into, options).await.map_err(|error| match error {
        WorkspaceError::Root { .. } => Failure::refused(error.to_string())
            .hint("nothing was done; name a new or empty folder, outside of this one."),
        error => error.into(),
    })?;
    let folder = into.canonicalize().unwrap_or(into);
    let mut run = None;
    if let Some(mut fork) = fork {
        work_in(&folder, &mut fork);
        fork.folder = folder.to_str().map(str::to_owned);
        let target = app.at(folder.clone(), Arc::new(Silent)).store_or_create().await?;
        let (from, to) = (Context::system(Arc::clone(store)), Context::system(Arc::clone(&target)));
        let forked = fork_into(&from, &to, &at, fork).await?;
        configured::inherit(app, (store, &at.run), (&target, &forked)).await?;
        run = Some(forked);
        target.close().await?;
    }
    Ok(ForkedFolder {
        id: run.clone(),
        run,
        parent: at,
        folder: folder.to_string_lossy().into_owned(),
        files: done.files,
        cloned: done.cloned,
        ignored: done.ignored,
    })
}

/// What the settings mean for this run: fields of what steps gave, inputs, variables.
pub(crate) async fn changes(
    log: &RunLog,
    history: &WholeHistory,
    kind: RunKind,
    settings: Vec<(String, Value)>,
) -> Result<ForkRun, Failure> {
    changes_by(log, history, kind, document_of(history, kind).as_ref(), settings).await
}

/// The same, by the document that the fork goes on with.
async fn changes_by(
    log: &RunLog,
    history: &WholeHistory,
    kind: RunKind,
    document: Option<&Document>,
    settings: Vec<(String, Value)>,
) -> Result<ForkRun, Failure> {
    let mut input = history.input.clone();
    let mut outputs: BTreeMap<StepPath, Value> = BTreeMap::new();
    let mut variables = match history.checkpoint.as_ref().and_then(|(_, parts)| parts.get(&PartName::VARIABLES.into()))
    {
        Some(part) => Some(log.load(part).await?),
        None => None,
    };
    let mut changed_variables = false;
    let original = history.input.field("inputs").cloned();
    let start = document.and_then(start_of);
    let mut changed_inputs = Vec::new();
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
            // A workflow's inputs are one level down.
            (RunKind::Workflow, Value::Map(body)) => {
                let is_input = match body.get_mut("inputs") {
                    // One that is asked for and wasn't given can be given now.
                    Some(Value::Map(inputs)) if start.is_some_and(|start| asks_for(start, &name)) => {
                        inputs.insert(name.clone(), value.clone());
                        true
                    }
                    Some(inputs) => set_field(inputs, &name, &value),
                    None => false,
                };
                if is_input {
                    changed_inputs.push((name.clone(), value.clone()));
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
            return Err(Failure::fixable(format!("run {} has no input or variable {}", log.run(), name)).hint(
                format!(
                    "`piton show {} --steps` shows what its steps gave: STEP.NAME changes a field of that.",
                    log.run()
                ),
            ));
        }
    }
    if !changed_inputs.is_empty() {
        give_out(history, original, &input, start, changed_inputs, &mut outputs).await?;
    }
    let mut fork = ForkRun { input: Some(input), outputs, ..ForkRun::default() };
    if let Some(variables) = variables.filter(|_| changed_variables) {
        fork.parts.insert(PartName::VARIABLES.into(), variables);
    }
    Ok(fork)
}

/// The start node has given the inputs out already: it is to have given the new ones, as the document wants them.
async fn give_out(
    history: &WholeHistory,
    original: Option<Value>,
    input: &Value,
    start: Option<&NodeSpec>,
    changed: Vec<(String, Value)>,
    outputs: &mut BTreeMap<StepPath, Value>,
) -> Result<(), Failure> {
    let Some(start) = start else {
        // A run that begins with something else takes them as they are.
        let began = |record: &&StepRecord| record.is_finished() && Some(&record.input) == original.as_ref();
        for record in history.steps.iter().filter(began) {
            let output = outputs.entry(record.path.clone()).or_insert_with(|| record.output.clone());
            for (name, value) in &changed {
                set_field(output, name, value);
            }
        }
        return Ok(());
    };
    let given = input.field("inputs").and_then(Value::as_map).cloned().unwrap_or_default();
    let accepted = accepted(start, given).await?;
    let Ok(path) = start.id.as_str().parse::<StepPath>() else { return Ok(()) };
    let Some(record) = history.step(&path).filter(|record| record.is_finished()) else { return Ok(()) };
    if let Value::Map(output) = outputs.entry(path).or_insert_with(|| record.output.clone()) {
        for (name, _) in changed {
            output.insert(name.clone(), accepted.get(&name).cloned().unwrap_or_default());
        }
    }
    Ok(())
}

/// The inputs as a start node wants them: a workflow that has nothing else is run on them, in memory.
async fn accepted(start: &NodeSpec, given: Inputs) -> Result<Inputs, Failure> {
    let end = if start.id.as_str() == "end" { "out" } else { "end" };
    let outputs: Vec<_> =
        asked_for(start).map(|name| json!({"variable": name, "value_selector": [start.id.as_str(), name]})).collect();
    let mut data = value_json(&start.data);
    data["type"] = json!("start");
    // In the form of an export, in which a start node may be unfinished.
    let text = json!({"workflow": {"graph": {
        "nodes": [
            {"id": start.id.as_str(), "data": data},
            {"id": end, "data": {"type": "end", "outputs": outputs}},
        ],
        "edges": [{"source": start.id.as_str(), "target": end}],
    }}});
    let document = Document::parse(&text.to_string(), Format::Json).map_err(FlowError::Document)?;
    let flow = Flow::build(&document, &Kinds::builtin()).map_err(FlowError::Document)?;
    let run = RunId::generate(SystemClock::new().now(), &SystemRandom);
    let (journal, clock) = (NoJournal::new(run), SystemClock::new());
    let finished = run_flow(&flow, given, &Host::new(&journal, &clock, &NoIds)).await;
    Ok(finished
        .map_err(|error| Failure::from(error).hint("no run was made; --set NAME=VALUE gives another value."))?
        .outputs)
}

/// A workflow that is run for its inputs alone needs no ids.
struct NoIds;

impl Ids for NoIds {
    fn next(&self) -> String {
        String::new()
    }
}

/// The document that a workflow goes on with: its own, or the last that took its place.
pub(crate) fn document_of(history: &WholeHistory, kind: RunKind) -> Option<Document> {
    if kind != RunKind::Workflow {
        return None;
    }
    let replaced = (1..).map_while(|number| history.step(&format!("#document/{number}").parse().ok()?));
    let body = replaced.last().map_or(&history.input, |record| &record.output);
    let format = from_value(body.field("format")?.clone()).ok()?;
    Document::parse(body.field("document")?.as_str()?, format).ok()
}

/// The node that takes the inputs.
fn start_of(document: &Document) -> Option<&NodeSpec> {
    document.nodes.iter().find(|node| node.kind == "start")
}

/// The inputs that a start node asks for.
fn asked_for(start: &NodeSpec) -> impl Iterator<Item = &str> {
    let variables = start.data.field("variables").and_then(Value::as_list).into_iter().flatten();
    variables.filter_map(|variable| variable.field("variable")?.as_str())
}

fn asks_for(start: &NodeSpec, name: &str) -> bool {
    asked_for(start).any(|asked| asked == name)
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
