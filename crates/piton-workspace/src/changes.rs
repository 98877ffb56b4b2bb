//! What changed between two snapshots, or between one and the folder as it is now (W2).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use piton_types::{BlobId, RunId, RunKind, RunStatus, RunSummary};
use serde::Serialize;

use crate::scan::Progress;
use crate::snapshot::{Looked, Snapshot};
use crate::tree::{Difference, Entry, Overlay, Reason, diff, entry_at, walk};
use crate::workspace::blocking;
use crate::{Maker, RelPath, Timeline, Workspace, WorkspaceError, content};

/// What became of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// It has another content, or is of another kind.
    Modified,
    /// It is gone.
    Deleted,
    /// It had another name.
    Renamed,
    /// Only its permissions differ.
    ModeChanged,
}

/// One path that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Which; the new name if it was renamed.
    pub path: RelPath,
    /// What became of it.
    pub kind: ChangeKind,
    /// The name before, if it was renamed.
    pub from: Option<RelPath>,
    /// What it was.
    pub old: Option<Entry>,
    /// What it is.
    pub new: Option<Entry>,
}

/// A side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A snapshot.
    Stored(Snapshot),
    /// The folder as it is now.
    Now,
}

/// What a comparison found.
#[derive(Debug)]
pub struct Changes {
    /// In the order of paths. Folders are named only if they are all that changed: empty ones, and modes.
    pub changes: Vec<FileChange>,
    /// The snapshot on the new side.
    pub new: Snapshot,
}

impl Workspace {
    /// What changed from one side to the other.
    #[boxed]
    pub async fn detect_changes(
        &self,
        old: Snapshot,
        new: Side,
        progress: &Arc<Progress>,
    ) -> Result<Changes, WorkspaceError> {
        let looked = match new {
            Side::Now => self.look(&HashSet::new(), progress).await?,
            Side::Stored(snapshot) => Looked { snapshot, nodes: HashMap::new() },
        };
        let new = looked.snapshot;
        let stored = self.nodes();
        let differences =
            blocking(move || diff(&Overlay { new: &looked.nodes, below: &stored }, old.tree, new.tree)).await?;
        Ok(Changes { changes: classify(differences), new })
    }

    /// The files that a run changed: created, modified or deleted between the beginning and the end of a bracket of it.
    /// What others changed at the same time is among them, and what changed behind the last checkpoint of a process that
    /// was killed isn't.
    #[boxed]
    pub async fn files_changed_by(&self, run: &RunId) -> Result<Vec<RelPath>, WorkspaceError> {
        let timeline = self.timeline().await?;
        let mut changed = BTreeSet::new();
        for (opened, ended) in timeline.brackets_of(run) {
            let (before, after) = (&timeline.moments[opened], &timeline.moments[ended]);
            if before.removed || after.removed || before.snapshot.tree == after.snapshot.tree {
                continue;
            }
            let found = self.detect_changes(before.snapshot, Side::Stored(after.snapshot), &Arc::default()).await?;
            changed.extend(found.changes.into_iter().map(|change| change.path));
        }
        Ok(changed.into_iter().collect())
    }

    /// The paths at which something unattributed changed between two places of the history; the place behind the last
    /// stands for the folder as it is now.
    pub async fn unattributed(
        &self,
        timeline: &Timeline,
        old: usize,
        new: usize,
    ) -> Result<HashSet<RelPath>, WorkspaceError> {
        let mut found = HashSet::new();
        let is_there = |place: usize| timeline.moments.get(place).is_none_or(|moment| !moment.removed);
        for place in (old + 1..=new).filter(|place| is_there(*place) && is_there(*place - 1)) {
            if matches!(timeline.maker(place), Maker::Unattributed(_)) {
                let before = timeline.moments[place - 1].snapshot;
                let after = timeline.moments.get(place).map_or(Side::Now, |moment| Side::Stored(moment.snapshot));
                let changed = self.detect_changes(before, after, &Arc::default()).await?;
                found.extend(changed.changes.into_iter().flat_map(|change| [Some(change.path), change.from]).flatten());
            }
        }
        Ok(found)
    }

    /// Who makes what changes now: only while a run is at work can that be another than the user.
    pub async fn maker_now(&self) -> Result<Maker, WorkspaceError> {
        let is_at_work = |run: &RunSummary| run.status == RunStatus::InProgress && run.kind != RunKind::Workspace;
        if !self.runs().await?.iter().any(is_at_work) {
            return Ok(Maker::User);
        }
        let timeline = self.timeline().await?;
        Ok(timeline.maker(timeline.moments.len()))
    }

    /// The content of a file in a snapshot.
    pub async fn read(&self, entry: &Entry) -> Result<Option<bytes::Bytes>, WorkspaceError> {
        let Entry::File { size, content, .. } = *entry else { return Ok(None) };
        let reader = self.reader();
        blocking(move || content::load(&|id| Ok(reader.get(id)?), content, size).map(Some)).await
    }

