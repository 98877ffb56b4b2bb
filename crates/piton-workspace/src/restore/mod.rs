//! The way back: restoring to a checkpoint, undoing one operation, redoing it.
//!
//! All three are one thing: some of what was done since is taken back, and the rest stays. Everything that
//! will be overwritten is in the store, durably, before the first file changes; the restore itself is an
//! entry of the log, so it can be undone like anything else. A restore that is killed is finished by
//! the next process that opens the folder.
//!
//! What was shown is what is done: a plan remembers the folder and the history that it was made from, and is refused if
//! either has changed since.

mod apply;
mod delta;
mod plan;
mod recover;
mod renames;
mod resolver;

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use piton_log::{ContentWriter, RunLog};
use piton_store::{PackId, StoreError};
use piton_types::{BlobId, CheckpointKind, CheckpointRef, EntryKind, RunId, Seq};
use tokio::runtime::Handle;

use crate::cache::Cache;
use crate::record::{Record, RestoreKind, Role};
use crate::rules::is_rules;
use crate::scan::Progress;
use crate::snapshot::{ATTEMPTS, NewMoment, Snapshot, Staged};
use crate::timeline::{Maker, Timeline};
use crate::tree::{Entry, Nodes, Overlay, Parsed, ParsedTimes, TimedEntry, edit, parse_leaves, parse_times};
use crate::workspace::blocking;
use crate::{RelPath, Workspace, WorkspaceError};
use apply::{Applied, Staging};
use plan::{Fate, Replay};

pub(crate) use apply::Named;
pub use delta::LineDelta;
pub use plan::{Plan, PlannedChange};
pub use recover::Recovered;
pub use resolver::{ContestedText, Resolver};

/// What becomes of a path that another writer changed too: the user, another agent or another program (W6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConflictResolution {
    /// Texts that can be merged are; the rest is refused.
    #[default]
    Merge,
    /// Nothing is written.
    Refuse,
    /// The checkpoint's version.
    PreferCheckpoint,
    /// What is there.
    PreferCurrent,
    /// What is there stays, and the checkpoint's version is written beside it as `NAME.checkpoint`.
    Beside,
    /// Texts are merged, with markers where that doesn't work out; the rest is refused.
    Markers,
    /// Texts that can be merged are; for the others the resolver is asked, and the rest is refused.
    Resolve,
    /// The user is asked, by [`Ask`]; texts that can be merged are.
    Ask,
}

/// A path that another writer changed too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Which.
    pub path: RelPath,
    /// Why it can't be decided.
    pub reason: String,
    /// The checkpoint's version.
    pub checkpoint: Option<Entry>,
    /// What is there.
    pub current: Option<Entry>,
}

/// Decides conflicts, one by one. Front ends that show them in their own way implement it.
pub trait Ask: Send + Sync {
    /// What is to become of it; [`ConflictResolution::Refuse`] if the user doesn't say. A front end that isn't a
    /// terminal takes this call for its event, tells its user, and waits or refuses.
    fn ask(&self, conflict: &Conflict) -> ConflictResolution;
}

/// There is no user to ask.
#[derive(Debug, Clone, Copy, Default)]
pub struct NobodyToAsk;

impl Ask for NobodyToAsk {
    fn ask(&self, _: &Conflict) -> ConflictResolution {
        ConflictResolution::Refuse
    }
}

/// Which paths a restore is about.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only these, and what is in them; all if empty.
    pub only: Vec<RelPath>,
    /// But not these.
    pub not: Vec<RelPath>,
}

impl Selection {
    fn has(&self, path: &RelPath) -> bool {
        (self.only.is_empty() || self.only.iter().any(|only| path.is_within(only)))
            && !self.not.iter().any(|not| path.is_within(not))
    }
}

/// How to restore (W5).
#[derive(Clone)]
pub struct RestoreOptions {
    /// Which paths.
    pub selection: Selection,
    /// For what another writer changed too.
    pub resolution: ConflictResolution,
    /// Who is asked.
    pub ask: Arc<dyn Ask>,
    /// Who puts texts together that can't be merged.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// Make everything as it was in the checkpoint, also what another writer changed.
    pub exact: bool,
    /// Put the times of files back too. Otherwise a restored file is as new as it is, and build tools notice.
    pub times: bool,
}

