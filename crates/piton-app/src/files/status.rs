//! What changed in a folder since its newest checkpoint, which runs want a person, and where the store is. And
//! checkpoints by hand.

use std::sync::Arc;

use piton_store::{RunQuery, SecretFiles, Store};
use piton_types::{RunKind, RunStatus};
use piton_workspace::{Maker, Moment, Record, RelPath, Saved, Side, Workspace};
use serde_json::{Value as Json, json};

use crate::app::App;
use crate::failure::Failure;
use crate::files::drift_watch::stands_still;
use crate::files::{Capture, formats_in, look, open, store_for_files, watched};
use crate::store::keeping;
use crate::views::files::{ChangeView, MomentView, ReasonView, SavedView, StatusView};
use crate::views::page::{MomentsPage, TimelineMoment};

/// Looks at the folder and its store. With `excluded`, what isn't captured is named; with `metrics`, what the store holds
/// is counted.
pub async fn status(app: &App, capture: Capture, excluded: bool, metrics: bool) -> Result<StatusView, Failure> {
    let store = app.look().await?;
    let workspace = look(app, &store, capture).await?;
    // What `@` names.
    let mut timeline = workspace.timeline().await?;
    let newest = timeline.line().first().map(|place| timeline.moments.swap_remove(*place));
    let changes = match &newest {
        Some(moment) => {
            let old = moment.snapshot;
            watched(app, async |progress| workspace.detect_changes(old, Side::Now, &progress).await).await?.changes
        }
        None => Vec::new(),
    };
    let made_by = if changes.is_empty() { Maker::User } else { workspace.maker_now().await? };
    let excluded = match &newest {
        Some(moment) if excluded => workspace.excluded(moment.snapshot).await?,
        _ => Vec::new(),
    };
    let mut standing_still = Vec::new();
    let query = RunQuery { status: vec![RunStatus::InProgress], kinds: vec![RunKind::Guard], ..RunQuery::default() };
    for run in store.list(query).await? {
        if app.residence().has(run.folder.as_deref()) && stands_still(&workspace, &run).await? {
            standing_still.push(run.id);
        }
    }
    let usage = store.usage().await?;
    let budget = Some(workspace.budget().await?).filter(|budget| *budget < u64::MAX);
    let view = StatusView {
        folder: workspace.root().to_string_lossy().into_owned(),
        store: store.url(),
        bytes: usage.bytes,
        budget,
        runs: usage.runs,
        standing_still,
        waiting: count(&*store, RunStatus::Waiting).await?,
        failed: count(&*store, RunStatus::Failed).await?,
        metrics: if metrics { counted(app, &store).await? } else { Json::Null },
        checkpoint: newest.as_ref().map(|moment| moment.checkpoint.clone()),
        created_at: newest.as_ref().map(|moment| moment.at),
        changes: changes.iter().map(ChangeView::from).collect(),
        made_by: made_by.as_str(),
        excluded: excluded.into_iter().map(|(path, reason)| ReasonView { path: path.to_string(), reason }).collect(),
        not_captured: newest.as_ref().map_or(0, |moment| moment.snapshot.excluded),
        label: newest.map(|moment| moment.label).unwrap_or_default(),
    };
    store.close().await?;
    Ok(view)
}

async fn count(store: &dyn Store, status: RunStatus) -> Result<usize, Failure> {
    Ok(store.list(RunQuery { status: vec![status], ..RunQuery::default() }).await?.len())
}

/// What the store holds, by counting, and what was done with it so far.
async fn counted(app: &App, store: &Arc<dyn Store>) -> Result<Json, Failure> {
    let metrics = app.metrics();
    let calls: Vec<_> = metrics.iter().flat_map(|metrics| metrics.all()).collect();
    Ok(json!({
        "totals": store.totals().await?,
        "commits": metrics.iter().map(|metrics| metrics.commits()).sum::<u64>(),
        "written": metrics.iter().map(|metrics| metrics.written()).sum::<u64>(),
        "syncs": store.syncs(),
        "calls": calls,
    }))
}

