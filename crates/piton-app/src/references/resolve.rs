//! What a [`Reference`] means in a store.

use std::path::Path;
use std::sync::Arc;

use piton_log::{RunLog, SealedEntry};
use piton_runtime::History;
use piton_store::{Bytes, RunQuery, Span, Store, StoreError};
use piton_types::{BlobId, CheckpointRef, RunId, Seq, StepPath, Value};
use piton_workspace::{Entry, RelPath, Workspace};

use super::{Reference, Runs};
use crate::app::App;
use crate::failure::Failure;
use crate::{files, names};

/// How many entries are read at a time when looking back for one.
const PAGE: usize = 64;
/// How many runs an ambiguous beginning names.
const CANDIDATES: usize = 8;

/// What was meant.
#[derive(Debug)]
pub enum Target {
    /// A run.
    Run(RunLog),
    /// An entry of a run's log; with parts it is a checkpoint.
    Entry(RunLog, SealedEntry),
    /// A step's newest attempt.
    Step(RunLog, SealedEntry),
    /// A file in a checkpoint of files.
    File(FileAt),
    /// A value by its id.
    Blob(BlobId, Value),
}

/// A file in a checkpoint.
#[derive(Debug)]
pub struct FileAt {
    /// The checkpoint.
    pub checkpoint: CheckpointRef,
    /// The file.
    pub path: RelPath,
    /// What the checkpoint has there.
    pub entry: Entry,
    /// What is in it.
    pub content: Bytes,
}

/// Finds what is meant.
pub async fn resolve(app: &App, store: &Arc<dyn Store>, reference: &Reference) -> Result<Target, Failure> {
    match reference {
        Reference::Run(prefix) => match (run_id(app, store, prefix).await, reference.as_blob()) {
            (Ok(run), _) => Ok(Target::Run(RunLog::open(Arc::clone(store), &run).await?)),
            (Err(_), Some(blob)) => Ok(Target::Blob(blob, find_blob(store, blob).await?)),
            (Err(failure), None) => Err(failure),
        },
        Reference::Entry { run, seq } => {
            let run = run_id(app, store, run).await?;
            let log = match RunLog::open(Arc::clone(store), &run).await {
                // The end of the log may be damaged; what is before it can be looked at all the same.
                Err(StoreError::Corrupt { .. }) => RunLog::open_at(Arc::clone(store), &run, *seq).await?,
                other => other?,
            };
            if *seq > log.head().seq {
                let message = format!("{}@{seq} doesn't exist: the log ends at entry {}", log.run(), log.head().seq);
                return Err(Failure::fixable(message).hint(format!("`piton log {}` shows what there is.", log.run())));
            }
            let entry = log.entry(*seq).await?;
            Ok(Target::Entry(log, entry))
        }
        Reference::Back { run, steps } => {
            let log = match run {
                Some(run) => open(app, store, run).await?,
                None => match of_files(app, store, *steps, reference).await? {
                    Some(found) => return Ok(Target::Entry(found.0, found.1)),
                    None => newest_run(app, store).await?,
                },
            };
            let (log, entry) = back(store, log, *steps, reference).await?;
            Ok(Target::Entry(log, entry))
        }
        Reference::File { of, path } => Ok(Target::File(find_file(app, store, of, path).await?)),
        Reference::Step { run, step } => {
            let log = open(app, store, run).await?;
            let entry = find_step(&log, step).await?;
            Ok(Target::Step(log, entry))
        }
    }
}

/// Finds a checkpoint, or the newest one of a run.
pub async fn resolve_checkpoint(
    app: &App,
    store: &Arc<dyn Store>,
    reference: &Reference,
) -> Result<(RunLog, SealedEntry), Failure> {
    let (log, entry) = match resolve(app, store, reference).await? {
        Target::Run(log) => back(store, log, 0, reference).await?,
        Target::Entry(log, entry) => (log, entry),
        Target::Step(..) | Target::Blob(..) | Target::File(..) => {
            return Err(Failure::usage(format!("{reference} is not a checkpoint")).hint(CHECKPOINTS));
        }
    };
    if entry.parts.is_empty() {
        let message = format!("{}@{} is an entry without state, not a checkpoint", log.run(), entry.seq);
        return Err(Failure::fixable(message).hint(CHECKPOINTS));
    }
    Ok((log, entry))
}

const CHECKPOINTS: &str = "`piton log --checkpoints` shows the checkpoints.";

