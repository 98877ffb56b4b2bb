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
use crate::objects::{Objects as _, change, read};

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

    /// A number that no creation had before.
    async fn create_number(&self) -> Result<u32, StoreError> {
        change(&self.objects, CREATED, Durability::Durable, |old: Result<Option<Created>, _>| {
            let count = old?.map_or(0, |old| old.count).checked_add(1);
            let count = count.ok_or_else(|| StoreError::corrupt(CREATED, "it can't count further"))?;
            Ok((Some(Created { format: FORMAT, count }), count))
        })
        .await
    }

    /// The new version; `None` if something else is there than was expected.
    async fn replace(&self, id: &str, bytes: Bytes, expected: Expected) -> Result<Option<u64>, StoreError> {
        let name = name(id);
        loop {
            let fresh = match read::<Checkpoint>(&self.objects, &name).await? {
                None => Some(self.create_number().await?),
                Some(_) => None,
            };
            let saved = change(&self.objects, &name, Durability::Durable, |old| {
                let old = of_id(old?, id)?;
                let now = old.as_ref().map_or(Expected::Absent, |old| Expected::Version(old.version()));
                if expected != Expected::Any && expected != now {
                    return Ok((None, Some(None)));
                }
                // Deleted since it was read: it takes a number of its own.
                let Some(created) = old.as_ref().map(|old| old.created).or(fresh) else { return Ok((None, None)) };
                let saves = old.map_or(Some(0), |old| old.saves.checked_add(1));
                let saves = saves.ok_or_else(|| StoreError::corrupt(&name, "it can't count further"))?;
                let saved = Checkpoint { format: FORMAT, id: id.to_owned(), created, saves, bytes: bytes.clone() };
                let version = saved.version();
                Ok((Some(saved), Some(Some(version))))
            });
            if let Some(version) = saved.await? {
                return Ok(version);
            }
        }
    }
}

/// The checkpoint, which must be that of `id`.
fn of_id(saved: Option<Checkpoint>, id: &str) -> Result<Option<Checkpoint>, StoreError> {
    match saved {
        Some(saved) if saved.id != id => {
            Err(StoreError::corrupt(name(id), format!("it is the checkpoint of {:?}", saved.id)))
        }
        saved => Ok(saved),
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
        let saved = read(&self.objects, &name(id)).await.and_then(|read| of_id(read.map(|(saved, _)| saved), id));
        let saved = saved.map_err(|error| failed(&error))?;
        Ok(saved.map(|saved| Saved { version: saved.version(), bytes: saved.bytes }))
    }

    async fn delete(&self, id: &str) -> Result<(), CheckpointError> {
        let deleted = self.objects.delete(&name(id), None, Durability::Durable).await;
        deleted.map(drop).map_err(|error| failed(&error))
    }
}
