//! Putting a repaired database in the place of a damaged one, whose files are kept beside it.

use std::fs;
use std::path::{Path, PathBuf};

use piton_store::{StoreError, exchange};

use crate::errors::from_io;
use crate::files::{self, Files};
use crate::open::lock_alone;

/// Puts the store at `with` in the place of the one at `path`. What was there becomes `PATH.damaged-N`, with its WAL;
/// gives that path. `Unavailable` if another process has either of them open.
///
/// There is a database at `path` all the while, the old one or the new one. A WAL that the old one still has goes first,
/// because it must never meet the new one.
pub fn replace(path: &Path, with: &Path) -> Result<PathBuf, StoreError> {
    let (files, new) = (Files::of(path, false)?, Files::of(with, false)?);
    let locks = [lock_alone(&files)?, lock_alone(&new)?];
    let aside = (1_u32..)
        .map(|number| files.beside(&format!(".damaged-{number}")))
        .find(|aside| fs::symlink_metadata(aside).is_err())
        .ok_or_else(|| files::invalid(path, "there are too many damaged stores beside it"))?;
    let rename = |from: &Path, to: &Path| match fs::rename(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(from_io(&error, from)),
        _ => Ok(()),
    };
    let with_suffix = |path: &Path, suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    for suffix in ["-wal", "-shm"] {
        rename(&files.beside(suffix), &with_suffix(&aside, suffix))?;
    }
    files.sync_folder()?;
    exchange(&files.database, &new.database)?;
    files.sync_folder()?;
    rename(&new.database, &aside)?;
    files.sync_folder()?;
    // The lock of the new one has lost its meaning with its name.
    drop(fs::remove_file(new.beside("-lock")));
    drop(locks);
    Ok(aside)
}
