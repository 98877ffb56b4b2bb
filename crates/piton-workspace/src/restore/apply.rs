//! Carrying a plan out on the files.
//!
//! Each path is changed by a rename, which is all or nothing. What is to be replaced is read before: if it isn't what the
//! backup has, it is left. Then it is exchanged with the new content into the staging folder and looked at again: if a
//! program has replaced or changed it in between, it goes back. Whatever is in the staging folder in the end is looked at
//! once more before it goes, or is kept. So no byte is lost at any point.
//!
//! Everything is synced once, at the end. A power cut before that may leave files that are there in part; each is
//! named by its content while it waits, so the process that goes on can tell those from what another process wrote.
//!
//! Every call names one entry of an open folder and follows no link. Folders are opened from the root with
//! no link and no other file system on the way, so nothing outside can be reached, whatever the snapshot says or another
//! process does to the tree meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;

use piton_store::Hashing;
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags};
use rustix::io::Errno;

use super::plan::PlannedChange;
use super::staging::{Named, Planned, Rescued, Staging, WIDENED, place};
use crate::content;
use crate::scan::TICK;
use crate::system::{self, Stat, name};
use crate::tree::{Entry, PERMISSIONS};
use crate::{RelPath, WorkspaceError};

/// How a plan went.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) changed: usize,
    /// What could not be changed, and why.
    pub(super) failed: Vec<(RelPath, String)>,
    /// What was written meanwhile, and kept.
    pub(super) rescued: Vec<Rescued>,
}

