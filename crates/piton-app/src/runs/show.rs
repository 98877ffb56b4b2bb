//! A run, an entry, a step or a value, whichever is meant.

use std::sync::Arc;

use piton_log::{RunLog, SealedEntry};
use piton_runtime::{History, Pager, StepRecord};
use piton_store::{Store, StoreError};
use piton_types::{CheckpointRef, RunState, from_value};

use crate::app::App;
use crate::failure::Failure;
use crate::references::{Reference, Target, resolve};
use crate::runs::usage;
use crate::views::entry::{BlobView, EntryView, WholeEntry, entry_id};
use crate::views::run::{AskedView, StepView, WholeRun, WholeStep};
use crate::views::{millis, told, value_json};

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
        Target::Run(log) => Shown::Run(show_run(app, &log, steps).await?),
        Target::Entry(log, entry) => Shown::Entry(show_entry(&log, entry).await?),
        Target::Step(log, entry) => Shown::Step(show_step(&log, &entry).await?),
        Target::Blob(id, value) => Shown::Blob(BlobView { id, value: value_json(&value) }),
    };
    store.close().await?;
    Ok(shown)
}

async fn show_run(app: &App, log: &RunLog, steps: bool) -> Result<WholeRun, Failure> {
    let summary = log.summary().await?;
    let history = History::read(log).await?;
    let used = match &history.checkpoint {
        Some((_, parts)) => usage::of_parts(log, parts).await?,
        None => None,
    };
    let (outputs, error) = match &history.state {
        RunState::Completed(done) => (value_json(&done.output), None),
        RunState::Failed(failed) => (serde_json::Value::Null, Some(failed.message.clone())),
        _ => (serde_json::Value::Null, None),
    };
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
        steps: if steps { Some(all_steps(log).await?) } else { None },
        state: history.state,
    })
}

/// Every attempt at a step, oldest first.
async fn all_steps(log: &RunLog) -> Result<Vec<StepView>, Failure> {
    let steps = Pager::new(log).steps(usize::MAX).await?;
    Ok(steps.iter().rev().map(|past| StepView::from(&*past.step)).collect())
}

async fn show_entry(log: &RunLog, entry: SealedEntry) -> Result<WholeEntry, Failure> {
    let body = value_json(&told(log.body(&entry).await?));
    let mut state = serde_json::Map::new();
    for (name, part) in &entry.parts {
        state.insert(name.0.clone(), value_json(&log.load(part).await?));
    }
    Ok(WholeEntry { entry: EntryView::of(log.run(), &entry), hash: entry.hash.to_string(), body, state })
}

async fn show_step(log: &RunLog, entry: &SealedEntry) -> Result<WholeStep, Failure> {
    let id = entry_id(log.run(), entry);
    let step: StepRecord = from_value(log.body(entry).await?)
        .map_err(|error| StoreError::corrupt(format!("the body of entry {id}"), error.to_string()))?;
    Ok(WholeStep { id, run: log.run().clone(), step: StepView::from(&step) })
}
