//! A run, an entry, a step or a value, whichever is meant.

use std::collections::BTreeSet;
use std::sync::Arc;

use piton_flow::how_far;
use piton_log::{RunLog, SealedEntry};
use piton_runtime::{AtWork, History, Pager, StepRecord};
use piton_store::{Store, StoreError};
use piton_types::{CheckpointRef, PartName, Progress, RunKind, RunState, RunStatus, RunSummary, Seq, from_value};

use crate::app::App;
use crate::failure::Failure;
use crate::files::diff::change_of;
use crate::files::{Capture, look};
use crate::references::{Reference, Target, resolve};
use crate::views::entry::{BlobView, EntryView, WholeEntry, entry_id};
use crate::views::files::FileView;
use crate::views::run::{AskedView, ProgressView, StepView, WholeRun, WholeStep};
use crate::views::{millis, told, value_json};

/// How many entries are read at a time.
const PAGE: usize = 256;

/// What was meant, as it is seen.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Shown {
    /// A run.
    Run(WholeRun),
    /// An entry, with its state if it is a checkpoint.
    Entry(WholeEntry),
    /// A step's newest attempt.
    Step(WholeStep),
    /// A file in a checkpoint.
    File(FileView),
    /// A value.
    Blob(BlobView),
}

/// Looks at what a reference means; of a run with its steps if they are wanted.
pub async fn show(app: &App, reference: &Reference, steps: bool) -> Result<Shown, Failure> {
    let store: Arc<dyn Store> = app.look().await?;
    let target = resolve(app, &store, reference).await?;
    if steps && !matches!(target, Target::Run(_)) {
        return Err(Failure::usage(format!("--steps needs a run, and {reference} isn't one")));
    }
    let shown = match target {
        Target::Run(log) => Shown::Run(show_run(app, &store, &log, steps).await?),
        Target::Entry(log, entry) => {
            let mut shown = show_entry(&log, entry).await?;
            if shown.entry.parts.contains_key(&PartName::from(PartName::WORKSPACE)) {
                // What can be read of it is shown, whatever became of the one before.
                shown.change = change_of(app, &store, &shown.entry.id).await.ok().flatten();
            }
            Shown::Entry(shown)
        }
        Target::Step(log, entry) => Shown::Step(show_step(&log, &entry).await?),
        Target::File(file) => Shown::File(file.into()),
        Target::Blob(id, value) => Shown::Blob(BlobView { id, value: value_json(&value) }),
    };
    store.close().await?;
    Ok(shown)
}

async fn show_run(app: &App, store: &Arc<dyn Store>, log: &RunLog, steps: bool) -> Result<WholeRun, Failure> {
    let summary = log.summary().await?;
    let history = History::read(log).await?;
    let used = history.usage(log).await?;
    let (outputs, error) = match &history.state {
        RunState::Completed(done) => (value_json(&done.output), None),
        RunState::Failed(failed) => (serde_json::Value::Null, Some(failed.message.clone())),
        _ => (serde_json::Value::Null, None),
    };
    let files_modified = files_modified(app, store, &summary, &history).await?;
    let (progress, resume_instructions) = (progress(&summary, &history).await, resume_instructions(&history.state));
    Ok(WholeRun {
        run: summary.into(),
        outputs,
        error,
        checkpoint: history.checkpoint.as_ref().map(|(seq, _)| CheckpointRef { run: log.run().clone(), seq: *seq }),
        duration_ms: history.duration(app.clock()).map(millis),
        recovery_attempts: history.recovery_attempts(),
        usage: used.map(Into::into),
        questions: history.questions.iter().map(AskedView::from).collect(),
        finished_steps: history.finished,
        priority: history.priority,
        estimated_complexity: history.estimated_complexity,
        progress,
        resume_instructions,
        files_modified,
        verification: history.verifications().to_vec(),
        steps: if steps { Some(all_steps(log).await?) } else { None },
        state: history.state,
    })
}

/// Where a run is that isn't over.
async fn progress(summary: &RunSummary, history: &History) -> Option<ProgressView> {
    if matches!(summary.status, RunStatus::Completed | RunStatus::Cancelled) {
        return None;
    }
    let AtWork { current, step, iteration, progress, last_progress } = history.at_work();
    let percent = match progress {
        // What a document says that can't be read any more is no reason to show nothing.
        None if summary.kind == RunKind::Workflow => how_far(&summary.id, history).await.ok().flatten(),
        said => said,
    };
    let percent = percent.map(Progress::get);
    Some(ProgressView { current, step, iteration, percent, last_progress })
}

fn resume_instructions(state: &RunState) -> Option<String> {
    match state {
        RunState::Paused(paused) => paused.resume_instructions.clone(),
        _ => None,
    }
}

/// The files that a run changed: what it recorded, or what its checkpoints in this folder tell.
async fn files_modified(
    app: &App,
    store: &Arc<dyn Store>,
    summary: &RunSummary,
    history: &History,
) -> Result<Vec<String>, Failure> {
    if let RunState::Completed(completed) = &history.state {
        return Ok(completed.files_modified.clone());
    }
    let mut files: BTreeSet<String> = history.files_modified().map(str::to_owned).collect();
    let has_files =
        history.checkpoint.as_ref().is_some_and(|(_, parts)| parts.contains_key(&PartName::from(PartName::WORKSPACE)));
    if has_files && app.residence().has(summary.folder.as_deref()) {
        let workspace = look(app, store, Capture::default()).await?;
        files.extend(workspace.files_changed_by(&summary.id).await?.iter().map(ToString::to_string));
    }
    Ok(files.into_iter().collect())
}

/// Every attempt at a step, oldest first.
async fn all_steps(log: &RunLog) -> Result<Vec<StepView>, Failure> {
    let steps = Pager::new(log).steps(usize::MAX).await?;
    Ok(steps.iter().rev().map(|past| StepView::of(&past.step, past.undone)).collect())
}

async fn show_entry(log: &RunLog, entry: SealedEntry) -> Result<WholeEntry, Failure> {
    let body = value_json(&told(log.body(&entry).await?));
    let mut state = serde_json::Map::new();
    for (name, part) in &entry.parts {
        state.insert(name.0.clone(), value_json(&log.load(part).await?));
    }
    let undone = match is_undone(log, entry.seq).await {
        // One that can be read is shown, whatever became of others.
        Err(StoreError::Corrupt { .. }) => false,
        found => found?,
    };
    let (entry, hash) = (EntryView::of(log.run(), &entry), entry.hash.to_string());
    Ok(WholeEntry { entry, hash, undone, body, state, change: None })
}

async fn show_step(log: &RunLog, entry: &SealedEntry) -> Result<WholeStep, Failure> {
    let id = entry_id(log.run(), entry);
    let step: StepRecord = from_value(log.body(entry).await?)
        .map_err(|error| StoreError::corrupt(format!("the body of entry {id}"), error.to_string()))?;
    let undone = is_undone(log, entry.seq).await?;
    Ok(WholeStep { id, run: log.run().clone(), step: StepView::of(&step, undone) })
}

/// Whether the run was put back to before an entry. Most runs never were, and then nothing is looked for.
async fn is_undone(log: &RunLog, seq: Seq) -> Result<bool, StoreError> {
    if History::read(log).await?.totals.restores == 0 {
        return Ok(false);
    }
    let mut pager = Pager::new(log);
    while pager.cursor().is_some_and(|cursor| cursor.next >= seq) {
        if let Some(past) = pager.entries(PAGE).await?.iter().find(|past| past.entry.seq == seq) {
            return Ok(past.undone);
        }
    }
    Ok(false)
}