    /// The content of a file as it is now.
    pub fn read_now(&self, path: &RelPath) -> Result<Vec<u8>, WorkspaceError> {
        let fail = |error| WorkspaceError::file("read", self.root().join(path.as_path()), error);
        let Some((parent, name)) = path.split() else { return Err(fail(rustix::io::Errno::ISDIR.into())) };
        let folder = crate::system::open_below(&self.0.folder, &parent).map_err(|error| fail(error.into()))?;
        let file = crate::system::open_file(folder, name).map_err(|error| fail(error.into()))?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::fs::File::from(file), &mut bytes).map_err(fail)?;
        Ok(bytes)
    }

    /// Whether a snapshot has something at a path.
    pub async fn has(&self, snapshot: Snapshot, path: RelPath) -> Result<bool, WorkspaceError> {
        Ok(self.entry(snapshot, path).await?.is_some())
    }

    /// What a snapshot has at a path.
    pub async fn entry(&self, snapshot: Snapshot, path: RelPath) -> Result<Option<Entry>, WorkspaceError> {
        let nodes = self.nodes();
        blocking(move || entry_at(&nodes, snapshot.tree, &path)).await
    }

    /// What a snapshot saw and didn't capture.
    pub async fn excluded(&self, snapshot: Snapshot) -> Result<Vec<(RelPath, Reason)>, WorkspaceError> {
        let nodes = self.nodes();
        blocking(move || {
            let mut found = Vec::new();
            walk(&nodes, snapshot.tree, &RelPath::default(), &mut |path, entry| {
                if let Entry::Excluded(reason) = entry {
                    found.push((path, *reason));
                }
                Ok(())
            })?;
            Ok(found)
        })
        .await
    }
}

/// Names what became of each path, and finds those that only have another name now.
pub(crate) fn classify(differences: Vec<Difference>) -> Vec<FileChange> {
    let mut changes: Vec<FileChange> = Vec::new();
    let folder_of = |change: &Difference| change.path.split().map(|(folder, _)| folder);
    let busy: HashSet<RelPath> = differences.iter().filter_map(folder_of).collect();
    for Difference { path, old, new } in differences {
        let kind = match (&old, &new) {
            (Some(Entry::Folder { .. }), None) | (None, Some(Entry::Folder { .. })) if busy.contains(&path) => continue,
            // What isn't captured can't be said to have changed.
            (Some(Entry::Excluded(_)) | None, Some(Entry::Excluded(_)) | None) => continue,
            (None | Some(Entry::Excluded(_)), Some(_)) => ChangeKind::Created,
            (Some(_), None | Some(Entry::Excluded(_))) => ChangeKind::Deleted,
            (Some(Entry::File { size, content, .. }), Some(Entry::File { size: size_now, content: now, .. }))
                if (size, content) == (size_now, now) =>
            {
                ChangeKind::ModeChanged
            }
            (Some(Entry::Folder { .. }), Some(Entry::Folder { .. })) => ChangeKind::ModeChanged,
            (Some(_), Some(_)) => ChangeKind::Modified,
        };
        changes.push(FileChange { path, kind, from: None, old, new });
    }
    pair_renames(changes)
}

/// A file that is gone and a new one with the same content are one that was renamed. Empty files are all
/// alike, and say nothing.
fn pair_renames(mut changes: Vec<FileChange>) -> Vec<FileChange> {
    let key = |entry: &Option<Entry>| -> Option<(BlobId, u64)> {
        match entry {
            Some(Entry::File { size, content, .. }) if *size > 0 => Some((content.id(), *size)),
            _ => None,
        }
    };
    let mut gone: HashMap<(BlobId, u64), Vec<usize>> = HashMap::new();
    for (place, change) in changes.iter().enumerate().rev() {
        if let (ChangeKind::Deleted, Some(key)) = (change.kind, key(&change.old)) {
            gone.entry(key).or_default().push(place);
        }
    }
    let mut moved = Vec::new();
    for place in 0..changes.len() {
        let Some(key) = key(&changes[place].new).filter(|_| changes[place].kind == ChangeKind::Created) else {
            continue;
        };
        if let Some(before) = gone.get_mut(&key).and_then(Vec::pop) {
            let old = changes[before].old.clone();
            let from = changes[before].path.clone();
            let change = &mut changes[place];
            (change.kind, change.from, change.old) = (ChangeKind::Renamed, Some(from), old);
            moved.push(before);
        }
    }
    moved.sort_unstable();
    let mut place = 0;
    changes.retain(|_| {
        place += 1;
        moved.binary_search(&(place - 1)).is_err()
    });
    changes
}
