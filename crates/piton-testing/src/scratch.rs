//! Folders that vanish with the test, and a disk that is soon full.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

/// A folder that is deleted when this is dropped.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// A new folder on disk.
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("piton-").tempdir().expect("a temporary folder can be made"))
    }

    /// A new folder in memory (`/dev/shm`) where there is such a thing: syncs cost nothing there, so
    /// thousands of small stores can be opened. Not for tests that are about the disk itself.
    pub fn in_memory() -> Self {
        match tempfile::Builder::new().prefix("piton-").tempdir_in("/dev/shm") {
            Ok(dir) => Self(dir),
            Err(_) => Self::new(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path inside.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Keeps the folder, for looking at what a failed test left behind.
    pub fn keep(self) -> PathBuf {
        self.0.keep()
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Copies a tree of folders, regular files and symbolic links; `to` must exist. Other kinds of files
/// are refused, since a store has none.
pub fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, source, target) = (entry.file_type()?, entry.path(), to.join(entry.file_name()));
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy_tree(&source, &target)?;
            fs::set_permissions(&target, entry.metadata()?.permissions())?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target)?;
        } else {
            return Err(io::Error::other(format!("{} is neither a file, a folder nor a link", source.display())));
        }
    }
    Ok(())
}

/// A file system in memory with room for very little. Unmounted on drop.
#[derive(Debug)]
pub struct TinyFs(Scratch);

impl TinyFs {
    /// Room for `bytes` (whole pages), and for `inodes` files and folders if given; the root is one.
    ///
    /// # Panics
    /// If it can't be mounted: a test that needs a full disk fails without one.
    pub fn new(bytes: u64, inodes: Option<u64>) -> Self {
        let dir = Scratch::new();
        let mut options = format!("size={bytes},mode=0700");
        if let Some(inodes) = inodes {
            options.push_str(&format!(",nr_inodes={inodes}"));
        }
        let options = CString::new(options).expect("numbers hold no NUL");
        if let Err(error) = mount("piton-test", dir.path(), "tmpfs", MountFlags::empty(), options.as_c_str()) {
            panic!("this test mounts a tmpfs, which needs root (CAP_SYS_ADMIN): {error}");
        }
        Self(dir)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Changes how much fits, as when a person makes room.
    ///
    /// # Panics
    /// If it can't be remounted, as when it already holds more.
    pub fn resize(&self, bytes: u64) {
        let options = CString::new(format!("size={bytes}")).expect("numbers hold no NUL");
        rustix::mount::mount_remount(self.path(), MountFlags::empty(), options.as_c_str())
            .expect("a tmpfs can be given another size");
    }
}

impl Drop for TinyFs {
    fn drop(&mut self) {
        // Lazily: a child that still has a file open must not leave the mount behind.
        if let Err(error) = unmount(self.path(), UnmountFlags::DETACH)
            && !std::thread::panicking()
        {
            panic!("{} can't be unmounted: {error}", self.path().display());
        }
    }
}

/// A file system of `bytes` in a file, with blocks of 1 KiB. Unmounted on drop.
///
/// # Panics
/// If it can't be mounted, which needs root, `mkfs.ext2` and a loop device.
pub fn small_blocks(bytes: u64) -> SmallBlocks {
    let (image, dir) = (Scratch::new(), Scratch::new());
    let file = image.join("image");
    fs::File::create(&file).and_then(|file| file.set_len(bytes)).expect("there is room for an image");
    let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
        let done = std::process::Command::new(program).args(arguments).output();
        let done = done.unwrap_or_else(|error| panic!("this test needs {program}: {error}"));
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    };
    run("mkfs.ext2", &["-q".as_ref(), "-b".as_ref(), "1024".as_ref(), "-m".as_ref(), "0".as_ref(), file.as_os_str()]);
    run("mount", &["-o".as_ref(), "loop".as_ref(), file.as_os_str(), dir.path().as_os_str()]);
    SmallBlocks { mounted: TinyFs(dir), _image: image }
}

/// See [`small_blocks`].
#[derive(Debug)]
pub struct SmallBlocks {
    mounted: TinyFs,
    _image: Scratch,
}

impl SmallBlocks {
    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mounted.path()
    }
}

/// A file system with room for `bytes`. See [`TinyFs::new`].
pub fn tiny_tmpfs(bytes: u64) -> TinyFs {
    TinyFs::new(bytes, None)
}
