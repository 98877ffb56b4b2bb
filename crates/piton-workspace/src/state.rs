//! The folder's own files beside the store: the lock, the stat cache, the newest number, the reservations, and the mark of a
//! restore that is under way.
//!
//! They lie where an agent may write, so nothing about them is taken for granted. Each is opened by its name in the open
//! folder, follows no link, and is replaced as a whole by a new file, so that nothing is written through a hard link either.
//! What lies in the place of one and is no file is set aside.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::{RelPath, system};

/// The largest of the files that is read.
const MAX: u64 = 4 << 30;

const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// The private folder of a workspace.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    /// `None` if there is none and it is only looked for.
    folder: Option<OwnedFd>,
    /// Nothing is made or changed.
    looks: bool,
}

impl State {
    /// Opens the folder, and makes it if it isn't there unless the caller only looks. No link is followed on the way from the workspace to it, or, if it
    /// lies elsewhere, in its last two names.
    pub(crate) fn open(path: &Path, root: &Path, root_folder: &OwnedFd, looks: bool) -> std::io::Result<Self> {
        let none = || Self { path: path.to_owned(), folder: None, looks };
        let (mut folder, below) = match path.strip_prefix(root) {
            Ok(below) => (system::open_below(root_folder, &RelPath::default())?, below),
            Err(_) => {
                let above = path.ancestors().nth(2).unwrap_or_else(|| Path::new("/"));
                match looks {
                    true if !above.exists() => return Ok(none()),
                    true => {}
                    false => std::fs::create_dir_all(above)?,
                }
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                (rustix::fs::open(above, flags, Mode::empty())?, path.strip_prefix(above).unwrap_or(path))
            }
        };
        for name in below.components() {
            match if looks { Ok(()) } else { rustix::fs::mkdirat(&folder, name.as_os_str(), Mode::RWXU) } {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            folder = match rustix::fs::openat(&folder, name.as_os_str(), flags, Mode::empty()) {
                Err(Errno::NOENT) if looks => return Ok(none()),
                opened => opened?,
            };
        }
        Ok(Self { folder: Some(folder), ..none() })
    }

    /// The folder, to look at what is in it.
    fn to_read(&self) -> std::io::Result<&OwnedFd> {
        self.folder.as_ref().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    /// The folder, to change what is in it.
    fn to_change(&self) -> std::io::Result<&OwnedFd> {
        if self.looks { Err(std::io::ErrorKind::ReadOnlyFilesystem.into()) } else { self.to_read() }
    }

    /// The folder itself, of a workspace that isn't only looked at.
    pub(crate) fn folder(&self) -> &OwnedFd {
        self.folder.as_ref().expect("only a caller that looks may have none, and it restores nothing")
    }

    /// The path of one of the files, for messages.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What the file has; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> std::io::Result<Option<Vec<u8>>> {
        let Ok(folder) = self.to_read() else { return Ok(None) };
        let file = match rustix::fs::openat(folder, name, OFlags::RDONLY | FILE, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.take(MAX).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Puts a whole new content in the place of the file; on disk when this returns, if it is to be `durable`.
    ///
    /// The two are exchanged, and the old one goes: a file that is renamed over another is written out by ext4 at once, which
    /// takes longer than all the rest.
    pub(crate) fn write(&self, name: &str, parts: &[&[u8]], durable: bool) -> std::io::Result<()> {
        let folder = self.to_change()?;
        let beside = format!("{name}.new");
        self.remove(&beside)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | FILE;
        let mut file = File::from(rustix::fs::openat(folder, &beside, flags, Mode::RUSR | Mode::WUSR)?);
        parts.iter().try_for_each(|part| file.write_all(part))?;
        if durable {
            file.sync_all()?;
        }
        let rename = |flags| rustix::fs::renameat_with(folder, &beside, folder, name, flags);
        match rename(RenameFlags::EXCHANGE) {
            Ok(()) => self.remove(&beside)?,
            // There is none yet, or the file system knows no exchange.
            Err(_) => rustix::fs::renameat(folder, &beside, folder, name)?,
        }
        if durable { Ok(rustix::fs::fsync(folder)?) } else { Ok(()) }
    }

    /// Removes the file, if there is one. A folder in its place is set aside: what is in it isn't ours.
    pub(crate) fn remove(&self, name: &str) -> std::io::Result<()> {
        let folder = self.to_change()?;
        match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => self.set_aside(name),
            Err(error) => Err(error.into()),
        }
    }

    fn set_aside(&self, name: &str) -> std::io::Result<()> {
        let folder = self.to_change()?;
        for number in 0_u32.. {
            let aside = format!("{name}.aside-{number}");
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(folder, name, folder, &aside, flags) {
                Err(Errno::EXIST) => {}
                Ok(()) | Err(Errno::NOENT) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// A file to be locked. What lies in its place and is no file is set aside, by one process at a time: a file that another
    /// process has locked is never replaced.
    pub(crate) fn lock_file(&self, name: &str) -> std::io::Result<File> {
        let folder = self.to_change()?;
        let open = || {
            let flags = OFlags::RDWR | OFlags::CREATE | FILE;
            let file = rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
            let stat = system::stat_of(&file)?;
            if stat.kind == FileType::RegularFile { Ok(File::from(file)) } else { Err(Errno::ISDIR) }
        };
        if let Ok(file) = open() {
            return Ok(file);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let here = File::from(rustix::fs::openat(folder, ".", flags, Mode::empty())?);
        here.lock()?;
        let is_file = |stat: system::Stat| stat.kind == FileType::RegularFile;
        if !system::stat(folder, name.as_bytes()).is_ok_and(is_file) {
            self.set_aside(name)?;
        }
        Ok(open()?)
    }
}
