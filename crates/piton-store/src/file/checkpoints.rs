//! An embedder's checkpoints as files: one per id, replaced whole by each save.

use std::fs::File;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::disk::{self, Disk};
use super::names::escape;
use crate::checked::{self, FORMAT};
use crate::{CheckpointError, CheckpointStore, Expected, Saved, StoreError};

/// A [`CheckpointStore`] in a folder: `NAME.json` for each id, readable by its owner only. It is plaintext.
///
/// Several processes may use one folder. When `save` or `delete` returns, what it did survives a power cut.
#[derive(Debug)]
pub struct FileCheckpointStore {
    folder: PathBuf,
    disk: Disk,
}

#[derive(Serialize, Deserialize)]
struct CheckpointFile {
    format: u32,
    id: String,
    version: u64,
    #[serde(with = "checked::base64")]
    bytes: Bytes,
}

/// The content of `versions.json`: no version up to this is given again.
#[derive(Serialize, Deserialize)]
struct Versions {
    format: u32,
    last: u64,
}

impl FileCheckpointStore {
    /// The store in `folder`, which is made if it isn't there.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let folder = folder.as_ref().to_owned();
        let made = disk::make_folder(&folder).and_then(|()| disk::make_folder(&folder.join("scratch")));
        made.map_err(|error| failed(&error))?;
        Ok(Self { folder, disk: Disk::default() })
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{}.checkpoint.json", escape(id)))
    }

    fn put<T: Serialize>(&self, path: &Path, record: &T) -> Result<(), StoreError> {
        self.disk.replace(&self.folder.join("scratch"), path, &[&checked::seal(record)?], true)
    }

    /// Writers of all processes take turns.
    fn locked(&self) -> Result<File, StoreError> {
        let path = self.folder.join("lock");
        let file = disk::private().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| StoreError::from_io(&error, &path))?;
        disk::lock(&file, false, &path)?;
        Ok(file)
    }

    fn read(&self, id: &str) -> Result<Option<CheckpointFile>, StoreError> {
        let path = self.path(id);
        let Some(bytes) = disk::read(&path)? else { return Ok(None) };
        let what = || path.display().to_string();
        let file: CheckpointFile = checked::open(&bytes, what)?;
        match file.id == id {
            true => Ok(Some(file)),
            false => Err(StoreError::corrupt(what(), format!("it is the checkpoint of {:?}", file.id))),
        }
    }

    fn last_version(&self) -> Result<u64, StoreError> {
        let path = self.folder.join("versions.json");
        match disk::read(&path)? {
            None => Ok(0),
            Some(bytes) => Ok(checked::open::<Versions>(&bytes, || path.display().to_string())?.last),
        }
    }

    fn replace(&self, id: &str, bytes: Bytes, expected: Expected) -> Result<Option<u64>, StoreError> {
        let _lock = self.locked()?;
        let old = self.read(id)?.map(|file| file.version);
        if expected != Expected::Any && expected != old.map_or(Expected::Absent, Expected::Version) {
            return Ok(None);
        }
        let version = old.unwrap_or(0).max(self.last_version()?) + 1;
        self.put(&self.path(id), &CheckpointFile { format: FORMAT, id: id.to_owned(), version, bytes })?;
        Ok(Some(version))
    }

    fn remove(&self, id: &str) -> Result<(), StoreError> {
        let _lock = self.locked()?;
        let path = self.path(id);
        // Damaged or not, it goes; of a damaged one the version isn't known, but then nobody has it either.
        let old = self.read(id).ok().flatten().map_or(0, |file| file.version);
        let last = self.last_version()?;
        if old > last {
            self.put(&self.folder.join("versions.json"), &Versions { format: FORMAT, last: old })?;
        }
        disk::remove(&path)?;
        self.disk.sync_folder(&self.folder)
    }
}

fn failed(error: &StoreError) -> CheckpointError {
    match error {
        StoreError::Corrupt { .. } | StoreError::TooNew { .. } => CheckpointError::Corrupted(error.to_string()),
        other => CheckpointError::Storage(other.to_string()),
    }
}

#[async_trait]
impl CheckpointStore for FileCheckpointStore {
    async fn save(&self, id: &str, bytes: Bytes, expected: Expected) -> Result<u64, CheckpointError> {
        let saved = self.replace(id, bytes, expected).map_err(|error| failed(&error))?;
        saved.ok_or_else(|| CheckpointError::Conflict(id.to_owned()))
    }

    async fn load(&self, id: &str) -> Result<Option<Saved>, CheckpointError> {
        let file = self.read(id).map_err(|error| failed(&error))?;
        Ok(file.map(|file| Saved { version: file.version, bytes: file.bytes }))
    }

    async fn delete(&self, id: &str) -> Result<(), CheckpointError> {
        self.remove(id).map_err(|error| failed(&error))
    }
}