impl Default for RestoreOptions {
    fn default() -> Self {
        Self {
            selection: Selection::default(),
            resolution: ConflictResolution::default(),
            ask: Arc::new(NobodyToAsk),
            resolver: None,
            exact: false,
            times: false,
        }
    }
}

impl RestoreOptions {
    /// The files and nothing else: what the default is too.
    pub fn files_only() -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for RestoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestoreOptions")
            .field("selection", &self.selection)
            .field("resolution", &self.resolution)
            .field("exact", &self.exact)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// What to go back to, or take back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// A checkpoint.
    Checkpoint(CheckpointRef),
    /// An operation: the entry that closed a bracket, the one that began a session which was killed, or a restore.
    /// `None` for the newest.
    Undo(Option<CheckpointRef>),
    /// The newest undo.
    Redo,
}

/// What a restore will do, and what that was worked out from. [`Workspace::restore`] does just that, or nothing.
#[derive(Debug, Clone)]
pub struct RestorePlan {
    /// What it is for.
    pub kind: RestoreKind,
    /// What it changes, what it leaves, and what stands in its way.
    pub plan: Plan,
    basis: Basis,
}

/// The folder and its history as a plan knows them.
#[derive(Debug, Clone)]
struct Basis {
    /// The folder.
    tree: BlobId,
    /// The newest checkpoint of its history.
    moment: u64,
    /// Paths that are hidden and captured all the same, because the restore changes them.
    forced: HashSet<RelPath>,
    /// The tree that the files come from.
    target: BlobId,
    /// The times beside it, if they are to be put back.
    times: Option<BlobId>,
}

/// What a restore did.
#[derive(Debug, Clone)]
pub struct RestoreResult {
    /// The entry that records it; `None` if there was nothing to do.
    pub checkpoint: Option<CheckpointRef>,
    /// The checkpoint that was made just before.
    pub backup: Option<CheckpointRef>,
    /// What it was for.
    pub kind: RestoreKind,
    /// How many paths were changed.
    pub files_restored: usize,
    /// What was done.
    pub plan: Plan,
}

/// How many paths a note names.
const NOTED: usize = 50;

impl RestoreResult {
    /// A note for the agent whose files these are, as a front end can put it into the conversation: without it the
    /// agent goes on believing that its changes are there. Empty if nothing was changed.
    pub fn note(&self) -> String {
        if self.plan.changes.is_empty() {
            return String::new();
        }
        let what = match &self.kind {
            RestoreKind::To { checkpoint } => format!("returned to checkpoint {checkpoint}"),
            RestoreKind::Undo { operation } => format!("freed of what {operation} did"),
            RestoreKind::Redo { undo } => format!("given back what {undo} had undone"),
        };
        let mut lines = vec![format!("The files of this folder were {what}. Read a file again before you rely on it:")];
        lines.extend(self.plan.changes.iter().take(NOTED).map(|change| {
            let what = match (&change.now, &change.then) {
                _ if change.merged => "merged with somebody else's edits",
                (None, _) => "there again",
                (_, None) => "gone",
                _ => "as it was",
            };
            format!("- {}: {what}", change.path)
        }));
        if self.plan.changes.len() > NOTED {
            lines.push(format!("- and {} more", self.plan.changes.len() - NOTED));
        }
        lines.extend(self.plan.left.iter().take(NOTED).map(|(path, why)| format!("- {path}: left as it is, {why}")));
        lines.join("\n")
    }
}

/// A goal, found in the history.
struct Route {
    kind: RestoreKind,
    /// The target and the snapshots since, without the folder as it is now.
    trees: Vec<BlobId>,
    fates: Vec<Fate>,
    times: Option<BlobId>,
    /// The place of the target in the history; `None` if only the target counts.
    start: Option<usize>,
}

