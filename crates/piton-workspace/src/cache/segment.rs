//! One file of the cache: its head, the records of folders, those of entries, and the names.
//!
//! [`Segment::read`] and [`Segment::write`] are the only ones that know what is in the file. It lies in a private
//! folder and is replaced as a whole, never written to or shortened in place; all of it is hashed before any of it
//! is believed, in pieces on several threads.

use piton_store::Bytes;
use piton_types::{BlobId, EntryHash, RunId, Seq};
use rayon::prelude::*;

use super::{Base, Binding, ENTRY, FOLDER};
use crate::state::State;
use crate::threads::Threads;

const MAGIC: &[u8; 8] = b"PITONSC3";
/// The magic number and the checksum.
const SUMMED: usize = 40;
const HEADER: usize = SUMMED + 32 * 6 + 8 * 3 + 4 * 6 + 1 + RunId::MAX_LEN + 7;
/// Each part is hashed in pieces of this size.
const PIECE: usize = 1 << 19;

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(super) fn id_at(bytes: &[u8], at: usize) -> [u8; 32] {
    bytes[at..at + 32].try_into().expect("32 bytes")
}

/// What a segment says of itself.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) base: Base,
    pub(super) taken_at: i64,
    /// The checksum of the whole that this is a patch for; `None` for a whole.
    pub(super) under: Option<[u8; 32]>,
    /// The numbers of its first folder and its first entry: those that follow the last ones of the whole.
    pub(super) first_folder: u32,
    pub(super) first_entry: u32,
}

/// The records, as they lie in the file.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) folders: Vec<u8>,
    pub(super) entries: Vec<u8>,
    pub(super) names: Vec<u8>,
}

/// A file of the cache that is whole.
#[derive(Debug)]
pub(super) struct Segment {
    bytes: Bytes,
    /// Whether a file has it.
    pub(super) is_on_disk: bool,
    pub(super) head: Head,
    sum: [u8; 32],
    folders: usize,
    entries: usize,
    names: usize,
}

impl Segment {
    /// Reads a file if it is whole and belongs to what it should.
    pub(super) fn read(state: &State, name: &str, binding: &Binding) -> Option<Self> {
        let bytes = Bytes::from(state.read(name).ok()??);
        let bytes = if binding.hashing.is_keyed() { binding.hashing.open_beside(name, bytes)? } else { bytes };
        Some(Self { is_on_disk: true, ..Self::parse(bytes, binding)? })
    }

    /// A segment that no file has.
    pub(super) fn hold(parts: &Parts, head: &Head, binding: &Binding) -> Option<Self> {
        let bytes = [&encode(parts, head, binding)?, &parts.folders[..], &parts.entries, &parts.names].concat();
        Self::parse(bytes.into(), binding)
    }

