//! The calls to the file system: relative to open descriptors, never following a link, so that no name in
//! a tree or a snapshot leads out of the folder. Written for Linux.

use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, StatxFlags};
use rustix::io::{Errno, Result};

use crate::RelPath;

/// What the system says of a file, as far as it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: FileType,
    pub(crate) mode: u16,
    pub(crate) size: u64,
    /// In nanoseconds since 1970.
    pub(crate) mtime: i64,
    /// In nanoseconds since 1970. Unlike the other time, no program can put it back.
    pub(crate) ctime: i64,
    pub(crate) ino: u64,
    pub(crate) dev: u64,
    /// Whether it has more than one name.
    pub(crate) is_linked: bool,
}

impl From<rustix::fs::Stat> for Stat {
    fn from(stat: rustix::fs::Stat) -> Self {
        // A time that doesn't fit is as good as any other fixed one: ctime and size still tell.
        let nanos = |seconds: i64, nanos: u64| {
            seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(nanos).unwrap_or(0))
        };
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            mode: u16::try_from(stat.st_mode & 0o7777).expect("twelve bits"),
            size: stat.st_size.cast_unsigned(),
            mtime: nanos(stat.st_mtime, stat.st_mtime_nsec),
            ctime: nanos(stat.st_ctime, stat.st_ctime_nsec),
            ino: stat.st_ino,
            dev: stat.st_dev,
            is_linked: stat.st_nlink > 1,
        }
    }
}

pub(crate) fn name(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Of the entry `name` itself, even if it is a link.
pub(crate) fn stat(folder: impl AsFd, entry: &[u8]) -> Result<Stat> {
    rustix::fs::statat(folder, name(entry), AtFlags::SYMLINK_NOFOLLOW).map(Stat::from)
}

/// Of an open file or folder.
pub(crate) fn stat_of(fd: impl AsFd) -> Result<Stat> {
    rustix::fs::fstat(fd).map(Stat::from)
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The root of a workspace, for looking up what is in it.
pub(crate) fn open_root(root: &Path) -> Result<OwnedFd> {
    rustix::fs::open(root, FOLDER, Mode::empty())
}

/// A folder in a folder, for looking up what is in it; needs no permission to read it.
pub(crate) fn open_folder(parent: impl AsFd, entry: &[u8]) -> Result<OwnedFd> {
    rustix::fs::openat(parent, name(entry), FOLDER, Mode::empty())
}

/// Tells one mount from another.
pub(crate) type Mount = Option<(u32, u32, u64)>;

/// The mount that an open file or folder lies on: another one for every file system, and for every part of one that is mounted
/// in a second place. `None` for all if the kernel doesn't tell.
pub(crate) fn mount(folder: impl AsFd) -> Mount {
    let about = rustix::fs::statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    Some((about.stx_dev_major, about.stx_dev_minor, about.stx_mnt_id))
}

/// Chooses the signal that tells of a lease; `fcntl.h`.
const F_SETSIG: libc::c_int = 10;

/// Whether a program has the file open for writing, as far as the system can tell. If not, none can open it so before the
/// descriptor is closed.
#[expect(unsafe_code, reason = "no safe library has leases on files")]
pub(crate) fn is_written(file: &OwnedFd) -> bool {
    // A program that tries is made to wait, and we are told by a signal: by one that is ignored by itself.
    // SAFETY: both calls take a descriptor and two numbers.
    let lease = unsafe {
        libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG);
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK)
    };
    lease == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

/// A folder below the root, with no link and no other mount on the way. Where the kernel lacks `openat2`, name by name.
pub(crate) fn open_below(root: impl AsFd, path: &RelPath) -> Result<OwnedFd> {
    if path.is_root() {
        return rustix::fs::openat(root, ".", FOLDER, Mode::empty());
    }
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(&root, path.as_path(), FOLDER, Mode::empty(), resolve) {
        // A sandbox may refuse what it doesn't know; a path longer than the system takes needs several steps.
        Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => {
            let mut here = rustix::fs::openat(&root, ".", FOLDER, Mode::empty())?;
            for part in path.names() {
                here = open_folder(&here, part)?;
            }
            if mount(&here) == mount(root) { Ok(here) } else { Err(Errno::XDEV) }
        }
        other => other,
    }
}

/// Changes the mode of an open folder: of that one, whatever has its name by now.
pub(crate) fn change_mode(folder: &OwnedFd, mode: u16) -> Result<()> {
    let mode = Mode::from_raw_mode(mode.into());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, ".", flags, Mode::empty()) {
        Ok(folder) => rustix::fs::fchmod(folder, mode),
        // One that its owner may not read can't be opened so; the system gives the descriptor that we have a path.
        Err(Errno::ACCESS) => rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), mode),
        Err(error) => Err(error),
    }
}

/// The names in a folder, unsorted.
pub(crate) fn names(folder: impl AsFd) -> Result<Vec<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder, ".", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 32 << 10];
    let mut dir = RawDir::new(fd, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = dir.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// A regular file for reading. Never waits, should it have become a pipe meanwhile.
pub(crate) fn open_file(folder: impl AsFd, entry: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::openat(folder, name(entry), flags, Mode::empty())
}

/// Where a link leads.
pub(crate) fn read_link(folder: impl AsFd, entry: &[u8]) -> Result<Vec<u8>> {
    rustix::fs::readlinkat(folder, name(entry), Vec::new()).map(|target| CStr::to_bytes(&target).to_vec())
}

/// The time by the clock that files are stamped with, in nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    /// Promise 16: the mode of the folder that was opened is changed, and not that of one which its name leads to by then.
    #[test]
    fn a_mode_is_changed_by_descriptor() {
        let scratch = tempfile::tempdir().unwrap();
        let [folder, outside, aside] = ["folder", "outside", "aside"].map(|name| scratch.path().join(name));
        for folder in [&folder, &outside] {
            std::fs::create_dir(folder).unwrap();
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o500)).unwrap();
        }
        let open = open_root(&folder).unwrap();
        std::fs::rename(&folder, &aside).unwrap();
        symlink(&outside, &folder).unwrap();
        change_mode(&open, 0o700).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
        assert_eq!((mode(&aside), mode(&outside)), (0o700, 0o500));
    }
}
