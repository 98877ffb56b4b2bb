//! Carrying a plan out: the contents wait in the staging folder, the backup is committed, the files change, and the entry
//! that says so ends it. The mark says from before the first to after the last that a restore is under way.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use piton_log::{ContentWriter, RunLog};
use piton_store::{PackId, Pin};
use piton_types::{BlobId, CheckpointKind, CheckpointRef, EntryKind, Seq};
use tokio::runtime::Handle;

use super::RestoreResult;
use super::apply::Applied;
use super::plan::{Plan, PlannedChange};
use super::staging::{Rescued, Staging};
use crate::record::{Record, RestoreKind, Role};
use crate::scan::Progress;
use crate::snapshot::{ATTEMPTS, NewMoment, Snapshot, Staged};
use crate::tree::{Entry, Nodes, Parsed, ParsedTimes, TimedEntry, edit, parse_leaves, parse_times};
use crate::workspace::{MARK, blocking};
use crate::{RelPath, Workspace, WorkspaceError};

impl Workspace {
    /// Does what a plan says with the folder as `staged` found it. The caller has the lock.
    pub(super) async fn execute(
        &self,
        kind: RestoreKind,
        plan: Plan,
        mut staged: Staged,
        target: BlobId,
        times: Option<BlobId>,
        progress: &Arc<Progress>,
    ) -> Result<RestoreResult, WorkspaceError> {
        if !plan.conflicts.is_empty() {
            staged.let_go().await?;
            return Err(WorkspaceError::Conflicts { conflicts: plan.conflicts });
        }
        if plan.changes.is_empty() {
            staged.let_go().await?;
            return Ok(RestoreResult {
                checkpoint: None,
                backup: None,
                kind,
                files_restored: 0,
                rescued: Vec::new(),
                plan,
            });
        }
        let before = Snapshot::new(&staged.scanned);
        let times = match times {
            Some(times) => self.times_of(target, times, &plan).await?,
            None => HashMap::new(),
        };
        let (result, packs) = self.stage_result(before.tree, &plan, staged.pin).await?;
        let done = self.carry_out(kind.clone(), staged, (result, packs), plan.clone(), times, progress).await?;
        Ok(RestoreResult {
            checkpoint: Some(done.entry),
            backup: Some(done.backup),
            kind,
            files_restored: done.applied,
            rescued: done.rescued,
            plan,
        })
    }

    /// The times that go with what will be written.
    async fn times_of(
        &self,
        target: BlobId,
        times: BlobId,
        plan: &Plan,
    ) -> Result<HashMap<RelPath, i64>, WorkspaceError> {
        let paths: Vec<RelPath> = plan
            .changes
            .iter()
            .filter(|change| matches!(change.then, Some(Entry::File { .. })) && !change.merged)
            .map(|change| change.path.clone())
            .collect();
        let nodes = self.nodes();
        blocking(move || {
            let found = paths.into_iter().map(|path| Ok(time_at(&nodes, target, times, &path)?.map(|at| (path, at))));
            found.filter_map(Result::transpose).collect()
        })
        .await
    }

    /// Stages the tree that the plan leads to, and the merged texts.
    async fn stage_result(&self, now: BlobId, plan: &Plan, pin: Pin) -> Result<(BlobId, Vec<PackId>), WorkspaceError> {
        let (store, nodes, runtime) = (Arc::clone(self.store()), self.nodes(), Handle::current());
        let plan = plan.clone();
        blocking(move || {
            let writer = ContentWriter::new(Arc::clone(&store), runtime, pin);
            for fresh in plan.fresh.values() {
                writer.put(fresh)?;
            }
            let changes = plan.changes.iter().map(|change| (&change.path, &change.then));
            let result = edit(&nodes, store.hashing(), now, changes, &mut |node| Ok(writer.put(node)?))?;
            Ok((result, writer.finish()?))
        })
        .await
    }

