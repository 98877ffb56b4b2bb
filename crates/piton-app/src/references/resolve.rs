//! What a [`Reference`] means in a store.

use std::sync::Arc;

use piton_log::{RunLog, SealedEntry};
use piton_runtime::History;
use piton_store::{RunQuery, Span, Store, StoreError};
use piton_types::{BlobId, RunId, Seq, StepPath, Value};

use super::{Reference, Runs};
use crate::app::App;
use crate::failure::Failure;

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
    /// A value by its id.
    Blob(BlobId, Value),
}

/// Finds what is meant.
pub async fn resolve(app: &App, store: &Arc<dyn Store>, reference: &Reference) -> Result<Target, Failure> {
    match reference {
        Reference::Run(prefix) => match (run_id(store, prefix).await, reference.as_blob()) {
            (Ok(run), _) => Ok(Target::Run(RunLog::open(Arc::clone(store), &run).await?)),
            (Err(_), Some(blob)) => Ok(Target::Blob(blob, find_blob(store, blob).await?)),
            (Err(failure), None) => Err(failure),
        },
        Reference::Entry { run, seq } => {
            let run = run_id(store, run).await?;
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
                Some(run) => open(store, run).await?,
                None => newest_run(app, store).await?,
            };
            let (log, entry) = back(store, log, *steps, reference).await?;
            Ok(Target::Entry(log, entry))
        }
        Reference::Step { run, step } => {
            let log = open(store, run).await?;
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
        Target::Step(..) | Target::Blob(..) => {
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

/// The run that an id or the unique beginning of one means.
pub async fn run_id(store: &Arc<dyn Store>, prefix: &RunId) -> Result<RunId, Failure> {
    if store.summary(prefix).await?.is_some() {
        return Ok(prefix.clone());
    }
    let query = RunQuery { id_prefix: prefix.to_string(), limit: Some(CANDIDATES + 1), ..RunQuery::default() };
    let mut found = store.list(query).await?;
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

async fn open(store: &Arc<dyn Store>, prefix: &RunId) -> Result<RunLog, Failure> {
    let run = run_id(store, prefix).await?;
    Ok(RunLog::open(Arc::clone(store), &run).await?)
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
        .hint("`piton show RUN@7` shows the ids of a checkpoint's values."))
}
