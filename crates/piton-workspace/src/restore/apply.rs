//! Carrying a plan out.
//!
//! All new contents are written into one folder inside the root first: a disk that fills up is noticed before
//! anything has changed. Then each path is changed by a rename, which is all or nothing; what was there is
//! exchanged into that folder, and looked at: if it isn't what the backup has (another process wrote to it this very
//! moment), it goes back. So no byte is lost at any point.
//!
//! Everything is synced once, at the end. A power cut before that may leave files that are there in part; each is
//! named by its content while it waits, so the process that goes on can tell those from what another process wrote.
//!
//! Every call names one entry of an open folder and follows no link. Folders are opened from the root with
//! no link on the way, so nothing outside can be reached, whatever the snapshot says or another process does to the
//! tree meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use piton_log::ContentReader;
use piton_store::{Hashing, StoreError};
use piton_types::BlobId;
use rayon::prelude::*;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::plan::PlannedChange;
use crate::content::{self, Piece, Sink, pieces};
use crate::path::TEMPORARY;
use crate::scan::Progress;
use crate::system::{self, name};
use crate::tree::{Content, Entry, PERMISSIONS};
use crate::workspace::Inner;
use crate::{RelPath, WorkspaceError};

/// The folder that contents wait in.
pub(crate) struct Staging<'a> {
    inner: &'a Inner,
    /// Its name in the root.
    pub(crate) name: Vec<u8>,
    folder: OwnedFd,
}

/// How many threads remove files, and how many files are worth one.
const REMOVERS: usize = 8;
const MANY: usize = 64;

/// How a plan went.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) changed: usize,
    /// What could not be changed, and why.
    pub(crate) failed: Vec<(RelPath, String)>,
}

/// The name of the staging folder of the restore with this number.
pub(crate) fn staging_name(tag: &str) -> Vec<u8> {
    [TEMPORARY, tag].concat().into_bytes()
}

impl<'a> Staging<'a> {
    /// Makes the folder.
    pub(crate) fn create(inner: &'a Inner, tag: &str) -> Result<Self, WorkspaceError> {
        let staging = staging_name(tag);
        let fail = |error| WorkspaceError::file("make a folder in", &inner.root, error);
        remove_leftovers(inner, tag)?;
        rustix::fs::mkdirat(&inner.folder, name(&staging), Mode::RWXU).map_err(fail)?;
        let folder = system::open_folder(&inner.folder, &staging).map_err(fail)?;
        Ok(Self { inner, name: staging, folder })
    }

    /// The folder of a restore that goes on.
    pub(crate) fn reopen(inner: &'a Inner, tag: &str) -> Result<Self, WorkspaceError> {
        let staging = staging_name(tag);
        let fail = |error| WorkspaceError::file("open a folder in", &inner.root, error);
        let folder = system::open_folder(&inner.folder, &staging).map_err(fail)?;
        Ok(Self { inner, name: staging, folder })
    }

    /// Writes what the plan needs. If that fails nothing has changed, and nothing is left.
    pub(crate) fn fill(
        &self,
        changes: &[PlannedChange],
        fresh: &HashMap<BlobId, Bytes>,
        times: &HashMap<RelPath, i64>,
        reader: &ContentReader,
        progress: &Progress,
    ) -> Result<(), WorkspaceError> {
        let done = self.write_all(changes, fresh, times, reader, progress);
        if done.is_err() {
            // The first error is the one to tell.
            let _ = self.remove();
        }
        done
    }

