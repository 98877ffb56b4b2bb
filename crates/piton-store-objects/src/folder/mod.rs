//! Objects as files in a folder: the name of an object is the path of its file.
//!
//! An object is created by `link` of a temporary file, which fails if the name is taken. A durable creation is write,
//! sync, link, sync of the folder. An object is replaced by `rename` under a lock on the folder that it is in. Every
//! file is readable by its owner only.
//!
//! `.scratch/` has the temporary files; every open handle holds `.lock` shared. No object has such a name.

mod disk;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::StoreError;
use piton_types::Durability;

use crate::objects::{Listed, Object, Objects, Part, Version, check_name};
use disk::Disk;
pub(crate) use disk::{open_lock, real};

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    Disk::default().sync_folder(folder)
}

/// How to open a folder.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FolderOptions {
    /// Make the folder, and a store in it, if there is none; otherwise that is `NotFound`.
    pub create: bool,
    /// Never sync. Only as the negative control of the tests.
    #[doc(hidden)]
    pub careless: bool,
    /// Open a store although `store.json` is damaged, to save what is in it.
    pub salvage: bool,
}

impl Default for FolderOptions {
    fn default() -> Self {
        Self { create: true, careless: false, salvage: false }
    }
}

impl FolderOptions {
    /// Whether to make the store if there is none.
    #[must_use]
    pub fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether to open it although `store.json` is damaged.
    #[must_use]
    pub fn with_salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }
}

/// Objects in a folder. Several handles, in one process or in many, may have it open.
#[derive(Debug)]
pub struct FolderObjects {
    root: PathBuf,
    disk: Disk,
    read_only: bool,
    /// Folders whose names are known to be durable, by inode.
    durable: Mutex<HashMap<PathBuf, u64>>,
    /// The lock, until the handle is closed.
    lock: Mutex<Option<File>>,
}

impl FolderObjects {
    /// Opens the folder `path`, and makes it if it isn't there and the options say so.
    pub fn open(path: impl AsRef<Path>, options: &FolderOptions) -> Result<Self, StoreError> {
        let objects = Self::enter(path.as_ref(), options)?;
        objects.share()?;
        Ok(objects)
    }

    /// Opens the folder. If no other handle has it open, none can open it until [`share`](Self::share).
    pub(crate) fn enter(path: &Path, options: &FolderOptions) -> Result<Self, StoreError> {
        let mut objects = Self {
            root: real(path)?,
            disk: Disk::new(options.careless),
            read_only: false,
            durable: Mutex::default(),
            lock: Mutex::default(),
        };
        if options.create && !objects.root.exists() {
            disk::make_folder(&objects.root)?;
            if let Some(above) = objects.root.parent().filter(|above| *above != Path::new("")) {
                objects.disk.sync_folder(above)?;
            }
        }
        let made = disk::inspect_folder(&objects.root).and_then(|()| disk::make_folder(&objects.scratch()));
        let path = objects.root.join(".lock");
        let lock = made.and_then(|()| open_lock(&path).map_err(|error| StoreError::from_io(&error, &path)));
        let lock = match lock {
            Err(StoreError::ReadOnly { .. }) => {
                objects.read_only = true;
                return Ok(objects);
            }
            lock => lock?,
        };
        let is_alone = lock.try_lock().is_ok();
        if !is_alone {
            disk::lock(&lock, true, &path)?;
        } else {
            for (_, entry) in disk::listed(&objects.scratch())?.unwrap_or_default() {
                drop(fs::remove_file(entry.path()));
            }
        }
        *objects.held() = Some(lock);
        Ok(objects)
    }

    /// Lets others open the folder too.
    pub(crate) fn share(&self) -> Result<(), StoreError> {
        match &*self.held() {
            Some(lock) => disk::lock(lock, true, &self.root),
            None => Ok(()),
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<File>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scratch(&self) -> PathBuf {
        self.root.join(".scratch")
    }

    fn path(&self, name: &str) -> Result<PathBuf, StoreError> {
        check_name(name)?;
        Ok(self.root.join(name))
    }

    fn writable(&self) -> Result<(), StoreError> {
        if self.read_only {
            return Err(StoreError::ReadOnly { what: self.root.display().to_string() });
        }
        self.disk.check()
    }

    fn folder_of<'a>(&'a self, path: &'a Path) -> &'a Path {
        path.parent().unwrap_or(&self.root)
    }

    /// Makes the folders above an object.
    fn make_folders(&self, folder: &Path) -> Result<(), StoreError> {
        let below = folder.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let mut path = self.root.clone();
        for part in below {
            path.push(part);
            match disk::make_folder(&path) {
                // Removed again by another process, which found it empty.
                Err(StoreError::NotFound { .. }) => return Ok(()),
                made => made?,
            }
        }
        Ok(())
    }

    /// Makes the names in a folder durable, and the folder itself, whichever process made it.
    fn sync_names(&self, folder: &Path) -> Result<(), StoreError> {
        self.disk.sync_folder(folder)?;
        let mut path = folder;
        while path != self.root {
            let above = self.folder_of(path);
            let inode = fs::symlink_metadata(path).map_err(|error| StoreError::from_io(&error, path))?.ino();
            let known = || self.durable.lock().unwrap_or_else(PoisonError::into_inner);
            if known().get(path) != Some(&inode) {
                self.disk.sync_folder(above)?;
                known().insert(path.to_owned(), inode);
            }
            path = above;
        }
        Ok(())
    }

    /// Locks a folder against others that replace what is in it; `None` if it isn't there.
    fn lock_folder(&self, folder: &Path) -> Result<Option<File>, StoreError> {
        let file = match File::open(folder) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::from_io(&error, folder)),
        };
        disk::lock(&file, false, folder)?;
        Ok(Some(file))
    }

