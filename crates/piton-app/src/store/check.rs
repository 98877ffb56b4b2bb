//! Finding damage and what it affects; for one checkpoint, what going on from it needs, and how the folder differs from it.

use std::sync::Arc;

use piton_log::upkeep::{CheckReport, check as check_store, check_run, outline, outline_run};
use piton_runtime::recovery::{Area, Finding, Search, Severity, ValidationReport, validate, whole_at};
use piton_store::Store;
use piton_types::CheckpointRef;
use piton_workspace::{ChangeKind, FileChange, Side, SnapshotReach, Workspace};
use serde::Serialize;
use serde_json::Value as Json;

use crate::app::App;
use crate::failure::Failure;
use crate::files::{Capture, look, watched};
use crate::place::is_shared;
use crate::references::{Reference, resolve_checkpoint, run_id};
use crate::views::store::{CheckedView, SizesView, sizes};
use crate::words::typed;

/// How many files are named that differ.
const NAMED: usize = 20;

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

/// Checks the store, a run or a checkpoint. Of a store on a server what is in it is read only with `deep`; of one on this machine
/// it always is, and `deep` hashes more of it.
pub async fn check(app: &App, reference: Option<&Reference>, deep: bool) -> Result<Checked, Failure> {
    let store = app.look().await?;
    let in_outline = is_shared(&store.url()) && !deep;
    let checked = match reference {
        None if in_outline => {
            let report = app.through_stores("checking", outline(&store)).await?;
            Checked::Store(CheckedView { in_outline, ..CheckedView::from(&report) })
        }
        Some(Reference::Run(prefix)) if in_outline => {
            let run = run_id(app, &store, prefix).await?;
            let report = app.through_stores("checking", outline_run(&store, &run)).await?;
            let report = CheckReport { runs: vec![report], ..CheckReport::default() };
            Checked::Store(CheckedView { in_outline, ..CheckedView::from(&report) })
        }
        None => {
            let report = app.through_stores("checking", check_store(&store, &SnapshotReach, deep)).await?;
            Checked::Store(CheckedView { sizes: counted(&*store, &report).await?, ..CheckedView::from(&report) })
        }
        Some(Reference::Run(prefix)) => {
            let run = run_id(app, &store, prefix).await?;
            let report = app.through_stores("checking", check_run(&store, &run, &SnapshotReach)).await?;
            Checked::Store(CheckedView::from(&CheckReport { runs: vec![report], ..CheckReport::default() }))
        }
        Some(reference) => {
            let checkpoint = checkpoint(app, &store, reference).await?;
            let search = whole_at(&store, &checkpoint).await?;
            let mut report = validate(&search, &app.environment()).await;
            hold_files(app, &store, &search, &mut report).await?;
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

/// Holds the files of a checkpoint against their hashes, and the folder against them (C6). That the folder differs is
/// said, and no reason not to go on.
async fn hold_files(
    app: &App,
    store: &Arc<dyn Store>,
    search: &Search,
    report: &mut ValidationReport,
) -> Result<(), Failure> {
    let Some(whole) = &search.whole else { return Ok(()) };
    let checkpoint = &whole.checkpoint;
    let Some(snapshot) = Workspace::snapshot_of(&whole.log, checkpoint.seq).await? else { return Ok(()) };
    let mut add = |area, severity, message| report.findings.push(Finding { area, severity, message });
    let stored = app.through_stores("checking", check_run(store, &checkpoint.run, &SnapshotReach)).await?;
    for damaged in stored.damaged.iter().filter(|damaged| damaged.seq == checkpoint.seq) {
        let message = |file: &String| format!("what it has of the file {file:?} can't be read");
        damaged.files.iter().for_each(|file| add(Area::Integrity, Severity::Error, message(file)));
        if damaged.files.is_empty() {
            add(Area::Integrity, Severity::Error, "what it has of the files can't be read".to_owned());
        }
    }
    let folder = store.summary(&checkpoint.run).await?.and_then(|summary| summary.folder);
    if !app.residence().has(folder.as_deref()) {
        let folder = folder.unwrap_or_default();
        let there = typed(&["-C", &folder]);
        let message =
            format!("its files are those of {folder}; `piton {there} check {checkpoint}` compares them with it");
        add(Area::Environment, Severity::Info, message);
        return Ok(());
    }
    // What is damaged can't be compared.
    if report.is_sound() {
        let workspace = look(app, store, Capture::ACCEPTED).await?;
        let detect = async |progress| workspace.detect_changes(snapshot, Side::Now, &progress).await;
        let changes = watched(app, detect).await?.changes;
        report.checks = report.checks.saturating_add(u32::try_from(snapshot.files).unwrap_or(u32::MAX));
        let mut add = |severity, message| report.findings.push(Finding { area: Area::Environment, severity, message });
        for FileChange { path, kind, from, .. } in changes.iter().take(NAMED) {
            let path = path.to_string();
            let message = match (kind, from) {
                (_, Some(from)) => format!("{:?} is called {path:?} now", from.to_string()),
                (ChangeKind::Created, _) => format!("it doesn't have {path:?}, which is in the folder"),
                (ChangeKind::Deleted, _) => format!("{path:?} isn't in the folder any more"),
                _ => format!("{path:?} has changed"),
            };
            add(Severity::Warning, message);
        }
        if changes.len() > NAMED {
            let more = changes.len() - NAMED;
            add(Severity::Warning, format!("{more} more files differ; `piton diff --stat {checkpoint}` shows all"));
        }
    }
    report.findings.sort_by_key(|finding| finding.area);
    Ok(())
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
        return Ok(CheckpointRef { run: run_id(app, store, run).await?, seq: *seq });
    }
    let (log, entry) = resolve_checkpoint(app, store, reference).await?;
    Ok(CheckpointRef { run: log.run().clone(), seq: entry.seq })
}