    fn write_all(
        &self,
        changes: &[PlannedChange],
        fresh: &HashMap<BlobId, Bytes>,
        times: &HashMap<RelPath, i64>,
        reader: &ContentReader,
        progress: &Progress,
    ) -> Result<(), WorkspaceError> {
        let mut small: HashMap<BlobId, Vec<usize>> = HashMap::new();
        let mut large = Vec::new();
        for (number, change) in changes.iter().enumerate() {
            match &change.then {
                Some(Entry::File { content: Content::Whole(id), .. }) if !is_mode_only(change) => {
                    small.entry(*id).or_default().push(number);
                }
                Some(Entry::File { content: Content::Pieces(_), .. }) if !is_mode_only(change) => large.push(number),
                _ => {}
            }
        }
        let write = |id: BlobId, bytes: &Bytes| -> Result<(), WorkspaceError> {
            small[&id].iter().try_for_each(|number| {
                let file = self.open(*number, id)?;
                let mut file = std::fs::File::from(file);
                let path = &changes[*number].path;
                file.write_all(bytes).map_err(|error| self.fail(path, error))?;
                progress.written.fetch_add(1, Ordering::Relaxed);
                self.finish(&file.into(), &changes[*number], times)
            })
        };
        let mut wanted = Vec::new();
        for id in small.keys() {
            match fresh.get(id) {
                Some(bytes) => write(*id, bytes)?,
                None => wanted.push(*id),
            }
        }
        let packs = reader.by_pack(&wanted)?;
        // An error in writing a file has to pass through the store's reader.
        let failed: Mutex<Option<WorkspaceError>> = Mutex::new(None);
        let outcome = self.inner.threads.run(|| {
            packs.into_par_iter().try_for_each(|(pack, ids)| {
                reader.read(pack, &ids, |id, bytes| {
                    write(id, &bytes).map_err(|error| {
                        let detail = error.to_string();
                        *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                        StoreError::Invalid { what: "a file".to_owned(), detail }
                    })
                })
            })
        })?;
        if let Some(error) = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            return Err(error);
        }
        outcome?;
        large.into_iter().try_for_each(|number| {
            progress.written.fetch_add(1, Ordering::Relaxed);
            self.write_large(number, &changes[number], times, reader)
        })
    }

    fn write_large(
        &self,
        number: usize,
        change: &PlannedChange,
        times: &HashMap<RelPath, i64>,
        reader: &ContentReader,
    ) -> Result<(), WorkspaceError> {
        let Some(Entry::File { size, content, .. }) = change.then else { return Ok(()) };
        let file = std::fs::File::from(self.open(number, content.id())?);
        let fail = |error| self.fail(&change.path, error);
        let mut at = 0;
        for piece in pieces(&reader.get(content.id())?, size)? {
            match piece {
                Piece::Zeros { length } => at += length,
                Piece::Blob { id, length } => {
                    let bytes = reader.get(id)?;
                    if bytes.len() as u64 != length {
                        return Err(crate::TreeError("a piece doesn't have its length").into());
                    }
                    file.write_all_at(&bytes, at).map_err(fail)?;
                    at += length;
                }
            }
        }
        file.set_len(size).map_err(fail)?;
        self.finish(&file.into(), change, times)
    }

    fn open(&self, number: usize, id: BlobId) -> Result<OwnedFd, WorkspaceError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.folder, place(number, id), flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| WorkspaceError::file("write in", &self.inner.root, error))
    }

    fn finish(
        &self,
        file: &OwnedFd,
        change: &PlannedChange,
        times: &HashMap<RelPath, i64>,
    ) -> Result<(), WorkspaceError> {
        let Some(Entry::File { mode, .. }) = change.then else { return Ok(()) };
        let fail = |error: Errno| self.fail(&change.path, error.into());
        rustix::fs::fchmod(file, Mode::from_raw_mode((mode & PERMISSIONS).into())).map_err(fail)?;
        if let Some(at) = times.get(&change.path) {
            let at = Timespec { tv_sec: at.div_euclid(1_000_000_000), tv_nsec: at.rem_euclid(1_000_000_000) };
            rustix::fs::futimens(file, &Timestamps { last_access: at, last_modification: at }).map_err(fail)?;
        }
        Ok(())
    }

    fn fail(&self, path: &RelPath, error: std::io::Error) -> WorkspaceError {
        WorkspaceError::file("write", self.inner.root.join(path.as_path()), error)
    }

    /// Waits until everything written so far is on disk.
    pub(crate) fn sync(&self) -> Result<(), WorkspaceError> {
        let fail = |error| WorkspaceError::file("sync", &self.inner.root, error);
        // The descriptor of the root is only for looking things up, and can't be synced.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(&self.inner.folder, ".", flags, Mode::empty()).map_err(fail)?;
        rustix::fs::syncfs(root).map_err(fail)
    }

    /// Changes every path. What can't be changed is told, and the rest goes on.
    pub(crate) fn apply(&self, changes: &[PlannedChange], hashing: &Hashing) -> Result<Applied, WorkspaceError> {
        let mut work = Work {
            staging: self,
            sink: Named(hashing),
            folders: HashMap::new(),
            opened: BTreeMap::new(),
            widened: 0,
            applied: Applied::default(),
        };
        let numbered = || changes.iter().enumerate();
        let is_folder = |entry: &Option<Entry>| matches!(entry, Some(Entry::Folder { .. }));
        // What goes, from the innermost; then folders that come, from the outermost; then files; then the
        // permissions of folders, which may forbid all that.
        for (number, change) in numbered().rev() {
            let replaced_by_folder = is_folder(&change.then) && !is_folder(&change.now);
            if change.now.is_some()
                && (change.then.is_none() || replaced_by_folder || is_folder(&change.now) && !is_folder(&change.then))
            {
                work.attempt(&change.path, |work| work.take_away(number, change));
            }
        }
        for (_, change) in numbered().filter(|(_, change)| is_folder(&change.then) && !is_folder(&change.now)) {
            work.attempt(&change.path, |work| work.make_folder(&change.path));
        }
        for (number, change) in numbered().filter(|(_, change)| change.then.is_some() && !is_folder(&change.then)) {
            work.attempt(&change.path, |work| work.put(number, change));
        }
        for (_, change) in numbered().rev() {
            if let Some(Entry::Folder { mode, .. }) = change.then {
                work.attempt(&change.path, |work| work.set_folder_mode(&change.path, mode));
            }
        }
        work.close_folders();
        let mut applied = work.applied;
        applied.failed.sort();
        applied.failed.dedup_by(|a, b| a.0 == b.0);
        applied.changed = changes.len() - applied.failed.len();
        Ok(applied)
    }

    /// Removes the folder and what is left in it: contents that the backup or the result has.
    pub(super) fn remove(&self) -> Result<(), WorkspaceError> {
        remove_staging(self.inner, &self.name)
    }
}