impl Route {
    /// Leaves out the snapshots that were removed. What changed up to one and after it can't be told apart any more:
    /// if the two had different fates, whatever changed is left alone.
    fn around(mut self, timeline: &Timeline) -> Result<Self, WorkspaceError> {
        let Some(start) = self.start else { return Ok(self) };
        let moments = &timeline.moments[start..];
        if moments[0].removed {
            return Err(WorkspaceError::Removed { checkpoint: moments[0].checkpoint.to_string() });
        }
        for place in (1..self.trees.len()).rev().filter(|place| moments[*place].removed) {
            self.trees.remove(place);
            let later = self.fates.remove(place);
            let earlier = &mut self.fates[place - 1];
            if *earlier != later {
                *earlier = Fate::Shared(format!("what {} had was removed", moments[place].checkpoint));
            }
        }
        Ok(self)
    }
}

impl Workspace {
    /// What a restore will do (W4), with the folder as it is now. Nothing is stored.
    #[boxed]
    pub async fn plan_restore(
        &self,
        timeline: &Timeline,
        goal: &Goal,
        options: &RestoreOptions,
        progress: &Arc<Progress>,
    ) -> Result<RestorePlan, WorkspaceError> {
        self.refuse_unfinished()?;
        let route = Arc::new(self.route(timeline, goal, options).await?);
        let mut forced = HashSet::new();
        loop {
            let looked = self.look(&forced, progress).await?;
            let (tree, nodes) = (looked.snapshot.tree, Arc::new(looked.nodes));
            let (plan, unseen) = self.plan(&route, tree, nodes, options).await?;
            if unseen.is_subset(&forced) {
                let (kind, times) = (route.kind.clone(), route.times.filter(|_| options.times));
                let basis = Basis { tree, moment: timeline.head, forced, target: route.trees[0], times };
                return Ok(RestorePlan { kind, plan, basis });
            }
            forced.extend(unseen);
        }
    }

    /// Does what was planned (W5, W6), and nothing else. With conflicts that aren't decided, nothing is written.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::Outdated`] if the folder isn't as it was when the restore was planned: then nothing was
    /// written, and a new plan says what would be done now.
    #[boxed]
    pub async fn restore(
        &self,
        planned: RestorePlan,
        progress: &Arc<Progress>,
    ) -> Result<RestoreResult, WorkspaceError> {
        let _lock = self.lock(progress).await?;
        self.refuse_unfinished()?;
        let RestorePlan { kind, plan, basis } = planned;
        let outdated = || WorkspaceError::Outdated { root: self.root().to_owned() };
        if self.last_number().await? != basis.moment {
            return Err(outdated());
        }
        let staged = self.stage(&basis.forced, progress).await?;
        if staged.scanned.tree != basis.tree {
            return Err(outdated());
        }
        self.execute(kind, plan, staged, basis.target, basis.times, progress).await
    }

    /// Plans a restore and does it, with the folder as it is when this process has it to itself: for callers that show
    /// no plan to a user.
    #[boxed]
    pub async fn restore_to(
        &self,
        goal: &Goal,
        options: &RestoreOptions,
        progress: &Arc<Progress>,
    ) -> Result<RestoreResult, WorkspaceError> {
        let _lock = self.lock(progress).await?;
        self.refuse_unfinished()?;
        let route = Arc::new(self.route(&self.timeline().await?, goal, options).await?);
        let mut forced = HashSet::new();
        // A path that the target has and that is hidden now must be captured before it is overwritten.
        let (staged, plan) = loop {
            let staged = self.stage(&forced, progress).await?;
            let (plan, unseen) = self.plan(&route, staged.scanned.tree, Arc::default(), options).await?;
            if unseen.is_subset(&forced) {
                break (staged, plan);
            }
            forced.extend(unseen);
        };
        let times = route.times.filter(|_| options.times);
        self.execute(route.kind.clone(), plan, staged, route.trees[0], times, progress).await
    }

