//! The files of a working folder under the names that the source documents give them: thin layers over
//! [`Workspace`], which has more.
//!
//! ```
//! use std::path::{Path, PathBuf};
//! use piton::names::files::{
//!     ChangeDetector, ChangeKind, CheckpointKind, CheckpointManager, CheckpointManagerConfig, FileSnapshot, FileState,
//!     RestoreOptions, RestoreResult,
//! };
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let folder = scratch.path().canonicalize()?.join("work");
//! # std::fs::create_dir(&folder)?;
//! # let storage_path = folder.with_file_name("state");
//! let piton = piton::open("memory:").await?;
//! let config = CheckpointManagerConfig { storage_path, max_checkpoints: 50, ..CheckpointManagerConfig::default() };
//! let manager = CheckpointManager::new(&piton, &folder, config)?;
//! std::fs::write(folder.join("a.txt"), "one\ntwo\n")?;
//! let first = manager.create_checkpoint(CheckpointKind::Manual, Some("Before refactoring".to_owned())).await?;
//!
//! // What changed since.
//! std::fs::write(folder.join("a.txt"), "one\ntwo\nthree\n")?;
//! std::fs::write(folder.join("b.txt"), "new\n")?;
//! let changes = ChangeDetector::new(&manager).detect_changes(&first).await?;
//! assert_eq!(changes.iter().map(|change| change.kind).collect::<Vec<_>>(), [ChangeKind::Modified, ChangeKind::Created]);
//!
//! // What a checkpoint has of a file.
//! let file: FileSnapshot = manager.file_snapshot(&first, Path::new("a.txt"), None).await?;
//! assert!(matches!(&file.state, FileState::Exists { content } if content == "one\ntwo\n"));
//! assert!(matches!(manager.file_snapshot(&first, Path::new("b.txt"), None).await?.state, FileState::NotExists));
//!
//! // What a restore would do, and the restore.
//! let preview = manager.preview_restore(&first).await?;
//! assert_eq!((preview.files_to_restore.len(), preview.files_to_delete.len()), (1, 1));
//! assert_eq!(preview.files_to_restore[0].line_diff, -1);
//! let options = RestoreOptions { file_filter: Some(vec![PathBuf::from("a.txt")]), ..RestoreOptions::files_only() };
//! let shown = manager.restore(&first, RestoreOptions { dry_run: true, ..options.clone() }).await?;
//! assert_eq!(shown.files_restored, 0);
//! let result: RestoreResult = manager.restore(&first, options).await?;
//! assert_eq!(result.files_restored, 1);
//! assert!(result.backup.is_some(), "it can itself be undone");
//! assert_eq!(std::fs::read_to_string(folder.join("a.txt"))?, "one\ntwo\n");
//! assert!(folder.join("b.txt").exists(), "it wasn't among the paths");
//!
//! // With a word on what another writer changed too.
//! use piton::names::ConflictResolution;
//! let result = manager.restore_with_conflicts(&first, ConflictResolution::PreferCheckpoint).await?;
//! assert_eq!(result.files_restored, 1);
//! # Ok(())
//! # }
//! ```
//!
//! A text of which little changed is told as a difference from another checkpoint:
//!
//! ```
//! use std::path::Path;
//! use piton::names::files::{CheckpointKind, CheckpointManager, CheckpointManagerConfig, FileState};
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let folder = scratch.path().canonicalize()?.join("work");
//! # std::fs::create_dir(&folder)?;
//! # let config = CheckpointManagerConfig { storage_path: folder.with_file_name("state"), ..Default::default() };
//! # let piton = piton::open("memory:").await?;
//! # let manager = CheckpointManager::new(&piton, &folder, config)?;
//! let text: String = (0..100).map(|n| format!("line {n}\n")).collect();
//! std::fs::write(folder.join("a.txt"), &text)?;
//! let base = manager.create_checkpoint(CheckpointKind::Auto, None).await?;
//! std::fs::write(folder.join("a.txt"), text.replace("line 50\n", "changed\n"))?;
//! let next = manager.create_checkpoint(CheckpointKind::Auto, None).await?;
//! let file = manager.file_snapshot(&next, Path::new("a.txt"), Some(&base)).await?;
//! let FileState::ExistsDiff { diff, .. } = file.state else { panic!() };
//! assert_eq!(diff.apply(text.as_bytes())?, text.replace("line 50\n", "changed\n").into_bytes());
//! # Ok(())
//! # }
//! ```

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use piton_runtime::retention::{Bounds, GRACE, Keeper, Kept};
use piton_runtime::{Context, OpenRun, Run, StartAt};
use piton_store::{Bytes, StoreError};
pub use piton_types::CheckpointKind;
use piton_types::{CheckpointRef, Retention};
pub use piton_workspace::{ChangeKind, FileChange};
use piton_workspace::{
    Conflict, ConflictResolution, Entry, Goal, Moment, Plan, Record, RelPath, RestorePlan, Role, Selection,
    SessionOptions, Side, SnapshotReach, TextDiff, Workspace, WorkspaceError, WorkspaceOptions, is_binary,
};

