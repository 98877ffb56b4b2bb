//! Noticing that files change, by inotify. It only says *that* something changed; what it was is for the
//! scan to find, so a lost or foreign event costs at most a look.

use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use piton_types::BlobId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;
use tokio::sync::Notify;

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

impl Watcher {
    /// `None` if the system can't watch at all.
    pub(crate) fn new() -> Option<Self> {
        let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let inner = Arc::new(Inner { inotify, changed: Notify::new() });
        let listened = Arc::downgrade(&inner);
        std::thread::Builder::new().name("piton-watch".to_owned()).spawn(move || listen(&listened)).ok()?;
        Some(Self { inner, watched: HashSet::new(), exhausted: false })
    }

    /// Watches every folder of a tree that isn't watched yet.
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
            for folder in folders {
                if self.exhausted || self.watched.contains(&folder) {
                    continue;
                }
                match add_watch(&self.inner.inotify, root.join(folder.as_path()), EVENTS) {
                    Ok(_) => drop(self.watched.insert(folder)),
                    Err(Errno::NOSPC | Errno::NOMEM) => self.exhausted = true,
                    // Gone meanwhile, or not ours to see: its parent tells.
                    Err(_) => {}
                }
            }
            Ok(self)
        })
        .await
    }

    /// Waits for a change, or for the time to pass; true if something changed since the last call.
    pub(crate) async fn wait(&self, timeout: Duration) -> bool {
        tokio::time::timeout(timeout, self.inner.changed.notified()).await.is_ok()
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
            while events.next().is_ok() {}
            inner.changed.notify_one();
        }
    }
}
