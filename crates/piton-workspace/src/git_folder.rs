//! git's own folder of a working tree: found and read without running git, and never written.
//!
//! What lies there comes with the folder and may be anything: only plain files of a bounded size are read, and nothing
//! is believed beyond names and hashes.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// No file of git's that is read here is larger in earnest.
const MOST_BYTES: u64 = 8 << 20;

/// How many folders of refs are looked into.
const MOST_FOLDERS: usize = 1000;

/// Where git keeps what belongs to a working tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitFolder {
    /// With HEAD and the index of this working tree.
    pub(crate) directory: PathBuf,
    /// With the refs, which working trees share.
    pub(crate) common: PathBuf,
}

impl GitFolder {
    /// The one of the working tree that a folder is in.
    pub(crate) fn of(root: &Path) -> Option<Self> {
        let found = root.ancestors().map(|folder| folder.join(".git")).find(|path| path.symlink_metadata().is_ok())?;
        let directory = match read(&found) {
            Some(text) => found.parent()?.join(named(text.strip_prefix(b"gitdir:")?)),
            None => found,
        };
        if directory.join("HEAD").symlink_metadata().is_err() {
            return None;
        }
        let common = match read(&directory.join("commondir")) {
            Some(text) => directory.join(named(&text)),
            None => directory.clone(),
        };
        Some(Self { directory, common })
    }

    /// The folders in which branches, tags and the stash lie, as far as they are files.
    pub(crate) fn folders_of_refs(&self) -> Vec<PathBuf> {
        let refs = self.common.join("refs");
        let mut folders = vec![refs.clone(), refs.join("heads"), refs.join("tags")];
        let mut next = 1;
        while next < folders.len() && folders.len() < MOST_FOLDERS {
            let entries = folders[next].read_dir().into_iter().flatten().flatten();
            folders.extend(
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|one| one.path()),
            );
            next += 1;
        }
        folders
    }
}

/// The path in a file that names one.
fn named(text: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(text.trim_ascii()))
}

/// A plain file, if it is one and not too large.
pub(crate) fn read(path: &Path) -> Option<Vec<u8>> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path).ok()?;
    let metadata = file.metadata().ok().filter(|metadata| metadata.is_file() && metadata.len() <= MOST_BYTES)?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).ok()?);
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