/// The run that an id, a short name, or the unique beginning of an id means.
pub async fn run_id(app: &App, store: &Arc<dyn Store>, prefix: &RunId) -> Result<RunId, Failure> {
    match store.summary(prefix).await {
        // One whose newest entry is damaged is there all the same.
        Ok(Some(_)) | Err(StoreError::Corrupt { .. }) => return Ok(prefix.clone()),
        Ok(None) => {}
        Err(error) => return Err(error.into()),
    }
    let scope = names::scope(&**store, &app.residence().known_as().to_string_lossy());
    let mut found = names::named(&**store, &scope, prefix.as_str()).await?;
    if found.is_empty() {
        let query = RunQuery { id_prefix: prefix.to_string(), limit: Some(CANDIDATES + 1), ..RunQuery::default() };
        found = store.list(query).await?;
    }
    match found.len() {
        0 => Err(Failure::not_found(format!("there is no run {prefix} here"))
            .hint("`piton ls` shows the runs of this folder, `piton ls --all` those of all.")),
        1 => Ok(found.remove(0).id),
        more => {
            let mut hint = format!("write more of the id. {prefix} may be:");
            for run in found.iter().take(CANDIDATES) {
                hint.push_str(&format!(
                    "\n  {}  {}  {}",
                    run.id,
                    run.status,
                    run.name.lines().next().unwrap_or_default()
                ));
            }
            if more > CANDIDATES {
                hint.push_str("\n  …");
            }
            Err(Failure::fixable(format!("{prefix} is the beginning of more than one run's id")).hint(hint))
        }
    }
}

async fn open(app: &App, store: &Arc<dyn Store>, prefix: &RunId) -> Result<RunLog, Failure> {
    let run = run_id(app, store, prefix).await?;
    Ok(RunLog::open(Arc::clone(store), &run).await?)
}

/// The checkpoint so many before the newest one on the line of the folder's files; `None` if it has none at all.
async fn of_files(
    app: &App,
    store: &Arc<dyn Store>,
    steps: u32,
    reference: &Reference,
) -> Result<Option<(RunLog, SealedEntry)>, Failure> {
    let Some(workspace) = files::at(app, store)? else { return Ok(None) };
    let timeline = workspace.timeline().await?;
    let line = timeline.line();
    if line.is_empty() {
        return Ok(None);
    }
    let place = usize::try_from(steps).ok().and_then(|steps| line.get(steps));
    let Some(place) = place else {
        let message = match line.len() {
            1 => format!("{reference} doesn't exist: there is only one checkpoint of this folder's files"),
            many => format!("{reference} doesn't exist: there are only {many} checkpoints of this folder's files"),
        };
        return Err(Failure::fixable(message).hint("`piton checkpoint list` shows them."));
    };
    let CheckpointRef { run, seq } = &timeline.moments[*place].checkpoint;
    let log = RunLog::open(Arc::clone(store), run).await?;
    let entry = log.entry(*seq).await?;
    Ok(Some((log, entry)))
}

/// The run with the newest checkpoint of this folder, wherever it was then.
///
/// Several folders may share a store, and what is found here may be written: another folder's checkpoint is never
/// meant. If this folder has none, those of runs that belong to no folder are.
async fn newest_run(app: &App, store: &Arc<dyn Store>) -> Result<RunLog, Failure> {
    let here = app.residence();
    if let Some(log) = newest_of(store, here.names()).await? {
        return Ok(log);
    }
    if let Some(log) = newest_of(store, Vec::new()).await? {
        return Ok(log);
    }
    let mut runs = Runs::newest_first(Arc::clone(store));
    while let Some(run) = runs.next().await? {
        if run.folder.is_some() && !here.has(run.folder.as_deref()) {
            let folder = app.surroundings.folder.to_string_lossy();
            return Err(Failure::fixable(format!("there are no checkpoints of {folder} yet"))
                .hint("`piton log --checkpoints` shows those of the other folders in this store; RUN@7 names one."));
        }
    }
    Err(Failure::fixable("there are no checkpoints here yet").hint("`piton log` shows what happened so far."))
}

/// The run with the newest checkpoint, of those that belong to one of these folders; without one, of those that belong to
/// none.
async fn newest_of(store: &Arc<dyn Store>, folders: Vec<String>) -> Result<Option<RunLog>, Failure> {
    let mut newest: Option<(SealedEntry, RunLog)> = None;
    let to_none = folders.is_empty();
    let mut runs = Runs::of_folders(Arc::clone(store), folders);
    while let Some(run) = runs.next().await? {
        // No entry is newer than its run.
        if newest.as_ref().is_some_and(|(entry, _)| entry.at >= run.updated_at) {
            break;
        }
        if to_none && run.folder.is_some() {
            continue;
        }
        let log = RunLog::open(Arc::clone(store), &run.id).await?;
        if let Some(entry) = newest_checkpoint(&log).await?
            && newest.as_ref().is_none_or(|(best, _)| entry.at > best.at)
        {
            newest = Some((entry, log));
        }
    }
    Ok(newest.map(|(_, log)| log))
}