    /// Does what a plan says with the folder as `staged` found it. The caller has the lock.
    async fn execute(
        &self,
        kind: RestoreKind,
        plan: Plan,
        staged: Staged,
        target: BlobId,
        times: Option<BlobId>,
        progress: &Arc<Progress>,
    ) -> Result<RestoreResult, WorkspaceError> {
        if !plan.conflicts.is_empty() {
            return Err(WorkspaceError::Conflicts { conflicts: plan.conflicts });
        }
        if plan.changes.is_empty() {
            return Ok(RestoreResult { checkpoint: None, backup: None, kind, files_restored: 0, plan });
        }
        let before = Snapshot::new(&staged.scanned);
        let times = match times {
            Some(times) => self.times_of(target, times, &plan).await?,
            None => HashMap::new(),
        };
        let (result, packs) = self.stage_result(before.tree, &plan).await?;
        let done = self.carry_out(kind.clone(), staged, (result, packs), plan.clone(), times, progress).await?;
        Ok(RestoreResult {
            checkpoint: Some(done.entry),
            backup: Some(done.backup),
            kind,
            files_restored: done.applied,
            plan,
        })
    }

    async fn route(&self, timeline: &Timeline, goal: &Goal, options: &RestoreOptions) -> Result<Route, WorkspaceError> {
        self.route_through(timeline, goal, options).await?.around(timeline)
    }

    async fn route_through(
        &self,
        timeline: &Timeline,
        goal: &Goal,
        options: &RestoreOptions,
    ) -> Result<Route, WorkspaceError> {
        match goal {
            Goal::Checkpoint(checkpoint) => self.route_to(timeline, checkpoint, options).await,
            Goal::Undo(operation) => {
                let place = match operation {
                    Some(operation) => timeline
                        .find(operation)
                        .ok_or_else(|| WorkspaceError::NoFiles { checkpoint: operation.to_string() })?,
                    None => *timeline.operations().0.last().ok_or(WorkspaceError::Nothing { what: "undo" })?,
                };
                let operation = timeline.moments[place].checkpoint.clone();
                route_back(timeline, place, RestoreKind::Undo { operation })
            }
            Goal::Redo => {
                let place = *timeline.operations().1.last().ok_or(WorkspaceError::Nothing { what: "redo" })?;
                let undo = timeline.moments[place].checkpoint.clone();
                route_back(timeline, place, RestoreKind::Redo { undo })
            }
        }
    }

    async fn route_to(
        &self,
        timeline: &Timeline,
        checkpoint: &CheckpointRef,
        options: &RestoreOptions,
    ) -> Result<Route, WorkspaceError> {
        let kind = RestoreKind::To { checkpoint: checkpoint.clone() };
        let Some(place) = timeline.find(checkpoint) else {
            // Another folder's, or of a run that has none: there is no history in common.
            let log = RunLog::open(Arc::clone(self.store()), &checkpoint.run).await?;
            let snapshot = Self::snapshot_of(&log, checkpoint.seq)
                .await?
                .ok_or_else(|| WorkspaceError::NoFiles { checkpoint: checkpoint.to_string() })?;
            let (trees, times) = (vec![snapshot.tree], snapshot.times);
            return Ok(Route { kind, trees, fates: vec![Fate::Dropped], times, start: None });
        };
        let times = timeline.moments[place].snapshot.times;
        let since = place + 1..=timeline.moments.len();
        let fates: Vec<Fate> = since
            .clone()
            .map(|place| if timeline.maker(place) == Maker::User { Fate::Kept } else { Fate::Dropped })
            .collect();
        // Without an agent's work since then there is nothing to keep apart from it.
        let agents = since.clone().any(|place| matches!(timeline.maker(place), Maker::Agents(_)));
        if options.exact || !agents {
            let trees = vec![timeline.moments[place].snapshot.tree];
            return Ok(Route { kind, trees, fates: vec![Fate::Dropped], times, start: Some(place) });
        }
        let trees = timeline.moments[place..].iter().map(|moment| moment.snapshot.tree).collect();
        Ok(Route { kind, trees, fates, times, start: Some(place) })
    }

