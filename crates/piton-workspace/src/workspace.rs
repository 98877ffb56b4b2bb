//! A folder under checkpoints: where it is, what belongs to it outside the folder, and who may work on it.
//!
//! Outside means a private folder beside the store, with the stat cache, the lock, and the mark of a
//! restore that is under way. Saving and restoring take the lock, so two of them never interleave.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use piton_log::{ContentReader, RunLog};
use piton_runtime::{Context, LeaseOptions, LeaseWatch, RunError, Standing as Holding, folder_log};
use piton_store::{Store, StoreError};
use piton_types::{RunId, Timestamp};
use tokio::runtime::Handle;

use crate::cache::Binding;
use crate::git_folder::GitFolder;
use crate::rules::OuterRules;
use crate::scan::Progress;
use crate::state::State;
use crate::threads::Threads;
use crate::tree::{KeptNodes, StoredNodes};
use crate::{RelPath, WorkspaceError, system};

/// The file that marks a restore which is under way.
pub(crate) const MARK: &str = "restoring";

/// How often a caller that waits for a while looks again.
const PAUSE: Duration = Duration::from_millis(20);

/// How a folder is to be treated.
#[derive(Debug, Clone, Default)]
pub struct WorkspaceOptions {
    /// A private folder for what must not be lost with the workspace: made if it isn't there.
    pub state: PathBuf,
    /// Files and folders of the store. Those inside the workspace are left out of snapshots, and so is what has
    /// their name and a dash behind it, as in `store.db-wal`.
    pub own: Vec<PathBuf>,
    /// Ignore rules from outside the folder.
    pub outer: OuterRules,
    /// Capture what ignore files hide.
    pub include_ignored: bool,
    /// The user's home, which is refused as a workspace unless `wide` is set.
    pub home: Option<PathBuf>,
    /// Accept the home folder or the root of the file system.
    pub wide: bool,
    /// Go by ignore files that suddenly hide most of what was captured.
    pub new_rules: bool,
    /// How many bytes the store may take; 0 for any number, `None` for the default.
    pub budget: Option<u64>,
    /// The path by which the store knows the folder, if it isn't where the folder is now: the one at which it was first.
    pub known_as: Option<PathBuf>,
    /// Which machine this is, if the store is shared by several: it stands before the folder's path in the name by which runs
    /// know the folder, so that two machines with the same path keep their own history.
    pub machine: Option<String>,
    /// How long to wait for another process that works on the folder; without it, until that process is done.
    pub patience: Option<Duration>,
    /// Only look: nothing beside the store is made or changed, and a restore that was cut short stays as it is.
    pub looks: bool,
    /// Where the folder was before it was moved. What was done there is part of its history.
    pub before: Vec<PathBuf>,
}

/// A folder under checkpoints. Cloning is cheap.
#[derive(Clone)]
pub struct Workspace(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) context: Context,
    pub(crate) root: PathBuf,
    pub(crate) folder: OwnedFd,
    pub(crate) state: State,
    pub(crate) binding: Binding,
    pub(crate) own: Vec<RelPath>,
    pub(crate) options: WorkspaceOptions,
    nodes: Arc<KeptNodes>,
    pub(crate) threads: Threads,
}

impl Workspace {
    /// A workspace in `root`, an absolute path that is no link.
    pub fn open(context: &Context, root: &Path, options: WorkspaceOptions) -> Result<Self, WorkspaceError> {
        let (store, context) = (Arc::clone(&context.store), context.clone());
        Self::accepts(root, options.home.as_deref(), options.wide)?;
        let fail = |error| WorkspaceError::file("open", root, error);
        let folder = system::open_root(root).map_err(fail)?;
        let stat = system::stat_of(&folder).map_err(fail)?;
        let state = State::open(&options.state, root, &folder, options.looks)
            .map_err(|error| WorkspaceError::file("open", &options.state, error))?;
        let mut own = Vec::new();
        for path in options.own.iter().chain([&options.state]) {
            if let Ok(inside) = path.strip_prefix(root) {
                own.push(RelPath::new(inside.as_os_str().as_bytes())?);
            }
        }
        if own.iter().any(RelPath::is_root) {
            return Err(WorkspaceError::Root { root: root.to_owned(), reason: "where the store itself is kept" });
        }
        let mut rules = blake3::Hasher::new();
        rules.update(&options.outer.fingerprint()).update(&[u8::from(options.include_ignored)]);
        own.iter().for_each(|own| {
            rules.update(own.as_bytes()).update(b"\0");
        });
        let binding = Binding {
            hashing: store.hashing().clone(),
            store: *blake3::hash(store.url().as_bytes()).as_bytes(),
            rules: *rules.finalize().as_bytes(),
            root: (stat.dev, stat.ino),
        };
        let (root, nodes, threads) = (root.to_owned(), Arc::default(), Threads::new(root.to_owned()));
        Ok(Self(Arc::new(Inner { store, context, root, folder, state, binding, own, options, nodes, threads })))
    }

