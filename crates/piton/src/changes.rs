//! What a recovery asks about the files of a run and the repository that they are in (V2): the workspace's side of
//! the port [`Changes`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use piton_runtime::Listener;
use piton_runtime::recovery::{Change, Changes, Choice, PortError, Whole};
use piton_types::{CheckpointRef, Event, RunId};
use piton_workspace::{
    Ask, ChangeKind, Conflict, ConflictResolution, ContestedText, DriftError, DriftOptions, Entry, Goal, MergeOptions,
    Record, RelPath, Resolution, Resolver, RestoreOptions, Selection, Side, Snapshot, Workspace, WorkspaceError,
    WriteError, merge,
};

/// A file that isn't as the checkpoint has it.
#[derive(Debug, Clone)]
struct Known {
    path: RelPath,
    /// What the checkpoint has.
    then: Option<Entry>,
    /// What the run began with.
    base: Option<Entry>,
    checkpoint: CheckpointRef,
}

/// Files that were modified or deleted since the checkpoint of a run, and what can be done about them.
///
/// To merge is to put the checkpoint's version and the one on disk together, from what was there when the run began;
/// where both changed the same lines it fails, and says so. Whatever is overwritten is in a checkpoint first.
pub struct FileChanges {
    workspace: Workspace,
    resolver: Option<Arc<dyn Resolver>>,
    known: Mutex<HashMap<String, Known>>,
}

impl FileChanges {
    /// In this folder.
    pub fn new(workspace: Workspace) -> Self {
        Self { workspace, resolver: None, known: Mutex::default() }
    }

    /// Where both changed the same lines, this resolver puts them together. What it gives is checked.
    #[must_use]
    pub fn resolving(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// The merged text of two versions that are in each other's way.
    async fn resolved(&self, contested: ContestedText) -> Result<Vec<u8>, PortError> {
        let why = |why: &str| format!("{} was changed in the same lines, and can't be merged{why}", contested.path);
        let Some(resolver) = self.resolver.clone() else { return Err(why("").into()) };
        let asked = contested.clone();
        // It may wait for a model.
        let answer = tokio::task::spawn_blocking(move || asked.answer(&*resolver)).await?;
        answer.map_err(|said| why(&format!("; the resolver didn't help: {said}")).into())
    }

    /// The newest snapshot that the run had by then, and the one that it began with.
    async fn snapshots(&self, whole: &Whole) -> Result<Option<(CheckpointRef, Snapshot, Snapshot)>, WorkspaceError> {
        let timeline = self.workspace.timeline().await?;
        let of_run = |moment: &&piton_workspace::Moment| {
            moment.checkpoint.run == whole.checkpoint.run && moment.checkpoint.seq <= whole.checkpoint.seq
        };
        let first = timeline.moments.iter().find(of_run);
        let carried = timeline.find(&whole.checkpoint).map(|place| &timeline.moments[place]);
        let last = carried.or_else(|| timeline.moments.iter().rfind(of_run));
        Ok(first.zip(last).map(|(first, last)| (last.checkpoint.clone(), last.snapshot, first.snapshot)))
    }

    fn find(&self, path: &str) -> Result<Known, PortError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(path).cloned().ok_or_else(|| format!("nothing is known of {path:?}").into())
    }

    async fn put_back(&self, known: Known) -> Result<(), WorkspaceError> {
        let selection = Selection { only: vec![known.path], not: Vec::new() };
        let options = RestoreOptions { selection, exact: true, ..RestoreOptions::default() };
        self.workspace.restore_to(&Goal::Checkpoint(known.checkpoint), &options, &Arc::default()).await?;
        Ok(())
    }

    async fn merge(&self, known: Known) -> Result<(), PortError> {
        let content = async |entry: &Option<Entry>| match entry {
            Some(entry) => self.workspace.read(entry).await,
            None => Ok(None),
        };
        let (base, then) = (content(&known.base).await?, content(&known.then).await?);
        let Some(then) = then else { return Err(format!("{} is no file in the checkpoint", known.path).into()) };
        let lock = self.workspace.optimistic();
        let now = lock.acquire(&known.path).await?;
        let options =
            MergeOptions { ours: b"checkpoint".to_vec(), theirs: b"current".to_vec(), ..MergeOptions::default() };
        let base = base.unwrap_or_default();
        let merged = merge(&base, &then, &now.content, &options)?;
        let merged = match merged.conflicts {
            0 => merged.text,
            _ => {
                let run = &known.checkpoint.run;
                let name = self.workspace.store().summary(run).await?.map(|summary| summary.name).unwrap_or_default();
                let contested = ContestedText {
                    path: known.path.clone(),
                    base,
                    current: now.content.clone(),
                    checkpoint: then,
                    current_intent: "edits that the user or another program made while the run stood still".to_owned(),
                    checkpoint_intent: format!("what run {run} ({name}) had made of the file, and goes on with"),
                };
                self.resolved(contested).await?
            }
        };
        self.workspace.save(Record::manual(format!("before {} was merged", known.path)), &Arc::default()).await?;
        match lock.check_and_commit(&now, merged).await {
            Ok(_) => Ok(()),
            Err(WriteError::Conflict { .. }) => Err(format!("{} was changed this very moment", known.path).into()),
            Err(error) => Err(error.into()),
        }
    }
}

