//! What the file store asks of the file system, and what each answer means. Nothing here follows a link,
//! waits for a pipe, or makes a file that others can read.
//!
//! Invariant: once a sync has failed, nobody knows what reached the disk, and the handle writes no more.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::StoreError;

/// Counts the temporary names of this process, over all handles.
static NAMES: AtomicU64 = AtomicU64::new(0);

/// The way to the disk of one handle.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    poison: OnceLock<String>,
    /// Nothing is ever synced: the negative control of the power-cut tests.
    careless: bool,
    /// How often something was synced.
    pub(crate) syncs: AtomicU64,
}

impl Disk {
    pub(crate) fn new(careless: bool) -> Self {
        Self { careless, ..Self::default() }
    }

    /// Whether writes are still taken.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => Err(StoreError::Poisoned { cause: cause.clone() }),
        }
    }

    /// Makes a file's content durable, or a folder's names.
    pub(crate) fn sync(&self, file: &File, path: &Path) -> Result<(), StoreError> {
        if self.careless {
            return Ok(());
        }
        self.syncs.fetch_add(1, Ordering::Relaxed);
        file.sync_all().map_err(|error| {
            let cause = format!("{} can't be synced: {error}", path.display());
            StoreError::Poisoned { cause: self.poison.get_or_init(|| cause).clone() }
        })
    }

    /// Makes the names in a folder durable.
    pub(crate) fn sync_folder(&self, folder: &Path) -> Result<(), StoreError> {
        let file = File::open(folder).map_err(|error| StoreError::from_io(&error, folder))?;
        self.sync(&file, folder)
    }

    /// A new file with this content below `folder`, whose name begins with `prefix`.
    pub(crate) fn temporary(&self, folder: &Path, prefix: &str, parts: &[&[u8]]) -> Result<Temporary, StoreError> {
        self.check()?;
        loop {
            let number = NAMES.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{prefix}@{}-{number}", std::process::id()));
            let file = match private().write(true).create_new(true).open(&path) {
                Ok(file) => file,
                // Left by a process that had our number before us.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(StoreError::from_io(&error, &path)),
            };
            // Held until it has its name: see `Unsynced`.
            drop(file.try_lock());
            let temporary = Temporary { path, file, keep: false };
            for part in parts {
                temporary.file().write_all(part).map_err(|error| StoreError::from_io(&error, &temporary.path))?;
            }
            return Ok(temporary);
        }
    }

    /// Puts a file with this content at `path`, in the place of what is there. Readers see the old or the new.
    pub(crate) fn replace(
        &self,
        scratch: &Path,
        path: &Path,
        parts: &[&[u8]],
        durable: bool,
    ) -> Result<(), StoreError> {
        let mut temporary = self.temporary(scratch, "file", parts)?;
        if durable {
            self.sync(temporary.file(), &temporary.path)?;
        }
        fs::rename(&temporary.path, path).map_err(|error| StoreError::from_io(&error, path))?;
        temporary.keep = true;
        match path.parent() {
            Some(folder) if durable => self.sync_folder(folder),
            _ => Ok(()),
        }
    }
}

/// A file that goes away again unless it is kept.
#[derive(Debug)]
pub(crate) struct Temporary {
    pub(crate) path: PathBuf,
    file: File,
    pub(crate) keep: bool,
}

impl Temporary {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives it a second name, if that is free; `false` if it isn't.
    pub(crate) fn link(&self, target: &Path) -> Result<bool, StoreError> {
        match fs::hard_link(&self.path, target) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(StoreError::from_io(&error, target)),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.keep {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// How we open files of our own.
pub(crate) fn private() -> fs::OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = File::options();
    options.mode(0o600).custom_flags(i32::try_from(flags.bits()).expect("flags of open(2) are ints"));
    options
}

/// Opens a file for reading; `None` if there is none.
pub(crate) fn open(path: &Path) -> Result<Option<File>, StoreError> {
    let file = match private().read(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(not_ours(path, "it is a symbolic link"));
        }
        Err(error) => return Err(StoreError::from_io(&error, path)),
    };
    let data = file.metadata().map_err(|error| StoreError::from_io(&error, path))?;
    match data.is_file() {
        true => Ok(Some(file)),
        false => Err(not_ours(path, "it is not a file")),
    }
}

/// The content of a file; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(mut file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| StoreError::from_io(&error, path))?;
    Ok(Some(bytes))
}

fn not_ours(path: &Path, detail: &str) -> StoreError {
    StoreError::corrupt(path.display().to_string(), detail)
}

/// The names in a folder; `None` if there is none. Names that aren't ours to read are left out.
pub(crate) fn names(folder: &Path) -> Result<Option<Vec<String>>, StoreError> {
    listed(folder, |_| true)
}

/// The same for the folders in it.
pub(crate) fn folders(folder: &Path) -> Result<Option<Vec<String>>, StoreError> {
    listed(folder, |entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
}

fn listed(folder: &Path, wanted: impl Fn(&fs::DirEntry) -> bool) -> Result<Option<Vec<String>>, StoreError> {
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(not_ours(folder, "it is not a folder"));
        }
        Err(error) => return Err(StoreError::from_io(&error, folder)),
    };
    let mut names = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|error| StoreError::from_io(&error, folder))?;
        if wanted(&entry)
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    Ok(Some(names))
}

/// Makes a folder that only its owner can enter. One that is there is made so.
pub(crate) fn make_folder(path: &Path) -> Result<(), StoreError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => inspect_folder(path),
        Err(error) => Err(StoreError::from_io(&error, path)),
    }
}

/// Looks whether a folder is one, is ours, and is closed to others.
pub(crate) fn inspect_folder(path: &Path) -> Result<(), StoreError> {
    let data = fs::symlink_metadata(path).map_err(|error| StoreError::from_io(&error, path))?;
    let what = || path.display().to_string();
    if !data.is_dir() {
        return Err(StoreError::Invalid { what: what(), detail: "it is not a folder".to_owned() });
    }
    let us = rustix::process::geteuid().as_raw();
    if data.uid() != us {
        let detail = format!("it belongs to user {}, and this is user {us}", data.uid());
        return Err(StoreError::Denied { what: what(), detail });
    }
    if data.mode() & 0o077 != 0 {
        let tightened = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
        tightened.map_err(|error| StoreError::from_io(&error, path))?;
    }
    Ok(())
}

/// How long to wait for a lock that another process holds for moments only, unless it stands still.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes a lock, shared or not, within bounds of time.
pub(crate) fn lock(file: &File, shared: bool, path: &Path) -> Result<(), StoreError> {
    let start = Instant::now();
    loop {
        match if shared { file.try_lock_shared() } else { file.try_lock() } {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(fs::TryLockError::WouldBlock) => {
                let detail = format!("{} is locked by another process", path.display());
                return Err(StoreError::Unavailable { detail });
            }
            Err(fs::TryLockError::Error(error)) => return Err(StoreError::from_io(&error, path)),
        }
    }
}

/// Removes a file that may be gone already.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::from_io(&error, path)),
        _ => Ok(()),
    }
}

impl Disk {
    /// Makes everything durable that the file system of `file` holds.
    pub(crate) fn sync_file_system(&self, file: &File, path: &Path) -> Result<(), StoreError> {
        if self.careless {
            return Ok(());
        }
        rustix::fs::syncfs(file).map_err(|error| {
            let cause = format!("the file system of {} can't be synced: {error}", path.display());
            StoreError::Poisoned { cause: self.poison.get_or_init(|| cause).clone() }
        })
    }
}
