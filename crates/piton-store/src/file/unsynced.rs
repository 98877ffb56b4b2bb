//! What is visible but not yet durable. A relaxed append leaves its file under a second name in `unsynced/`;
//! whoever commits durably next, in whichever process, syncs what is there and removes those names.
//!
//! The name is there before the entry is visible, and its writer holds a lock on the file until it is, so a
//! durable commit never overlooks an entry that could be seen before it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::FileStore;
use super::disk;
use super::names::unescape;
use super::run::RunFiles;
use crate::StoreError;

/// From so many files on, the whole file system is synced at once.
const MANY: usize = 16;

impl FileStore {
    pub(crate) fn unsynced(&self) -> PathBuf {
        self.root.join("unsynced")
    }

    /// Makes everything durable that is visible by now.
    pub(crate) fn sync_all(&self) -> Result<(), StoreError> {
        let folder = self.unsynced();
        let names = disk::names(&folder)?.unwrap_or_default();
        if names.is_empty() {
            return Ok(());
        }
        let mut folders = BTreeSet::new();
        let many = names.len() > MANY;
        for name in &names {
            let path = folder.join(name);
            let Some(file) = disk::open(&path)? else { continue };
            disk::lock(&file, false, &path)?;
            if !many {
                self.disk.sync(&file, &path)?;
                folders.extend(self.folder_of(name));
            }
        }
        if many {
            self.sync_file_system(&folder)?;
        }
        for folder in folders {
            if folder.exists() {
                self.disk.sync_folder(&folder)?;
            }
        }
        names.iter().try_for_each(|name| disk::remove(&folder.join(name)))
    }

    /// Where the file with this name in `unsynced/` has its other name, and the folders above it.
    fn folder_of(&self, name: &str) -> Vec<PathBuf> {
        let run = name.split_once('@').and_then(|(run, _)| unescape(run)?.parse().ok());
        run.map_or_else(Vec::new, |run| {
            let files = RunFiles::new(&self.runs(), &run);
            vec![files.checkpoints(), files.folder, self.runs()]
        })
    }

    fn sync_file_system(&self, folder: &Path) -> Result<(), StoreError> {
        let file = std::fs::File::open(folder).map_err(|error| StoreError::from_io(&error, folder))?;
        self.disk.sync_file_system(&file, folder)
    }
}