/// The newest checkpoint of a run. Mostly it is among the last entries; else the index of the run knows it.
async fn newest_checkpoint(log: &RunLog) -> Result<Option<SealedEntry>, Failure> {
    let page = log.entries(Span::newest(PAGE)).await?;
    let is_all = page.last().is_none_or(|oldest| oldest.seq == Seq(0));
    if let Some(found) = page.into_iter().find(|entry| !entry.parts.is_empty()) {
        return Ok(Some(found));
    }
    match History::read(log).await?.checkpoint.filter(|_| !is_all) {
        Some((seq, _)) => Ok(Some(log.entry(seq).await?)),
        None => Ok(None),
    }
}

/// The checkpoint so many before the newest one of a run; a fork's first is preceded by the one that it
/// branched from.
async fn back(
    store: &Arc<dyn Store>,
    mut log: RunLog,
    steps: u32,
    reference: &Reference,
) -> Result<(RunLog, SealedEntry), Failure> {
    let mut left = steps;
    let mut to = newest_checkpoint(&log).await?.map_or(Seq(0), |entry| entry.seq);
    let mut seen = 0_u32;
    loop {
        let page = log.entries(Span { to, ..Span::newest(PAGE) }).await?;
        let oldest = page.last().map_or(Seq(0), |entry| entry.seq);
        for entry in page.into_iter().filter(|entry| !entry.parts.is_empty()) {
            if left == 0 {
                return Ok((log, entry));
            }
            left -= 1;
            seen += 1;
        }
        if let Some(before) = oldest.0.checked_sub(1) {
            to = Seq(before);
            continue;
        }
        let Some(parent) = log.summary().await?.parent else { break };
        log = RunLog::open(Arc::clone(store), &parent.run).await?;
        to = parent.seq;
    }
    let message = match seen {
        0 => format!("run {} has no checkpoints yet", log.run()),
        1 => format!("{reference} doesn't exist: there is only one checkpoint"),
        seen => format!("{reference} doesn't exist: there are only {seen} checkpoints"),
    };
    Err(Failure::fixable(message).hint(format!("`piton log {}` shows what there is.", log.run())))
}

/// The file in the checkpoint that a reference means; of a step, in the one that it ended with.
async fn find_file(app: &App, store: &Arc<dyn Store>, of: &Reference, path: &str) -> Result<FileAt, Failure> {
    let (log, entry) = match of {
        Reference::Step { run, step } => {
            let log = open(app, store, run).await?;
            let entry = find_step(&log, step).await?;
            (log, entry)
        }
        _ => Box::pin(resolve_checkpoint(app, store, of)).await?,
    };
    let checkpoint = CheckpointRef { run: log.run().clone(), seq: entry.seq };
    let workspace = files::look(app, store, files::Capture::ACCEPTED).await?;
    let path = files::inside(workspace.root(), &app.path(Path::new(path)))?;
    let snapshot = Workspace::snapshot_of(&log, entry.seq).await?.ok_or_else(|| {
        Failure::fixable(format!("{checkpoint} has no files"))
            .hint("`piton checkpoint list` shows checkpoints of files.")
    })?;
    let found = workspace.entry(snapshot, path.clone()).await?;
    let content = match &found {
        Some(entry) => workspace.read(entry).await?,
        None => None,
    };
    match (found, content) {
        (Some(entry), Some(content)) => Ok(FileAt { checkpoint, path, entry, content }),
        (Some(_), None) => Err(Failure::fixable(format!("{path} is no file in {checkpoint}"))),
        (None, _) => Err(Failure::not_found(format!("{checkpoint} has no {path}"))
            .hint(format!("`piton diff {checkpoint} --stat` shows what differs from the folder."))),
    }
}

/// The entry of a step's newest attempt that counts.
async fn find_step(log: &RunLog, step: &StepPath) -> Result<SealedEntry, Failure> {
    match History::read(log).await?.step_entry(step).await? {
        Some(seq) => Ok(log.entry(seq).await?),
        None => Err(Failure::fixable(format!("run {} has no finished step {}", log.run(), step.as_str()))
            .hint(format!("`piton show {} --steps` shows its steps.", log.run()))),
    }
}

/// The value with this id, in whichever run has it.
async fn find_blob(store: &Arc<dyn Store>, blob: BlobId) -> Result<Value, Failure> {
    let mut runs = Runs::newest_first(Arc::clone(store));
    while let Some(run) = runs.next().await? {
        let log = RunLog::open(Arc::clone(store), &run.id).await?;
        match log.load_root(blob).await {
            // Another run may have it. Damage is told, and not taken for absence.
            Err(StoreError::NotFound { .. }) => {}
            other => return Ok(other?),
        }
    }
    Err(Failure::not_found(format!("there is no run or value {blob} here"))
        .hint("`piton log --checkpoints` shows the checkpoints; `piton show` of one shows the ids of its values."))
}
