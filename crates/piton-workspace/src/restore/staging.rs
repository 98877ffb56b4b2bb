//! The folder that the contents of a restore wait in, and what was there before goes to.
//!
//! It lies beside the store if files can be renamed from there, and else in the workspace. Its name is random, so that no
//! program has made one of that name before, and it is used by its descriptor from beginning to end.
//!
//! In the end all that is left in it is looked at once more, and what no checkpoint has is kept: a file that was written
//! while it was replaced, one that a program has open for writing, or what a program put there. It goes to a folder in the
//! workspace which the outcome names.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use piton_log::ContentReader;
use piton_store::{Hashing, StoreError};
use piton_types::BlobId;
use rayon::prelude::*;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::plan::PlannedChange;
use crate::content::{self, Sink};
use crate::path::TEMPORARY;
use crate::scan::Progress;
use crate::system::{self, Stat, name};
use crate::tree::{Content, Entry, PERMISSIONS};
use crate::workspace::Inner;
use crate::{RelPath, WorkspaceError};

/// What was written while a restore replaced it, and was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescued {
    /// Where it was written; `None` if that isn't known any more.
    pub path: Option<RelPath>,
    /// Where it is now.
    pub kept: RelPath,
}

impl std::fmt::Display for Rescued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.path {
            Some(path) => write!(f, "what was written to {path} during the restore is in {}", self.kept),
            None => write!(f, "what was written during the restore is in {}", self.kept),
        }
    }
}

/// The folder that contents wait in.
pub(crate) struct Staging {
    pub(super) inner: Arc<Inner>,
    /// Whether it lies beside the store and not in the workspace.
    beside: bool,
    name: String,
    pub(super) folder: OwnedFd,
}

/// What a plan has of contents, and the targets of links: the store has all of it, before or after.
#[derive(Default)]
pub(super) struct Planned {
    contents: HashSet<(Content, u64)>,
    targets: HashSet<Vec<u8>>,
}

impl Planned {
    pub(super) fn new<'a>(entries: impl IntoIterator<Item = &'a Option<Entry>>) -> Self {
        let mut planned = Self::default();
        for entry in entries.into_iter().flatten() {
            match entry {
                Entry::File { size, content, .. } => drop(planned.contents.insert((*content, *size))),
                Entry::Link { target } => drop(planned.targets.insert(target.clone())),
                _ => {}
            }
        }
        planned
    }

    /// The content of a file that waited under a name.
    fn waiting(&self, place: &[u8]) -> Option<(Content, u64)> {
        let id = waits(place)?;
        self.contents.iter().find(|(content, _)| content.id() == id).copied()
    }
}

impl Staging {
    /// Makes the folder when `mark` has written down where it will be: one that no mark names isn't ours. Only to be called
    /// by the process that has the lock, with no restore under way.
    pub(super) fn create(
        inner: &Arc<Inner>,
        mark: impl FnOnce(&str) -> Result<(), WorkspaceError>,
    ) -> Result<Self, WorkspaceError> {
        let beside = system::mount(inner.state.folder()) == system::mount(&inner.folder);
        let mut random = [0; 16];
        inner.context.random.fill(&mut random);
        let name = format!("{TEMPORARY}{:032x}", u128::from_le_bytes(random));
        let parent = if beside { inner.state.folder() } else { &inner.folder };
        let fail = |error| WorkspaceError::file("make a folder in", &inner.root, error);
        mark(&format!("{} {name}", if beside { "beside" } else { "inside" }))?;
        rustix::fs::mkdirat(parent, &name, Mode::RWXU).map_err(fail)?;
        let folder = system::open_folder(parent, name.as_bytes()).map_err(fail)?;
        Ok(Self { inner: Arc::clone(inner), beside, name, folder })
    }

    /// The folder that a mark names, if it is there and one of ours.
    pub(super) fn find(inner: &Arc<Inner>, place: &str) -> Option<Self> {
        let (beside, name) = place.split_once(' ')?;
        let beside = beside == "beside";
        RelPath::new(name.as_bytes()).ok().filter(|path| path.names().count() == 1 && name.starts_with(TEMPORARY))?;
        let parent = if beside { inner.state.folder() } else { &inner.folder };
        let folder = system::open_folder(parent, name.as_bytes()).ok()?;
        let mine = system::mount(&folder) == system::mount(parent)
            && system::stat_of(&folder).is_ok_and(|stat| stat.mode & PERMISSIONS == 0o700);
        mine.then(|| Self { inner: Arc::clone(inner), beside, name: name.to_owned(), folder })
    }