/// Removes a staging folder with everything in it.
pub(crate) fn remove_staging(inner: &Inner, staging: &[u8]) -> Result<(), WorkspaceError> {
    let fail = |error| WorkspaceError::file("remove what was left in", &inner.root, error);
    let folder = match system::open_folder(&inner.folder, staging) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(fail(error)),
    };
    let entries = system::names(&folder).map_err(fail)?;
    let remove_all = |entries: &[Vec<u8>]| {
        entries.iter().try_for_each(|entry| match rustix::fs::unlinkat(&folder, name(entry), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(fail(error)),
        })
    };
    // Some file systems give the space of each file back to the disk at once, and wait for that: then threads that
    // wait side by side take a third of the time.
    let (own, others) = entries.split_at(entries.len().div_ceil(REMOVERS).max(MANY).min(entries.len()));
    std::thread::scope(|scope| {
        // A share for which there is no thread is done here.
        let start = |share| {
            let work = move || remove_all(share);
            std::thread::Builder::new().spawn_scoped(scope, work).map_err(|_| share)
        };
        let others: Vec<_> = others.chunks(own.len().max(1)).map(start).collect();
        others.into_iter().fold(remove_all(own), |removed, other| {
            removed.and(match other {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(share) => remove_all(share),
            })
        })
    })?;
    rustix::fs::unlinkat(&inner.folder, name(staging), AtFlags::REMOVEDIR).map_err(fail)
}

/// Removes what earlier restores from this store may have left: the power went while it was being removed, and has
/// brought it back. Only to be called by the process that has the lock, with no restore under way.
fn remove_leftovers(inner: &Inner, tag: &str) -> Result<(), WorkspaceError> {
    let fail = |error| WorkspaceError::file("read", &inner.root, error);
    let store = tag.rsplit('-').next().unwrap_or(tag).as_bytes();
    for entry in system::names(&inner.folder).map_err(fail)? {
        let of_store = entry.strip_prefix(TEMPORARY.as_bytes()).and_then(|rest| rest.strip_suffix(store));
        if of_store.is_some_and(|number| number.ends_with(b"-")) {
            remove_staging(inner, &entry)?;
        }
    }
    Ok(())
}

/// The name of a waiting content.
fn place(number: usize, id: BlobId) -> String {
    format!("w{number}-{id}")
}

/// The content that waits, or waited, under a name in the staging folder.
pub(super) fn content_of(place: &[u8]) -> Option<BlobId> {
    std::str::from_utf8(place.strip_prefix(b"w")?).ok()?.split_once('-')?.1.parse().ok()
}

/// The name under which a folder's permissions are written down, to be read as a link.
const WIDENED: &[u8] = b"m";

/// The permissions that a folder had before they were widened, if the name says so.
pub(super) fn widened_from(place: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(place.strip_prefix(WIDENED)?).ok()?;
    u16::from_str_radix(text.split_once('-')?.1, 8).ok()
}

/// Only the permissions of a file change.
fn is_mode_only(change: &PlannedChange) -> bool {
    match (&change.now, &change.then) {
        (Some(Entry::File { size, content, .. }), Some(Entry::File { size: s, content: c, .. })) => {
            (size, content) == (s, c)
        }
        _ => false,
    }
}

/// Contents are only named.
pub(crate) struct Named<'a>(pub(crate) &'a Hashing);

