//! The store: opening it, and what it says of itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use piton_store::checked::{self, FORMAT};
use piton_store::{
    Capabilities, Driver, Fold, Hashing, Leases, RunIndex as _, RunQuery, Store, StoreError, Upkeep, Usage,
};
use piton_types::{Durability, RunId};
use serde::{Deserialize, Serialize};

use crate::folder::{FolderObjects, FolderOptions};
use crate::memory::MemoryObjects;
use crate::names::{RUNS, STORE};
use crate::objects::{Objects, Part, Version, read};
use crate::packs::PackIndex;
use crate::rows::Rows;
use crate::run::Run;
use crate::staged::Followed;

const KIND: &str = "piton object store";

/// A store over objects.
///
/// Several handles, in one process or in many, may have the same store open. They share nothing but the objects.
/// Every commit is durable as soon as it is acknowledged, also a relaxed one.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use piton_store::Store as _;
/// use piton_store_objects::{FolderOptions, ObjectStore};
///
/// let folder = tempfile::tempdir().unwrap();
/// let store = ObjectStore::in_folder(folder.path().join("store"), &FolderOptions::default()).unwrap();
/// assert_eq!(store.usage().await.unwrap().runs, 0);
/// store.close().await.unwrap();
/// # });
/// ```
#[derive(Debug)]
pub struct ObjectStore {
    objects: Arc<dyn Objects>,
    runs: Mutex<HashMap<RunId, Arc<Run>>>,
    pub(crate) index: Mutex<PackIndex>,
    pub(crate) rows: tokio::sync::Mutex<Rows>,
    pub(crate) followed: tokio::sync::Mutex<Followed>,
    is_closed: AtomicBool,
}

/// `store.json`.
#[derive(Serialize, Deserialize)]
struct StoreObject {
    format: u32,
    kind: String,
}

impl ObjectStore {
    /// Opens the store over these objects. If there is none it is made, or that is `NotFound`. Objects that are no store
    /// are refused and left as they are.
    pub async fn open(objects: Arc<dyn Objects>, create: bool) -> Result<Self, StoreError> {
        let store = Self::over(objects);
        if !store.is_there(&*store.objects).await? {
            store.make(create).await?;
        }
        if store.objects.is_remote() {
            store.probe().await?;
        }
        Ok(store)
    }

    /// An empty store in memory.
    pub fn in_memory() -> Self {
        Self::over(Arc::new(MemoryObjects::new()))
    }

