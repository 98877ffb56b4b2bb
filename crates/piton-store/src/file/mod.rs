//! A store of plain files, for people who want to read, copy and grep what Piton keeps: one folder per run,
//! one JSON file per entry.
//!
//! ```text
//! STORE/
//!   store.json      what this is, and its id
//!   runs/NAME/      see `run`
//!   blobs/          packs that are stored ahead of their commit
//!   unsynced/       what isn't durable yet
//!   scratch/        files that have no name of their own yet
//!   lock            held, shared, by every open handle
//!   …               see `upkeep`
//! ```
//!
//! An entry comes into being by `link`, which fails if its number is taken: of several writers, in whichever
//! processes, one wins. A durable append is write, sync, link, sync of the folder. Every file that counts
//! carries a checksum over all of it and says which record it is. Everything is readable by its owner only.
//! It is plaintext unless the store is [encrypted](crate::EncryptedStore).
//!
//! What is *not* promised: whoever removes the newest entry files of a log leaves a log that ends earlier.

mod blobs;
mod checkpoints;
mod disk;
mod entry;
mod index;
mod log;
mod names;
mod readable;
mod replace;
mod run;
mod segment;
mod unsynced;
mod upkeep;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use piton_types::RunId;
use serde::{Deserialize, Serialize};

pub use checkpoints::FileCheckpointStore;

use crate::checked::{self, FORMAT};
use crate::{Capabilities, Driver, Hashing, Store, StoreError, Usage};
use blobs::Places;
use disk::Disk;
pub use replace::{exchange, replace_files};
use run::RunFiles;

const KIND: &str = "piton file store";

/// How to open a file store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FileOptions {
    /// Make the store if there is none; otherwise that is `NotFound`.
    pub create: bool,
    /// Never sync. Only as the negative control of the tests.
    #[doc(hidden)]
    pub careless: bool,
    /// Open it although `store.json` is damaged, to save what is in it.
    pub salvage: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { create: true, careless: false, salvage: false }
    }
}

impl FileOptions {
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

/// A store in a folder of files.
///
/// Several handles, in one process or in many, may have the same store open.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use piton_store::{FileOptions, FileStore, Store as _};
///
/// let folder = tempfile::tempdir().unwrap();
/// let store = FileStore::open(folder.path().join("store"), FileOptions::default()).unwrap();
/// assert_eq!(store.usage().await.unwrap().runs, 0);
/// store.close().await.unwrap();
/// # });
/// ```
#[derive(Debug)]
pub struct FileStore {
    root: PathBuf,
    disk: Disk,
    read_only: bool,
    runs: Mutex<HashMap<RunId, Arc<RunFiles>>>,
    places: Mutex<Places>,
    /// The shared lock, until the store is closed.
    lock: Mutex<Option<File>>,
}

/// `store.json`.
#[derive(Serialize, Deserialize)]
struct StoreFile {
    format: u32,
    kind: String,
}

impl FileStore {
    /// Opens the store in the folder `path`, and makes it if there is none and the options say so. An empty
    /// folder is taken for none; one that holds something else is refused and left as it is.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> Result<Self, StoreError> {
        let root = real(path.as_ref())?;
        let mut store = Self {
            root,
            disk: Disk::new(options.careless),
            read_only: false,
            runs: Mutex::default(),
            places: Mutex::default(),
            lock: Mutex::default(),
        };
        let there = match store.is_there() {
            Err(StoreError::Corrupt { .. } | StoreError::Invalid { .. }) if options.salvage => store.runs().is_dir(),
            other => other?,
        };
        if !there {
            if !options.create {
                return Err(StoreError::NotFound { what: store.root.display().to_string() });
            }
            store.make()?;
        }
        store.enter()?;
        Ok(store)
    }

    /// Whether there is a store. Something else in its place is an error.
    fn is_there(&self) -> Result<bool, StoreError> {
        let mark = self.root.join("store.json");
        match disk::names(&self.root) {
            Ok(None) => return Ok(false),
            // Of a store that was being made when its maker died there is at most this.
            Ok(Some(names)) if names.iter().all(|name| name == "scratch") => return Ok(false),
            Ok(Some(_)) => {}
            Err(StoreError::Corrupt { what, detail }) => return Err(StoreError::Invalid { what, detail }),
            Err(error) => return Err(error),
        }
        let Some(bytes) = disk::read(&mark)? else {
            let what = self.root.display().to_string();
            return Err(StoreError::Invalid { what, detail: "it holds something else, and no store.json".to_owned() });
        };
        let file: StoreFile = checked::open(&bytes, || mark.display().to_string())?;
        match file.kind == KIND {
            true => Ok(true),
            false => Err(StoreError::corrupt(mark.display().to_string(), format!("it is for {:?}", file.kind))),
        }
    }

    fn make(&self) -> Result<(), StoreError> {
        disk::make_folder(&self.root)?;
        disk::make_folder(&self.scratch())?;
        let mark = checked::seal(&StoreFile { format: FORMAT, kind: KIND.to_owned() })?;
        match self.disk.replace(&self.scratch(), &self.root.join("store.json"), &[&mark], true) {
            // Somebody else made it meanwhile, and cleared up what he took for left behind.
            Err(StoreError::NotFound { .. }) if matches!(self.is_there(), Ok(true)) => {}
            made => made?,
        }
        match self.root.parent() {
            Some(above) if above != Path::new("") => self.disk.sync_folder(above),
            _ => Ok(()),
        }
    }

