//! Which folder a folder is: where it lies, and what stays with it when it is moved.

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// What stays with a folder when it is renamed within its file system. A copy has another one.
///
/// The birth time makes the difference between a folder that moved and another one that got the inode
/// of one that was deleted. Where a file system doesn't keep it, a move isn't recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The device that it is on.
    pub(super) device: u64,
    /// Its number there.
    pub(super) inode: u64,
    /// When it was made, in nanoseconds since 1970.
    pub(super) born: Option<u64>,
}

impl Identity {
    /// The identity of the folder with this metadata.
    pub(super) fn of(metadata: &Metadata) -> Self {
        let born = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            born: born.and_then(|born| u64::try_from(born.as_nanos()).ok()),
        }
    }

    /// The identity of what is at `path` now, if there is a folder.
    pub(super) fn at(path: &Path) -> Option<Self> {
        path.metadata().ok().filter(Metadata::is_dir).map(|metadata| Self::of(&metadata))
    }

    /// Whether both are certainly the same folder.
    pub(super) fn proves(&self, other: &Self) -> bool {
        self.born.is_some() && self == other
    }
}

/// A path as JSON: text, or a list of bytes if it isn't Unicode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum StoredPath {
    /// The usual case.
    Text(String),
    /// Not Unicode.
    Bytes(Vec<u8>),
}

impl From<&Path> for StoredPath {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<&StoredPath> for PathBuf {
    fn from(path: &StoredPath) -> Self {
        match path {
            StoredPath::Text(text) => Self::from(text),
            StoredPath::Bytes(bytes) => Self::from(OsString::from_vec(bytes.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_identity_when_moved_and_a_copy_has_another() {
        let root = tempfile::tempdir().unwrap();
        let (old, new) = (root.path().join("old"), root.path().join("new"));
        std::fs::create_dir(&old).unwrap();
        let before = Identity::at(&old).unwrap();
        std::fs::rename(&old, &new).unwrap();
        std::fs::create_dir(&old).unwrap();
        assert_eq!(Identity::at(&new), Some(before));
        assert_ne!(Identity::at(&old), Some(before));
        assert_eq!(Identity::at(&root.path().join("none")), None);
    }

    #[test]
    fn without_a_birth_time_nothing_is_proved() {
        let identity = Identity { device: 1, inode: 2, born: None };
        assert!(!identity.proves(&identity));
    }

    #[test]
    fn any_path_survives_json() {
        for bytes in [b"/a b/\xc3\xbc".as_slice(), b"/\xff\x00x"] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let text = serde_json::to_string(&StoredPath::from(path.as_path())).unwrap();
            assert_eq!(PathBuf::from(&serde_json::from_str::<StoredPath>(&text).unwrap()), path);
        }
    }
}
