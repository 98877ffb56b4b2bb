//! What differs between the files of two checkpoints, or of one and the folder as it is now.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use piton_log::{RunLog, SealedEntry};
use piton_store::Store;
use piton_types::CheckpointRef;
use piton_workspace::{Entry, FileChange, RelPath, Role, Side, Snapshot, TextDiff, Workspace, is_binary};

use crate::app::App;
use crate::failure::Failure;
use crate::files::{Capture, at, inside, look, watched};
use crate::references::{Reference, resolve_checkpoint};
use crate::views::entry::entry_id;
use crate::views::files::{ChangeView, FileDiff, FilesDiffView};

/// The largest file whose lines are compared.
const MAX_TEXT: u64 = 16 << 20;

/// Compares files: from the newest checkpoint and to the folder if nothing is named; only at and below `paths`, if there
/// are any. With `lines`, the lines that differ are told, else only their number.
pub async fn diff(
    app: &App,
    from: Option<&Reference>,
    to: Option<&Reference>,
    paths: &[PathBuf],
    lines: bool,
) -> Result<FilesDiffView, Failure> {
    let store = app.look().await?;
    let newest = Reference::Back { run: None, steps: 0 };
    let from = resolve_checkpoint(app, &store, from.unwrap_or(&newest)).await?;
    let to = match to {
        Some(to) => Some(resolve_checkpoint(app, &store, to).await?),
        None => None,
    };
    let workspace = look(app, &store, Capture::default()).await?;
    let paths = paths.iter().map(|path| inside(workspace.root(), &app.path(path))).collect::<Result<Vec<_>, _>>()?;
    let old = snapshot(&from).await?;
    let side = match &to {
        Some(to) => Side::Stored(snapshot(to).await?),
        None => Side::Now,
    };
    let found = watched(app, async |progress| workspace.detect_changes(old, side, &progress).await).await?;
    let unattributed = unattributed(&workspace, &from, to.as_ref()).await?;
    let mut changes = Vec::new();
    for change in found.changes.iter().filter(|change| is_wanted(change, &paths)) {
        let unattributed = unattributed.contains(&change.path);
        changes.push(FileDiff { unattributed, ..compared(&workspace, change, side, lines).await? });
    }
    store.close().await?;
    let name = |(log, entry): &(RunLog, SealedEntry)| entry_id(log.run(), entry);
    Ok(FilesDiffView { from: name(&from), to: to.as_ref().map(name), changes })
}

/// What a checkpoint of files changed, against the one before it in the folder's history; of a session or a tool call,
/// all that changed in it. `None` if there is none before it, or it isn't part of that history.
pub async fn change_of(
    app: &App,
    store: &Arc<dyn Store>,
    checkpoint: &CheckpointRef,
) -> Result<Option<FilesDiffView>, Failure> {
    let Some(workspace) = at(app, store)? else { return Ok(None) };
    let timeline = workspace.timeline().await?;
    let Some(place) = timeline.find(checkpoint) else { return Ok(None) };
    let moments = &timeline.moments;
    let since = match &moments[place].record.role {
        Role::Closed { since, .. } | Role::Restored { backup: since, .. } => timeline.find(since),
        _ => None,
    };
    let since = since.or_else(|| place.checked_sub(1));
    let Some(old) = since.map(|since| &moments[since]).filter(|old| !old.removed) else { return Ok(None) };
    let (new, side) = (&moments[place], Side::Stored(moments[place].snapshot));
    let found = watched(app, async |progress| workspace.detect_changes(old.snapshot, side, &progress).await).await?;
    let mut changes = Vec::new();
    for change in &found.changes {
        changes.push(compared(&workspace, change, side, true).await?);
    }
    Ok(Some(FilesDiffView { from: old.checkpoint.clone(), to: Some(new.checkpoint.clone()), changes }))
}

fn is_wanted(change: &FileChange, paths: &[RelPath]) -> bool {
    let is_inside = |path: &RelPath| paths.iter().any(|wanted| path.is_within(wanted));
    paths.is_empty() || is_inside(&change.path) || change.from.as_ref().is_some_and(is_inside)
}

/// The paths at which something unattributed changed from one checkpoint to the other; none if this folder's history
/// doesn't have both.
async fn unattributed(
    workspace: &Workspace,
    from: &(RunLog, SealedEntry),
    to: Option<&(RunLog, SealedEntry)>,
) -> Result<HashSet<RelPath>, Failure> {
    let timeline = workspace.timeline().await?;
    let place =
        |(log, entry): &(RunLog, SealedEntry)| timeline.find(&CheckpointRef { run: log.run().clone(), seq: entry.seq });
    let new = to.map_or(Some(timeline.moments.len()), place);
    match place(from).zip(new) {
        Some((old, new)) => Ok(workspace.unattributed(&timeline, old, new).await?),
        None => Ok(HashSet::new()),
    }
}

async fn snapshot((log, entry): &(RunLog, SealedEntry)) -> Result<Snapshot, Failure> {
    Workspace::snapshot_of(log, entry.seq).await?.ok_or_else(|| {
        Failure::fixable(format!("{}@{} has no files", log.run(), entry.seq))
            .hint("`piton diff --state A B` compares states; `piton checkpoint list` shows checkpoints of files.")
    })
}

fn is_file(entry: &Option<Entry>) -> bool {
    matches!(entry, Some(Entry::File { .. }))
}

async fn compared(workspace: &Workspace, change: &FileChange, side: Side, lines: bool) -> Result<FileDiff, Failure> {
    let mode = |entry: &Option<Entry>| match entry {
        Some(Entry::File { mode, .. } | Entry::Folder { mode, .. }) => format!("{mode:04o}"),
        _ => "none".to_owned(),
    };
    let modes = (mode(&change.old), mode(&change.new));
    let text = text_diff(workspace, change, side).await?;
    let counts = text.as_ref().map(TextDiff::counts);
    Ok(FileDiff {
        change: ChangeView::from(change),
        added: counts.map(|(added, _)| added),
        removed: counts.map(|(_, removed)| removed),
        unattributed: false,
        diff: text.filter(|_| lines).map(|text| text.to_string()),
        modes: (modes.0 != modes.1 && change.old.is_some() && change.new.is_some()).then_some(modes),
        is_file: is_file(&change.old) || is_file(&change.new),
    })
}

/// How many lines a change of a text adds and removes; `None` for anything else.
pub(crate) async fn line_counts(
    workspace: &Workspace,
    change: &FileChange,
    side: Side,
) -> Result<Option<(usize, usize)>, Failure> {
    Ok(text_diff(workspace, change, side).await?.as_ref().map(TextDiff::counts))
}

/// The lines that differ, of a change of a text; `None` for anything else.
async fn text_diff(workspace: &Workspace, change: &FileChange, side: Side) -> Result<Option<TextDiff>, Failure> {
    let is_large = |entry: &Option<Entry>| matches!(entry, Some(Entry::File { size, .. }) if *size > MAX_TEXT);
    if is_large(&change.old) || is_large(&change.new) || !(is_file(&change.old) || is_file(&change.new)) {
        return Ok(None);
    }
    let old = match &change.old {
        Some(entry) => workspace.read(entry).await?.unwrap_or_default(),
        None => Default::default(),
    };
    let new = match (&change.new, side) {
        (Some(Entry::File { .. }), Side::Now) => workspace.read_now(&change.path)?.into(),
        (Some(entry), _) => workspace.read(entry).await?.unwrap_or_default(),
        (None, _) => Default::default(),
    };
    if is_binary(&old) || is_binary(&new) {
        return Ok(None);
    }
    Ok(Some(TextDiff::compute(&old, &new)))
}