    fn parse(bytes: Bytes, binding: &Binding) -> Option<Self> {
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return None;
        }
        let count = |at: usize| u32_at(&bytes, at) as usize;
        let (folders, entries, names) = (count(260), count(264), count(268));
        if bytes.len() != HEADER + folders * FOLDER + entries * ENTRY + names || folders == 0 {
            return None;
        }
        let (head, rest) = bytes.split_at(HEADER);
        let (folder_bytes, rest) = rest.split_at(folders * FOLDER);
        let (entry_bytes, name_bytes) = rest.split_at(entries * ENTRY);
        let sum = id_at(head, 8);
        if checksum([&head[SUMMED..], folder_bytes, entry_bytes, name_bytes]).as_bytes() != &sum {
            return None;
        }
        let root = (u64_at(head, 232), u64_at(head, 240));
        if (id_at(head, 40), id_at(head, 72), root) != (binding.store, binding.rules, binding.root) {
            return None;
        }
        let run_length = usize::from(head[280]);
        let run = std::str::from_utf8(head.get(281..281 + run_length)?).ok()?.parse().ok()?;
        let base = Base {
            run,
            seq: Seq(u32_at(head, 256)),
            hash: EntryHash::new(id_at(head, 168)),
            tree: BlobId::new(id_at(head, 104)),
            times: BlobId::new(id_at(head, 136)),
        };
        let head = Head {
            base,
            taken_at: u64_at(head, 248).cast_signed(),
            under: Some(id_at(head, 200)).filter(|under| *under != [0; 32]),
            first_folder: u32_at(head, 272),
            first_entry: u32_at(head, 276),
        };
        Some(Self { bytes, is_on_disk: false, head, sum, folders, entries, names })
    }

    /// Replaces the file. It need not survive a power cut: what is torn isn't believed.
    pub(super) fn write(
        parts: &Parts,
        head: &Head,
        binding: &Binding,
        state: &State,
        name: &str,
    ) -> std::io::Result<()> {
        let Some(head) = encode(parts, head, binding) else { return Ok(()) };
        let parts = [&head[..], &parts.folders, &parts.entries, &parts.names];
        match binding.hashing.seal_beside(name, &parts) {
            Some(sealed) => state.write(name, &[&sealed], false),
            None => state.write(name, &parts, false),
        }
    }

    /// Whether this is the patch for that whole.
    pub(super) fn is_for(&self, whole: &Self) -> bool {
        self.head.under == Some(whole.sum)
            && self.head.first_folder == whole.end_of_folders()
            && self.head.first_entry as usize == whole.entries
    }

    /// What a patch for this one has in its head.
    pub(super) fn head_of_patch(&self, base: Base, taken_at: i64) -> Head {
        let (first_folder, first_entry) = self.end();
        Head { base, taken_at, under: Some(self.sum), first_folder, first_entry }
    }

    /// The number after its last folder.
    pub(super) fn end_of_folders(&self) -> u32 {
        self.end().0
    }

    /// The numbers after its last folder and its last entry.
    pub(super) fn end(&self) -> (u32, u32) {
        let count = |n: usize| u32::try_from(n).expect("counted in 32 bits in the file");
        (self.head.first_folder + count(self.folders), self.head.first_entry + count(self.entries))
    }

    /// Its bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Room for parts somewhat larger than this.
    pub(super) fn room(&self) -> Parts {
        Parts {
            folders: Vec::with_capacity(self.folders * FOLDER + 4096),
            entries: Vec::with_capacity(self.entries * ENTRY + 4096),
            names: Vec::with_capacity(self.names + 4096),
        }
    }

    pub(super) fn folder(&self, number: u32) -> &[u8] {
        &self.bytes[HEADER + (number - self.head.first_folder) as usize * FOLDER..][..FOLDER]
    }

    pub(super) fn entry(&self, number: u32) -> &[u8] {
        let first = HEADER + self.folders * FOLDER;
        &self.bytes[first + (number - self.head.first_entry) as usize * ENTRY..][..ENTRY]
    }

    /// All names, one behind the other.
    pub(super) fn names(&self) -> &[u8] {
        &self.bytes[HEADER + self.folders * FOLDER + self.entries * ENTRY..]
    }

    /// Where in the names that of an entry is.
    pub(super) fn name_at(&self, number: u32) -> std::ops::Range<usize> {
        let bytes = self.entry(number);
        let start = u32_at(bytes, 0) as usize;
        start..start + usize::from(u16::from_le_bytes([bytes[4], bytes[5]]))
    }

    pub(super) fn name(&self, number: u32) -> &[u8] {
        &self.names()[self.name_at(number)]
    }
}

/// The head of a file with these parts; `None` if there is too much for its numbers.
fn encode(parts: &Parts, head: &Head, binding: &Binding) -> Option<Vec<u8>> {
    let Head { base, taken_at, under, first_folder, first_entry } = head;
    let mut out = Vec::with_capacity(HEADER);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[0; 32]);
    let under = under.unwrap_or_default();
    let ids = [&binding.store, &binding.rules, base.tree.as_bytes(), base.times.as_bytes(), base.hash.as_bytes()];
    for id in ids.into_iter().chain([&under]) {
        out.extend_from_slice(id);
    }
    for number in [binding.root.0, binding.root.1, taken_at.cast_unsigned()] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&base.seq.0.to_le_bytes());
    for count in [parts.folders.len() / FOLDER, parts.entries.len() / ENTRY, parts.names.len()] {
        out.extend_from_slice(&u32::try_from(count).ok()?.to_le_bytes());
    }
    for first in [first_folder, first_entry] {
        out.extend_from_slice(&first.to_le_bytes());
    }
    let run = base.run.as_str().as_bytes();
    out.push(u8::try_from(run.len()).expect("run ids have at most 64 bytes"));
    out.extend_from_slice(run);
    out.resize(HEADER, 0);
    let sum = checksum([&out[SUMMED..], &parts.folders, &parts.entries, &parts.names]);
    out[8..SUMMED].copy_from_slice(sum.as_bytes());
    Some(out)
}

/// The checksum of all parts: that of the checksums of their pieces.
fn checksum(parts: [&[u8]; 4]) -> blake3::Hash {
    let pieces: Vec<&[u8]> = parts.into_iter().flat_map(|part| part.chunks(PIECE)).collect();
    let sums: Vec<blake3::Hash> = if Threads::is_one() {
        pieces.into_par_iter().map(blake3::hash).collect()
    } else {
        pieces.into_iter().map(blake3::hash).collect()
    };
    let mut whole = blake3::Hasher::new();
    sums.iter().for_each(|sum| {
        whole.update(sum.as_bytes());
    });
    whole.finalize()
}