/// How the checkpoints of a folder are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointManagerConfig {
    /// A private folder for what must not be lost with the working folder. The checkpoints themselves are in the store.
    pub storage_path: PathBuf,
    /// How many checkpoints of the folder are kept by [`CheckpointManager::apply_limits`].
    pub max_checkpoints: u32,
    /// How often an agent's files are checkpointed while it works, by [`CheckpointManager::session_options`].
    pub auto_checkpoint_interval: Duration,
    /// How long runs are kept that ended.
    pub retention_policy: Retention,
    /// How many bytes the store may take; 0 for any number, `None` for the default. There is no limit on one checkpoint: it
    /// costs what changed.
    pub max_store_size: Option<u64>,
}

impl Default for CheckpointManagerConfig {
    /// 50 checkpoints, every 5 minutes.
    fn default() -> Self {
        let retention_policy = Retention::default();
        Self {
            storage_path: PathBuf::from(".piton"),
            max_checkpoints: retention_policy.per_workspace,
            auto_checkpoint_interval: Duration::from_secs(300),
            retention_policy,
            max_store_size: None,
        }
    }
}

/// What is restored, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreOptions {
    /// The files.
    pub restore_files: bool,
    /// The run that the checkpoint belongs to goes back to it, with its conversation, and is left paused there.
    pub restore_conversation: bool,
    /// With the conversation: what the run had used by then is what it has used.
    pub restore_token_usage: bool,
    /// Only these paths, and what is in them.
    pub file_filter: Option<Vec<PathBuf>>,
    /// Not these.
    pub exclude_files: Vec<PathBuf>,
    /// Nothing is written.
    pub dry_run: bool,
    /// A checkpoint is made first, so that the restore can be undone. What would be overwritten is always stored first: a
    /// restore with `false` is refused.
    pub backup_before_restore: bool,
}

impl Default for RestoreOptions {
    /// The files and nothing else, with a backup.
    fn default() -> Self {
        Self {
            restore_files: true,
            restore_conversation: false,
            restore_token_usage: false,
            file_filter: None,
            exclude_files: Vec::new(),
            dry_run: false,
            backup_before_restore: true,
        }
    }
}

impl RestoreOptions {
    /// The files and nothing else: what the default is too.
    pub fn files_only() -> Self {
        Self::default()
    }
}

/// What a restore would do.
#[derive(Debug, Clone, Default)]
pub struct RestorePreview {
    /// Files that would be written.
    pub files_to_restore: Vec<PreviewedFile>,
    /// Files that would be deleted.
    pub files_to_delete: Vec<PreviewedFile>,
    /// What another writer changed too. While there is any, nothing is written.
    pub conflicts: Vec<Conflict>,
}

/// One file of a preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewedFile {
    /// Which.
    pub path: PathBuf,
    /// Lines that come, less those that go; 0 if it isn't a text.
    pub line_diff: i64,
}

/// What a restore did.
#[derive(Debug, Clone)]
pub struct RestoreResult {
    /// How many paths were changed.
    pub files_restored: usize,
    /// The entry that records it.
    pub checkpoint: Option<CheckpointRef>,
    /// The checkpoint that was made just before.
    pub backup: Option<CheckpointRef>,
    /// What was done; after a dry run, what would be.
    pub preview: RestorePreview,
}

/// A file in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSnapshot {
    /// Its path in the folder.
    pub path: PathBuf,
    /// Whether it is there, and with what.
    pub state: FileState,
    /// The hash of its content, if it is a file.
    pub content_hash: Option<String>,
    /// Its size.
    pub size: u64,
    /// Its permissions.
    pub permissions: Option<u32>,
    /// Where it leads, if it is a symbolic link.
    pub link: Option<PathBuf>,
}

/// What a checkpoint has of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// A file with this content; of a link or a folder it is empty.
    Exists {
        /// The content.
        content: Bytes,
    },
    /// A text of which less than half differs from that of another checkpoint. The store has both whole: this is how it is
    /// told.
    ExistsDiff {
        /// The hash of the other's content.
        base_hash: String,
        /// What differs.
        diff: TextDiff,
    },
    /// Nothing is there.
    NotExists,
}

/// Checkpoints of one working folder.
#[derive(Debug, Clone)]
pub struct CheckpointManager {
    context: Context,
    workspace: Workspace,
    config: CheckpointManagerConfig,
}