    /// Opens the store in the folder `path`, and makes it if there is none and the options say so. An empty folder is
    /// taken for none; one that holds something else is refused and left as it is.
    pub fn in_folder(path: impl AsRef<Path>, options: &FolderOptions) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let there = match is_store(path)? {
            false if !options.create => return Err(StoreError::NotFound { what: path.display().to_string() }),
            there => there,
        };
        let folder = FolderObjects::enter(path, options)?;
        let folder = Arc::new(folder);
        let store = Self::over(Arc::clone(&folder) as Arc<dyn Objects>);
        // In a folder every call is done when it returns for the first time.
        at_once(async {
            let is_there = match store.is_there(&*folder).await {
                Err(StoreError::Corrupt { .. }) if options.salvage => there,
                // Without its mark, but with runs.
                Err(StoreError::Invalid { .. }) if options.salvage => {
                    folder.list("", None, usize::MAX).await?.iter().any(|listed| listed.name == RUNS)
                }
                other => other?,
            };
            if !is_there {
                store.make(options.create).await?;
            }
            Ok::<_, StoreError>(())
        })?;
        folder.share()?;
        Ok(store)
    }

    fn over(objects: Arc<dyn Objects>) -> Self {
        Self {
            objects,
            runs: Mutex::default(),
            index: Mutex::default(),
            rows: tokio::sync::Mutex::default(),
            followed: tokio::sync::Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Whether there is a store. Something else in its place is an error.
    pub(crate) async fn is_there(&self, objects: &dyn Objects) -> Result<bool, StoreError> {
        let Some((mark, _)) = read::<StoreObject>(objects, STORE).await? else {
            return match objects.list("", None, 1).await?.is_empty() || !objects.is_persistent() {
                true => Ok(false),
                false => Err(StoreError::Invalid { what: self.url(), detail: NO_STORE.to_owned() }),
            };
        };
        match mark.kind == KIND {
            true => Ok(true),
            false => Err(StoreError::corrupt(STORE, format!("it is for {:?}", mark.kind))),
        }
    }

    async fn make(&self, create: bool) -> Result<(), StoreError> {
        if !create {
            return Err(StoreError::NotFound { what: self.url() });
        }
        let mark = checked::seal(&StoreObject { format: FORMAT, kind: KIND.to_owned() })?;
        self.objects.create(STORE, mark.into(), Durability::Durable).await.map(drop)
    }

    /// Finds out whether the place keeps the conditions that all of the layout relies on. One that doesn't writes the mark
    /// of the store once more, as it is.
    async fn probe(&self) -> Result<(), StoreError> {
        let Some(mark) = self.objects.get(STORE, Part::Whole).await? else {
            return Err(StoreError::NotFound { what: self.url() });
        };
        // One that no object has.
        let other = Version(mark.version.0.chars().map(|c| if c == '0' { '1' } else { c }).collect());
        let other = if other == mark.version {
            Version(other.0.replace(|c: char| c.is_ascii_alphanumeric(), "0"))
        } else {
            other
        };
        let conditions = [
            (
                "creates only what isn't there",
                self.objects.create(STORE, mark.bytes.clone(), Durability::Durable).await,
            ),
            (
                "replaces only what is unchanged",
                self.objects.replace(STORE, mark.bytes, &other, Durability::Durable).await,
            ),
        ];
        for (condition, outcome) in conditions {
            match outcome {
                Ok(false) | Err(StoreError::Denied { .. } | StoreError::ReadOnly { .. }) => {}
                Ok(true) => {
                    let detail = format!(
                        "it doesn't keep the condition that it {condition}, so writers would overwrite each other \
                         unnoticed"
                    );
                    return Err(StoreError::Invalid { what: self.url(), detail });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The objects, until the store is closed.
    pub(crate) fn objects(&self) -> Result<&dyn Objects, StoreError> {
        match self.is_closed.load(Ordering::Acquire) {
            false => Ok(&*self.objects),
            true => Err(StoreError::Unavailable { detail: "the store was closed".to_owned() }),
        }
    }

    /// A run, which need not exist.
    pub(crate) fn run(&self, run: &RunId) -> Arc<Run> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(runs.entry(run.clone()).or_insert_with(|| Arc::new(Run::new(run))))
    }
}

const NO_STORE: &str = "it holds something else, and no store.json";

/// Whether the folder looks like a store, before anything is written into it. Something else there is an error.
fn is_store(path: &Path) -> Result<bool, StoreError> {
    let failed = |error: std::io::Error| StoreError::from_io(&error, path);
    let invalid = |detail: &str| StoreError::Invalid { what: path.display().to_string(), detail: detail.to_owned() };
    let listing = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return Err(invalid("it is not a folder")),
        listing => listing.map_err(failed)?,
    };
    let mut is_empty = true;
    for entry in listing {
        let name = entry.map_err(failed)?.file_name();
        if name == STORE || name == RUNS {
            return Ok(true);
        }
        // Of a store that was being made when its maker died there is at most this.
        is_empty = is_empty && (name == ".scratch" || name == ".lock");
    }
    match is_empty {
        true => Ok(false),
        false => Err(invalid(NO_STORE)),
    }
}

/// The result of a future that never waits.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("a folder is done with a call when it returns"),
    }
}

#[async_trait]
impl Store for ObjectStore {
    fn capabilities(&self) -> Capabilities {
        let persistent = self.objects.is_persistent();
        Capabilities { persistent, shared: persistent, ..Capabilities::ALL }
    }

    fn folding(&self) -> Option<&dyn Fold> {
        Some(self)
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn upkeep(&self) -> Option<&dyn Upkeep> {
        Some(self)
    }

    fn hashing(&self) -> &Hashing {
        &Hashing::PLAIN
    }

    fn syncs(&self) -> u64 {
        self.objects.syncs()
    }

    fn url(&self) -> String {
        self.objects.url()
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        let bytes = self.objects()?.bytes().await?;
        let runs = match self.objects()?.is_remote() {
            true => self.list(RunQuery::default()).await?.len(),
            false => self.run_ids().await?.len(),
        };
        Ok(Usage { runs: runs as u64, bytes })
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.objects()?;
        self.is_closed.store(true, Ordering::Release);
        self.objects.close().await
    }
}

/// Opens `file:PATH`.
#[derive(Debug, Clone, Copy)]
pub struct FolderDriver {
    /// Make a store that isn't there.
    pub create: bool,
}

#[async_trait]
impl Driver for FolderDriver {
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
            _ => Ok(Arc::new(ObjectStore::in_folder(location, &FolderOptions::default().with_create(self.create))?)),
        }
    }
}

/// Opens `memory:`, each time a store of its own.
#[derive(Debug, Clone, Copy)]
pub struct MemoryDriver;

#[async_trait]
impl Driver for MemoryDriver {
    async fn open(&self, location: &str) -> Result<Arc<dyn Store>, StoreError> {
        match location {
            "" => Ok(Arc::new(ObjectStore::in_memory())),
            _ => Err(StoreError::Invalid {
                what: format!("store URL \"memory:{location}\""),
                detail: "a memory store has no place: write just memory:".to_owned(),
            }),
        }
    }
}