    /// Everything from the backup to the entry that says it is done.
    async fn carry_out(
        &self,
        kind: RestoreKind,
        mut staged: Staged,
        (result, mut packs): (BlobId, Vec<PackId>),
        plan: Plan,
        times: HashMap<RelPath, i64>,
        progress: &Arc<Progress>,
    ) -> Result<Done, WorkspaceError> {
        let mut log = self.log(&self.run()).await?;
        // The backup will be the next entry. Until the log has it, nothing has changed.
        let seq = log.head().seq.next();
        // A disk that is full is noticed while nothing has changed.
        let (this, reader, progress) = (self.clone(), self.reader(), Arc::clone(progress));
        let (changes, fresh) = (plan.changes.clone(), plan.fresh.clone());
        let staging = blocking(move || {
            let staging = Staging::create(&this.0, |place| this.mark(seq, place))?;
            match staging.fill(&changes, &fresh, &times, &reader, &progress) {
                Ok(()) => Ok(staging),
                // The first error is the one to tell.
                Err(error) => {
                    let _ = staging.remove().and_then(|()| this.unmark());
                    Err(error)
                }
            }
        })
        .await?;
        let role = Role::Backup { result, restore: kind.clone() };
        let rules = staged.scanned.rules;
        let moment = NewMoment::new(Record { rules, ..Record::new(CheckpointKind::Auto, role, "") });
        let before = Snapshot::new(&staged.scanned);
        packs.extend(&staged.packs);
        let (backup, _) = match self.commit(&mut log, &moment, before, (packs, Some(staged.pin))).await {
            // It is not in the log, for certain: all is as it was.
            Err(error) if error.is_passing() => {
                blocking(move || staging.remove()).await?;
                return self.unmark().and(Err(error));
            }
            other => other?,
        };
        staged.let_go().await?;
        self.remember(staged, &log).await;
        let result = Some(result);
        let begun = Begun { kind, backup, before, result, changes: plan.changes, staging, rules };
        let done = self.finish(&mut log, begun).await?;
        log.close().await?;
        Ok(done)
    }

    /// [`change`](Self::change), and what goes wrong in it.
    pub(super) async fn finish(&self, log: &mut RunLog, begun: Begun) -> Result<Done, WorkspaceError> {
        self.change(log, begun).await.map_err(|error| match error {
            WorkspaceError::Incomplete { .. } => error,
            other => WorkspaceError::Begun { root: self.root().to_owned(), source: Box::new(other) },
        })
    }

    /// From the first changed file on.
    async fn change(&self, log: &mut RunLog, begun: Begun) -> Result<Done, WorkspaceError> {
        let Begun { kind, backup, before, result, changes, staging, rules } = begun;
        let hashing = self.store().hashing().clone();
        let planned = changes.len();
        let counts = Counts::of(&changes);
        let applied: Applied = blocking(move || {
            // What was taken out goes ahead of the sync: afterwards it would have been written out for nothing.
            let applied = staging.apply(&changes, &hashing)?;
            staging.sync()?;
            Ok(applied)
        })
        .await?;
        let restore = kind.clone();
        let role = Role::Restored { backup: backup.clone(), before: before.tree, restore: kind };
        let record = Record { rules, ..Record::new(CheckpointKind::Auto, role, "") };
        let moment = NewMoment { kind: EntryKind::FilesRestored, ..NewMoment::new(record) };
        let entry = match result.filter(|_| applied.failed.is_empty()) {
            Some(result) => {
                let mut again = self.stage(&HashSet::new(), rules, &Arc::default()).await?;
                // If another process has changed something meanwhile, that isn't the restore's.
                let again = match again.scanned.root.tree == result {
                    true => Some(again),
                    false => {
                        again.let_go().await?;
                        None
                    }
                };
                self.close_restore(log, &moment, counts.after(before, result), again).await?
            }
            // What is there is neither the old nor the new: look.
            None => self.close_as_found(log, &moment).await?,
        };
        self.unmark()?;
        if !applied.failed.is_empty() {
            let Applied { failed, rescued, .. } = applied;
            return Err(WorkspaceError::Incomplete { failed, planned, restore, rescued });
        }
        Ok(Done { entry, backup, applied: applied.changed, rescued: applied.rescued })
    }

    /// Appends the entry that says that it is done. If the files were looked at `again`, the cache knows them from
    /// now on, and the next snapshot need not read what the restore wrote.
    async fn close_restore(
        &self,
        log: &mut RunLog,
        moment: &NewMoment,
        after: Snapshot,
        again: Option<Staged>,
    ) -> Result<CheckpointRef, WorkspaceError> {
        if let Some(mut again) = again {
            let (snapshot, packs) = (Snapshot::new(&again.scanned), again.packs.clone());
            let committed = self.commit(log, moment, snapshot, (packs, Some(again.pin))).await;
            again.let_go().await?;
            match committed {
                Ok((entry, _)) => {
                    self.remember(again, log).await;
                    return Ok(entry);
                }
                // Times that it shares with older snapshots may be gone; it does without.
                Err(error) if error.is_passing() => *log = self.log(log.run()).await?,
                Err(error) => return Err(error),
            }
        }
        for _ in 0..ATTEMPTS {
            match self.commit(log, moment, after, (Vec::new(), None)).await {
                Err(error) if error.is_passing() => *log = self.log(log.run()).await?,
                done => return Ok(done?.0),
            }
        }
        Ok(self.commit(log, moment, after, (Vec::new(), None)).await?.0)
    }