    /// Writes what the plan needs. If that fails nothing has changed yet.
    pub(super) fn fill(
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
                Some(Entry::File { .. }) if self.is_mode_only(change) => {}
                Some(Entry::File { content: Content::Whole(id), .. }) => small.entry(*id).or_default().push(number),
                Some(Entry::File { content: Content::Pieces(_), .. }) => large.push(number),
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
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        StoreError::Invalid { what: "a file".to_owned(), detail }
                    })
                })
            })
        })?;
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
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
        content::write(&file, &|id| Ok(reader.get(id)?), content, size, fail)?;
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

    /// Whether only the permissions of a file change, and it has no other name: the mode of a file that has one isn't
    /// changed, since that name may lie elsewhere. Such a file is replaced by a copy.
    fn is_mode_only(&self, change: &PlannedChange) -> bool {
        let (Some(Entry::File { size, content, .. }), Some(Entry::File { size: then_size, content: then, .. })) =
            (&change.now, &change.then)
        else {
            return false;
        };
        let has_one_name = || {
            let (parent, entry) = change.path.split()?;
            let parent = system::open_below(&self.inner.folder, &parent).ok()?;
            Some(!system::stat(parent, entry).ok()?.is_linked)
        };
        (size, content) == (then_size, then) && has_one_name() == Some(true)
    }

    /// Waits until everything written so far is on disk.
    pub(super) fn sync(&self) -> Result<(), WorkspaceError> {
        let fail = |error| WorkspaceError::file("sync", &self.inner.root, error);
        // The descriptor of the root is only for looking things up, and can't be synced.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(&self.inner.folder, ".", flags, Mode::empty()).map_err(fail)?;
        rustix::fs::syncfs(root).map_err(fail)
    }

    /// Looks at everything that is left, removes what a checkpoint has, and then the folder. What no checkpoint has is
    /// moved into a new folder of the workspace.
    ///
    /// `verified` has the files that are known to be in the backup as long as they look so. With a `reader`, the power may
    /// have gone while contents were written, and a file that has a part of its own is one of those too.
    pub(super) fn clear(
        &self,
        planned: &Planned,
        verified: &HashMap<String, Stat>,
        reader: Option<&ContentReader>,
        path_of: impl Fn(usize) -> Option<RelPath>,
    ) -> Result<Vec<Rescued>, WorkspaceError> {
        let fail = |error| WorkspaceError::file("remove what was left in", &self.inner.root, error);
        let entries = system::names(&self.folder).map_err(fail)?;
        let hashing = self.inner.store.hashing();
        let look = |entry: &Vec<u8>| match self.let_go(entry, planned, verified, reader, hashing) {
            Ok(true) => None,
            Ok(false) => Some(Ok(entry.clone())),
            Err(error) => Some(Err(error)),
        };
        // Some file systems give the space of each file back to the disk at once, and wait for that: side by side.
        let kept: Vec<Vec<u8>> = self.inner.threads.run_if(entries.len() > MANY, || {
            entries.par_iter().filter_map(look).collect::<Result<_, WorkspaceError>>()
        })??;
        let (mut rescued, mut rescue): (Vec<Rescued>, _) = (Vec::new(), None);
        for entry in kept {
            let (folder, path) = match &rescue {
                Some(made) => made,
                None => rescue.insert(self.make_rescue().map_err(fail)?),
            };
            let number = entry.get(1..).map(|rest| rest.iter().take_while(|byte| byte.is_ascii_digit()));
            let number = number.and_then(|digits| String::from_utf8(digits.copied().collect()).ok()?.parse().ok());
            let from = number.and_then(&path_of);
            let as_name = match from.as_ref().and_then(RelPath::split) {
                Some((_, last)) => [format!("{}-", rescued.len()).as_bytes(), last].concat(),
                None => entry.clone(),
            };
            let as_name = if as_name.len() > 255 { entry.clone() } else { as_name };
            match rustix::fs::renameat(&self.folder, name(&entry), folder, name(&as_name)) {
                // A mount can't be moved, and nothing in it is lost where it is.
                Err(Errno::BUSY | Errno::XDEV | Errno::NOENT) => continue,
                other => other.map_err(fail)?,
            }
            rescued.push(Rescued { path: from, kept: path.join(&as_name) });
        }
        rescued.sort_by(|a, b| a.path.cmp(&b.path));
        self.remove_empty()?;
        Ok(rescued)
    }

    /// Removes one of what is left if a checkpoint has it; says whether.
    fn let_go(
        &self,
        entry: &[u8],
        planned: &Planned,
        verified: &HashMap<String, Stat>,
        reader: Option<&ContentReader>,
        hashing: &Hashing,
    ) -> Result<bool, WorkspaceError> {
        let fail = |error| WorkspaceError::file("read what was left in", &self.inner.root, error);
        let stat = match system::stat(&self.folder, entry) {
            Err(Errno::NOENT) => return Ok(true),
            other => other.map_err(fail)?,
        };
        // Kept open to the end: while there is a lease on it, no program can open it for writing.
        let mut held = None;
        let known = match stat.kind {
            FileType::Symlink => {
                let target = system::read_link(&self.folder, entry).map_err(fail)?;
                if let Some(mode) = widened_from(entry) {
                    narrow(&self.inner, &target, mode);
                }
                widened_from(entry).is_some() || planned.targets.contains(&target)
            }
            FileType::RegularFile => match system::open_file(&self.folder, entry) {
                Ok(file) if !system::is_written(&file) => {
                    let file = held.insert(file);
                    let as_before =
                        std::str::from_utf8(entry).ok().and_then(|entry| verified.get(entry)) == Some(&stat);
                    as_before || self.is_known(file, entry, &stat, planned, reader, hashing)?
                }
                _ => false,
            },
            _ => false,
        };
        if known {
            rustix::fs::unlinkat(&self.folder, name(entry), AtFlags::empty()).map_err(fail)?;
        }
        Ok(known)
    }

    fn is_known(
        &self,
        file: &OwnedFd,
        entry: &[u8],
        stat: &Stat,
        planned: &Planned,
        reader: Option<&ContentReader>,
        hashing: &Hashing,
    ) -> Result<bool, WorkspaceError> {
        match content::read(file, stat.size, &mut Vec::new(), &Named(hashing)) {
            Ok(read) if planned.contents.contains(&read) => return Ok(true),
            Err(content::Unread::Sink(error)) => return Err(error),
            _ => {}
        }
        let (Some(reader), Some((content, size))) = (reader, planned.waiting(entry)) else { return Ok(false) };
        let again = system::open_file(&self.folder, entry);
        let again = again.map_err(|error| WorkspaceError::file("read what was left in", &self.inner.root, error))?;
        content::is_part_of(&again, &|id| Ok(reader.get(id)?), content, size)
    }

    /// A new folder in the workspace for what is kept.
    fn make_rescue(&self) -> Result<(OwnedFd, RelPath), Errno> {
        for number in 1_u32.. {
            let rescue = format!("{RESCUE}{number}");
            match rustix::fs::mkdirat(&self.inner.folder, &rescue, Mode::RWXU) {
                Ok(()) => {
                    let folder = system::open_folder(&self.inner.folder, rescue.as_bytes())?;
                    return Ok((folder, RelPath::default().join(rescue.as_bytes())));
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EXIST)
    }

    /// Removes the folder with the contents that wait in it, for good: no power cut brings it back when the mark has gone.
    /// Nothing has changed yet, so whatever else is in it isn't ours, and stays.
    pub(super) fn remove(&self) -> Result<(), WorkspaceError> {
        let fail = |error| WorkspaceError::file("remove what was left in", &self.inner.root, error);
        for entry in system::names(&self.folder).map_err(fail)?.iter().filter(|entry| waits(entry).is_some()) {
            match rustix::fs::unlinkat(&self.folder, name(entry), AtFlags::empty()) {
                Ok(()) | Err(Errno::ISDIR | Errno::NOENT) => {}
                Err(error) => return Err(fail(error)),
            }
        }
        self.remove_empty()?;
        self.sync()
    }

    /// Removes the folder if nothing is in it.
    fn remove_empty(&self) -> Result<(), WorkspaceError> {
        let parent = if self.beside { self.inner.state.folder() } else { &self.inner.folder };
        match rustix::fs::unlinkat(parent, &self.name, AtFlags::REMOVEDIR) {
            // A program has moved it or put something into it: that isn't ours.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(WorkspaceError::file("remove what was left in", &self.inner.root, error)),
        }
    }
}

/// So many files are worth other threads.
const MANY: usize = 64;

/// What the folders are called in which is kept what no checkpoint has.
const RESCUE: &str = "piton-recovered-";

/// The name of a waiting content.
pub(super) fn place(number: usize, id: BlobId) -> String {
    format!("w{number}-{id}")
}

/// The content that a name says is waiting.
fn waits(place: &[u8]) -> Option<BlobId> {
    std::str::from_utf8(place.strip_prefix(b"w")?).ok()?.split_once('-')?.1.parse().ok()
}

/// The name under which a folder's permissions are written down, to be read as a link.
pub(super) const WIDENED: &str = "m";

/// The permissions that a folder had before they were widened, if the name says so.
fn widened_from(place: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(place).ok()?.strip_prefix(WIDENED)?;
    u16::from_str_radix(text.split_once('-')?.1, 8).ok()
}

/// Takes from a folder the permissions that were only there to change what is in it. If the folder has other
/// permissions, another process has set them, or the restore never got to widen them.
fn narrow(inner: &Inner, path: &[u8], mode: u16) {
    let Ok(path) = RelPath::new(path) else { return };
    let Ok(folder) = system::open_below(&inner.folder, &path) else { return };
    if system::stat_of(&folder).is_ok_and(|stat| stat.mode == mode | 0o700) {
        // If it can't be done, the folder is as open to its owner as it was a moment ago.
        let _ = system::change_mode(&folder, mode);
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