    /// The plan, and the paths that it changes though no snapshot has what is there.
    async fn plan(
        &self,
        route: &Arc<Route>,
        now: BlobId,
        new: Arc<HashMap<BlobId, Bytes>>,
        options: &RestoreOptions,
    ) -> Result<(Plan, HashSet<RelPath>), WorkspaceError> {
        let (reader, options, hashing) = (self.reader(), options.clone(), self.store().hashing().clone());
        let (workspace, stored, route) = (self.clone(), self.nodes(), Arc::clone(route));
        blocking(move || {
            let nodes = Overlay { new: &new, below: &stored };
            let mut trees = route.trees.clone();
            trees.push(now);
            // A plan that stores nothing has the contents of changed files only on disk.
            let get = |id: BlobId| match reader.get(id) {
                Err(StoreError::NotFound { .. }) => workspace.find_on_disk(&nodes, now, id),
                other => Ok(other?),
            };
            let replay = Replay {
                nodes: &nodes,
                hashing: &hashing,
                get: &get,
                trees: &trees,
                fates: &route.fates,
                selection: &options.selection,
                resolution: options.resolution,
                ask: &*options.ask,
                resolver: options.resolver.as_deref(),
            };
            let plan = replay.plan()?;
            let unseen = plan.unseen(&nodes, now)?;
            Ok((plan, unseen))
        })
        .await
    }

