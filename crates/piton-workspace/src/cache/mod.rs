//! The stat cache: what every file looked like when it was last hashed, so that one that still looks so
//! isn't opened.
//!
//! It is believed only if it is whole (a checksum covers every byte), belongs to this store, this folder
//! and these rules, and names a checkpoint that is in the log: a cache can be ahead of a store that was
//! put back or lost, and must not make a snapshot refer to contents that no store has. Anything else is as
//! good as no cache.
//!
//! It is two files. The *whole* has everything. The *patch* has the folders that changed since,
//! each with all of its entries, up to the root; whatever is below them and didn't change is named by its number
//! in the whole. A snapshot writes a new patch, which costs what changed; a patch that has become large makes a
//! new whole. A patch names the whole that it is for by its checksum: a torn or foreign one is left out, and the
//! whole alone is an older cache and as true as ever.
//!
//! Beside an encrypted store both are sealed as a whole.
//!
//! Records have a fixed size. A folder's entries lie together, and so do in the whole all records of everything
//! below a folder: a subtree that hasn't changed is copied in three pieces.

mod segment;
mod writer;

use std::sync::Arc;

use piton_store::Hashing;
use piton_types::{BlobId, EntryHash, RunId, Seq};
use rustix::fs::FileType;

use crate::state::State;
use crate::system::Stat;
use crate::tree::{Content, Reason};
use segment::{Segment, id_at, u32_at, u64_at};

pub(crate) use writer::{CacheWriter, TooMany};

/// The files.
const WHOLE: &str = "stat.cache";
const PATCH: &str = "stat.patch";

/// Bytes of a folder's record.
const FOLDER: usize = 144;
/// Bytes of an entry's record.
const ENTRY: usize = 80;

/// What a cache is bound to.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    /// How the store names things. One that has a key seals its cache with it: it has the names of the files.
    pub(crate) hashing: Hashing,
    /// The store's URL, hashed.
    pub(crate) store: [u8; 32],
    /// The rules from outside and the options of the scan, hashed.
    pub(crate) rules: [u8; 32],
    /// Device and inode of the root.
    pub(crate) root: (u64, u64),
}

/// The checkpoint whose tree the cache has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) run: RunId,
    pub(crate) seq: Seq,
    pub(crate) hash: EntryHash,
    pub(crate) tree: BlobId,
    pub(crate) times: BlobId,
}

/// Sums over a folder and all below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Files and links.
    pub files: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// Names that were seen and not captured.
    pub excluded: u64,
}

impl Totals {
    /// Whether so many names are worth other threads: to start them takes as long as to look at a few hundred.
    pub(crate) fn are_many(self) -> bool {
        self.files + self.excluded >= 512
    }
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.excluded += other.excluded;
    }
}

/// A cache that is believed.
#[derive(Debug)]
pub(crate) struct Cache {
    whole: Arc<Segment>,
    patch: Option<Segment>,
}

/// What is known of a folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedFolder {
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// How many folders there are from here on down, this one included.
    pub(crate) folders: u32,
    pub(crate) mode: u16,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    pub(crate) ino: u64,
    pub(crate) tree: BlobId,
    pub(crate) times: BlobId,
    pub(crate) totals: Totals,
}

/// What is known of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    File { stat: FileStat, content: Content },
    Link { stat: FileStat },
    Folder(u32),
    Excluded(Reason),
}

/// What of a [`Stat`] is compared for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStat {
    pub(crate) mode: u16,
    pub(crate) size: u64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    pub(crate) ino: u64,
}

impl From<&Stat> for FileStat {
    fn from(stat: &Stat) -> Self {
        Self { mode: stat.mode, size: stat.size, mtime: stat.mtime, ctime: stat.ctime, ino: stat.ino }
    }
}

/// How many entries are read to believe a cache before it is written again.
const FAR: u32 = 16;

const FILE: u8 = 1;
const LARGE: u8 = 2;
const LINK: u8 = 3;
const SUBFOLDER: u8 = 4;
const EXCLUDED: u8 = 5;

