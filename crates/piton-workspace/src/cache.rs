//! The stat cache: what every file looked like when it was last hashed, so that one that still looks so
//! isn't opened.
//!
//! It is believed only if it is whole (a checksum covers every byte), belongs to this store, this folder
//! and these rules, and names a checkpoint that is in the log: a cache can be ahead of a store that was
//! put back or lost, and must not make a snapshot refer to contents that nobody has. Anything else is as
//! good as no cache. It is mapped, and all of it is hashed before any of it is believed, in pieces on several
//! threads. It lies in a private folder and is replaced as a whole, never written to or shortened in place.
//!
//! Records have a fixed size. A folder's entries lie together, and so do all records of everything below
//! a folder: a subtree that hasn't changed is copied in three pieces.

use std::io::Write as _;
use std::path::Path;

use memmap2::Mmap;
use piton_types::{BlobId, EntryHash, RunId, Seq};
use rayon::prelude::*;
use rustix::fs::FileType;

use crate::system::Stat;
use crate::tree::{Content, Reason};

const MAGIC: &[u8; 8] = b"PITONSC2";
/// The magic number and the checksum.
const SUMMED: usize = 40;
const HEADER: usize = SUMMED + 32 * 5 + 8 * 4 + 4 * 4 + 1 + RunId::MAX_LEN + 7;
/// Each part is hashed in pieces of this size.
const PIECE: usize = 1 << 19;
const FOLDER: usize = 144;
const ENTRY: usize = 80;

/// What a cache is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
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

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.excluded += other.excluded;
    }
}

/// A cache that is believed.
pub(crate) struct Cache {
    bytes: Mmap,
    pub(crate) base: Base,
    /// When the scan began, by the clock that files are stamped with.
    pub(crate) taken_at: i64,
    folders: usize,
    entries: usize,
    names: usize,
}

/// What is known of a folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedFolder {
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// The first folder that isn't below this one.
    pub(crate) end: u32,
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

const FILE: u8 = 1;
const LARGE: u8 = 2;
const LINK: u8 = 3;
const SUBFOLDER: u8 = 4;
const EXCLUDED: u8 = 5;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn id_at(bytes: &[u8], at: usize) -> [u8; 32] {
    bytes[at..at + 32].try_into().expect("32 bytes")
}

