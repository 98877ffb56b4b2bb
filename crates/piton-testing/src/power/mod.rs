//! Power cuts, simulated. A program runs once below `strace`, which records all that it does to the
//! files below a folder, and what it says on its standard output: its acknowledgements. For any moment
//! of that run, [`Recording::materialise`] then makes a folder as an adversarial disk may hold it after
//! the power failed there, and tells what had been acknowledged. The test opens its store in that
//! folder: everything acknowledged must be there.
//!
//! # The model of the disk
//! The folder before the run is on disk. After that:
//!
//! - **Data.** What was done to a file (writes, truncation, growth, zeroed ranges) before a successful
//!   `fsync`, `fdatasync`, `sync` or `syncfs` *began*, or by a descriptor with `O_SYNC`/`O_DSYNC`, is
//!   on disk once that call came back. Of the rest, each write is independently kept, lost, or torn
//!   into sectors of 512 bytes of which any may be lost; a later one may be kept though an earlier one
//!   is lost. A lost write that would have made the file longer may leave zeros. Bytes beside a write
//!   are never harmed (SQLite calls it powersafe overwrite). `sync_file_range` and `msync` promise
//!   nothing and do nothing here.
//! - **Names** (creation, link, rename, unlink, folders). By default [`Names::DirectorySync`]: only a
//!   sync of the *folder* puts its names on disk; what was done to the names of one folder since is
//!   kept up to some point and lost after it, as a journal would; a rename between two folders, or an
//!   exchange, is kept in both or in none. With [`Names::Journal`], as on ext4: all names of the file system are in one
//!   journal, and a sync of a file commits it up to the last change of that file's own inode, its
//!   creation, rename and growth included.
//! - **Calls in flight.** A call counts from the moment when it came back; a sync covers what came back
//!   before it was entered.
//!
//! SQLite fits: `unixSync` on a new journal or WAL syncs the folder as well, which shows in the trace.
//!
//! # What isn't modelled
//! Writing through shared mappings, except to files ending in `-shm`, which SQLite rebuilds;
//! `copy_file_range`, `sendfile`, `splice`, `io_uring` and reflinks into the folder;
//! moving files into or out of the folder; links below the folder that lead to
//! another folder. Each of these makes [`Recording::record`] panic rather than let a test pass. Modes
//! and times aren't modelled: new files and folders come out readable by their owner only.

mod disk;
mod resolve;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Finished, whole_lines};
use crate::random::SeededRandom;
use crate::scratch::Scratch;
use crate::strace;

/// Longest buffer that is recorded whole; a longer one makes the recording panic.
const LARGEST_WRITE: usize = 64 << 20;

/// What must be seen in order to follow every change, file position and descriptor.
const RECORDED: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "creat",
    "close",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "read",
    "readv",
    "lseek",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "truncate",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "mmap",
    "copy_file_range",
    "sendfile",
    "splice",
    "io_uring_setup",
    "ioctl",
    "chdir",
    "fchdir",
    "clone",
    "clone3",
    "fork",
    "vfork",
];

/// What puts names on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// Only a sync of the folder that holds them: what POSIX promises, and the default.
    #[default]
    DirectorySync,
    /// One ordered journal, committed by a sync of the file too: ext4.
    Journal,
}

/// A file or folder, whatever its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Inode(usize);

impl Inode {
    const ROOT: Self = Self(0);
}

/// What an inode is, and held before the run.
#[derive(Debug, Clone)]
enum Node {
    File { start: Vec<u8>, mode: u32 },
    Folder { mode: u32 },
    Link { target: PathBuf },
}

/// A name in a folder.
type Entry = (Inode, OsString);

