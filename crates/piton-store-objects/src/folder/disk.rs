//! What the folder asks of the file system, and what each answer means. Nothing here follows a link, waits for a pipe,
//! or makes a file that other users can read.
//!
//! Invariant: once a sync has failed, what reached the disk is unknown, and the handle writes no more.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use piton_store::StoreError;
use rustix::fs::OFlags;

use crate::objects::{Object, Part, Version};

/// Counts the temporary names of this process, over all handles.
static NAMES: AtomicU64 = AtomicU64::new(0);

/// How long to wait for a lock. Its holder keeps it for moments, unless it stands still.
const PATIENCE: Duration = Duration::from_secs(10);

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

    /// A new file with this content in `folder`, synced if it is to be durable.
    pub(crate) fn temporary(&self, folder: &Path, content: &[u8], durable: bool) -> Result<Temporary, StoreError> {
        self.check()?;
        loop {
            let number = NAMES.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{}-{number}", std::process::id()));
            let mut file = match private().write(true).create_new(true).open(&path) {
                Ok(file) => file,
                // Left by a process that had our number before us.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(StoreError::from_io(&error, &path)),
            };
            let temporary = Temporary { path };
            file.write_all(content).map_err(|error| StoreError::from_io(&error, &temporary.path))?;
            // An empty file has nothing but its name.
            if durable && !content.is_empty() {
                self.sync(&file, &temporary.path)?;
            }
            return Ok(temporary);
        }
    }
}

/// A file that is removed when this is dropped, unless it has got another name instead of its own.
#[derive(Debug)]
pub(crate) struct Temporary {
    pub(crate) path: PathBuf,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// How files of ours are opened.
pub(crate) fn private() -> fs::OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = File::options();
    options.mode(0o600).custom_flags(i32::try_from(flags.bits()).expect("flags of open(2) are ints"));
    options
}

/// Opens the file of a lock.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    private().read(true).write(true).create(true).truncate(false).open(path)
}

/// Reads a file, or a part of it; `None` if there is none.
pub(crate) fn read(path: &Path, part: &Part) -> Result<Option<Object>, StoreError> {
    let failed = |error: io::Error| StoreError::from_io(&error, path);
    let mut file = match private().read(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(not_ours(path, "it is a symbolic link"));
        }
        Err(error) => return Err(failed(error)),
    };
    let data = file.metadata().map_err(failed)?;
    if !data.is_file() {
        return Err(not_ours(path, "it is not a file"));
    }
    let place = part.within(data.len());
    let mut bytes = Vec::new();
    if place.start > 0 {
        file.seek(SeekFrom::Start(place.start)).map_err(failed)?;
    }
    if !place.is_empty() {
        bytes.reserve_exact(usize::try_from(place.end - place.start).unwrap_or(0));
        file.take(place.end - place.start).read_to_end(&mut bytes).map_err(failed)?;
    }
    Ok(Some(Object { bytes: bytes.into(), version: version(&data), size: data.len() }))
}

/// The version of a file. Every change of an object makes a new file.
pub(crate) fn version(data: &fs::Metadata) -> Version {
    Version(format!("{:x}.{:x}.{:x}.{:x}", data.ino(), data.ctime(), data.ctime_nsec(), data.len()))
}

fn not_ours(path: &Path, detail: &str) -> StoreError {
    StoreError::corrupt(path.display().to_string(), detail)
}

/// The names in a folder, with what they are; `None` if there is no such folder. Names that aren't texts are left out.
pub(crate) fn listed(folder: &Path) -> Result<Option<Vec<(String, fs::DirEntry)>>, StoreError> {
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
        if let Ok(name) = entry.file_name().into_string() {
            names.push((name, entry));
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

/// Looks whether a folder is one, is ours, and is closed to other users.
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

/// The path without links, `.` and `..`, of a folder that need not be there yet.
pub(crate) fn real(path: &Path) -> Result<PathBuf, StoreError> {
    let failed = |error: io::Error| StoreError::from_io(&error, path);
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some(name) = path.file_name() else { return Err(failed(error)) };
            let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
            Ok(folder.canonicalize().map_err(failed)?.join(name))
        }
        other => other.map_err(failed),
    }
}