impl Sink for Named<'_> {
    fn hashing(&self) -> &Hashing {
        self.0
    }

    fn content(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError> {
        Ok(self.0.blob(bytes))
    }

    fn node(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError> {
        Ok(self.0.blob(bytes))
    }
}

struct Work<'a> {
    staging: &'a Staging<'a>,
    sink: Named<'a>,
    /// Folders that are open, by path.
    folders: HashMap<RelPath, OwnedFd>,
    /// Folders whose permissions were widened, and what they were.
    opened: BTreeMap<RelPath, u16>,
    /// How often that was done.
    widened: usize,
    applied: Applied,
}

/// Why a change could not be made.
enum Failed {
    System(Errno),
    Changed,
    Unreadable,
    Store(WorkspaceError),
}

impl From<Errno> for Failed {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

/// How many folders are kept open.
const OPEN_FOLDERS: usize = 64;

impl Work<'_> {
    fn attempt(&mut self, path: &RelPath, change: impl Fn(&mut Self) -> Result<(), Failed>) {
        let mut outcome = change(self);
        if matches!(outcome, Err(Failed::System(Errno::ACCESS | Errno::PERM))) && self.widen(path) {
            outcome = change(self);
        }
        let why = match outcome {
            Ok(()) => return,
            Err(Failed::System(error)) => std::io::Error::from(error).to_string(),
            Err(Failed::Changed) => "it was changed at this very moment, and left".to_owned(),
            Err(Failed::Unreadable) => {
                "what is there can't be read, so no checkpoint has it, and it was left".to_owned()
            }
            Err(Failed::Store(error)) => error.to_string(),
        };
        self.applied.failed.push((path.clone(), why));
    }

    fn folder(&mut self, path: &RelPath) -> Result<&OwnedFd, Failed> {
        if !self.folders.contains_key(path) {
            if self.folders.len() >= OPEN_FOLDERS {
                self.folders.clear();
            }
            let folder = match system::open_below(&self.staging.inner.folder, path) {
                Err(Errno::NOENT) if !path.is_root() => {
                    // Its folder is needed though the plan doesn't name it.
                    self.make_folder(path)?;
                    self.set_folder_mode(path, 0o755)?;
                    system::open_below(&self.staging.inner.folder, path)?
                }
                other => other?,
            };
            self.folders.insert(path.clone(), folder);
        }
        Ok(&self.folders[path])
    }

