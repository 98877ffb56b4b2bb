//! Finding damage and what it affects; for one checkpoint, what going on from it needs.

use std::sync::Arc;

use piton_log::upkeep::{CheckReport, check as check_store, check_run};
use piton_runtime::recovery::{validate, whole_at};
use piton_store::Store;
use piton_types::CheckpointRef;
use piton_workspace::SnapshotReach;
use serde::Serialize;
use serde_json::Value as Json;

use crate::app::App;
use crate::failure::Failure;
use crate::references::{Reference, resolve_checkpoint, run_id};
use crate::views::store::{CheckedView, SizesView, sizes};

/// What a check found.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Checked {
    /// Of a store, or of a run in it.
    Store(CheckedView),
    /// Of what going on from a checkpoint needs.
    Checkpoint(SoundView),
}

/// Whether a run can go on from a checkpoint.
#[derive(Debug, Serialize)]
pub struct SoundView {
    /// Which.
    pub checkpoint: String,
    /// Whether it can.
    pub sound: bool,
    /// What was looked at.
    pub checks: Json,
    /// What was found.
    pub findings: Json,
    /// The same in words.
    #[serde(skip)]
    pub text: String,
}

impl Checked {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        match self {
            Self::Store(view) => view.whole,
            Self::Checkpoint(view) => view.sound,
        }
    }
}

/// Checks the store, a run or a checkpoint. With `deep`, all bytes are read.
pub async fn check(app: &App, reference: Option<&Reference>, deep: bool) -> Result<Checked, Failure> {
    let store = app.look().await?;
    let checked = match reference {
        None => {
            let report = app.through_stores("checking", check_store(&store, &SnapshotReach, deep)).await?;
            Checked::Store(CheckedView { sizes: counted(&*store, &report).await?, ..CheckedView::from(&report) })
        }
        Some(Reference::Run(prefix)) => {
            let run = run_id(&store, prefix).await?;
            let report = app.through_stores("checking", check_run(&store, &run, &SnapshotReach)).await?;
            Checked::Store(CheckedView::from(&CheckReport { runs: vec![report], ..CheckReport::default() }))
        }
        Some(reference) => {
            let checkpoint = checkpoint(app, &store, reference).await?;
            let search = whole_at(&store, &checkpoint).await?;
            let report = validate(&search, &app.environment()).await;
            Checked::Checkpoint(SoundView {
                checkpoint: checkpoint.to_string(),
                sound: report.is_sound() && search.whole.is_some(),
                text: report.to_string(),
                checks: serde_json::to_value(report.checks).unwrap_or_default(),
                findings: serde_json::to_value(&report.findings).unwrap_or_default(),
            })
        }
    };
    store.close().await?;
    Ok(checked)
}

/// What deduplication and compression are worth: to find that out, everything had to be read.
async fn counted(store: &dyn Store, report: &CheckReport) -> Result<Option<SizesView>, Failure> {
    if !report.is_whole() || store.upkeep().is_none() {
        return Ok(None);
    }
    let totals = store.totals().await?;
    Ok(Some(sizes(report.sizes, totals.entry_bytes + totals.segment_bytes + totals.pack_bytes)))
}

/// A checkpoint by its name. It may be damaged, so its entry isn't looked at for a plain number.
async fn checkpoint(app: &App, store: &Arc<dyn Store>, reference: &Reference) -> Result<CheckpointRef, Failure> {
    if let Reference::Entry { run, seq } = reference {
        return Ok(CheckpointRef { run: run_id(store, run).await?, seq: *seq });
    }
    let (log, entry) = resolve_checkpoint(app, store, reference).await?;
    Ok(CheckpointRef { run: log.run().clone(), seq: entry.seq })
}