impl Cache {
    /// Reads the cache if it can be believed, as far as can be said without the log.
    pub(crate) fn read(state: &State, binding: &Binding) -> Option<Self> {
        let whole = Segment::read(state, WHOLE, binding).filter(|whole| whole.head.under.is_none())?;
        let patch = Segment::read(state, PATCH, binding).filter(|patch| patch.is_for(&whole));
        Some(Self { whole: Arc::new(whole), patch })
    }

    /// Whether it takes long enough to read the cache to share that among threads.
    pub(crate) fn is_long(state: &State) -> bool {
        state.size(WHOLE) > 256 << 10
    }

    fn newest(&self) -> &Segment {
        self.patch.as_ref().unwrap_or(&self.whole)
    }

    /// The checkpoint whose tree it has.
    pub(crate) fn base(&self) -> &Base {
        &self.newest().head.base
    }

    /// Whether many entries have come since its checkpoint, up to another one with the same tree in the same log.
    pub(crate) fn is_far_behind(&self, base: &Base) -> bool {
        let own = self.base();
        own.run == base.run && base.seq.0.saturating_sub(own.seq.0) >= FAR
    }

    /// When the scan began, by the clock that files are stamped with. What the whole has and no patch replaces
    /// was found to be still so at that time.
    pub(crate) fn taken_at(&self) -> i64 {
        self.newest().head.taken_at
    }

    /// The number of the root.
    pub(crate) fn root(&self) -> u32 {
        self.newest().head.first_folder
    }

    fn is_patched(&self, folder: u32) -> bool {
        folder >= self.whole.end_of_folders()
    }

    fn folder_bytes(&self, number: u32) -> &[u8] {
        match &self.patch {
            Some(patch) if self.is_patched(number) => patch.folder(number),
            _ => self.whole.folder(number),
        }
    }

    fn segment_of(&self, entry: u32) -> &Segment {
        match &self.patch {
            Some(patch) if entry >= patch.head.first_entry => patch,
            _ => &self.whole,
        }
    }

    fn entry_bytes(&self, number: u32) -> &[u8] {
        self.segment_of(number).entry(number)
    }

    /// A folder.
    pub(crate) fn folder(&self, number: u32) -> CachedFolder {
        let bytes = self.folder_bytes(number);
        CachedFolder {
            first: u32_at(bytes, 0),
            count: u32_at(bytes, 4),
            folders: u32_at(bytes, 8),
            mode: u16::try_from(u32_at(bytes, 12) & 0o7777).expect("twelve bits"),
            mtime: u64_at(bytes, 16).cast_signed(),
            ctime: u64_at(bytes, 24).cast_signed(),
            ino: u64_at(bytes, 32),
            tree: BlobId::new(id_at(bytes, 40)),
            times: BlobId::new(id_at(bytes, 72)),
            totals: Totals { files: u64_at(bytes, 104), bytes: u64_at(bytes, 112), excluded: u64_at(bytes, 120) },
        }
    }

    /// The name of an entry.
    pub(crate) fn name(&self, number: u32) -> &[u8] {
        self.segment_of(number).name(number)
    }

    /// What is known of an entry.
    pub(crate) fn entry(&self, number: u32) -> Known {
        let bytes = self.entry_bytes(number);
        let stat = FileStat {
            mode: u16::try_from(u32_at(bytes, 8) & 0o7777).expect("twelve bits"),
            size: u64_at(bytes, 16),
            mtime: u64_at(bytes, 24).cast_signed(),
            ctime: u64_at(bytes, 32).cast_signed(),
            ino: u64_at(bytes, 40),
        };
        let id = BlobId::new(id_at(bytes, 48));
        match bytes[6] {
            FILE => Known::File { stat, content: Content::Whole(id) },
            LARGE => Known::File { stat, content: Content::Pieces(id) },
            LINK => Known::Link { stat },
            SUBFOLDER => Known::Folder(u32_at(bytes, 12)),
            _ => Known::Excluded(Reason::from_number(bytes[7]).unwrap_or(Reason::Unreadable)),
        }
    }

    /// Finds a name in a folder.
    pub(crate) fn find(&self, folder: &CachedFolder, name: &[u8]) -> Option<u32> {
        let (mut low, mut high) = (folder.first, folder.first + folder.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.name(middle).cmp(name) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

/// Whether a stat is one of a kind that the cache has.
pub(crate) fn is_file(stat: &Stat) -> bool {
    stat.kind == FileType::RegularFile
}