    fn has(path: &Path, version: &Version) -> bool {
        fs::symlink_metadata(path).is_ok_and(|data| disk::version(&data) == *version)
    }

    /// Removes the folders that a deleted object leaves empty, those directly in the root aside.
    fn tidy(&self, folder: &Path) {
        let mut path = folder;
        while path != self.root && self.folder_of(path) != self.root && fs::remove_dir(path).is_ok() {
            path = self.folder_of(path);
        }
    }
}

#[async_trait]
impl Objects for FolderObjects {
    async fn create(&self, name: &str, content: Bytes, durability: Durability) -> Result<bool, StoreError> {
        self.writable()?;
        let path = self.path(name)?;
        let durable = durability == Durability::Durable;
        let temporary = self.disk.temporary(&self.scratch(), &content, durable)?;
        let folder = self.folder_of(&path);
        // Another process may remove an empty folder before the object is in it.
        let mut attempts = 0..100;
        loop {
            match fs::hard_link(&temporary.path, &path) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempts.next().is_some() => {
                    self.make_folders(folder)?;
                }
                Err(error) => return Err(StoreError::from_io(&error, &path)),
            }
        }
        if durable {
            self.sync_names(folder)?;
        }
        Ok(true)
    }

    async fn get(&self, name: &str, part: Part) -> Result<Option<Object>, StoreError> {
        disk::read(&self.path(name)?, &part)
    }

    async fn exists(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.path(name)?.symlink_metadata().is_ok())
    }

    async fn list(&self, folder: &str, after: Option<&str>, limit: usize) -> Result<Vec<Listed>, StoreError> {
        let path = if folder.is_empty() { self.root.clone() } else { self.path(folder)? };
        let mut names = disk::listed(&path)?.unwrap_or_default();
        names.retain(|(name, _)| check_name(name).is_ok() && after.is_none_or(|after| name.as_str() > after));
        names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut listed = Vec::new();
        for (name, entry) in names {
            if listed.len() == limit {
                break;
            }
            // Gone since, perhaps.
            let Ok(data) = entry.metadata() else { continue };
            listed.push(Listed { name, size: (!data.is_dir()).then_some(data.len()), version: None });
        }
        Ok(listed)
    }

    async fn replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
        durability: Durability,
    ) -> Result<bool, StoreError> {
        self.writable()?;
        let path = self.path(name)?;
        let durable = durability == Durability::Durable;
        let temporary = self.disk.temporary(&self.scratch(), &content, durable)?;
        let folder = self.folder_of(&path);
        let Some(_lock) = self.lock_folder(folder)? else { return Ok(false) };
        if !Self::has(&path, version) {
            return Ok(false);
        }
        fs::rename(&temporary.path, &path).map_err(|error| StoreError::from_io(&error, &path))?;
        if durable {
            self.sync_names(folder)?;
        }
        Ok(true)
    }

    async fn delete(&self, name: &str, version: Option<&Version>, durability: Durability) -> Result<bool, StoreError> {
        self.writable()?;
        let path = self.path(name)?;
        let folder = self.folder_of(&path);
        let _lock = match version {
            None => None,
            Some(version) => {
                let lock = self.lock_folder(folder)?;
                if !Self::has(&path, version) {
                    return Ok(false);
                }
                lock
            }
        };
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(StoreError::from_io(&error, &path)),
        }
        if durability == Durability::Durable {
            self.disk.sync_folder(folder)?;
        }
        self.tidy(folder);
        Ok(true)
    }

    async fn tell(&self, name: &str, lines: &[u8]) -> Result<(), StoreError> {
        self.writable()?;
        let path = self.path(name)?;
        let file = disk::private().append(true).create(true).open(&path);
        file.and_then(|mut file| file.write_all(lines)).map_err(|error| StoreError::from_io(&error, &path))
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn url(&self) -> String {
        format!("file:{}", self.root.display())
    }

    fn syncs(&self) -> u64 {
        self.disk.syncs.load(Ordering::Relaxed)
    }

    async fn close(&self) -> Result<(), StoreError> {
        drop(self.held().take());
        Ok(())
    }
}
