//! The stat cache: what every file looked like when it was last hashed, so that one that still looks so
//! isn't opened.
//!
//! It is believed only if it is whole (a checksum covers every byte), belongs to this store, this folder
//! and these rules, and names a checkpoint that is in the log: a cache can be ahead of a store that was
//! put back or lost, and must not make a snapshot refer to contents that no store has. Anything else is as
//! good as no cache.
//!
//! It is one file, which is replaced as a whole. Beside an encrypted store it is sealed.

use std::sync::Arc;

use piton_store::{Bytes, Hashing};
use piton_types::{BlobId, EntryHash, RunId, Seq};
use rustix::fs::FileType;

use crate::TreeError;
use crate::state::State;
use crate::system::Stat;
use crate::tree::{Content, Reason};
use crate::wire::{Wire, put_bytes, put_signed, put_varint};

/// The file.
const NAME: &str = "stat.cache";

const MAGIC: &[u8; 8] = b"PITONSC4";
/// The magic number and the checksum.
const SUMMED: usize = 40;

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

/// What a scan found, as the checkpoint of it has it.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) base: Base,
    /// When the scan began, by the clock that files are stamped with.
    pub(crate) taken_at: i64,
    pub(crate) root: Arc<Folder>,
}

/// What is known of a folder.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) stat: FileStat,
    pub(crate) tree: BlobId,
    pub(crate) times: BlobId,
    pub(crate) totals: Totals,
    /// In the order of their names.
    pub(crate) entries: Vec<(Bytes, Known)>,
}

impl Folder {
    /// What is known of a name in it.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Known> {
        let at = self.entries.binary_search_by(|(known, _)| known[..].cmp(name)).ok()?;
        Some(&self.entries[at].1)
    }
}

/// What is known of a name.
#[derive(Debug, Clone)]
pub(crate) enum Known {
    File { stat: FileStat, content: Content },
    Link { stat: FileStat, target: Bytes },
    Folder(Arc<Folder>),
    Excluded(Reason),
}

/// What of a [`Stat`] is compared.
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
        let bytes = Bytes::from(state.read(NAME).ok()??);
        let bytes = if binding.hashing.is_keyed() { binding.hashing.open_beside(NAME, bytes)? } else { bytes };
        let (head, rest) = bytes.split_at_checked(SUMMED)?;
        if &head[..8] != MAGIC || head[8..] != blake3::hash(rest).as_bytes()[..] {
            return None;
        }
        decode(&bytes, &mut Wire(rest), binding).ok()?
    }

    /// Replaces the file. It need not survive a power cut: what is torn isn't believed.
    pub(crate) fn write(&self, state: &State, binding: &Binding) -> std::io::Result<()> {
        let mut bytes = [&MAGIC[..], &[0; 32]].concat();
        self.encode(binding, &mut bytes);
        let sum = blake3::hash(&bytes[SUMMED..]);
        bytes[8..SUMMED].copy_from_slice(sum.as_bytes());
        match binding.hashing.seal_beside(NAME, &[&bytes]) {
            Some(sealed) => state.write(NAME, &[&sealed], false),
            None => state.write(NAME, &[&bytes], false),
        }
    }

    /// Whether many entries have come since its checkpoint, up to another one with the same tree in the same log.
    pub(crate) fn is_far_behind(&self, base: &Base) -> bool {
        self.base.run == base.run && base.seq.0.saturating_sub(self.base.seq.0) >= FAR
    }

    fn encode(&self, binding: &Binding, out: &mut Vec<u8>) {
        out.extend_from_slice(&binding.store);
        out.extend_from_slice(&binding.rules);
        put_varint(out, binding.root.0);
        put_varint(out, binding.root.1);
        put_bytes(out, self.base.run.as_str().as_bytes());
        put_varint(out, self.base.seq.0.into());
        out.extend_from_slice(self.base.hash.as_bytes());
        put_signed(out, self.taken_at);
        // Each with the number of the first folder in it: those in one folder follow each other.
        let mut folders = vec![(&self.root, 0)];
        let mut next = 0;
        while let Some((folder, _)) = folders.get(next).copied() {
            folders[next].1 = folders.len();
            folders.extend(folder.entries.iter().filter_map(|(_, known)| match known {
                Known::Folder(below) => Some((below, 0)),
                _ => None,
            }));
            next += 1;
        }
        put_varint(out, folders.len() as u64);
        // The innermost first: what a folder refers to is read before it.
        for (folder, mut below) in folders.into_iter().rev() {
            put_stat(out, &folder.stat);
            out.extend_from_slice(folder.tree.as_bytes());
            out.extend_from_slice(folder.times.as_bytes());
            let Totals { files, bytes, excluded } = folder.totals;
            [files, bytes, excluded, folder.entries.len() as u64]
                .into_iter()
                .for_each(|number| put_varint(out, number));
            for (name, known) in &folder.entries {
                put_bytes(out, name);
                match known {
                    Known::File { stat, content } => {
                        out.push(if matches!(content, Content::Whole(_)) { FILE } else { LARGE });
                        put_stat(out, stat);
                        out.extend_from_slice(content.id().as_bytes());
                    }
                    Known::Link { stat, target } => {
                        out.push(LINK);
                        put_stat(out, stat);
                        put_bytes(out, target);
                    }
                    Known::Folder(_) => {
                        out.push(SUBFOLDER);
                        put_varint(out, below as u64);
                        below += 1;
                    }
                    Known::Excluded(reason) => out.extend_from_slice(&[EXCLUDED, *reason as u8]),
                }
            }
        }
    }
}