impl std::fmt::Debug for FileChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileChanges").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

#[async_trait]
impl Changes for FileChanges {
    async fn since(&self, whole: &Whole) -> Result<Vec<Change>, PortError> {
        let Some((checkpoint, snapshot, start)) = self.snapshots(whole).await? else { return Ok(Vec::new()) };
        let changed = self.workspace.detect_changes(snapshot, Side::Now, &Arc::default()).await?.changes;
        let own = self.workspace.detect_changes(start, Side::Stored(snapshot), &Arc::default()).await?.changes;
        let mut own: HashMap<RelPath, Option<Entry>> =
            own.into_iter().map(|change| (change.path, change.old)).collect();
        let (mut found, mut known) = (Vec::new(), HashMap::new());
        for change in changed {
            let (path, deleted) = match change.kind {
                ChangeKind::Created => continue,
                ChangeKind::Deleted => (change.path, true),
                ChangeKind::Renamed => (change.from.unwrap_or(change.path), true),
                ChangeKind::Modified | ChangeKind::ModeChanged => (change.path, false),
            };
            let (shown, then) = (path.to_string(), change.old);
            let base = own.remove(&path).unwrap_or_else(|| then.clone());
            known.insert(shown.clone(), Known { path, then, base, checkpoint: checkpoint.clone() });
            found.push(match deleted {
                true => Change::FileDeleted { path: shown },
                false => Change::FileModified { path: shown },
            });
        }
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(found)
    }

    fn can(&self, choice: Choice) -> bool {
        matches!(choice, Choice::UseCurrent | Choice::UseCheckpoint | Choice::Merge | Choice::Restore | Choice::Skip)
    }

    async fn carry_out(&self, change: &Change, choice: Choice) -> Result<(), PortError> {
        let (Change::FileModified { path } | Change::FileDeleted { path }) = change else { return Ok(()) };
        match choice {
            Choice::UseCheckpoint | Choice::Restore => Ok(self.put_back(self.find(path)?).await?),
            Choice::Merge => self.merge(self.find(path)?).await,
            _ => Ok(()),
        }
    }
}

/// Asks as another does, and tells an event before (W6): a front end that isn't the one who asks can show it.
pub struct TellingAsk {
    run: RunId,
    events: Listener,
    ask: Arc<dyn Ask>,
}

impl TellingAsk {
    /// About the files of this folder.
    pub fn new(workspace: &Workspace, events: Listener, ask: Arc<dyn Ask>) -> Self {
        Self { run: workspace.run(), events, ask }
    }
}

impl Ask for TellingAsk {
    fn ask(&self, conflict: &Conflict) -> ConflictResolution {
        let (path, reason) = (conflict.path.to_string(), conflict.reason.clone());
        self.events.tell(|| Event::ConflictAsked { run: self.run.clone(), path, reason });
        self.ask.ask(conflict)
    }
}

impl std::fmt::Debug for TellingAsk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TellingAsk").field("run", &self.run).finish_non_exhaustive()
    }
}

/// New commits of the repository that the folder's branch follows, and what can be done about them.
#[derive(Debug)]
pub struct UpstreamChanges {
    workspace: Workspace,
    options: DriftOptions,
    /// Whether the user's git may be written, and the command that must succeed then.
    rebase: Option<Option<String>>,
}

impl UpstreamChanges {
    /// In this folder. The user's git is not written.
    pub fn new(workspace: Workspace, options: DriftOptions) -> Self {
        Self { workspace, options, rebase: None }
    }

    /// A rebase is permitted; if a command is given, it must succeed afterwards.
    #[must_use]
    pub fn permitting_rebase(mut self, test: Option<String>) -> Self {
        self.rebase = Some(test);
        self
    }
}

#[async_trait]
impl Changes for UpstreamChanges {
    async fn since(&self, whole: &Whole) -> Result<Vec<Change>, PortError> {
        let run = &whole.checkpoint.run;
        let tracker = self.workspace.drift_tracker(run).await?;
        let report = match self.workspace.check_drift(tracker.known.as_ref(), self.options).await {
            Ok(report) => report,
            Err(DriftError::NoGit | DriftError::NoRepository { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        match (report.upstream, report.behind) {
            (Some(head), commits @ 1..) => Ok(vec![Change::UpstreamCommits { commits, head }]),
            _ => Ok(Vec::new()),
        }
    }

    fn can(&self, choice: Choice) -> bool {
        choice == Choice::Ignore || choice == Choice::Rebase && self.rebase.is_some()
    }

    async fn carry_out(&self, change: &Change, choice: Choice) -> Result<(), PortError> {
        let (Change::UpstreamCommits { .. }, Choice::Rebase, Some(test)) = (change, choice, &self.rebase) else {
            return Ok(());
        };
        let run = self.workspace.run();
        self.workspace.save(Record::manual("before a rebase"), &Arc::default()).await?;
        self.workspace.rebase(self.options, test.clone()).await?;
        Ok(self.workspace.resolve_drift(&run, Resolution::Rebased).await?)
    }
}
