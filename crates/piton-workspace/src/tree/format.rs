//! The bytes of a folder: see "Snapshots" in `docs/format.md`.
//!
//! A folder with many entries is cut into several leaves at names that the names themselves decide, so
//! that a change in it costs a leaf and not the folder. Equal folders have equal bytes.

use piton_store::Hashing;
use piton_types::BlobId;

use super::{Content, Entry, Reason};
use crate::TreeError;
use crate::path::{check_name, reserved};
use crate::wire::{Wire, put_bytes, put_signed, put_varint};

/// First byte of a leaf: entries.
const LEAF: u8 = 1;
/// First byte of a branch: leaves.
const BRANCH: u8 = 2;
/// First byte of the times of a leaf.
const TIMES: u8 = 3;
/// First byte of the times of a branch.
const TIMES_BRANCH: u8 = 4;

/// A leaf isn't cut before it has so many entries.
const LEAF_MIN: usize = 64;
/// The chance, of 2^32, that a name ends a leaf after that: one in 192.
const LEAF_CHANCE: u32 = u32::MAX / 192;

/// How deeply folders nest at most.
pub(crate) const MAX_DEPTH: usize = 1024;

const FILE: u8 = 1;
const LARGE: u8 = 2;
const LINK: u8 = 3;
const FOLDER: u8 = 4;
const EXCLUDED: u8 = 5;

/// A name and what a snapshot says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) name: Vec<u8>,
    pub(crate) entry: Entry,
}

/// What is kept beside an entry: when a file or link was modified, in nanoseconds since 1970, or the
/// times of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimedEntry {
    Modified(i64),
    Folder(BlobId),
    Nothing,
}

/// Takes the entries of one folder in the order of their names and gives its nodes away.
pub(crate) struct FolderWriter<'a, P> {
    hashing: &'a Hashing,
    put: P,
    entries: Vec<u8>,
    times: Vec<u8>,
    count: usize,
    leaves: Vec<(BlobId, BlobId, u64)>,
    timed: bool,
}

impl<'a, E, P: FnMut(&[u8]) -> Result<BlobId, E>> FolderWriter<'a, P> {
    /// `timed` is whether times are to be written too.
    pub(crate) fn new(hashing: &'a Hashing, timed: bool, put: P) -> Self {
        let (entries, times, leaves) = Default::default();
        Self { hashing, put, entries, times, count: 0, leaves, timed }
    }

    pub(crate) fn add(&mut self, name: &[u8], entry: &Entry, time: TimedEntry) -> Result<(), E> {
        put_bytes(&mut self.entries, name);
        put_entry(&mut self.entries, entry);
        match time {
            TimedEntry::Modified(at) => put_signed(&mut self.times, at),
            TimedEntry::Folder(id) => self.times.extend_from_slice(id.as_bytes()),
            TimedEntry::Nothing => {}
        }
        self.count += 1;
        if self.count >= LEAF_MIN && self.hashing.boundary(name) < LEAF_CHANCE {
            self.close()?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), E> {
        let mut node = vec![LEAF];
        put_varint(&mut node, self.count as u64);
        node.extend_from_slice(&self.entries);
        let id = (self.put)(&node)?;
        let times = match self.timed {
            true => {
                let mut node = vec![TIMES];
                node.extend_from_slice(&self.times);
                (self.put)(&node)?
            }
            false => id,
        };
        self.leaves.push((id, times, self.count as u64));
        self.entries.clear();
        self.times.clear();
        self.count = 0;
        Ok(())
    }

    /// The ids of the folder and of its times.
    pub(crate) fn finish(mut self) -> Result<(BlobId, BlobId), E> {
        if self.count > 0 || self.leaves.is_empty() {
            self.close()?;
        }
        if let [(id, times, _)] = self.leaves[..] {
            return Ok((id, times));
        }
        let (mut node, mut times) = (vec![BRANCH], vec![TIMES_BRANCH]);
        put_varint(&mut node, self.leaves.len() as u64);
        put_varint(&mut times, self.leaves.len() as u64);
        for (id, timed, count) in &self.leaves {
            node.extend_from_slice(id.as_bytes());
            put_varint(&mut node, *count);
            times.extend_from_slice(timed.as_bytes());
        }
        let id = (self.put)(&node)?;
        Ok((id, if self.timed { (self.put)(&times)? } else { id }))
    }
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    match entry {
        Entry::File { mode, size, content } => {
            out.push(if matches!(content, Content::Whole(_)) { FILE } else { LARGE });
            put_varint(out, (*mode).into());
            put_varint(out, *size);
            out.extend_from_slice(content.id().as_bytes());
        }
        Entry::Link { target } => {
            out.push(LINK);
            put_bytes(out, target);
        }
        Entry::Folder { mode, node } => {
            out.push(FOLDER);
            put_varint(out, (*mode).into());
            out.extend_from_slice(node.as_bytes());
        }
        Entry::Excluded(reason) => out.extend_from_slice(&[EXCLUDED, *reason as u8]),
    }
}

fn read_entry(wire: &mut Wire<'_>) -> Result<Entry, TreeError> {
    let mode = |wire: &mut Wire<'_>| match u16::try_from(wire.varint()?) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(TreeError("a mode has more than twelve bits")),
    };
    Ok(match wire.byte()? {
        kind @ (FILE | LARGE) => {
            let (mode, size, id) = (mode(wire)?, wire.varint()?, BlobId::new(wire.array()?));
            let content = if kind == FILE { Content::Whole(id) } else { Content::Pieces(id) };
            Entry::File { mode, size, content }
        }
        LINK => {
            let target = wire.sized()?;
            if target.is_empty() || target.contains(&0) || target.len() > 4095 {
                return Err(TreeError("a link leads to what can't be a path"));
            }
            Entry::Link { target: target.to_vec() }
        }
        FOLDER => Entry::Folder { mode: mode(wire)?, node: BlobId::new(wire.array()?) },
        EXCLUDED => {
            let reason = wire.byte()?;
            Entry::Excluded(Reason::from_number(reason).ok_or(TreeError("a reason is unknown"))?)
        }
        _ => return Err(TreeError("an entry is of an unknown kind")),
    })
}

