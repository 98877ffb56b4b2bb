//! The history of a folder: the checkpoints of its files from all runs that worked in it, in the order of
//! their making, and who made what changed between two of them.
//!
//! An agent's work lies in brackets: a checkpoint opens one before it begins (a session, a tool call) and
//! another closes it. What changes while no bracket is open is the user's.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use piton_log::{RunLog, SealedEntry};
use piton_store::{RunQuery, Span};
use piton_types::{CheckpointKind, CheckpointRef, PartName, RunId, RunSummary, Timestamp, from_value};

use crate::record::{Record, RestoreKind, Role};
use crate::snapshot::Snapshot;
use crate::{Workspace, WorkspaceError};

/// One checkpoint of a folder's files.
#[derive(Debug, Clone)]
pub struct Moment {
    /// Its name.
    pub checkpoint: CheckpointRef,
    /// When.
    pub at: Timestamp,
    /// What to show in a list.
    pub label: String,
    /// Why it was made; `None` for an entry of another kind that happens to carry files.
    pub record: Option<Record>,
    /// The files.
    pub snapshot: Snapshot,
    /// Whether it was removed: then it is known who made what, but the files can't be read.
    pub removed: bool,
}

impl Moment {
    fn role(&self) -> &Role {
        self.record.as_ref().map_or(&Role::Saved, |record| &record.role)
    }

    fn begins_session(&self) -> bool {
        let kind = self.record.as_ref().map(|record| record.kind);
        matches!(self.role(), Role::Opened) && kind == Some(CheckpointKind::Session)
    }

    /// Whether it ended something that can be taken back.
    pub fn is_operation(&self) -> bool {
        matches!(self.role(), Role::Closed { .. } | Role::Restored { .. })
    }
}

/// Who made what changed between a moment and the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Maker {
    /// Nobody says otherwise.
    User,
    /// The runs whose brackets were open.
    Agents(Vec<RunId>),
    /// A restore.
    Restore,
}

/// The moments of a folder, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// All of them.
    pub moments: Vec<Moment>,
    /// For each bracket that a moment opened, the place of its last moment; open to the end if absent.
    ends: HashMap<usize, usize>,
    /// The sessions that were killed: where each began, and the place of its last moment.
    killed: HashMap<usize, usize>,
}

impl Workspace {
    /// The history of the folder.
    #[boxed]
    pub async fn timeline(&self) -> Result<Timeline, WorkspaceError> {
        let mut moments = Vec::new();
        for run in self.runs().await? {
            if !self.is_mine(run.folder.as_deref()) {
                continue;
            }
            let log = RunLog::open(Arc::clone(self.store()), &run.id).await?;
            let entries = log.entries(Span::ALL).await?;
            let removed = log.removed_in(&entries).await?.checkpoints;
            for entry in entries {
                let moment = moment(&log, &entry).await?;
                moments.extend(moment.map(|moment| Moment { removed: removed.contains(&entry.seq), ..moment }));
            }
        }
        moments.sort_by(|a: &Moment, b| (a.at, &a.checkpoint).cmp(&(b.at, &b.checkpoint)));
        let mut timeline = Timeline { moments, ..Timeline::default() };
        timeline.find_ends(|run| self.is_live(run));
        Ok(timeline)
    }

    /// The newest checkpoint of the folder's files.
    #[boxed]
    pub async fn newest(&self) -> Result<Option<Moment>, WorkspaceError> {
        let mut newest: Option<Moment> = None;
        for run in self.runs().await? {
            // No entry is newer than its run, and the runs come newest first.
            if newest.as_ref().is_some_and(|newest| newest.at > run.updated_at) {
                break;
            }
            if !self.is_mine(run.folder.as_deref()) {
                continue;
            }
            let log = RunLog::open(Arc::clone(self.store()), &run.id).await?;
            let mut to = log.head().seq;
            // Whatever removes a checkpoint comes after it, and so is met first.
            let mut removed = std::collections::BTreeSet::new();
            // Mostly it is the very last, which isn't in a segment yet.
            for size in std::iter::once(1).chain(std::iter::repeat(16)) {
                let page = log.entries(Span { to, ..Span::newest(size) }).await?;
                let oldest = page.last().map(|entry| entry.seq);
                let mut found = None;
                removed.extend(log.removed_in(&page).await?.checkpoints);
                for entry in page.iter().filter(|entry| !removed.contains(&entry.seq)) {
                    found = moment(&log, entry).await?;
                    if found.is_some() {
                        break;
                    }
                }
                let better = |found: &Moment| newest.as_ref().is_none_or(|newest| found.at >= newest.at);
                match (found, oldest.and_then(|oldest| oldest.0.checked_sub(1))) {
                    (Some(found), _) => {
                        if better(&found) {
                            newest = Some(found);
                        }
                        break;
                    }
                    (None, Some(before)) => to = piton_types::Seq(before),
                    (None, None) => break,
                }
            }
        }
        Ok(newest)
    }