impl Cache {
    /// Reads the cache at `path` if it can be believed, as far as can be said without the log.
    pub(crate) fn read(path: &Path, binding: &Binding) -> Option<Self> {
        let bytes = map(path).ok()?;
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return None;
        }
        let (folders, entries, names) =
            (u32_at(&bytes, 236) as usize, u32_at(&bytes, 240) as usize, u32_at(&bytes, 244) as usize);
        if bytes.len() != HEADER + folders * FOLDER + entries * ENTRY + names || folders == 0 {
            return None;
        }
        let (head, rest) = bytes.split_at(HEADER);
        let (folder_bytes, rest) = rest.split_at(folders * FOLDER);
        let (entry_bytes, name_bytes) = rest.split_at(entries * ENTRY);
        if checksum([&head[SUMMED..], folder_bytes, entry_bytes, name_bytes]).as_bytes() != &head[8..SUMMED] {
            return None;
        }
        let bound = Binding {
            store: id_at(&bytes, 40),
            rules: id_at(&bytes, 72),
            root: (u64_at(&bytes, 200), u64_at(&bytes, 208)),
        };
        if bound != *binding {
            return None;
        }
        let run_length = usize::from(bytes[248]);
        let run = std::str::from_utf8(bytes.get(249..249 + run_length)?).ok()?.parse().ok()?;
        let base = Base {
            run,
            seq: Seq(u32_at(&bytes, 232)),
            hash: EntryHash::new(id_at(&bytes, 168)),
            tree: BlobId::new(id_at(&bytes, 104)),
            times: BlobId::new(id_at(&bytes, 136)),
        };
        let taken_at = u64_at(&bytes, 216).cast_signed();
        Some(Self { bytes, base, taken_at, folders, entries, names })
    }

    fn folder_bytes(&self, index: u32) -> &[u8] {
        &self.bytes[HEADER + index as usize * FOLDER..][..FOLDER]
    }

    fn entry_bytes(&self, index: u32) -> &[u8] {
        &self.bytes[HEADER + self.folders * FOLDER + index as usize * ENTRY..][..ENTRY]
    }

    /// A folder; 0 is the root.
    pub(crate) fn folder(&self, index: u32) -> CachedFolder {
        let bytes = self.folder_bytes(index);
        CachedFolder {
            first: u32_at(bytes, 0),
            count: u32_at(bytes, 4),
            end: u32_at(bytes, 8),
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
    pub(crate) fn name(&self, index: u32) -> &[u8] {
        let bytes = self.entry_bytes(index);
        let names = HEADER + self.folders * FOLDER + self.entries * ENTRY;
        let length = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
        &self.bytes[names + u32_at(bytes, 0) as usize..][..length]
    }

    /// What is known of an entry.
    pub(crate) fn entry(&self, index: u32) -> Known {
        let bytes = self.entry_bytes(index);
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

/// A cache that is being written, folder by folder, each before those in it.
#[derive(Default)]
pub(crate) struct CacheWriter {
    folders: Vec<u8>,
    entries: Vec<u8>,
    names: Vec<u8>,
}

/// Too much for the numbers that a cache has; then there is none.
#[derive(Debug)]
pub(crate) struct TooMany;

fn index(n: usize) -> Result<u32, TooMany> {
    u32::try_from(n).map_err(|_| TooMany)
}

impl CacheWriter {
    /// Room for a cache somewhat larger than `like`.
    pub(crate) fn with_room_of(like: Option<&Cache>) -> Self {
        let mut writer = Self::default();
        if let Some(like) = like {
            writer.folders.reserve(like.folders * FOLDER + 4096);
            writer.entries.reserve(like.entries * ENTRY + 4096);
            writer.names.reserve(like.names + 4096);
        }
        writer
    }

    /// Begins a folder, whose entries follow at once; gives its number.
    pub(crate) fn begin(
        &mut self,
        stat: &Stat,
        tree: BlobId,
        times: BlobId,
        totals: Totals,
        count: usize,
    ) -> Result<u32, TooMany> {
        let number = index(self.folders.len() / FOLDER)?;
        let first = index(self.entries.len() / ENTRY)?;
        let out = &mut self.folders;
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&index(count)?.to_le_bytes());
        out.extend_from_slice(&0_u32.to_le_bytes());
        out.extend_from_slice(&u32::from(stat.mode).to_le_bytes());
        out.extend_from_slice(&stat.mtime.to_le_bytes());
        out.extend_from_slice(&stat.ctime.to_le_bytes());
        out.extend_from_slice(&stat.ino.to_le_bytes());
        out.extend_from_slice(tree.as_bytes());
        out.extend_from_slice(times.as_bytes());
        for total in [totals.files, totals.bytes, totals.excluded, 0, 0] {
            out.extend_from_slice(&total.to_le_bytes());
        }
        Ok(number)
    }

    /// Adds an entry to the folder that was begun last; gives its number.
    pub(crate) fn add(&mut self, name: &[u8], known: Known) -> Result<usize, TooMany> {
        let number = self.entries.len() / ENTRY;
        let name_at = index(self.names.len())?;
        self.names.extend_from_slice(name);
        let nothing = FileStat { mode: 0, size: 0, mtime: 0, ctime: 0, ino: 0 };
        let none = BlobId::new([0; 32]);
        let (kind, reason, stat, folder, id) = match known {
            Known::File { stat, content: Content::Whole(id) } => (FILE, 0, stat, 0, id),
            Known::File { stat, content: Content::Pieces(id) } => (LARGE, 0, stat, 0, id),
            Known::Link { stat } => (LINK, 0, stat, 0, none),
            Known::Folder(number) => (SUBFOLDER, 0, nothing, number, none),
            Known::Excluded(reason) => (EXCLUDED, reason as u8, nothing, 0, none),
        };
        let out = &mut self.entries;
        out.extend_from_slice(&name_at.to_le_bytes());
        out.extend_from_slice(&u16::try_from(name.len()).map_err(|_| TooMany)?.to_le_bytes());
        out.extend_from_slice(&[kind, reason]);
        out.extend_from_slice(&u32::from(stat.mode).to_le_bytes());
        out.extend_from_slice(&folder.to_le_bytes());
        for number in [stat.size, stat.mtime.cast_unsigned(), stat.ctime.cast_unsigned(), stat.ino] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(id.as_bytes());
        Ok(number)
    }

    /// Says which folder an entry is, once that is known.
    pub(crate) fn set_folder(&mut self, entry: usize, folder: u32) {
        self.entries[entry * ENTRY + 12..entry * ENTRY + 16].copy_from_slice(&folder.to_le_bytes());
    }

    /// Ends a folder: everything below it has been written.
    pub(crate) fn end(&mut self, folder: u32) -> Result<(), TooMany> {
        let end = index(self.folders.len() / FOLDER)?;
        let at = folder as usize * FOLDER + 8;
        self.folders[at..at + 4].copy_from_slice(&end.to_le_bytes());
        Ok(())
    }

    /// Copies a folder and everything below it; gives its number.
    pub(crate) fn copy(&mut self, from: &Cache, folder: u32) -> Result<u32, TooMany> {
        let number = index(self.folders.len() / FOLDER)?;
        let end = from.folder(folder).end;
        // Both kinds of records lie together, in the same order.
        let first = from.folder(folder).first;
        let last = (folder..end).map(|at| from.folder(at)).map(|at| at.first + at.count).max().unwrap_or(first);
        let name_of = |entry: u32| u32_at(from.entry_bytes(entry), 0);
        let (names, names_end) = if last == first {
            (0, 0)
        } else {
            (
                name_of(first),
                name_of(last - 1)
                    + u32::from(u16::from_le_bytes({
                        let bytes = from.entry_bytes(last - 1);
                        [bytes[4], bytes[5]]
                    })),
            )
        };
        let folder_shift = number.wrapping_sub(folder);
        let entry_shift = index(self.entries.len() / ENTRY)?.wrapping_sub(first);
        let name_shift = index(self.names.len())?.wrapping_sub(names);
        for at in folder..end {
            let start = self.folders.len();
            self.folders.extend_from_slice(from.folder_bytes(at));
            shift(&mut self.folders, start, entry_shift);
            shift(&mut self.folders, start + 8, folder_shift);
        }
        for at in first..last {
            let start = self.entries.len();
            self.entries.extend_from_slice(from.entry_bytes(at));
            shift(&mut self.entries, start, name_shift);
            if self.entries[start + 6] == SUBFOLDER {
                shift(&mut self.entries, start + 12, folder_shift);
            }
        }
        let all = HEADER + from.folders * FOLDER + from.entries * ENTRY;
        self.names.extend_from_slice(&from.bytes[all + names as usize..all + names_end as usize]);
        index(self.names.len())?;
        Ok(number)
    }

    /// Replaces the cache at `path`. It need not survive a power cut: what is torn isn't believed.
    pub(crate) fn write(self, path: &Path, binding: &Binding, base: &Base, taken_at: i64) -> std::io::Result<()> {
        let mut head = Vec::with_capacity(HEADER);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&[0; 32]);
        for id in [&binding.store, &binding.rules, base.tree.as_bytes(), base.times.as_bytes(), base.hash.as_bytes()] {
            head.extend_from_slice(id);
        }
        for number in [binding.root.0, binding.root.1, taken_at.cast_unsigned(), 0] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        head.extend_from_slice(&base.seq.0.to_le_bytes());
        for count in [self.folders.len() / FOLDER, self.entries.len() / ENTRY, self.names.len()] {
            let Ok(count) = index(count) else { return Ok(()) };
            head.extend_from_slice(&count.to_le_bytes());
        }
        let run = base.run.as_str().as_bytes();
        head.push(u8::try_from(run.len()).expect("run ids have at most 64 bytes"));
        head.extend_from_slice(run);
        head.resize(HEADER, 0);
        let sum = checksum([&head[SUMMED..], &self.folders, &self.entries, &self.names]);
        head[8..SUMMED].copy_from_slice(sum.as_bytes());
        let beside = path.with_extension("new");
        let mut file = std::fs::File::create(&beside)?;
        for part in [&head, &self.folders, &self.entries, &self.names] {
            file.write_all(part)?;
        }
        drop(file);
        // Some file systems write a file out at once if it is renamed over another, which takes as long as all the
        // rest. Whoever comes at this very moment finds none, and takes longer.
        let _ = std::fs::remove_file(path);
        std::fs::rename(&beside, path)
    }
}

/// The checksum of all parts: that of the checksums of their pieces.
fn checksum(parts: [&[u8]; 4]) -> blake3::Hash {
    let pieces: Vec<&[u8]> = parts.into_iter().flat_map(|part| part.chunks(PIECE)).collect();
    let sums: Vec<blake3::Hash> = pieces.into_par_iter().map(blake3::hash).collect();
    let mut whole = blake3::Hasher::new();
    sums.iter().for_each(|sum| {
        whole.update(sum.as_bytes());
    });
    whole.finalize()
}

#[expect(unsafe_code, reason = "the system can't say that nobody else will shorten a file that is mapped")]
fn map(path: &Path) -> std::io::Result<Mmap> {
    let file = std::fs::File::open(path)?;
    // SAFETY: the file is only ever replaced by renaming (`CacheWriter::write`), in a folder that no other user
    // can enter. Somebody who cuts it with other tools while it is used ends this process, and harms nothing.
    unsafe { Mmap::map(&file) }
}

fn shift(bytes: &mut [u8], at: usize, by: u32) {
    let moved = u32_at(bytes, at).wrapping_add(by);
    bytes[at..at + 4].copy_from_slice(&moved.to_le_bytes());
}

/// Whether a stat is one of a kind that the cache has.
pub(crate) fn is_file(stat: &Stat) -> bool {
    stat.kind == FileType::RegularFile
}
