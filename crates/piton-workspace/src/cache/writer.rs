//! Writing the cache: what a scan found, folder by folder, as a patch for the whole that there is, or as a new
//! whole.

use std::sync::Arc;

use piton_types::BlobId;

use super::segment::{Head, Parts, Segment, u32_at};
use super::{
    Base, Binding, Cache, ENTRY, EXCLUDED, FILE, FOLDER, FileStat, Known, LARGE, LINK, PATCH, SUBFOLDER, Totals, WHOLE,
};
use crate::state::State;
use crate::system::Stat;
use crate::tree::Content;

/// A patch that has more than this part of its whole makes a new whole.
const LARGE_PATCH: usize = 4;

/// The same for one that takes long to write: each save writes all of it again.
const LONG_PATCH: usize = 12;
const LONG: usize = 256 << 10;

/// A cache that is being written, each folder before those in it.
pub(crate) struct CacheWriter {
    parts: Parts,
    /// What there is so far.
    old: Option<Arc<Cache>>,
    /// The numbers of the first folder and entry; a patch's are those behind its whole.
    first: (u32, u32),
    is_patch: bool,
}

/// Too much for the numbers that a cache has; then there is none.
#[derive(Debug)]
pub(crate) struct TooMany;

fn index(n: usize) -> Result<u32, TooMany> {
    u32::try_from(n).map_err(|_| TooMany)
}

impl CacheWriter {
    /// A patch for the whole of `old`, if a file has that.
    pub(crate) fn patch(old: &Arc<Cache>) -> Option<Self> {
        old.whole.is_on_disk.then(|| Self {
            parts: Parts::default(),
            old: Some(Arc::clone(old)),
            first: old.whole.end(),
            is_patch: true,
        })
    }

    /// A new whole.
    pub(crate) fn whole(old: Option<&Arc<Cache>>) -> Self {
        let parts = old.map(|old| old.whole.room()).unwrap_or_default();
        Self { parts, old: old.cloned(), first: (0, 0), is_patch: false }
    }

    /// What `old` says, once more, to speak of another checkpoint with the same tree.
    pub(crate) fn again(old: &Arc<Cache>) -> Result<Self, TooMany> {
        if let Some(mut patch) = Self::patch(old) {
            patch.repeat(old, old.root())?;
            if !patch.is_too_large() {
                return Ok(patch);
            }
        }
        let mut whole = Self::whole(Some(old));
        whole.keep(old.root())?;
        Ok(whole)
    }

    /// Whether it is a patch, and one that isn't worth it.
    pub(crate) fn is_too_large(&self) -> bool {
        let Parts { folders, entries, names } = &self.parts;
        let length = folders.len() + entries.len() + names.len();
        let part = if length > LONG { LONG_PATCH } else { LARGE_PATCH };
        self.is_patch && self.old.as_ref().is_some_and(|old| length > old.whole.len() / part)
    }

    fn next_folder(&self) -> Result<u32, TooMany> {
        self.first.0.checked_add(index(self.parts.folders.len() / FOLDER)?).ok_or(TooMany)
    }

    fn next_entry(&self) -> Result<u32, TooMany> {
        self.first.1.checked_add(index(self.parts.entries.len() / ENTRY)?).ok_or(TooMany)
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
        let (number, first) = (self.next_folder()?, self.next_entry()?);
        let out = &mut self.parts.folders;
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&index(count)?.to_le_bytes());
        out.extend_from_slice(&1_u32.to_le_bytes());
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

    /// Adds an entry to the folder that was begun last; gives its place.
    pub(crate) fn add(&mut self, name: &[u8], known: Known) -> Result<usize, TooMany> {
        let place = self.parts.entries.len();
        let nothing = FileStat { mode: 0, size: 0, mtime: 0, ctime: 0, ino: 0 };
        let none = BlobId::new([0; 32]);
        let (kind, reason, stat, id) = match known {
            Known::File { stat, content: Content::Whole(id) } => (FILE, 0, stat, id),
            Known::File { stat, content: Content::Pieces(id) } => (LARGE, 0, stat, id),
            Known::Link { stat } => (LINK, 0, stat, none),
            Known::Folder(_) => (SUBFOLDER, 0, nothing, none),
            Known::Excluded(reason) => (EXCLUDED, reason as u8, nothing, none),
        };
        let name_at = self.add_name(name)?;
        let out = &mut self.parts.entries;
        out.extend_from_slice(&name_at.to_le_bytes());
        out.extend_from_slice(&u16::try_from(name.len()).map_err(|_| TooMany)?.to_le_bytes());
        out.extend_from_slice(&[kind, reason]);
        out.extend_from_slice(&u32::from(stat.mode).to_le_bytes());
        out.extend_from_slice(&0_u32.to_le_bytes());
        for number in [stat.size, stat.mtime.cast_unsigned(), stat.ctime.cast_unsigned(), stat.ino] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(id.as_bytes());
        Ok(place)
    }

    fn add_name(&mut self, name: &[u8]) -> Result<u32, TooMany> {
        let at = index(self.parts.names.len())?;
        self.parts.names.extend_from_slice(name);
        Ok(at)
    }

