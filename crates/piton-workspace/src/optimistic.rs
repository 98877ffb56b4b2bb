//! Optimistic writes: read a file, work on it, and write it only if it is still what was read (W10).
//!
//! The new content waits in a file beside it, on disk, and takes its place by one exchange; what comes out is compared
//! with what was read. If it is something else, the two are exchanged back and both versions are given to the caller
//! with a merge of them. Writers of this kind take turns by the workspace's lock, so among them nothing is ever
//! lost, and with a grant the fence is compared under the lock of the reservations.
//!
//! What remains open is what the system has no means for. A process that writes without asking, through a descriptor
//! that it opened before the exchange, and after the old content was compared, writes into a file that has no name any
//! more. And between an exchange and the one back, which is the time of reading one file, others see the new content.
//!
//! A writer who is killed leaves the waiting file behind. Its name says what it holds, so the next writer of that
//! path knows whether it is the content whose write was never acknowledged, or the old one (both are removed), or
//! something that another process wrote at that very moment: that is kept as `NAME.recovered` and reported.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use piton_types::BlobId;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::merge::{MergeOptions, Merged, merge};
use crate::reservation::{ReservationError, Reservations, WriteRight};
use crate::restore::{ContestedText, Resolver};
use crate::system::{self, name};
use crate::workspace::blocking;
use crate::{RelPath, Workspace, WorkspaceError};

/// What the names of waiting files begin with; scans leave them out.
const WAITING: &[u8] = b".piton-tmp-w-";

/// A file as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    /// Which.
    pub path: RelPath,
    /// The hash of its content; `None` if there was no file.
    pub hash: Option<BlobId>,
    /// When it was modified, in nanoseconds since 1970.
    pub mtime: i64,
    /// Its content; empty if there was no file.
    pub content: Bytes,
}

/// Why a write was not made. The file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// It isn't what was read any more.
    #[error("{} was changed by another program", conflict.current.path)]
    Conflict {
        /// Both versions, and what could become of them.
        conflict: Box<WriteConflict>,
    },
    /// It isn't ours to write.
    #[error(transparent)]
    Reserved(#[from] ReservationError),
    /// It is a folder, a link, a device.
    #[error("{path} is no regular file")]
    NoFile {
        /// Which.
        path: RelPath,
    },
    /// The workspace failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

/// Two versions that began as one.
#[derive(Debug, Clone)]
pub struct WriteConflict {
    /// What was read.
    pub base: FileVersion,
    /// What is there now; to write on top of it, commit with this version.
    pub current: FileVersion,
    /// What was to be written.
    pub ours: Bytes,
    /// Both in one, with markers where they are in each other's way; `None` if they aren't texts, or one of the two
    /// is gone.
    pub merged: Option<Merged>,
}

impl WriteConflict {
    /// Asks a resolver for one text of both (W11). `intent` says what this writer was after, and `other` what is known of the
    /// one that was first. What it answers is checked; to write it, commit with `current`.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn resolve(&self, resolver: &dyn Resolver, intent: &str, other: &str) -> Result<Vec<u8>, String> {
        let contested = ContestedText {
            path: self.current.path.clone(),
            base: self.base.content.clone(),
            current: self.current.content.clone(),
            checkpoint: self.ours.clone(),
            current_intent: other.to_owned(),
            checkpoint_intent: intent.to_owned(),
        };
        contested.answer(resolver)
    }
}

/// What a write did.
#[derive(Debug, Clone)]
pub struct Written {
    /// The file as it is now.
    pub version: FileVersion,
    /// Files that a writer who was killed had left, with content that is stored nowhere else.
    pub recovered: Vec<RelPath>,
}

/// Reads files and writes them only if they are still what was read.
#[derive(Debug, Clone)]
pub struct OptimisticLock {
    workspace: Workspace,
    reservations: Option<(Reservations, WriteRight)>,
}

impl Workspace {
    /// Optimistic writes in this folder.
    pub fn optimistic(&self) -> OptimisticLock {
        OptimisticLock { workspace: self.clone(), reservations: None }
    }
}

impl OptimisticLock {
    /// Writes only by this right, too.
    #[must_use]
    pub fn by(mut self, reservations: &Reservations, right: impl Into<WriteRight>) -> Self {
        self.reservations = Some((reservations.clone(), right.into()));
        self
    }

    /// Reads a file, or finds that there is none.
    pub async fn acquire(&self, path: &RelPath) -> Result<FileVersion, WriteError> {
        let (workspace, path) = (self.workspace.clone(), path.clone());
        run(move || version(&workspace, &path)).await
    }

