//! Putting a repaired store in the place of a damaged one, whose files are kept beside it.

use std::path::{Path, PathBuf};

use piton_store::{StoreError, exchange};

use crate::folder::{open_lock, real, sync_folder};

/// Puts the store in the folder `with` in the place of the one at `path`. What was there becomes `PATH.damaged-N`; gives
/// that path. `Unavailable` if a process has either of them open.
///
/// There is a store at `path` all the while, the old one or the new one.
pub fn replace_folder(path: &Path, with: &Path) -> Result<PathBuf, StoreError> {
    let (path, with) = (real(path)?, real(with)?);
    let mut locks = Vec::new();
    for folder in [&path, &with] {
        let lock = folder.join(".lock");
        let file = open_lock(&lock).map_err(|error| StoreError::from_io(&error, &lock))?;
        if file.try_lock().is_err() {
            let detail = format!("{} is open in another process", folder.display());
            return Err(StoreError::Unavailable { detail });
        }
        locks.push(file);
    }
    let aside = (1_u32..)
        .map(|number| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".damaged-{number}"));
            PathBuf::from(name)
        })
        .find(|aside| aside.symlink_metadata().is_err())
        .expect("there is always a number that isn't used");
    exchange(&path, &with)?;
    std::fs::rename(&with, &aside).map_err(|error| StoreError::from_io(&error, &with))?;
    sync_folder(path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new(".")))?;
    Ok(aside)
}