    /// Says which folder the entry at a place is, once that is known.
    pub(crate) fn set_folder(&mut self, place: usize, folder: u32) {
        self.parts.entries[place + 12..place + 16].copy_from_slice(&folder.to_le_bytes());
    }

    /// Ends a folder: everything below it has been written, or is where it was.
    pub(crate) fn end(&mut self, folder: u32, folders: u32) {
        let at = (folder - self.first.0) as usize * FOLDER + 8;
        self.parts.folders[at..at + 4].copy_from_slice(&folders.to_le_bytes());
    }

    /// Keeps a folder of the old cache and everything below it; gives its number and how many folders that are.
    pub(crate) fn keep(&mut self, folder: u32) -> Result<(u32, u32), TooMany> {
        let old = Arc::clone(self.old.as_ref().ok_or(TooMany)?);
        self.keep_of(&old, folder)
    }

    fn keep_of(&mut self, old: &Cache, folder: u32) -> Result<(u32, u32), TooMany> {
        let cached = old.folder(folder);
        if !old.is_patched(folder) {
            return Ok((
                if self.is_patch { folder } else { self.copy(&old.whole, folder, cached.folders)? },
                cached.folders,
            ));
        }
        self.repeat(old, folder)
    }

    /// Writes a folder of the old cache again, and of what is below it what a patch has.
    fn repeat(&mut self, old: &Cache, folder: u32) -> Result<(u32, u32), TooMany> {
        let cached = old.folder(folder);
        let (number, first) = (self.next_folder()?, self.next_entry()?);
        let start = self.parts.folders.len();
        self.parts.folders.extend_from_slice(old.folder_bytes(folder));
        put(&mut self.parts.folders, start, first);
        let mut below = Vec::new();
        for entry in cached.first..cached.first + cached.count {
            let name_at = self.add_name(old.name(entry))?;
            let place = self.parts.entries.len();
            self.parts.entries.extend_from_slice(old.entry_bytes(entry));
            put(&mut self.parts.entries, place, name_at);
            if let Known::Folder(number) = old.entry(entry) {
                below.push((place, number));
            }
        }
        for (place, folder) in below {
            let (number, _) = self.keep_of(old, folder)?;
            self.set_folder(place, number);
        }
        Ok((number, cached.folders))
    }

    /// Copies a folder of a whole and everything below it, which lies together; gives its number.
    fn copy(&mut self, from: &Segment, folder: u32, folders: u32) -> Result<u32, TooMany> {
        let number = self.next_folder()?;
        let range = |at: u32| (u32_at(from.folder(at), 0), u32_at(from.folder(at), 4));
        let first = range(folder).0;
        let last = (folder..folder + folders).map(range).map(|(first, count)| first + count).max().unwrap_or(first);
        let names = if last == first { 0..0 } else { from.name_at(first).start..from.name_at(last - 1).end };
        let folder_shift = number.wrapping_sub(folder);
        let entry_shift = self.next_entry()?.wrapping_sub(first);
        let name_shift = index(self.parts.names.len())?.wrapping_sub(index(names.start)?);
        for at in folder..folder + folders {
            let start = self.parts.folders.len();
            self.parts.folders.extend_from_slice(from.folder(at));
            shift(&mut self.parts.folders, start, entry_shift);
        }
        for at in first..last {
            let start = self.parts.entries.len();
            self.parts.entries.extend_from_slice(from.entry(at));
            shift(&mut self.parts.entries, start, name_shift);
            if self.parts.entries[start + 6] == SUBFOLDER {
                shift(&mut self.parts.entries, start + 12, folder_shift);
            }
        }
        self.parts.names.extend_from_slice(&from.names()[names]);
        index(self.parts.names.len())?;
        Ok(number)
    }

    fn head(&self, base: &Base, taken_at: i64) -> Head {
        match &self.old {
            Some(old) if self.is_patch => old.whole.head_of_patch(base.clone(), taken_at),
            _ => Head { base: base.clone(), taken_at, under: None, first_folder: 0, first_entry: 0 },
        }
    }

    /// The cache, without writing it anywhere; `None` if there is too much for its numbers.
    pub(crate) fn hold(self, binding: &Binding, base: &Base, taken_at: i64) -> Option<Cache> {
        let held = Segment::hold(&self.parts, &self.head(base, taken_at), binding)?;
        Some(match self.old {
            Some(old) if self.is_patch => Cache { whole: Arc::clone(&old.whole), patch: Some(held) },
            _ => Cache { whole: Arc::new(held), patch: None },
        })
    }

    /// Writes the patch, or replaces the cache as a whole.
    pub(crate) fn write(self, state: &State, binding: &Binding, base: &Base, taken_at: i64) -> std::io::Result<()> {
        let head = self.head(base, taken_at);
        if self.is_patch {
            return Segment::write(&self.parts, &head, binding, state, PATCH);
        }
        Segment::write(&self.parts, &head, binding, state, WHOLE)?;
        // It is for another whole. Should it stay, it isn't believed.
        let _ = state.remove(PATCH);
        Ok(())
    }
}

fn put(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

fn shift(bytes: &mut [u8], at: usize, by: u32) {
    let moved = u32_at(bytes, at).wrapping_add(by);
    put(bytes, at, moved);
}