    /// Writes `content` if the file is still that version. When it returns, the new content is on disk.
    pub async fn check_and_commit(&self, base: &FileVersion, content: impl Into<Bytes>) -> Result<Written, WriteError> {
        let lock = self.workspace.lock(&Arc::default()).await?;
        self.workspace.refuse_unfinished()?;
        let (this, base, content) = (self.clone(), base.clone(), content.into());
        run(move || {
            let _lock = lock;
            let held = this.reservations.as_ref().map(|(book, right)| book.hold(&base.path, right)).transpose()?;
            let written = Commit::new(&this.workspace, &base, &content)?.carry_out();
            drop(held);
            written
        })
        .await
    }
}

/// Does work that waits for the disk on a thread of its own.
async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WriteError> + Send + 'static,
) -> Result<T, WriteError> {
    blocking(move || Ok(work())).await?
}

/// The file as it is now.
fn version(workspace: &Workspace, path: &RelPath) -> Result<FileVersion, WriteError> {
    let fail = |error: std::io::Error| WorkspaceError::file("read", workspace.root().join(path.as_path()), error);
    let (parent, entry) = path.split().ok_or_else(|| WriteError::NoFile { path: path.clone() })?;
    let absent = || FileVersion { path: path.clone(), hash: None, mtime: 0, content: Bytes::new() };
    let folder = match system::open_below(&workspace.0.folder, &parent) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(absent()),
        Err(error) => return Err(fail(error.into()).into()),
    };
    match read(workspace, &folder, entry, path) {
        Ok(None) => Ok(absent()),
        Ok(Some(version)) => Ok(version),
        Err(error) => Err(error),
    }
}

fn read(
    workspace: &Workspace,
    folder: &OwnedFd,
    entry: &[u8],
    path: &RelPath,
) -> Result<Option<FileVersion>, WriteError> {
    let fail = |error: std::io::Error| WorkspaceError::file("read", workspace.root().join(path.as_path()), error);
    let file = match system::open_file(folder, entry) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(WriteError::NoFile { path: path.clone() }),
        Err(error) => return Err(fail(error.into()).into()),
    };
    let stat = system::stat_of(&file).map_err(|error| fail(error.into()))?;
    if !crate::cache::is_file(&stat) {
        return Err(WriteError::NoFile { path: path.clone() });
    }
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut std::fs::File::from(file), &mut content).map_err(fail)?;
    let hash = Some(BlobId::new(*blake3::hash(&content).as_bytes()));
    Ok(Some(FileVersion { path: path.clone(), hash, mtime: stat.mtime, content: content.into() }))
}

/// One write.
struct Commit<'a> {
    workspace: &'a Workspace,
    base: &'a FileVersion,
    content: &'a Bytes,
    folder: OwnedFd,
    /// The file's name in its folder.
    entry: Vec<u8>,
    /// The name of the waiting file.
    waiting: Vec<u8>,
    hash: BlobId,
}

/// The short form of a hash in the name of a waiting file.
fn short(hash: Option<BlobId>) -> String {
    hash.map_or_else(|| "none".to_owned(), |hash| hash.to_string().chars().take(16).collect())
}

impl<'a> Commit<'a> {
    fn new(workspace: &'a Workspace, base: &'a FileVersion, content: &'a Bytes) -> Result<Self, WriteError> {
        let (parent, entry) = base.path.split().ok_or_else(|| WriteError::NoFile { path: base.path.clone() })?;
        let root = &workspace.0.folder;
        let fail = |error: Errno| WorkspaceError::file("open", workspace.root().join(parent.as_path()), error);
        let folder = match system::open_below(root, &parent) {
            Err(Errno::NOENT) if base.hash.is_none() => {
                let mut here = system::open_below(root, &RelPath::default()).map_err(fail)?;
                for part in parent.names() {
                    match rustix::fs::mkdirat(&here, name(part), Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(fail(error).into()),
                    }
                    here = system::open_folder(&here, part).map_err(fail)?;
                }
                here
            }
            // Its folder is gone, and the file with it.
            Err(Errno::NOENT) => system::open_below(root, &RelPath::default()).map_err(fail)?,
            other => other.map_err(fail)?,
        };
        let hash = BlobId::new(*blake3::hash(content).as_bytes());
        let whose = blake3::hash(entry).to_hex();
        let waiting =
            [WAITING, format!("{}-{}-{}", &whose[..16], short(Some(hash)), short(base.hash)).as_bytes()].concat();
        Ok(Self { workspace, base, content, folder, entry: entry.to_vec(), waiting, hash })
    }

    fn fail(&self, error: impl Into<std::io::Error>) -> WriteError {
        WorkspaceError::file("write", self.workspace.root().join(self.base.path.as_path()), error).into()
    }