impl CheckpointManager {
    /// For `folder`, an absolute path that is no link.
    pub fn new(context: &Context, folder: &Path, config: CheckpointManagerConfig) -> Result<Self, WorkspaceError> {
        let options = WorkspaceOptions {
            state: config.storage_path.clone(),
            budget: config.max_store_size,
            ..WorkspaceOptions::default()
        };
        Ok(Self { context: context.clone(), workspace: Workspace::open(context, folder, options)?, config })
    }

    /// The folder, with everything else that can be done with it.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// How often an agent is checkpointed, for [`Session::run_with_checkpoints`](crate::files::Session::run_with_checkpoints).
    pub fn session_options(&self) -> SessionOptions {
        SessionOptions { at_least: self.config.auto_checkpoint_interval, ..SessionOptions::default() }
    }

    /// Makes a checkpoint of the folder. It is durable when this returns.
    pub async fn create_checkpoint(
        &self,
        kind: CheckpointKind,
        description: Option<String>,
    ) -> Result<CheckpointRef, WorkspaceError> {
        let record = Record::new(kind, Role::Saved, description.unwrap_or_default());
        Ok(self.workspace.save(record, &Arc::default()).await?.checkpoint)
    }

    /// The checkpoints of the folder, oldest first, without those that were removed.
    pub async fn list_checkpoints(&self) -> Result<Vec<Moment>, WorkspaceError> {
        let mut moments = self.workspace.timeline().await?.moments;
        moments.retain(|moment| !moment.removed);
        Ok(moments)
    }

    /// What a restore of all files would do. Nothing is stored.
    pub async fn preview_restore(&self, checkpoint: &CheckpointRef) -> Result<RestorePreview, WorkspaceError> {
        let planned = self.plan(checkpoint, piton_workspace::RestoreOptions::default()).await?;
        self.preview(&planned.plan).await
    }

    /// Restores what the options say. Texts that another writer changed too are merged; with conflicts beyond that, nothing
    /// is written.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::Store`] with `Unsupported` for a restore without a backup.
    pub async fn restore(
        &self,
        checkpoint: &CheckpointRef,
        options: RestoreOptions,
    ) -> Result<RestoreResult, WorkspaceError> {
        if !options.backup_before_restore && !options.dry_run {
            let (store, what) = ("this workspace", "restore without a backup");
            return Err(StoreError::Unsupported { store, what }.into());
        }
        let paths = |paths: &[PathBuf]| paths.iter().map(|path| relative(path)).collect::<Result<Vec<_>, _>>();
        let selection = Selection {
            only: paths(options.file_filter.as_deref().unwrap_or_default())?,
            not: paths(&options.exclude_files)?,
        };
        let nothing = RestoreResult { files_restored: 0, checkpoint: None, backup: None, preview: Default::default() };
        let own = piton_workspace::RestoreOptions { selection, ..Default::default() };
        let planned = if options.restore_files { Some(self.plan(checkpoint, own).await?) } else { None };
        if options.dry_run {
            let preview = match &planned {
                Some(planned) => self.preview(&planned.plan).await?,
                None => RestorePreview::default(),
            };
            return Ok(RestoreResult { preview, ..nothing });
        }
        // The folder's own checkpoints belong to no run that could go back.
        if options.restore_conversation && checkpoint.run != self.workspace.run() {
            let (id, at) = (Some(checkpoint.run.clone()), StartAt::Entry(checkpoint.seq));
            let usage_back = options.restore_token_usage;
            let run = Run::open(&self.context, OpenRun { id, existing: true, at, usage_back, ..OpenRun::default() });
            run.await?.pause(&format!("put back to {checkpoint}")).await?;
        }
        match planned {
            Some(planned) => self.carry_out(planned).await,
            None => Ok(nothing),
        }
    }

    /// Restores all files, and decides so what another writer changed too.
    pub async fn restore_with_conflicts(
        &self,
        checkpoint: &CheckpointRef,
        resolution: ConflictResolution,
    ) -> Result<RestoreResult, WorkspaceError> {
        let options = piton_workspace::RestoreOptions { resolution, ..Default::default() };
        let planned = self.plan(checkpoint, options).await?;
        self.carry_out(planned).await
    }

