//! Exchanging two names of a file system, for stores that put a repaired store in the place of a damaged one.

use std::path::Path;

use rustix::fs::{CWD, RenameFlags};

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