    async fn runs(&self) -> Result<Vec<RunSummary>, WorkspaceError> {
        Ok(self.store().list(RunQuery::default()).await?)
    }

    /// Whether a process holds the run's bracket open.
    pub fn is_live(&self, run: &RunId) -> bool {
        let path = self.0.options.state.join(format!("live-{run}"));
        File::open(path).is_ok_and(|file| file.try_lock_shared().is_err())
    }

    /// Says that this process works for `run` until the answer is dropped.
    pub fn live(&self, run: &RunId) -> Result<Live, WorkspaceError> {
        let path = self.0.options.state.join(format!("live-{run}"));
        let fail = |error| WorkspaceError::file("lock", &path, error);
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(fail)?;
        file.lock().map_err(fail)?;
        Ok(Live { path, _file: file })
    }
}

/// A run that is at work in the folder.
#[derive(Debug)]
pub struct Live {
    path: std::path::PathBuf,
    _file: File,
}

impl Drop for Live {
    fn drop(&mut self) {
        // Nobody is hurt by one that stays: it isn't locked.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What an entry says of the files, if it does.
pub(crate) async fn moment(log: &RunLog, entry: &SealedEntry) -> Result<Option<Moment>, WorkspaceError> {
    let Some(part) = entry.parts.get(&PartName::from(PartName::WORKSPACE)) else { return Ok(None) };
    let checkpoint = CheckpointRef { run: log.run().clone(), seq: entry.seq };
    let snapshot: Snapshot = from_value(log.load(part).await?).map_err(|error| {
        piton_store::StoreError::corrupt(format!("the snapshot of {checkpoint}"), error.to_string())
    })?;
    let record = from_value(log.body(entry).await?).ok();
    Ok(Some(Moment { checkpoint, at: entry.at, label: entry.label.clone(), record, snapshot, removed: false }))
}

impl Timeline {
    /// Where a checkpoint is.
    pub fn find(&self, checkpoint: &CheckpointRef) -> Option<usize> {
        self.moments.iter().position(|moment| moment.checkpoint == *checkpoint)
    }

    /// A bracket that nobody closed and nobody holds ended with the last that its run said.
    fn find_ends(&mut self, is_live: impl Fn(&RunId) -> bool) {
        let closed = self.moments.iter().enumerate().filter_map(|(end, moment)| match moment.role() {
            Role::Closed { since, .. } => Some((self.find(since)?, end)),
            Role::Dropped { since } => self.find(since).map(|start| (start, start)),
            _ => None,
        });
        self.ends = closed.collect();
        for place in 0..self.moments.len() {
            let moment = &self.moments[place];
            let run = &moment.checkpoint.run;
            if !matches!(moment.role(), Role::Opened) || self.ends.contains_key(&place) {
                continue;
            }
            let is_held = is_live(run);
            if let Some(last) = self.last_of_session(place, is_held) {
                self.killed.insert(place, last);
            }
            if !is_held {
                let last = self.moments.iter().rposition(|other| other.checkpoint.run == *run).unwrap_or(place);
                self.ends.insert(place, last);
            }
        }
    }

    /// How far a session got that nobody closed, if it was killed: nobody holds it, or its run has begun another one
    /// since. The brackets of tools don't count, since those of reports are held by nobody.
    fn last_of_session(&self, place: usize, is_held: bool) -> Option<usize> {
        if !self.moments[place].begins_session() {
            return None;
        }
        let mut last = place;
        for (at, other) in self.moments.iter().enumerate().skip(place + 1) {
            if other.checkpoint.run != self.moments[place].checkpoint.run {
                continue;
            }
            if other.begins_session() {
                return Some(last);
            }
            last = at;
        }
        (!is_held).then_some(last)
    }

    /// The place of the last checkpoint that a session made, if the moment at `place` began it and it was killed; that
    /// place itself if it made none. What changed later is nobody's but the user's, as far as anybody can tell.
    pub fn killed_at(&self, place: usize) -> Option<usize> {
        self.killed.get(&place).copied()
    }

    /// Who made what changed up to the moment at `place`, since the one before it. The place behind the
    /// last stands for the folder as it is now.
    pub(crate) fn maker(&self, place: usize) -> Maker {
        if self.moments.get(place).is_some_and(|moment| matches!(moment.role(), Role::Restored { .. })) {
            return Maker::Restore;
        }
        let mut open: Vec<RunId> = Vec::new();
        for (opened, moment) in self.moments.iter().enumerate().take(place) {
            let is_open =
                matches!(moment.role(), Role::Opened) && self.ends.get(&opened).is_none_or(|end| *end >= place);
            if is_open && !open.contains(&moment.checkpoint.run) {
                open.push(moment.checkpoint.run.clone());
            }
        }
        if open.is_empty() { Maker::User } else { Maker::Agents(open) }
    }

    /// The restores that took the operation at `place` back, brought it again, and so on: together with it they
    /// are one thing, of which either all is there or nothing.
    pub(crate) fn related(&self, place: usize) -> Vec<usize> {
        let mut related = vec![];
        let mut names = vec![&self.moments[place].checkpoint];
        for (at, moment) in self.moments.iter().enumerate().skip(place + 1) {
            if let Role::Restored {
                restore: RestoreKind::Undo { operation: of } | RestoreKind::Redo { undo: of }, ..
            } = moment.role()
                && names.contains(&of)
            {
                related.push(at);
                names.push(&moment.checkpoint);
            }
        }
        related
    }

    /// The later operations that were taken back and still are, with the restores that did it: together they come to
    /// nothing, and what is below them must not depend on them.
    pub(crate) fn gone_since(&self, place: usize) -> Vec<usize> {
        let mut gone = vec![];
        for (at, moment) in self.moments.iter().enumerate().skip(place + 1) {
            let related = self.related(at);
            if related.len().is_multiple_of(2) {
                continue;
            }
            match (moment.role(), self.killed_at(at)) {
                (_, Some(end)) => {
                    let own = Maker::Agents(vec![moment.checkpoint.run.clone()]);
                    gone.extend((at + 1..=end).filter(|at| self.maker(*at) == own));
                }
                (Role::Closed { since, .. }, _) => {
                    // One that had begun before can't be told apart from what is asked about.
                    let Some(start) = self.find(since).filter(|start| *start >= place) else { continue };
                    let own = Maker::Agents(vec![since.run.clone()]);
                    gone.extend((start + 1..=at).filter(|at| self.maker(*at) == own));
                }
                (Role::Restored { .. }, _) => gone.push(at),
                _ => continue,
            }
            gone.extend(related);
        }
        gone
    }

    /// The operations that can be taken back, newest last, and the undos that can be taken back. A session that was
    /// killed goes by the checkpoint that began it: none ended it.
    pub fn operations(&self) -> (Vec<usize>, Vec<usize>) {
        let (mut done, mut undone): (Vec<usize>, Vec<usize>) = Default::default();
        let end = |place: &usize| self.killed_at(*place).map_or((*place, false), |end| (end, true));
        let changed =
            |(begun, end): &(&usize, &usize)| self.moments[**begun].snapshot.tree != self.moments[**end].snapshot.tree;
        let killed: HashMap<usize, usize> = self.killed.iter().filter(changed).map(|(a, b)| (*b, *a)).collect();
        for (place, moment) in self.moments.iter().enumerate() {
            match moment.role() {
                Role::Restored { restore: RestoreKind::Undo { operation }, .. } => {
                    let operation = self.find(operation);
                    done.retain(|place| Some(*place) != operation);
                    undone.push(place);
                }
                Role::Restored { restore: RestoreKind::Redo { undo }, .. } => {
                    let Some(undo) = self.find(undo) else { continue };
                    undone.retain(|place| *place != undo);
                    if let Role::Restored { restore: RestoreKind::Undo { operation }, .. } = self.moments[undo].role() {
                        done.extend(self.find(operation));
                        done.sort_unstable_by_key(end);
                    }
                }
                Role::Closed { before, .. } if *before == moment.snapshot.tree => {}
                Role::Restored { before, .. } if *before == moment.snapshot.tree => {}
                _ if moment.is_operation() => done.push(place),
                _ => {}
            }
            done.extend(killed.get(&place));
        }
        (done, undone)
    }
}