    /// What a checkpoint has of a path; as a difference from what `base` has there, if that is less than half.
    pub async fn file_snapshot(
        &self,
        checkpoint: &CheckpointRef,
        path: &Path,
        base: Option<&CheckpointRef>,
    ) -> Result<FileSnapshot, WorkspaceError> {
        let mut file = FileSnapshot {
            path: path.to_owned(),
            state: FileState::NotExists,
            content_hash: None,
            size: 0,
            permissions: None,
            link: None,
        };
        let Some(entry) = self.entry(checkpoint, path).await? else { return Ok(file) };
        let content = self.workspace.read(&entry).await?.unwrap_or_default();
        match &entry {
            Entry::File { mode, size, content } => {
                (file.permissions, file.size) = (Some(u32::from(*mode)), *size);
                file.content_hash = Some(content.id().to_string());
            }
            Entry::Folder { mode, .. } => file.permissions = Some(u32::from(*mode)),
            Entry::Link { target } => file.link = Some(PathBuf::from(std::ffi::OsStr::from_bytes(target))),
            Entry::Excluded(_) => return Ok(file),
        }
        if let Some(base) = base
            && let Some(Entry::File { content: before, size, mode }) = self.entry(base, path).await?
        {
            let old = self.workspace.read(&Entry::File { content: before, size, mode }).await?.unwrap_or_default();
            let diff = TextDiff::compute(&old, &content);
            if !is_binary(&old) && !is_binary(&content) && diff.to_string().len() < content.len() / 2 {
                file.state = FileState::ExistsDiff { base_hash: before.id().to_string(), diff };
                return Ok(file);
            }
        }
        file.state = FileState::Exists { content };
        Ok(file)
    }

    /// Removes what is over the limits, evenly by age; never the first, the last, or what another needs. It looks at the
    /// whole store, as `piton gc` does.
    pub async fn apply_limits(&self) -> Result<Kept, WorkspaceError> {
        let policy = Retention { per_workspace: self.config.max_checkpoints, ..self.config.retention_policy.clone() };
        let keeper = Keeper { context: &self.context, policy, grace: GRACE, reach: &SnapshotReach };
        Ok(keeper.carry_out(&keeper.plan().await?, Bounds::NONE).await?)
    }

    async fn moment(&self, checkpoint: &CheckpointRef) -> Result<Moment, WorkspaceError> {
        let mut timeline = self.workspace.timeline().await?;
        match timeline.find(checkpoint) {
            Some(place) => Ok(timeline.moments.swap_remove(place)),
            None => Err(StoreError::NotFound { what: format!("checkpoint {checkpoint} of this folder") }.into()),
        }
    }

    async fn entry(&self, checkpoint: &CheckpointRef, path: &Path) -> Result<Option<Entry>, WorkspaceError> {
        self.workspace.entry(self.moment(checkpoint).await?.snapshot, relative(path)?).await
    }

    async fn plan(
        &self,
        checkpoint: &CheckpointRef,
        options: piton_workspace::RestoreOptions,
    ) -> Result<RestorePlan, WorkspaceError> {
        let (timeline, goal) = (self.workspace.timeline().await?, Goal::Checkpoint(checkpoint.clone()));
        self.workspace.plan_restore(&timeline, &goal, &options, &Arc::default()).await
    }

    async fn carry_out(&self, planned: RestorePlan) -> Result<RestoreResult, WorkspaceError> {
        let preview = self.preview(&planned.plan).await?;
        let done = self.workspace.restore(planned, &Arc::default()).await?;
        let (files_restored, checkpoint, backup) = (done.files_restored, done.checkpoint, done.backup);
        Ok(RestoreResult { files_restored, checkpoint, backup, preview })
    }

    async fn preview(&self, plan: &Plan) -> Result<RestorePreview, WorkspaceError> {
        let mut preview = RestorePreview { conflicts: plan.conflicts.clone(), ..RestorePreview::default() };
        for change in &plan.changes {
            let delta = self.workspace.line_delta(plan, change).await?.unwrap_or_default();
            let count = |lines: usize| i64::try_from(lines).unwrap_or(i64::MAX);
            let line_diff = count(delta.added) - count(delta.removed);
            let file = PreviewedFile { path: change.path.as_path().to_owned(), line_diff };
            match change.then {
                Some(_) => preview.files_to_restore.push(file),
                None => preview.files_to_delete.push(file),
            }
        }
        Ok(preview)
    }
}

fn relative(path: &Path) -> Result<RelPath, WorkspaceError> {
    Ok(RelPath::new(path.as_os_str().as_bytes())?)
}

/// Finds what changed in a folder.
#[derive(Debug, Clone)]
pub struct ChangeDetector {
    manager: CheckpointManager,
}

impl ChangeDetector {
    /// For the folder of this manager.
    pub fn new(manager: &CheckpointManager) -> Self {
        Self { manager: manager.clone() }
    }

    /// What changed from a checkpoint to the folder as it is now.
    pub async fn detect_changes(&self, since: &CheckpointRef) -> Result<Vec<FileChange>, WorkspaceError> {
        let old = self.manager.moment(since).await?.snapshot;
        Ok(self.manager.workspace.detect_changes(old, Side::Now, &Arc::default()).await?.changes)
    }
}