    /// Takes the shared lock, and clears up if nobody else has the store open.
    fn enter(&mut self) -> Result<(), StoreError> {
        let path = self.root.join("lock");
        let made = disk::inspect_folder(&self.root).and_then(|()| {
            let folders = [self.scratch(), self.runs(), self.blobs(), self.unsynced()];
            let missing = folders.iter().any(|folder| !folder.exists());
            folders.iter().try_for_each(|folder| disk::make_folder(folder))?;
            // A run is only as durable as the folder that it is in.
            if missing { self.disk.sync_folder(&self.root) } else { Ok(()) }
        });
        let opened = disk::private().read(true).write(true).create(true).truncate(false).open(&path);
        let lock = match (made, opened) {
            (Ok(()), Ok(lock)) => lock,
            (Err(StoreError::ReadOnly { .. }), _) => {
                self.read_only = true;
                return Ok(());
            }
            (_, Err(error)) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => {
                self.read_only = true;
                return Ok(());
            }
            (Err(error), _) => return Err(error),
            (_, Err(error)) => return Err(StoreError::from_io(&error, &path)),
        };
        if lock.try_lock().is_ok() {
            for name in disk::names(&self.scratch())?.unwrap_or_default() {
                disk::remove(&self.scratch().join(name))?;
            }
            let orphans = self.remove_pinned()?;
            if orphans > 0 {
                tracing::debug!(orphans, "packs that were staged and never committed are removed");
            }
        }
        disk::lock(&lock, true, &path)?;
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(lock);
        Ok(())
    }

    pub(crate) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    pub(crate) fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// The files of a run, which need not exist.
    fn run(&self, run: &RunId) -> Arc<RunFiles> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(runs.entry(run.clone()).or_insert_with(|| Arc::new(RunFiles::new(&self.runs(), run))))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error once it is closed.
    fn open_for_reading(&self) -> Result<(), StoreError> {
        match self.read_only || self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            true => Ok(()),
            false => Err(StoreError::Unavailable { detail: "the store was closed".to_owned() }),
        }
    }

    fn writable(&self) -> Result<(), StoreError> {
        self.open_for_reading()?;
        if self.read_only {
            return Err(StoreError::ReadOnly { what: self.root.display().to_string() });
        }
        self.disk.check()
    }
}

/// The path without links, `.` and `..`, of a folder that need not be there yet.
fn real(path: &Path) -> Result<PathBuf, StoreError> {
    let failed = |error: std::io::Error| StoreError::from_io(&error, path);
    match path.canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let Some(name) = path.file_name() else { return Err(failed(error)) };
            let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
            Ok(folder.canonicalize().map_err(failed)?.join(name))
        }
        other => other.map_err(failed),
    }
}

#[async_trait]
impl Store for FileStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { sync: false, chain: false, ..Capabilities::ALL }
    }

    fn hashing(&self) -> &Hashing {
        &Hashing::PLAIN
    }

    fn syncs(&self) -> u64 {
        self.disk.syncs.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn url(&self) -> String {
        format!("file:{}", self.root.display())
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.open_for_reading()?;
        let runs = self.run_ids()?.iter().filter(|run| self.run(run).checkpoints().exists()).count() as u64;
        let (mut bytes, mut folders) = (0, vec![self.root.clone()]);
        while let Some(folder) = folders.pop() {
            // What is in `unsynced` has another name elsewhere.
            if folder == self.unsynced() {
                continue;
            }
            for entry in std::fs::read_dir(&folder).map_err(|error| StoreError::from_io(&error, &folder))? {
                // Files come and go meanwhile.
                let Ok(Ok(data)) = entry.as_ref().map(std::fs::DirEntry::metadata) else { continue };
                match entry {
                    Ok(entry) if data.is_dir() => folders.push(entry.path()),
                    _ => bytes += data.len(),
                }
            }
        }
        Ok(Usage { runs, bytes })
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.open_for_reading()?;
        // What was relaxed until now is durable after an orderly end.
        let synced = if self.read_only { Ok(()) } else { self.disk.check().and_then(|()| self.sync_all()) };
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        synced
    }
}

/// Opens `file:PATH`.
#[derive(Debug, Clone, Copy)]
pub struct FileDriver {
    /// Make a store that isn't there.
    pub create: bool,
}

#[async_trait]
impl Driver for FileDriver {
    async fn open(&self, location: &str) -> Result<Arc<dyn Store>, StoreError> {
        let invalid = |detail: &str| {
            Err(StoreError::Invalid { what: format!("store URL \"file:{location}\""), detail: detail.to_owned() })
        };
        match location {
            "" => invalid("the path is missing"),
            // Elsewhere the path after two slashes has a host in front.
            _ if location.starts_with("//") => {
                invalid("the path follows the colon at once, with no slashes of its own")
            }
            _ => Ok(Arc::new(FileStore::open(location, FileOptions::default().with_create(self.create))?)),
        }
    }
}