    fn parent<'p>(&mut self, path: &'p RelPath) -> Result<(&OwnedFd, &'p [u8]), Failed> {
        let (parent, entry) = path.split().ok_or(Failed::System(Errno::INVAL))?;
        Ok((self.folder(&parent)?, entry))
    }

    /// Gives its owner the right to write in the folder of `path`, for as long as this takes.
    fn widen(&mut self, path: &RelPath) -> bool {
        let Some((parent, _)) = path.split() else { return false };
        let Ok(folder) = system::open_below(&self.staging.inner.folder, &parent) else { return false };
        let Ok(stat) = system::stat_of(&folder) else { return false };
        if self.opened.contains_key(&parent) || stat.mode & 0o700 == 0o700 {
            return false;
        }
        // Should this be cut short, the process that goes on puts them back. A link is there wholly or not at all.
        let note = [WIDENED, format!("{}-{:o}", self.widened, stat.mode).as_bytes()].concat();
        if rustix::fs::symlinkat(parent.as_path(), &self.staging.folder, name(&note)).is_err() {
            return false;
        }
        self.widened += 1;
        let done = !parent.is_root() && system::change_mode(&folder, stat.mode | 0o700).is_ok();
        if done {
            self.opened.insert(parent.clone(), stat.mode);
            self.folders.clear();
        }
        done
    }

    /// Puts back the permissions of folders that were widened, unless the plan gave them others.
    fn close_folders(&mut self) {
        for (path, mode) in std::mem::take(&mut self.opened).into_iter().rev() {
            self.attempt(&path, |work| work.set_folder_mode(&path, mode));
        }
    }

    /// Takes a file, link or empty folder away.
    fn take_away(&mut self, number: usize, change: &PlannedChange) -> Result<(), Failed> {
        let staging = self.staging;
        let (parent, entry) = self.parent(&change.path)?;
        if matches!(change.now, Some(Entry::Folder { .. })) {
            let outcome = rustix::fs::unlinkat(parent, name(entry), AtFlags::REMOVEDIR);
            self.folders.remove(&change.path);
            return match outcome {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                // Another process has put something into it meanwhile.
                Err(Errno::NOTEMPTY | Errno::EXIST) => Err(Failed::Changed),
                Err(error) => Err(error.into()),
            };
        }
        let old = format!("o{number}");
        match rustix::fs::renameat_with(parent, name(entry), &staging.folder, &old, RenameFlags::NOREPLACE) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        }
        if self.is_expected(old.as_bytes(), &change.now)? {
            return Ok(());
        }
        let (parent, entry) = self.parent(&change.path)?;
        rustix::fs::renameat_with(&staging.folder, &old, parent, name(entry), RenameFlags::NOREPLACE)?;
        Err(Failed::Changed)
    }

    /// Whether what was taken out is what the backup has.
    fn is_expected(&self, taken: &[u8], expected: &Option<Entry>) -> Result<bool, Failed> {
        let folder = &self.staging.folder;
        let stat = system::stat(folder, taken)?;
        Ok(match expected {
            Some(Entry::Link { target }) => system::read_link(folder, taken).is_ok_and(|now| now == *target),
            Some(Entry::File { size, content, mode }) => {
                if !crate::cache::is_file(&stat) || stat.size != *size || stat.mode != *mode {
                    return Ok(false);
                }
                // If it can't be read now, it could when the backup was made.
                let Ok(file) = system::open_file(folder, taken) else { return Ok(false) };
                match content::read(&file, *size, &mut Vec::new(), &self.sink) {
                    Ok(read) => read == (*content, *size),
                    Err(content::Unread::System) => false,
                    Err(content::Unread::Sink(error)) => return Err(Failed::Store(error)),
                }
            }
            _ => false,
        })
    }

    fn make_folder(&mut self, path: &RelPath) -> Result<(), Failed> {
        let (parent, entry) = self.parent(path)?;
        match rustix::fs::mkdirat(parent, name(entry), Mode::RWXU) {
            Err(Errno::EXIST) => {
                let stat = system::stat(parent, entry)?;
                if stat.kind == rustix::fs::FileType::Directory { Ok(()) } else { Err(Failed::Changed) }
            }
            other => Ok(other?),
        }
    }

    /// Puts a file or link in its place.
    fn put(&mut self, number: usize, change: &PlannedChange) -> Result<(), Failed> {
        let staging = self.staging;
        let new = match &change.then {
            Some(Entry::File { content, .. }) => place(number, content.id()),
            _ => format!("l{number}"),
        };
        match &change.then {
            Some(Entry::File { mode, .. }) if is_mode_only(change) => {
                let mode = Mode::from_raw_mode((mode & PERMISSIONS).into());
                let (parent, entry) = self.parent(&change.path)?;
                let file = system::open_file(parent, entry)?;
                return Ok(rustix::fs::fchmod(file, mode)?);
            }
            Some(Entry::Link { target }) => match rustix::fs::symlinkat(name(target), &staging.folder, &new) {
                Err(Errno::EXIST) => {}
                other => other?,
            },
            _ => {}
        }
        let (parent, entry) = self.parent(&change.path)?;
        // Links are never folders, so what is there is a file or a link, or nothing.
        let replaces = matches!(change.now, Some(Entry::File { .. } | Entry::Link { .. }));
        if !replaces {
            return match rustix::fs::renameat_with(&staging.folder, &new, parent, name(entry), RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) if system::open_file(parent, entry).err() == Some(Errno::ACCESS) => {
                    Err(Failed::Unreadable)
                }
                Err(Errno::EXIST) => Err(Failed::Changed),
                other => Ok(other?),
            };
        }
        let exchange = |folder: &OwnedFd| {
            rustix::fs::renameat_with(&staging.folder, &new, folder, name(entry), RenameFlags::EXCHANGE)
        };
        match exchange(parent) {
            // It was deleted at this very moment.
            Err(Errno::NOENT) => return Err(Failed::Changed),
            other => other?,
        }
        if self.is_expected(new.as_bytes(), &change.now)? {
            return Ok(());
        }
        let (parent, _) = self.parent(&change.path)?;
        exchange(parent)?;
        Err(Failed::Changed)
    }

    fn set_folder_mode(&mut self, path: &RelPath, mode: u16) -> Result<(), Failed> {
        self.opened.remove(path);
        let (parent, entry) = self.parent(path)?;
        let folder = match system::open_folder(parent, entry) {
            Err(Errno::NOTDIR) => return Ok(()),
            other => other?,
        };
        let stat = system::stat_of(&folder)?;
        let mode = (stat.mode & !PERMISSIONS) | (mode & PERMISSIONS);
        if stat.mode == mode { Ok(()) } else { Ok(system::change_mode(&folder, mode)?) }
    }
}