/// The entries of a folder, or the nodes that have them.
pub(crate) enum Parsed {
    Entries(Vec<Leaf>),
    Branch(Vec<(BlobId, u64)>),
}

/// Takes a node of a folder apart.
pub(crate) fn parse_leaves(node: &[u8]) -> Result<Parsed, TreeError> {
    let mut wire = Wire(node);
    match wire.byte()? {
        LEAF => {
            let count = wire.count_of(4)?;
            let mut leaves: Vec<Leaf> = Vec::with_capacity(count);
            for _ in 0..count {
                let name = wire.sized()?;
                check_name(name)?;
                if leaves.last().is_some_and(|before| before.name[..] >= *name) {
                    return Err(TreeError("names are out of order"));
                }
                let entry = read_entry(&mut wire)?;
                if !matches!(entry, Entry::Excluded(_)) && reserved(name).is_some() {
                    return Err(TreeError("a name is git's or Piton's own, which no snapshot may have"));
                }
                leaves.push(Leaf { name: name.to_vec(), entry });
            }
            wire.end()?;
            Ok(Parsed::Entries(leaves))
        }
        BRANCH => {
            let count = wire.count_of(33)?;
            let children = (0..count).map(|_| Ok((BlobId::new(wire.array()?), wire.varint()?)));
            let children = children.collect::<Result<Vec<_>, TreeError>>()?;
            wire.end()?;
            if children.len() < 2 {
                return Err(TreeError("a branch has fewer than two leaves"));
            }
            Ok(Parsed::Branch(children))
        }
        _ => Err(TreeError("a node is of an unknown kind")),
    }
}

/// The times of a folder's entries, or the nodes that have them.
pub(crate) enum ParsedTimes {
    Times(Vec<TimedEntry>),
    Branch(Vec<BlobId>),
}

/// Takes the times of a leaf with these entries apart.
pub(crate) fn parse_times(node: &[u8], leaves: &[Leaf]) -> Result<ParsedTimes, TreeError> {
    let mut wire = Wire(node);
    let parsed = match wire.byte()? {
        TIMES => {
            let times = leaves.iter().map(|leaf| {
                Ok(match leaf.entry {
                    Entry::File { .. } | Entry::Link { .. } => TimedEntry::Modified(wire.signed()?),
                    Entry::Folder { .. } => TimedEntry::Folder(BlobId::new(wire.array()?)),
                    Entry::Excluded(_) => TimedEntry::Nothing,
                })
            });
            ParsedTimes::Times(times.collect::<Result<_, TreeError>>()?)
        }
        TIMES_BRANCH => {
            let count = wire.count_of(32)?;
            let children = (0..count).map(|_| Ok(BlobId::new(wire.array()?)));
            ParsedTimes::Branch(children.collect::<Result<_, TreeError>>()?)
        }
        _ => return Err(TreeError("a node of times is of an unknown kind")),
    };
    wire.end()?;
    Ok(parsed)
}