/// The cache in these bytes; `None` if it belongs to something else.
fn decode(bytes: &Bytes, wire: &mut Wire<'_>, binding: &Binding) -> Result<Option<Cache>, TreeError> {
    let bound = (wire.array()?, wire.array()?, (wire.varint()?, wire.varint()?));
    if bound != (binding.store, binding.rules, binding.root) {
        return Ok(None);
    }
    let run = std::str::from_utf8(wire.sized()?).ok().and_then(|run| run.parse().ok());
    let seq = u32::try_from(wire.varint()?).map(Seq).map_err(|_| UNFIT)?;
    let base = Base { run: run.ok_or(UNFIT)?, seq, hash: EntryHash::new(wire.array()?) };
    let taken_at = wire.signed()?;
    let count = wire.count_of(64)?;
    let mut folders: Vec<Arc<Folder>> = Vec::with_capacity(count);
    for _ in 0..count {
        let stat = stat(wire)?;
        let (tree, times) = (BlobId::new(wire.array()?), BlobId::new(wire.array()?));
        let totals = Totals { files: wire.varint()?, bytes: wire.varint()?, excluded: wire.varint()? };
        let entries = (0..wire.count_of(3)?).map(|_| {
            let name = bytes.slice_ref(wire.sized()?);
            Ok((name, known(bytes, wire, |number| folders.get(count.checked_sub(1 + number)?).cloned())?))
        });
        let entries = entries.collect::<Result<_, TreeError>>()?;
        folders.push(Arc::new(Folder { stat, tree, times, totals, entries }));
    }
    wire.end()?;
    Ok(Some(Cache { base, taken_at, root: folders.pop().ok_or(UNFIT)? }))
}

const UNFIT: TreeError = TreeError("a cache makes no sense");

fn known(
    bytes: &Bytes,
    wire: &mut Wire<'_>,
    folder: impl Fn(usize) -> Option<Arc<Folder>>,
) -> Result<Known, TreeError> {
    Ok(match wire.byte()? {
        FILE => Known::File { stat: stat(wire)?, content: Content::Whole(BlobId::new(wire.array()?)) },
        LARGE => Known::File { stat: stat(wire)?, content: Content::Pieces(BlobId::new(wire.array()?)) },
        LINK => Known::Link { stat: stat(wire)?, target: bytes.slice_ref(wire.sized()?) },
        SUBFOLDER => Known::Folder(usize::try_from(wire.varint()?).ok().and_then(folder).ok_or(UNFIT)?),
        EXCLUDED => Known::Excluded(Reason::from_number(wire.byte()?).ok_or(UNFIT)?),
        _ => return Err(UNFIT),
    })
}

fn put_stat(out: &mut Vec<u8>, stat: &FileStat) {
    put_varint(out, stat.mode.into());
    put_varint(out, stat.size);
    put_signed(out, stat.mtime);
    put_signed(out, stat.ctime);
    put_varint(out, stat.ino);
}

fn stat(wire: &mut Wire<'_>) -> Result<FileStat, TreeError> {
    let mode = u16::try_from(wire.varint()?).map_err(|_| UNFIT)?;
    Ok(FileStat { mode, size: wire.varint()?, mtime: wire.signed()?, ctime: wire.signed()?, ino: wire.varint()? })
}

/// Whether a stat is one of a kind that the cache has.
pub(crate) fn is_file(stat: &Stat) -> bool {
    stat.kind == FileType::RegularFile
}