impl Staging {
    /// Changes every path, and removes the folder. What can't be changed is told, and the rest goes on.
    pub(super) fn apply(&self, changes: &[PlannedChange], hashing: &Hashing) -> Result<Applied, WorkspaceError> {
        let mut work = Work {
            staging: self,
            sink: Named(hashing),
            folders: HashMap::new(),
            opened: BTreeMap::new(),
            widened: 0,
            verified: HashMap::new(),
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
        let Work { mut applied, verified, .. } = work;
        applied.failed.sort();
        applied.failed.dedup_by(|a, b| a.0 == b.0);
        applied.changed = changes.len() - applied.failed.len();
        let planned = Planned::new(changes.iter().flat_map(|change| [&change.now, &change.then]));
        applied.rescued = self.clear(&planned, &verified, None, |number| Some(changes.get(number)?.path.clone()))?;
        Ok(applied)
    }
}

struct Work<'a> {
    staging: &'a Staging,
    sink: Named<'a>,
    /// Folders that are open, by path.
    folders: HashMap<RelPath, OwnedFd>,
    /// Folders whose permissions were widened, and what they were.
    opened: BTreeMap<RelPath, u16>,
    /// How often that was done.
    widened: usize,
    /// What was taken out and is in the backup, as it looked afterwards.
    verified: HashMap<String, Stat>,
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
            Err(Failed::System(Errno::XDEV)) => "it lies on another file system".to_owned(),
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
        let note = format!("{WIDENED}{}-{:o}", self.widened, stat.mode);
        if rustix::fs::symlinkat(parent.as_path(), &self.staging.folder, &note).is_err() {
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
        let known = match self.look(&change.path, &change.now) {
            Err(Failed::System(Errno::NOENT)) => return Ok(()),
            other => other?,
        };
        let old = format!("o{number}");
        let (parent, entry) = self.parent(&change.path)?;
        match rustix::fs::renameat_with(parent, name(entry), &staging.folder, &old, RenameFlags::NOREPLACE) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        }
        if self.is_unchanged(&old, &known, &change.now)? {
            return Ok(());
        }
        // If a program has made another one meanwhile, this one is kept with what was rescued.
        let (parent, entry) = self.parent(&change.path)?;
        let _ = rustix::fs::renameat_with(&staging.folder, &old, parent, name(entry), RenameFlags::NOREPLACE);
        Err(Failed::Changed)
    }

    /// What is at a path, if it is what the backup has.
    fn look(&mut self, path: &RelPath, expected: &Option<Entry>) -> Result<Stat, Failed> {
        let (parent, entry) = path.split().ok_or(Failed::System(Errno::INVAL))?;
        let began = system::now();
        let sink = Named(self.sink.0);
        let folder = self.folder(&parent)?;
        let stat = read_as(folder, entry, expected, &sink)?.ok_or(Failed::Changed)?;
        // What changed in these last ticks may change again without looking different: a time that no file has.
        if stat.mtime < began - TICK { Ok(stat) } else { Ok(Stat { mtime: i64::MIN, ..stat }) }
    }

    /// Whether what was taken out is what was looked at. By its name no program reaches it any more.
    fn is_unchanged(&mut self, taken: &str, known: &Stat, expected: &Option<Entry>) -> Result<bool, Failed> {
        let now = system::stat(&self.staging.folder, taken.as_bytes())?;
        // To rename it has changed its ctime.
        if now == (Stat { ctime: now.ctime, ..*known }) {
            self.verified.insert(taken.to_owned(), now);
            return Ok(true);
        }
        Ok(read_as(&self.staging.folder, taken.as_bytes(), expected, &self.sink)?.is_some())
    }

    fn make_folder(&mut self, path: &RelPath) -> Result<(), Failed> {
        let (parent, entry) = self.parent(path)?;
        match rustix::fs::mkdirat(parent, name(entry), Mode::RWXU) {
            Err(Errno::EXIST) => {
                let stat = system::stat(parent, entry)?;
                if stat.kind == FileType::Directory { Ok(()) } else { Err(Failed::Changed) }
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
            // Nothing waits for it: only its mode changes.
            Some(Entry::File { mode, .. }) if system::stat(&staging.folder, new.as_bytes()) == Err(Errno::NOENT) => {
                let mode = Mode::from_raw_mode((mode & PERMISSIONS).into());
                let (parent, entry) = self.parent(&change.path)?;
                let file = system::open_file(parent, entry)?;
                return match system::stat_of(&file)?.is_linked {
                    false => Ok(rustix::fs::fchmod(file, mode)?),
                    true => Err(Failed::Changed),
                };
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
        let known = self.look(&change.path, &change.now)?;
        let (parent, _) = self.parent(&change.path)?;
        let exchange = |folder: &OwnedFd| {
            rustix::fs::renameat_with(&staging.folder, &new, folder, name(entry), RenameFlags::EXCHANGE)
        };
        match exchange(parent) {
            // It was deleted at this very moment.
            Err(Errno::NOENT) => return Err(Failed::Changed),
            other => other?,
        }
        if self.is_unchanged(&new, &known, &change.now)? {
            return Ok(());
        }
        // If a program has put another one in its place meanwhile, that comes out, and is kept with what was rescued.
        let (parent, _) = self.parent(&change.path)?;
        let _ = exchange(parent);
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

/// Looks at a file or link, if it is what is `expected`.
fn read_as(folder: &OwnedFd, entry: &[u8], expected: &Option<Entry>, sink: &Named<'_>) -> Result<Option<Stat>, Failed> {
    let stat = system::stat(folder, entry)?;
    let is_expected = match expected {
        Some(Entry::Link { target }) => system::read_link(folder, entry).is_ok_and(|now| now == *target),
        Some(Entry::File { size, content, mode }) => {
            if (stat.kind, stat.size, stat.mode) != (FileType::RegularFile, *size, *mode) {
                return Ok(None);
            }
            // If it can't be read now, it could when the backup was made.
            let Ok(file) = system::open_file(folder, entry) else { return Ok(None) };
            if system::stat_of(&file)? != stat {
                return Ok(None);
            }
            match content::read(&file, *size, &mut Vec::new(), sink) {
                Ok(read) => read == (*content, *size) && system::stat_of(&file)? == stat,
                Err(content::Unread::System) => false,
                Err(content::Unread::Sink(error)) => return Err(Failed::Store(error)),
            }
        }
        _ => false,
    };
    Ok(is_expected.then_some(stat))
}
