//! Noticing that files change, by inotify. It only says *that* something changed; what it was is for the
//! scan to find, so a lost or foreign event costs at most a look.
//!
//! git's own folder is watched apart from the files: a move of HEAD, the index or a ref is noticed as such.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use piton_types::BlobId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::git_folder::GitFolder;
use crate::tree::{Entry, walk};
use crate::workspace::blocking;
use crate::{RelPath, Workspace, WorkspaceError};

/// Watches the folders of a snapshot.
#[derive(Debug)]
pub(crate) struct Watcher {
    inner: Arc<Inner>,
    watched: HashSet<RelPath>,
    /// The system gives no more watches; the timer has to do.
    pub(crate) exhausted: bool,
}

#[derive(Debug)]
struct Inner {
    inotify: OwnedFd,
    changed: Notify,
    /// The watches of git's folders.
    git: Mutex<HashMap<i32, GitPlace>>,
    git_moved: Notify,
}

/// A folder of git's.
#[derive(Debug, Clone, Copy)]
enum GitPlace {
    /// The one with HEAD and the index, and the one with the packed refs.
    Top,
    /// One with refs.
    Refs,
}

impl GitPlace {
    /// Whether a name in it stands for a move of HEAD, the index or a ref. A lock file is none yet.
    fn is_move(self, name: Option<&CStr>) -> bool {
        let name = name.map_or(&b""[..], CStr::to_bytes);
        match self {
            Self::Top => matches!(name, b"HEAD" | b"index" | b"packed-refs"),
            Self::Refs => !name.ends_with(b".lock"),
        }
    }
}

const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW)
    .union(WatchFlags::EXCL_UNLINK);

/// git renames what it has written into its place, or deletes it.
const GIT_EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW)
    .union(WatchFlags::EXCL_UNLINK);

impl Watcher {
    /// `None` if the system can't watch at all.
    pub(crate) fn new() -> Option<Self> {
        let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let (git, git_moved) = (Mutex::default(), Notify::new());
        let inner = Arc::new(Inner { inotify, changed: Notify::new(), git, git_moved });
        let listened = Arc::downgrade(&inner);
        std::thread::Builder::new().name("piton-watch".to_owned()).spawn(move || listen(&listened)).ok()?;
        Some(Self { inner, watched: HashSet::new(), exhausted: false })
    }

    /// Watches every folder of a tree that isn't watched yet, and git's.
    pub(crate) async fn watch(mut self, workspace: &Workspace, tree: BlobId) -> Result<Self, WorkspaceError> {
        let (nodes, root) = (workspace.nodes(), workspace.root().to_owned());
        blocking(move || {
            let mut folders = vec![RelPath::default()];
            walk(&nodes, tree, &RelPath::default(), &mut |path, entry| {
                if matches!(entry, Entry::Folder { .. }) {
                    folders.push(path);
                }
                Ok(())
            })?;
            let (first, mut is_new) = (self.watched.is_empty(), false);
            for folder in folders {
                if self.exhausted || self.watched.contains(&folder) {
                    continue;
                }
                match add_watch(&self.inner.inotify, root.join(folder.as_path()), EVENTS) {
                    Ok(_) => is_new |= self.watched.insert(folder),
                    Err(Errno::NOSPC | Errno::NOMEM) => self.exhausted = true,
                    // Gone meanwhile, or not ours to see: its parent tells.
                    Err(_) => {}
                }
            }
            // What changed in a new folder between its scan and its watch was not noticed.
            if is_new && !first {
                self.inner.changed.notify_one();
            }
            self.watch_git(&root);
            Ok(self)
        })
        .await
    }

    /// Watches git's folders. Where that doesn't work out, the files are watched all the same.
    fn watch_git(&self, root: &Path) {
        let Some(git) = GitFolder::of(root) else { return };
        let mut known = self.inner.git.lock().unwrap_or_else(PoisonError::into_inner);
        let tops = [&git.directory, &git.common].map(|folder| (folder.clone(), GitPlace::Top));
        let refs = git.folders_of_refs().into_iter().map(|folder| (folder, GitPlace::Refs));
        for (folder, place) in tops.into_iter().chain(refs) {
            if let Ok(watch) = add_watch(&self.inner.inotify, folder, GIT_EVENTS) {
                known.insert(watch, place);
            }
        }
    }

    /// Waits for a change, or for the time to pass; true if something changed since the last call.
    pub(crate) async fn wait(&self, timeout: Duration) -> bool {
        tokio::time::timeout(timeout, self.changed()).await.is_ok()
    }

    /// Waits for a change.
    pub(crate) async fn changed(&self) {
        self.inner.changed.notified().await;
    }

    /// Waits for a move of HEAD, the index or a ref.
    pub(crate) async fn git_moved(&self) {
        self.inner.git_moved.notified().await;
    }
}

/// Tells of changes until the watch is dropped.
fn listen(inner: &Weak<Inner>) {
    while let Some(inner) = inner.upgrade() {
        let mut fds = [PollFd::new(&inner.inotify, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        if matches!(poll(&mut fds, Some(&timeout)), Ok(n) if n > 0) {
            let mut buffer = [MaybeUninit::uninit(); 16 << 10];
            let mut events = Reader::new(&inner.inotify, &mut buffer);
            let (mut changed, mut git_moved) = (false, false);
            while let Ok(event) = events.next() {
                let place = inner.git.lock().unwrap_or_else(PoisonError::into_inner).get(&event.wd()).copied();
                match place {
                    Some(place) => git_moved |= place.is_move(event.file_name()),
                    None => changed = true,
                }
            }
            if changed {
                inner.changed.notify_one();
            }
            if git_moved {
                inner.git_moved.notify_one();
            }
        }
    }
}