    /// Appends the entry that says that it is done, with the files as they are. Nothing else has brought that tree
    /// into the store, so what was staged for it is committed with it.
    async fn close_as_found(&self, log: &mut RunLog, moment: &NewMoment) -> Result<CheckpointRef, WorkspaceError> {
        let mut attempts = 0;
        loop {
            let mut staged = self.stage(&HashSet::new(), moment.record.rules, &Arc::default()).await?;
            let (snapshot, packs) = (Snapshot::new(&staged.scanned), staged.packs.clone());
            let committed = self.commit(log, moment, snapshot, (packs, Some(staged.pin))).await;
            staged.let_go().await?;
            match committed {
                // What it shares may be gone: it is looked for again.
                Err(error) if error.is_passing() && attempts < ATTEMPTS => {
                    attempts += 1;
                    *log = self.log(log.run()).await?;
                }
                done => {
                    let (entry, _) = done?;
                    self.remember(staged, log).await;
                    return Ok(entry);
                }
            }
        }
    }

    /// Writes down, durably, that a restore is under way, whose backup is that entry of the folder's log, and where its
    /// contents wait.
    pub(super) fn mark(&self, backup: Seq, place: &str) -> Result<(), WorkspaceError> {
        let text = format!("restoring {backup} {place}");
        let written = self.0.state.write(MARK, &[text.as_bytes()], true);
        written.map_err(|error| WorkspaceError::file("write", self.0.state.path(MARK), error))
    }

    pub(super) fn unmark(&self) -> Result<(), WorkspaceError> {
        let removed = self.0.state.remove(MARK);
        removed.map_err(|error| WorkspaceError::file("remove", self.0.state.path(MARK), error))
    }
}

/// What a plan adds to the sums of a snapshot.
#[derive(Default)]
struct Counts {
    files: i64,
    bytes: i64,
}

impl Counts {
    fn of(changes: &[PlannedChange]) -> Self {
        let count = |entry: &Option<Entry>| match entry {
            Some(Entry::File { size, .. }) => (1, size.cast_signed()),
            Some(Entry::Link { .. }) => (1, 0),
            _ => (0, 0),
        };
        changes.iter().fold(Self::default(), |sum, change| {
            let (then, now) = (count(&change.then), count(&change.now));
            Self { files: sum.files + then.0 - now.0, bytes: sum.bytes + then.1 - now.1 }
        })
    }

    fn after(&self, before: Snapshot, tree: BlobId) -> Snapshot {
        let files = before.files.saturating_add_signed(self.files);
        Snapshot { tree, times: None, files, bytes: before.bytes.saturating_add_signed(self.bytes), ..before }
    }
}

/// A restore whose contents wait and whose backup is in the log.
pub(super) struct Begun {
    pub(super) kind: RestoreKind,
    pub(super) backup: CheckpointRef,
    pub(super) before: Snapshot,
    /// The tree that it leads to, which the store has; `None` if only a look tells.
    pub(super) result: Option<BlobId>,
    pub(super) changes: Vec<PlannedChange>,
    pub(super) staging: Staging,
    /// The tree whose ignore files hold, if it aren't those in the folder.
    pub(super) rules: Option<BlobId>,
}

pub(super) struct Done {
    entry: CheckpointRef,
    backup: CheckpointRef,
    applied: usize,
    pub(super) rescued: Vec<Rescued>,
}

/// When a file was modified, as the times beside a tree say.
fn time_at(nodes: &dyn Nodes, tree: BlobId, times: BlobId, path: &RelPath) -> Result<Option<i64>, WorkspaceError> {
    let (mut tree, mut times) = (tree, times);
    let mut names = path.names().peekable();
    while let Some(name) = names.next() {
        let (leaves, beside) = match (parse_leaves(&nodes.node(tree)?)?, nodes.node(times)?) {
            (Parsed::Entries(leaves), beside) => (leaves, beside),
            (Parsed::Branch(children), beside) => {
                let ParsedTimes::Branch(beside) = parse_times(&beside, &[])? else { return Ok(None) };
                let mut found = None;
                for ((child, _), times) in children.into_iter().zip(beside) {
                    let Parsed::Entries(leaves) = parse_leaves(&nodes.node(child)?)? else { continue };
                    if leaves.iter().any(|leaf| leaf.name == name) {
                        found = Some((leaves, nodes.node(times)?));
                        break;
                    }
                }
                let Some(found) = found else { return Ok(None) };
                found
            }
        };
        let Some(at) = leaves.iter().position(|leaf| leaf.name == name) else { return Ok(None) };
        let ParsedTimes::Times(all) = parse_times(&beside, &leaves)? else { return Ok(None) };
        match (&leaves[at].entry, all[at], names.peek()) {
            (_, TimedEntry::Modified(at), None) => return Ok(Some(at)),
            (Entry::Folder { node, .. }, TimedEntry::Folder(beside), Some(_)) => (tree, times) = (*node, beside),
            _ => return Ok(None),
        }
    }
    Ok(None)
}
