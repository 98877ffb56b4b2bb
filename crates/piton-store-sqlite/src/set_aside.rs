//! What is done about a WAL that a crash left and that the scan found fault with. Its bytes are always
//! kept: `PATH-wal.damaged-N`.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use piton_store::StoreError;

use crate::errors::from_io;
use crate::files::{self, Files};
use crate::mark::Mark;
use crate::wal_scan::{self, Finding};
use crate::{DamagedWal, SqliteOptions, wal_origin};

/// Checks the WAL before SQLite sees it. The caller has the store alone.
///
/// A torn or given-up end is cut off, not only ignored: SQLite goes on behind the good part with the
/// same salts, and after another crash the leftovers would look like commits behind damage. A crash
/// in here leaves the WAL as it was, or cut with its copy complete; the next open does the rest.
pub(crate) fn check(
    files: &Files,
    options: &SqliteOptions,
    read_only: bool,
    mark: Option<Mark>,
) -> Result<(), StoreError> {
    let path = files.wal();
    let fail = |error: io::Error| from_io(&error, &path);
    match fs::symlink_metadata(&path) {
        Ok(data) if is_hollow(&data) => return Err(StoreError::corrupt(path.display().to_string(), HOLLOW)),
        Ok(data) if data.len() > 0 => {}
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fail(error)),
    }
    let open = || Ok(BufReader::with_capacity(1 << 16, files::options().read(true).open(&path)?));
    let found = wal_scan::scan(open).map_err(fail)?;
    wal_origin::check(files, options, found == Finding::Whole)?;
    let (keep, damage) = match found {
        Finding::Whole => return Ok(()),
        Finding::Torn { keep } => (keep, None),
        // Frames of commits that waited for no sync, or that were about to take the place of an older WAL's.
        Finding::Damaged(damage) if mark.is_some_and(|mark| mark.is_of_another_boot() && !damage.was_synced(mark)) => {
            (damage.keep, None)
        }
        Finding::Damaged(damage) => (damage.keep, Some((damage.before, damage.behind))),
    };
    let copy = if read_only { None } else { Some(set_aside(files, &path)?) };
    if let Some((before, behind)) = damage
        && (read_only || options.damaged_wal == DamagedWal::Refuse)
    {
        return Err(StoreError::DamagedWal { wal: path, before, behind, copy });
    }
    if let Some(copy) = copy {
        tracing::warn!(log = %path.display(), copy = %copy.display(), ?damage, "the end of the log was cut off");
        let log = files::options().write(true).open(&path).map_err(fail)?;
        log.set_len(keep).and_then(|()| log.sync_all()).map_err(fail)?;
    }
    Ok(())
}

const HOLLOW: &str =
    "it is long and almost empty, which SQLite never makes it; move it elsewhere to open the store without it";

/// Whether nearly all of a long WAL is a hole, as in an archive that means harm: the scan would read nothing for hours. One
/// that a file system compresses takes more than a hundredth of its length.
fn is_hollow(data: &fs::Metadata) -> bool {
    data.len() > 1 << 30 && data.blocks() * 512 < data.len() / 100
}

/// Copies the WAL, unless a copy with the same bytes is there already.
fn set_aside(files: &Files, path: &Path) -> Result<std::path::PathBuf, StoreError> {
    let digest = digest(path).map_err(|error| from_io(&error, path))?;
    for number in 1_u32.. {
        let copy = files.beside(&format!("-wal.damaged-{number}"));
        let fail = |error: io::Error| from_io(&error, &copy);
        let partial = files.beside("-wal.damaged-new");
        match fs::symlink_metadata(&copy) {
            Ok(data) => {
                if data.is_file() && self::digest(&copy).map_err(fail)? == digest {
                    return Ok(copy);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Under another name until it is complete.
                match fs::remove_file(&partial) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
                    _ => {}
                }
                let mut from = files::options().read(true).open(path).map_err(fail)?;
                let mut to = files::options().write(true).create_new(true).open(&partial).map_err(fail)?;
                io::copy(&mut from, &mut to).and_then(|_| to.sync_all()).map_err(fail)?;
                fs::rename(&partial, &copy).map_err(fail)?;
                files.sync_folder()?;
                return Ok(copy);
            }
            Err(error) => return Err(fail(error)),
        }
    }
    Err(files::invalid(path, "there are too many copies of damaged logs beside it"))
}

fn digest(path: &Path) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let file: File = files::options().read(true).open(path)?;
    hasher.update_reader(file)?;
    Ok(hasher.finalize())
}