    fn carry_out(&self) -> Result<Written, WriteError> {
        let recovered = self.clear()?;
        let current = version(self.workspace, &self.base.path)?;
        if current.hash != self.base.hash {
            return Err(self.conflict(current));
        }
        self.wait_beside()?;
        let flags = if self.base.hash.is_some() { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        let moved =
            rustix::fs::renameat_with(&self.folder, name(&self.waiting), &self.folder, name(&self.entry), flags);
        match moved {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::EXIST) => {
                self.remove()?;
                return Err(self.conflict(version(self.workspace, &self.base.path)?));
            }
            Err(error) => {
                self.remove()?;
                return Err(self.fail(error));
            }
        }
        if self.base.hash.is_some() {
            let out = read(self.workspace, &self.folder, &self.waiting, &self.base.path);
            if !matches!(&out, Ok(Some(out)) if out.hash == self.base.hash) {
                // Another process wrote to it this very moment: it goes back.
                rustix::fs::renameat_with(
                    &self.folder,
                    name(&self.waiting),
                    &self.folder,
                    name(&self.entry),
                    RenameFlags::EXCHANGE,
                )
                .map_err(|error| self.fail(error))?;
                self.remove()?;
                return Err(self.conflict(version(self.workspace, &self.base.path)?));
            }
            self.remove()?;
        }
        self.sync_folder()?;
        let version = version(self.workspace, &self.base.path)?;
        let version = FileVersion { hash: Some(self.hash), content: self.content.clone(), ..version };
        Ok(Written { version, recovered })
    }

    /// Writes the new content into the waiting file, with the permissions of the old one.
    fn wait_beside(&self) -> Result<(), WriteError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, name(&self.waiting), flags, Mode::from_raw_mode(0o666))
            .map_err(|error| self.fail(error))?;
        if let Ok(old) = system::stat(&self.folder, &self.entry) {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(old.mode.into())).map_err(|error| self.fail(error))?;
        }
        let mut file = std::fs::File::from(file);
        let written = std::io::Write::write_all(&mut file, self.content).and_then(|()| file.sync_all());
        written.map_err(|error| {
            // A disk that is full leaves nothing behind.
            let _ = self.remove();
            self.fail(error)
        })
    }

    fn remove(&self) -> Result<(), WriteError> {
        match rustix::fs::unlinkat(&self.folder, name(&self.waiting), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    fn sync_folder(&self) -> Result<(), WriteError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(self.folder.as_fd(), ".", flags, Mode::empty());
        folder.and_then(rustix::fs::fsync).map_err(|error| self.fail(error))
    }

    fn conflict(&self, current: FileVersion) -> WriteError {
        let options = MergeOptions { theirs: b"disk".to_vec(), ..MergeOptions::default() };
        let both = self.base.hash.is_some() && current.hash.is_some();
        let merged = both.then(|| merge(&self.base.content, self.content, &current.content, &options).ok()).flatten();
        let conflict = WriteConflict { base: self.base.clone(), current, ours: self.content.clone(), merged };
        WriteError::Conflict { conflict: Box::new(conflict) }
    }

    /// Clears away what writers of this path who were killed have left. Content that is stored nowhere else is kept.
    fn clear(&self) -> Result<Vec<RelPath>, WriteError> {
        let whose = blake3::hash(&self.entry).to_hex();
        let mine = [WAITING, &whose.as_bytes()[..16], b"-"].concat();
        let mut recovered = Vec::new();
        for left in system::names(&self.folder).map_err(|error| self.fail(error))? {
            let Some(hashes) = left.strip_prefix(&mine[..]).and_then(|rest| std::str::from_utf8(rest).ok()) else {
                continue;
            };
            // A file that isn't whole has neither hash; it was never acknowledged and never in its place.
            let known = match read(self.workspace, &self.folder, &left, &self.base.path)? {
                None => continue,
                Some(found) => hashes.split('-').any(|hash| hash == short(found.hash)),
            };
            let in_place = version(self.workspace, &self.base.path)?;
            let exchanged = hashes.split('-').next() == Some(&short(in_place.hash)[..]);
            if known || !exchanged {
                rustix::fs::unlinkat(&self.folder, name(&left), AtFlags::empty()).map_err(|error| self.fail(error))?;
                continue;
            }
            recovered.push(self.keep(&left)?);
        }
        Ok(recovered)
    }

    /// Gives a file that would have been lost a name that people find.
    fn keep(&self, left: &[u8]) -> Result<RelPath, WriteError> {
        for number in 0_u32.. {
            let suffix = if number == 0 { ".recovered".to_owned() } else { format!(".recovered-{number}") };
            let kept = [&self.entry[..], suffix.as_bytes()].concat();
            match rustix::fs::renameat_with(&self.folder, name(left), &self.folder, name(&kept), RenameFlags::NOREPLACE)
            {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(self.fail(error)),
                Ok(()) => {
                    let (parent, _) = self.base.path.split().unwrap_or_default();
                    return Ok(parent.join(&kept));
                }
            }
        }
        unreachable!("there are more numbers than files")
    }
}