    /// Whether a folder may be a workspace: a caller that makes a store for it asks before.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::Root`] if it isn't an absolute path or is a link, or if it is the root of the file system or the
    /// user's home and `wide` isn't set.
    pub fn accepts(root: &Path, home: Option<&Path>, wide: bool) -> Result<(), WorkspaceError> {
        let refuse = |reason| Err(WorkspaceError::Root { root: root.to_owned(), reason });
        if !root.is_absolute() {
            return refuse("not an absolute path");
        }
        if root.is_symlink() {
            return refuse("a symbolic link");
        }
        if !wide && root.parent().is_none() {
            return refuse("the root of the file system");
        }
        if !wide && home == Some(root) {
            return refuse("your home folder");
        }
        Ok(())
    }

    /// Whether a folder is in a repository of git's, as far as that can be told without running git.
    pub fn is_in_repository(folder: &Path) -> bool {
        GitFolder::of(folder).is_some()
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Whether the folder is still where it was when it was opened. What is done in it may delete it.
    pub fn standing(&self) -> Standing {
        match self.0.root.symlink_metadata() {
            Ok(now) if (now.dev(), now.ino()) == self.0.binding.root => Standing::There,
            Ok(now) if now.is_dir() => Standing::Replaced,
            // What is deleted has no name left.
            _ if rustix::fs::fstat(&self.0.folder).is_ok_and(|stat| stat.st_nlink > 0) => Standing::Moved,
            _ => Standing::Gone,
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// The run that has the checkpoints of this folder which belong to no other run. In an encrypted store its id has
    /// nothing of the folder's name: ids are in clear.
    pub fn run(&self) -> RunId {
        let known_as = self.0.options.known_as.as_ref().unwrap_or(&self.0.root);
        let hashing = self.0.store.hashing();
        let name = known_as.file_name().filter(|_| !hashing.is_keyed()).map_or(&b"files"[..], |name| name.as_bytes());
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let name: String = name.iter().filter(|byte| allowed(byte)).take(32).map(|byte| char::from(*byte)).collect();
        let name = name.trim_start_matches(|first: char| !first.is_ascii_alphanumeric());
        let hash = hashing.blob(self.named(known_as).as_bytes()).to_string();
        let id = format!("{}-{}", if name.is_empty() { "files" } else { name }, &hash[..8]);
        id.parse().expect("letters and digits, a dash and hex")
    }

    /// The folder as runs name it.
    pub(crate) fn folder_text(&self) -> String {
        self.named(&self.0.root).to_string_lossy().into_owned()
    }

    /// A path of this machine as runs name it.
    fn named(&self, path: &Path) -> OsString {
        match &self.0.options.machine {
            Some(machine) => {
                let mut name = OsString::from(format!("{machine}:"));
                name.push(path);
                name
            }
            None => path.as_os_str().to_owned(),
        }
    }

    /// The folder under all the names by which runs know it: where it is, and where it was before it was moved.
    pub(crate) fn folder_names(&self) -> Vec<String> {
        let mut names = vec![self.folder_text()];
        names.extend(self.0.options.before.iter().map(|path| self.named(path).to_string_lossy().into_owned()));
        names
    }

    /// What runs of this folder need from outside.
    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }

    /// Whether a living process drives a run.
    pub async fn is_driven(&self, run: &RunId) -> Result<bool, WorkspaceError> {
        match LeaseWatch::default().look(self.context(), run, LeaseOptions::default().ttl).await {
            Err(RunError::Store(StoreError::NotFound { .. })) => Ok(false),
            standing => Ok(standing? == Holding::Held),
        }
    }

    /// Opens the log of a run, and creates the folder's own if there is none.
    pub(crate) async fn log(&self, run: &RunId) -> Result<RunLog, WorkspaceError> {
        if *run != self.run() {
            return Ok(RunLog::open(Arc::clone(self.store()), run).await?);
        }
        let name = self.0.root.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy());
        Ok(folder_log(self.context(), run, &format!("files of {name}"), &self.folder_text()).await?)
    }

    /// Takes the right to change the folder, or waits for it.
    pub(crate) async fn lock(&self, progress: &Arc<Progress>) -> Result<Lock, WorkspaceError> {
        let (inner, progress) = (Arc::clone(&self.0), Arc::clone(progress));
        blocking(move || {
            let fail = |error| WorkspaceError::file("lock", inner.state.path("lock"), error);
            let file = inner.state.lock_file("lock").map_err(fail)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::Error(error)) => return Err(fail(error)),
                Err(TryLockError::WouldBlock) => {
                    progress.waiting.store(true, Ordering::Relaxed);
                    inner.wait_for("lock", &file)?;
                    progress.waiting.store(false, Ordering::Relaxed);
                }
            }
            Ok(Lock { _file: file })
        })
        .await
    }

    pub(crate) fn reader(&self) -> ContentReader {
        ContentReader::new(Arc::clone(&self.0.store), Handle::current())
    }

    /// The nodes of trees in the store.
    pub(crate) fn nodes(&self) -> StoredNodes {
        StoredNodes::new(self.reader(), Arc::clone(&self.0.nodes))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.context.clock.now()
    }

    /// What the mark of a restore that is under way says, if there is one.
    pub(crate) fn read_mark(&self) -> Result<Option<String>, WorkspaceError> {
        let read =
            self.0.state.read(MARK).map_err(|error| WorkspaceError::file("read", self.0.state.path(MARK), error))?;
        Ok(read.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    /// Whether a restore was cut short, and waits to be finished by [`recover`](Self::recover).
    pub fn is_unfinished(&self) -> Result<bool, WorkspaceError> {
        Ok(self.read_mark()?.is_some())
    }

    /// Waits for a restore that another process is in the middle of; fails if one was cut short.
    pub(crate) async fn settled(&self, progress: &Arc<Progress>) -> Result<(), WorkspaceError> {
        if self.is_unfinished()? {
            let _lock = self.lock(progress).await?;
            self.refuse_unfinished()?;
        }
        Ok(())
    }

    /// Fails if a restore was cut short: what is on disk is neither the old nor the new. The caller has the lock, or
    /// another process may be in the middle of one.
    pub(crate) fn refuse_unfinished(&self) -> Result<(), WorkspaceError> {
        match self.read_mark()? {
            Some(_) => Err(WorkspaceError::Unfinished { root: self.0.root.clone() }),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").field("root", &self.0.root).finish_non_exhaustive()
    }
}

impl Inner {
    /// Waits until a file is locked, for as long as the options say.
    pub(crate) fn wait_for(&self, name: &str, file: &File) -> Result<(), WorkspaceError> {
        let fail = |error| WorkspaceError::file("lock", self.state.path(name), error);
        let Some(patience) = self.options.patience else { return file.lock().map_err(fail) };
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) => return Err(fail(error)),
                Err(TryLockError::WouldBlock) if began.elapsed() < patience => std::thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => {
                    return Err(WorkspaceError::Waited { root: self.root.clone(), waited: patience });
                }
            }
        }
    }
}

/// What has become of a folder that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is where it was.
    There,
    /// Another folder is in its place.
    Replaced,
    /// It is somewhere else.
    Moved,
    /// There is no folder any more.
    Gone,
}

/// The right to change a folder; given back when dropped, or when the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Does work that waits for the disk on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
