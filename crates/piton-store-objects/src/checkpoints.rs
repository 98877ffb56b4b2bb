//! An embedder's checkpoints as files: one per id, replaced whole by each save.

use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::checked::{self, FORMAT};
use piton_store::{CheckpointError, CheckpointStore, Expected, Saved, StoreError};
use piton_types::Durability;
use serde::{Deserialize, Serialize};

use crate::folder::{FolderObjects, FolderOptions};
use crate::names::escape;
use crate::objects::{Objects, Part, Version};

/// How many checkpoints were ever created.
const CREATED: &str = "created.json";

/// A [`CheckpointStore`] in a folder: `NAME.checkpoint.json` for each id, readable by its owner only. It is plaintext.
///
/// Several processes may use one folder. When `save` or `delete` returns, what it did survives a power cut.
#[derive(Debug)]
pub struct FileCheckpointStore {
    objects: FolderObjects,
}

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    format: u32,
    id: String,
    /// The number of its creation, and how often it was saved since: no version is given twice, also if an id is
    /// deleted and saved again.
    created: u32,
    saves: u32,
    #[serde(with = "checked::base64")]
    bytes: Bytes,
}

impl Checkpoint {
    fn version(&self) -> u64 {
        u64::from(self.created) << 32 | u64::from(self.saves)
    }
}

#[derive(Serialize, Deserialize)]
struct Created {
    format: u32,
    count: u32,
}

impl FileCheckpointStore {
    /// The store in `folder`, which is made if it isn't there.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let objects = FolderObjects::open(folder, &FolderOptions::default()).map_err(|error| failed(&error))?;
        Ok(Self { objects })
    }

    async fn read(&self, id: &str) -> Result<Option<(Checkpoint, Version)>, StoreError> {
        let name = name(id);
        let Some(object) = self.objects.get(&name, Part::Whole).await? else { return Ok(None) };
        let saved: Checkpoint = checked::open(&object.bytes, || name.clone())?;
        match saved.id == id {
            true => Ok(Some((saved, object.version))),
            false => Err(StoreError::corrupt(name, format!("it is the checkpoint of {:?}", saved.id))),
        }
    }

    /// A number that no creation had before.
    async fn create_number(&self) -> Result<u32, StoreError> {
        loop {
            let old = self.objects.get(CREATED, Part::Whole).await?;
            let count = match &old {
                None => 0,
                Some(object) => checked::open::<Created>(&object.bytes, || CREATED.to_owned())?.count,
            };
            let count = count.checked_add(1).ok_or_else(|| StoreError::corrupt(CREATED, "it can't count further"))?;
            let bytes: Bytes = checked::seal(&Created { format: FORMAT, count })?.into();
            let done = match old {
                None => self.objects.create(CREATED, bytes, Durability::Durable).await?,
                Some(old) => self.objects.replace(CREATED, bytes, &old.version, Durability::Durable).await?,
            };
            if done {
                return Ok(count);
            }
        }
    }

    async fn replace(&self, id: &str, bytes: Bytes, expected: Expected) -> Result<Option<u64>, StoreError> {
        loop {
            let old = self.read(id).await?;
            let now = old.as_ref().map_or(Expected::Absent, |(saved, _)| Expected::Version(saved.version()));
            if expected != Expected::Any && expected != now {
                return Ok(None);
            }
            let next = old.as_ref().and_then(|(saved, _)| Some((saved.created, saved.saves.checked_add(1)?)));
            let (created, saves) = match next {
                Some(next) => next,
                None => (self.create_number().await?, 0),
            };
            let saved = Checkpoint { format: FORMAT, id: id.to_owned(), created, saves, bytes: bytes.clone() };
            let content = checked::seal(&saved)?.into();
            let done = match old {
                None => self.objects.create(&name(id), content, Durability::Durable).await?,
                Some((_, version)) => self.objects.replace(&name(id), content, &version, Durability::Durable).await?,
            };
            if done {
                return Ok(Some(saved.version()));
            }
        }
    }
}

fn name(id: &str) -> String {
    format!("{}.checkpoint.json", escape(id))
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
        let saved = self.replace(id, bytes, expected).await.map_err(|error| failed(&error))?;
        saved.ok_or_else(|| CheckpointError::Conflict(id.to_owned()))
    }

    async fn load(&self, id: &str) -> Result<Option<Saved>, CheckpointError> {
        let saved = self.read(id).await.map_err(|error| failed(&error))?;
        Ok(saved.map(|(saved, _)| Saved { version: saved.version(), bytes: saved.bytes }))
    }

    async fn delete(&self, id: &str) -> Result<(), CheckpointError> {
        let deleted = self.objects.delete(&name(id), None, Durability::Durable).await;
        deleted.map(drop).map_err(|error| failed(&error))
    }
}