    /// The content of a file that a plan has seen and the store doesn't have.
    fn find_on_disk(&self, nodes: &dyn Nodes, now: BlobId, id: BlobId) -> Result<Bytes, WorkspaceError> {
        let mut found = None;
        crate::tree::walk(nodes, now, &RelPath::default(), &mut |path, entry| {
            if matches!(entry, Entry::File { content, .. } if content.id() == id) {
                found = Some(path);
            }
            Ok(())
        })?;
        let path = found.ok_or(crate::TreeError("a content is nowhere"))?;
        let bytes = self.read_now(&path)?;
        if self.store().hashing().blob(&bytes) != id {
            return Err(WorkspaceError::Busy { root: self.root().to_owned() });
        }
        Ok(bytes.into())
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
    async fn stage_result(&self, now: BlobId, plan: &Plan) -> Result<(BlobId, Vec<PackId>), WorkspaceError> {
        let (store, nodes, runtime) = (Arc::clone(self.store()), self.nodes(), Handle::current());
        let plan = plan.clone();
        blocking(move || {
            let writer = ContentWriter::new(Arc::clone(&store), runtime);
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
        staged: Staged,
        (result, mut packs): (BlobId, Vec<PackId>),
        plan: Plan,
        times: HashMap<RelPath, i64>,
        progress: &Arc<Progress>,
    ) -> Result<Done, WorkspaceError> {
        let mut log = self.log(&self.run()).await?;
        // The backup will be the next entry. Until the log has it, nothing has changed.
        let seq = log.head().seq.next();
        let tag = self.tag(seq);
        self.mark(seq)?;
        // A disk that is full is noticed while nothing has changed.
        let (inner, reader) = (Arc::clone(&self.0), self.reader());
        let (changes, fresh, staging_tag) = (plan.changes.clone(), plan.fresh.clone(), tag.clone());
        let progress = Arc::clone(progress);
        let filled =
            blocking(move || Staging::create(&inner, &staging_tag)?.fill(&changes, &fresh, &times, &reader, &progress))
                .await;
        if let Err(error) = filled {
            self.unmark()?;
            return Err(error);
        }
        let role = Role::Backup { result, restore: kind.clone() };
        let moment = NewMoment::new(Record::new(CheckpointKind::Auto, role, ""));
        let before = Snapshot::new(&staged.scanned);
        packs.extend(&staged.packs);
        let (backup, _) = self.commit(&mut log, &moment, before, packs, Some(staged.era)).await?;
        let recent = staged.scanned.recent.clone();
        let cache = self.held_cache(staged, &log).await?;
        let result = Some(result);
        let begun = Begun { kind, backup, before, result, changes: plan.changes, tag, cache, recent };
        let done = self.finish(&mut log, begun).await?;
        log.close().await?;
        Ok(done)
    }

    /// From the first changed file on.
    async fn finish(&self, log: &mut RunLog, begun: Begun) -> Result<Done, WorkspaceError> {
        let Begun { kind, backup, before, result, changes, tag, cache, recent } = begun;
        let (inner, hashing) = (Arc::clone(&self.0), self.store().hashing().clone());
        let planned = changes.len();
        let counts = Counts::of(&changes);
        let touched = touched(changes.iter().map(|change| &change.path).chain(&recent));
        let applied: Applied = blocking(move || {
            let staging = Staging::reopen(&inner, &tag)?;
            let applied = staging.apply(&changes, &hashing)?;
            // What was taken out is what the backup has. Ahead of the sync: afterwards it would have been written out
            // for nothing.
            staging.remove()?;
            staging.sync()?;
            Ok(applied)
        })
        .await?;
        let role = Role::Restored { backup: backup.clone(), before: before.tree, restore: kind };
        let record = Record::new(CheckpointKind::Auto, role, "");
        let moment = NewMoment { kind: EntryKind::FilesRestored, ..NewMoment::new(record) };
        let entry = match result.filter(|_| applied.failed.is_empty()) {
            Some(result) => {
                let again = match (cache, touched) {
                    (Some(cache), Some(touched)) => Some(self.stage_again(cache, touched).await?),
                    _ => None,
                };
                // If another process has changed something meanwhile, that isn't the restore's.
                let again = again.filter(|again| again.scanned.tree == result);
                self.close_restore(log, &moment, counts.after(before, result), again).await?
            }
            // What is there is neither the old nor the new: look.
            None => self.close_as_found(log, &moment).await?,
        };
        self.unmark()?;
        if !applied.failed.is_empty() {
            return Err(WorkspaceError::Incomplete { failed: applied.failed, planned });
        }
        Ok(Done { entry, backup, applied: applied.changed })
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
        if let Some(again) = again {
            let (snapshot, packs) = (Snapshot::new(&again.scanned), again.packs.clone());
            match self.commit(log, moment, snapshot, packs, Some(again.era)).await {
                Ok((entry, _)) => {
                    self.remember(again, log).await;
                    return Ok(entry);
                }
                // Times that it shares with older snapshots may be gone; it does without.
                Err(WorkspaceError::Store(StoreError::EraEnded { .. } | StoreError::NotFound { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.commit(log, moment, after, Vec::new(), None).await?.0)
    }

    /// Appends the entry that says that it is done, with the files as they are. Nothing else has brought that tree
    /// into the store, so what was staged for it is committed with it.
    async fn close_as_found(&self, log: &mut RunLog, moment: &NewMoment) -> Result<CheckpointRef, WorkspaceError> {
        let mut attempts = 0;
        loop {
            let staged = self.stage(&HashSet::new(), &Arc::default()).await?;
            let (snapshot, packs) = (Snapshot::new(&staged.scanned), staged.packs.clone());
            match self.commit(log, moment, snapshot, packs, Some(staged.era)).await {
                // What it shares may be gone: it is looked for again.
                Err(WorkspaceError::Store(StoreError::EraEnded { .. } | StoreError::NotFound { .. }))
                    if attempts < ATTEMPTS =>
                {
                    attempts += 1;
                }
                done => {
                    let (entry, _) = done?;
                    self.remember(staged, log).await;
                    return Ok(entry);
                }
            }
        }
    }

    /// What the staging folder of a restore is named by: the number of its backup, and the store, since another one
    /// may have the same number for the same folder.
    fn tag(&self, backup: Seq) -> String {
        let store = u32::from_le_bytes(self.0.binding.store[..4].try_into().expect("four bytes"));
        format!("{backup}-{store:08x}")
    }

    /// Writes down, durably, that a restore is under way, whose backup is that entry of the folder's log.
    fn mark(&self, backup: Seq) -> Result<(), WorkspaceError> {
        let path = self.mark_path();
        let beside = path.with_extension("new");
        let write = || {
            let mut file = std::fs::File::create(&beside)?;
            write!(file, "restoring {backup}")?;
            file.sync_all()?;
            std::fs::rename(&beside, &path)?;
            std::fs::File::open(&self.0.options.state)?.sync_all()
        };
        write().map_err(|error| WorkspaceError::file("write", &path, error))
    }

    fn unmark(&self) -> Result<(), WorkspaceError> {
        match std::fs::remove_file(self.mark_path()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(WorkspaceError::file("remove", self.mark_path(), error))
            }
            _ => Ok(()),
        }
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
struct Begun {
    kind: RestoreKind,
    backup: CheckpointRef,
    before: Snapshot,
    /// The tree that it leads to, which the store has; `None` if only a look tells.
    result: Option<BlobId>,
    changes: Vec<PlannedChange>,
    tag: String,
    /// What was found before it, as a cache.
    cache: Option<Arc<Cache>>,
    /// And what of that may have changed again unseen.
    recent: Vec<RelPath>,
}

/// These paths and the folders above them; `None` if there are rules among them that decide about other paths.
fn touched<'a>(paths: impl IntoIterator<Item = &'a RelPath>) -> Option<HashSet<RelPath>> {
    let mut touched = HashSet::new();
    for path in paths {
        if is_rules(path) {
            return None;
        }
        let mut path = Some(path.clone());
        while let Some(here) = path {
            path = here.split().map(|(above, _)| above);
            if !touched.insert(here) {
                break;
            }
        }
    }
    Some(touched)
}

struct Done {
    entry: CheckpointRef,
    backup: CheckpointRef,
    applied: usize,
}

/// The way back over one operation: what its run did in it is taken back, and everything else stays.
fn route_back(timeline: &Timeline, place: usize, kind: RestoreKind) -> Result<Route, WorkspaceError> {
    let moment = &timeline.moments[place];
    let nothing = || WorkspaceError::Nothing { what: "undo" };
    let (start, end, whose): (usize, usize, Option<&RunId>) = match (&moment.record.role, timeline.killed_at(place)) {
        (_, Some(end)) => (place, end, Some(&moment.checkpoint.run)),
        (Role::Closed { since, .. }, _) => (timeline.find(since).ok_or_else(nothing)?, place, Some(&since.run)),
        (Role::Restored { backup, .. }, _) => (timeline.find(backup).ok_or_else(nothing)?, place, None),
        // Any other checkpoint: what changed up to it, since the one before.
        _ => (place.checked_sub(1).ok_or_else(nothing)?, place, None),
    };
    let mut dropped = timeline.related(place);
    dropped.extend(timeline.gone_since(end));
    // What was in it may have been taken back and brought again by itself: that goes with it.
    let within = (start + 1..=end).filter(|at| match &timeline.moments[*at].record.role {
        Role::Closed { since, .. } => whose == Some(&since.run),
        _ => false,
    });
    dropped.extend(within.flat_map(|at| timeline.related(at)));
    let fate = |at: usize| {
        if dropped.contains(&at) {
            return Fate::Dropped;
        }
        if at > end {
            return Fate::Kept;
        }
        let Some(whose) = whose else { return Fate::Dropped };
        match timeline.maker(at) {
            Maker::Agents(runs) if runs.iter().all(|run| run == whose) => Fate::Dropped,
            Maker::Agents(runs) => {
                let others: Vec<_> = runs.iter().filter(|run| *run != whose).map(ToString::to_string).collect();
                Fate::Shared(format!("it changed while {} was at work too", others.join(" and ")))
            }
            Maker::User | Maker::Restore => Fate::Kept,
        }
    };
    let trees = timeline.moments[start..].iter().map(|moment| moment.snapshot.tree).collect();
    let fates = (start + 1..=timeline.moments.len()).map(fate).collect();
    Ok(Route { kind, trees, fates, times: timeline.moments[start].snapshot.times, start: Some(start) })
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
