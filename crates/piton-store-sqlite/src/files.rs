//! The files of a store, and what they must be before anything opens them: regular, of one name, this user's, and
//! readable by no other user. Nothing here follows a link or waits for a pipe.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, FileType, Metadata};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use piton_store::StoreError;
use rustix::fs::{Access, OFlags};

use crate::errors::from_io;

/// Where the files of a store are.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    /// The folder that they are in.
    pub(crate) folder: PathBuf,
    /// The database.
    pub(crate) database: PathBuf,
}

/// What is at the place of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Missing,
    /// A file of no bytes, which becomes a new store as if it weren't there.
    Empty,
    /// A file with content.
    File,
}

impl Files {
    /// The files of the store at `path`. Its folder is made, for the owner only, if it is missing and
    /// `create` is set.
    pub(crate) fn of(path: &Path, create: bool) -> Result<Self, StoreError> {
        let Some(name) = path.file_name() else {
            return Err(invalid(path, "it doesn't name a file"));
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if create {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| from_io(&error, folder))?;
        }
        // SQLite is told to follow no links, and means any part of the path; the folder may have some.
        let folder = folder.canonicalize().map_err(|error| from_io(&error, folder))?;
        Ok(Self { database: folder.join(name), folder })
    }

    /// The file with this suffix to the database's name.
    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(self.database.as_os_str());
        name.push(suffix);
        PathBuf::from(name)
    }

    /// SQLite's WAL.
    pub(crate) fn wal(&self) -> PathBuf {
        self.beside("-wal")
    }

    /// Bytes of the database.
    pub(crate) fn size(&self) -> u64 {
        fs::metadata(&self.database).map_or(0, |data| data.len())
    }

    /// Looks at the database and the files beside it without opening them.
    pub(crate) fn inspect(&self) -> Result<Found, StoreError> {
        for suffix in ["-wal", "-shm", "-lock", "-new"] {
            inspect(&self.beside(suffix))?;
        }
        Ok(match inspect(&self.database)? {
            None => Found::Missing,
            Some(data) if data.len() == 0 => Found::Empty,
            Some(_) => Found::File,
        })
    }

    /// Takes the rights of all but the owner away. SQLite makes its files with the mode of the
    /// database, so they may also be left from a time when that was read-only.
    pub(crate) fn tighten(&self) -> Result<(), StoreError> {
        for path in [self.database.clone(), self.wal(), self.beside("-shm"), self.beside("-lock")] {
            if inspect(&path)?.is_some_and(|data| data.mode() & 0o777 != 0o600) {
                let private = fs::Permissions::from_mode(0o600);
                fs::set_permissions(&path, private).map_err(|error| from_io(&error, &path))?;
            }
        }
        Ok(())
    }

    /// Whether the database and its folder can be written to. SQLite needs both.
    pub(crate) fn writable(&self, found: Found) -> bool {
        let may_write = |path: &Path| rustix::fs::access(path, Access::WRITE_OK).is_ok();
        may_write(&self.folder) && (found == Found::Missing || may_write(&self.database))
    }

    /// Makes renames and new files of the folder durable.
    pub(crate) fn sync_folder(&self) -> Result<(), StoreError> {
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(|error| from_io(&error, &self.folder))
    }
}

/// What `path` is; `None` if there is nothing. An error unless it is a regular file of one name and of this user.
fn inspect(path: &Path) -> Result<Option<Metadata>, StoreError> {
    let data = match fs::symlink_metadata(path) {
        Ok(data) => data,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(from_io(&error, path)),
    };
    if !data.is_file() {
        return Err(invalid(path, &format!("it is {}, not a file", kind(data.file_type()))));
    }
    if data.nlink() > 1 {
        return Err(invalid(
            path,
            "it has more than one name (hard links), and all would change; put a copy in its place",
        ));
    }
    let us = rustix::process::geteuid().as_raw();
    if data.uid() != us {
        let detail = format!("it belongs to user {}, and this is user {us}", data.uid());
        return Err(StoreError::Denied { what: path.display().to_string(), detail });
    }
    Ok(Some(data))
}

fn kind(kind: FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "something else",
    }
}

pub(crate) fn invalid(path: &Path, detail: &str) -> StoreError {
    StoreError::Invalid { what: path.display().to_string(), detail: detail.to_owned() }
}

/// Opens one of the store's files: no links, no waiting, for the owner only if it is new.
pub(crate) fn options() -> fs::OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = File::options();
    options.mode(0o600).custom_flags(i32::try_from(flags.bits()).expect("flags of open(2) are ints"));
    options
}
