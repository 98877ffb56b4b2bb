//! Putting a repaired store in the place of a damaged one, whose files are kept beside it.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use super::{disk, real};
use crate::StoreError;

/// Exchanges two names, so that each is there all the while. Where the file system can't, one is missing for a moment.
pub fn exchange(a: &Path, b: &Path) -> Result<(), StoreError> {
    match rustix::fs::renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
            let failed = |error: std::io::Error| StoreError::from_io(&error, a);
            let mut between = a.as_os_str().to_owned();
            between.push(".exchanged");
            std::fs::rename(a, &between).map_err(failed)?;
            std::fs::rename(b, a).map_err(failed)?;
            std::fs::rename(&between, b).map_err(failed)
        }
        other => other.map_err(|error| StoreError::from_io(&error.into(), a)),
    }
}

/// Puts the store in the folder `with` in the place of the one at `path`. What was there becomes `PATH.damaged-N`; gives
/// that path. `Unavailable` if somebody has either of them open.
///
/// There is a store at `path` all the while, the old one or the new one.
pub fn replace_files(path: &Path, with: &Path) -> Result<PathBuf, StoreError> {
    let (path, with) = (real(path)?, real(with)?);
    let mut locks = Vec::new();
    for folder in [&path, &with] {
        let lock = folder.join("lock");
        let file = disk::private().read(true).write(true).create(true).truncate(false).open(&lock);
        let file = file.map_err(|error| StoreError::from_io(&error, &lock))?;
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
    let above = path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
    disk::Disk::default().sync_folder(above)?;
    Ok(aside)
}