/// One change, or a sync, or an acknowledgement.
#[derive(Debug, Clone)]
enum Op {
    /// Creation and hard links.
    Name {
        entry: Entry,
        inode: Inode,
    },
    Unname {
        entry: Entry,
        inode: Inode,
    },
    Move {
        from: Entry,
        to: Entry,
        inode: Inode,
    },
    /// Two entries change places; each with what it has before.
    Exchange {
        one: (Entry, Inode),
        other: (Entry, Inode),
    },
    Write {
        inode: Inode,
        offset: usize,
        data: Vec<u8>,
        grows: bool,
    },
    Resize {
        inode: Inode,
        size: usize,
    },
    Zero {
        inode: Inode,
        offset: usize,
        len: usize,
    },
    Sync {
        inode: Inode,
        data_only: bool,
    },
    SyncAll,
    Say {
        text: Vec<u8>,
    },
}

#[derive(Debug, Clone)]
struct Step {
    op: Op,
    /// How many steps had come back when this one was entered: what a sync covers.
    begin: usize,
}

/// A recorded run.
#[derive(Debug, Clone)]
pub struct Recording {
    /// How the run ended and all that it said.
    pub finished: Finished,
    names: Names,
    nodes: Vec<Node>,
    start: Vec<(Entry, Inode)>,
    steps: Vec<Step>,
}

/// What a disk may hold after a power cut.
#[derive(Debug)]
pub struct CrashImage {
    /// The folder.
    pub dir: Scratch,
    /// The whole lines that the program had printed by then.
    pub acknowledged: Vec<String>,
    /// What happened last before the cut, for the message of a failed test.
    pub last: String,
}

impl Recording {
    /// Runs `command` and records what it does below `root`, which must exist.
    ///
    /// # Panics
    /// If `strace` is missing, if the run doesn't end, or does something that isn't modelled.
    pub fn record(command: &Command, root: &Path) -> Self {
        let given = root;
        let root = root.canonicalize().unwrap_or_else(|error| panic!("{} must exist: {error}", given.display()));
        let mut resolver = resolve::Resolver::new(given, &root, command.get_current_dir());
        let trace = strace::trace(command, RECORDED, LARGEST_WRITE);
        resolver.follow(&trace);
        let (nodes, start, steps) = resolver.into_parts();
        Self { finished: trace.finished, names: Names::default(), nodes, start, steps }
    }

    /// The same run on a disk with other rules for names.
    #[must_use]
    pub fn with_names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// How many steps there were. The power can be cut before the first, at 0, up to after the last,
    /// at this number.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// How many of the steps were successful syncs.
    pub fn syncs(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.op, Op::Sync { .. } | Op::SyncAll)).count()
    }

    /// `count` pairs of a cut and a seed, spread over the whole run; every cut comes up if `count` is
    /// larger than [`Recording::steps`].
    pub fn cuts(&self, count: usize, seed: u64) -> Vec<(usize, u64)> {
        let (places, random) = (self.steps.len() + 1, SeededRandom::new(seed));
        let place = |n| if count >= places { n % places } else { n * places / count };
        (0..count).map(|n| (place(n), random.next_u64())).collect()
    }

    /// The disk after the power failed when the first `cut` steps had come back. The same cut and seed
    /// always give the same disk.
    pub fn materialise(&self, cut: usize, seed: u64) -> CrashImage {
        let dir = Scratch::in_memory();
        disk::Disk::new(self, cut, seed).write_to(dir.path());
        let said: Vec<u8> = self.steps[..cut].iter().filter_map(said).flatten().copied().collect();
        let last = cut.checked_sub(1).map_or_else(|| "the start".to_owned(), |last| describe(&self.steps[last].op));
        CrashImage { dir, acknowledged: whole_lines(&String::from_utf8_lossy(&said)), last }
    }
}

fn said(step: &Step) -> Option<&Vec<u8>> {
    match &step.op {
        Op::Say { text } => Some(text),
        _ => None,
    }
}

fn describe(op: &Op) -> String {
    match op {
        Op::Write { inode, offset, data, .. } => format!("write of {} bytes at {offset} to {inode:?}", data.len()),
        Op::Say { text } => format!("said {:?}", String::from_utf8_lossy(text)),
        other => format!("{other:?}"),
    }
}