/// Makes a checkpoint of the files. If the store has reached its budget, room is made first.
pub async fn save(app: &App, message: String, capture: Capture) -> Result<SavedView, Failure> {
    let capture = Capture { names_secrets: true, ..capture };
    let store = store_for_files(app, capture).await?;
    let workspace = open(app, &store, capture).await?;
    keeping::make_room(app, &store, &workspace).await;
    let record = Record::manual(message);
    let mut saved = watched(app, async |progress| workspace.save(record, &progress).await).await?;
    if app.surroundings.secrets.is_none() && !saved.secrets.is_empty() {
        saved.secrets = new_secrets(&workspace, &saved).await?;
        if !saved.secrets.is_empty() {
            app.note(
                "the store is plaintext, readable by you alone. `piton init --store URL --encrypt --key-file FILE` makes an \
                 encrypted one; a line in .pitonignore, or PITON_SECRETS=exclude, leaves such files out; PITON_SECRETS=capture says no more of them",
            );
        }
    }
    if let Some(collapsed) = saved.collapsed {
        let more = match collapsed.hidden {
            0 => "`piton restore @-` brings them back",
            _ => "`piton save --force` goes by the ignore files",
        };
        app.warn(&format!("{collapsed}. {more}"));
    }
    if saved.rules_lost {
        app.warn(
            "the ignore files that held so far were in a checkpoint that was removed; those in the folder hold now. \
             `piton status --excluded` shows what they hide",
        );
    }
    keeping::in_passing(app, &store).await;
    store.close().await?;
    Ok(SavedView::from(&saved))
}

/// What the checkpoints of the folder's files were made for, newest first: `limit` of them, behind the one that is named.
pub async fn timeline(app: &App, before: Option<&str>, limit: usize) -> Result<MomentsPage, Failure> {
    let store = app.look().await?;
    let workspace = look(app, &store, Capture::default()).await?;
    let timeline = workspace.timeline().await?;
    store.close().await?;
    let end = match before {
        None => timeline.moments.len(),
        Some(before) => {
            let is_it = |moment: &Moment| moment.checkpoint.to_string() == before;
            timeline
                .moments
                .iter()
                .position(is_it)
                .ok_or_else(|| Failure::usage(format!("{before:?} is no checkpoint of this folder's files")))?
        }
    };
    let start = end.saturating_sub(limit);
    let moments = timeline.moments[start..end].iter().enumerate().rev().filter(|(_, moment)| !moment.removed);
    let views: Vec<_> = moments
        .map(|(place, moment)| TimelineMoment::of(moment, MomentView::of(moment, &timeline.maker(start + place))))
        .collect();
    let next = timeline.moments.get(start).filter(|_| start > 0).map(|moment| moment.checkpoint.to_string());
    Ok(MomentsPage { moments: views, next })
}

/// Files with secrets that had none at the checkpoint before: what was told once isn't told again.
async fn new_secrets(workspace: &Workspace, saved: &Saved) -> Result<Vec<RelPath>, Failure> {
    let timeline = workspace.timeline().await?;
    let place = timeline.find(&saved.checkpoint).unwrap_or_default();
    let Some(before) = timeline.moments[..place].iter().rfind(|moment| !moment.removed) else {
        return Ok(saved.secrets.clone());
    };
    let formats = formats_in(SecretFiles::Likely)?;
    let mut new = Vec::new();
    for path in &saved.secrets {
        let old = match workspace.entry(before.snapshot, path.clone()).await? {
            Some(entry) => workspace.read(&entry).await?,
            None => None,
        };
        if !old.is_some_and(|old| formats.has_secret(&old)) {
            new.push(path.clone());
        }
    }
    Ok(new)
}

/// The checkpoints of the folder's files, newest first.
pub async fn checkpoints(app: &App) -> Result<Vec<MomentView>, Failure> {
    let store = app.look().await?;
    let workspace = look(app, &store, Capture::default()).await?;
    let timeline = workspace.timeline().await?;
    store.close().await?;
    let moments = timeline.moments.iter().enumerate().rev().filter(|(_, moment)| !moment.removed);
    Ok(moments.map(|(place, moment)| MomentView::of(moment, &timeline.maker(place))).collect())
}
