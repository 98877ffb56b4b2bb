//! The adversarial disk: which of the unsynced changes survive. The rules are in the module's parent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{Entry, Inode, Names, Node, Op, Recording, Step};
use crate::random::SeededRandom;

const SECTOR: usize = 512;

/// The disk's mood, so that the classic accidents come up often enough.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// All that isn't synced is lost.
    Forgetful,
    /// Data is kept, names are lost: finds a missing sync of a folder.
    DataFirst,
    /// Names are kept, data is lost: finds a rename before the sync of the file.
    NamesFirst,
    /// Each change for itself.
    Mixed,
}

pub(super) struct Disk<'a> {
    recording: &'a Recording,
    steps: &'a [Step],
    mood: Mood,
    random: SeededRandom,
}

impl<'a> Disk<'a> {
    pub(super) fn new(recording: &'a Recording, cut: usize, seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let mood = match random.below(6) {
            0 => Mood::Forgetful,
            1 => Mood::DataFirst,
            2 => Mood::NamesFirst,
            _ => Mood::Mixed,
        };
        Self { recording, steps: &recording.steps[..cut], mood, random }
    }

    /// Writes the surviving tree into an empty folder.
    pub(super) fn write_to(&self, dir: &Path) {
        let mut tree: BTreeMap<Inode, BTreeMap<OsString, Inode>> = BTreeMap::new();
        for ((folder, name), inode) in self.names() {
            tree.entry(folder).or_default().insert(name, inode);
        }
        let mut written: BTreeMap<Inode, PathBuf> = BTreeMap::new();
        let mut folders = vec![(Inode::ROOT, dir.to_owned())];
        while let Some((folder, path)) = folders.pop() {
            for (name, &inode) in tree.get(&folder).into_iter().flatten() {
                let path = path.join(name);
                if let Some(earlier) = written.get(&inode) {
                    fs::hard_link(earlier, &path).expect("the image can hold hard links");
                    continue;
                }
                match &self.recording.nodes[inode.0] {
                    Node::File { start, mode } => {
                        fs::write(&path, self.content(inode, start)).expect("the image can be written");
                        set_mode(&path, *mode);
                        written.insert(inode, path);
                    }
                    Node::Folder { mode } => {
                        fs::create_dir(&path).expect("the image can hold folders");
                        set_mode(&path, *mode);
                        folders.push((inode, path));
                    }
                    Node::Link { target } => symlink(target, &path).expect("the image can hold links"),
                }
            }
        }
    }

    /// Up to which step a file's data is certainly on disk.
    fn synced(&self, file: Inode) -> usize {
        let covers = |step: &Step| match step.op {
            Op::Sync { inode, .. } if inode == file => Some(step.begin),
            Op::SyncAll => Some(step.begin),
            _ => None,
        };
        self.steps.iter().filter_map(covers).max().unwrap_or(0)
    }

    fn content(&self, file: Inode, start: &[u8]) -> Vec<u8> {
        let (mut bytes, synced) = (start.to_vec(), self.synced(file));
        for (at, step) in self.steps.iter().enumerate() {
            match &step.op {
                Op::Write { inode, offset, data, .. } if *inode == file => {
                    if at < synced {
                        put(&mut bytes, *offset, data);
                    } else {
                        self.risk(&mut bytes, *offset, data);
                    }
                }
                Op::Resize { inode, size } if *inode == file && (at < synced || self.keeps()) => bytes.resize(*size, 0),
                Op::Zero { inode, offset, len } if *inode == file && (at < synced || self.keeps()) => {
                    let end = (offset + len).min(bytes.len());
                    bytes[(*offset).min(end)..end].fill(0);
                }
                _ => {}
            }
        }
        bytes
    }

    fn keeps(&self) -> bool {
        match self.mood {
            Mood::Forgetful | Mood::NamesFirst => false,
            Mood::DataFirst => true,
            Mood::Mixed => self.random.one_in(2),
        }
    }

    /// A write that isn't synced: kept, lost or torn.
    fn risk(&self, bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
        let torn = self.mood == Mood::Mixed && self.random.one_in(3);
        if !torn {
            if self.keeps() {
                put(bytes, offset, data);
            } else if self.mood != Mood::Forgetful && self.random.one_in(4) {
                grow(bytes, offset + data.len());
            }
            return;
        }
        if self.random.one_in(2) {
            grow(bytes, offset + data.len());
        }
        let mut at = 0;
        while at < data.len() {
            // Sectors are those of the file, not of the write.
            let end = (at + SECTOR - (offset + at) % SECTOR).min(data.len());
            if self.random.one_in(2) {
                put(bytes, offset + at, &data[at..end]);
            }
            at = end;
        }
    }

    fn names(&self) -> BTreeMap<Entry, Inode> {
        let kept = match self.recording.names {
            Names::DirectorySync => self.kept_by_folder(),
            Names::Journal => self.kept_by_journal(),
        };
        let mut names: BTreeMap<_, _> = self.recording.start.iter().cloned().collect();
        for (step, kept) in self.steps.iter().zip(kept) {
            match &step.op {
                _ if !kept => {}
                Op::Name { entry, inode } => drop(names.insert(entry.clone(), *inode)),
                Op::Unname { entry, .. } => drop(names.remove(entry)),
                Op::Move { from, to, inode } => {
                    names.remove(from);
                    names.insert(to.clone(), *inode);
                }
                Op::Exchange { one, other } => {
                    names.insert(one.0.clone(), other.1);
                    names.insert(other.0.clone(), one.1);
                }
                _ => {}
            }
        }
        names
    }

    /// In each folder all changes up to some step, at least up to its last sync.
    fn kept_by_folder(&self) -> Vec<bool> {
        let mut until: BTreeMap<Inode, usize> = BTreeMap::new();
        for folder in self.steps.iter().flat_map(|step| folders(&step.op)) {
            until.entry(folder).or_insert_with(|| self.synced(folder));
        }
        self.agree(&mut until);
        for until in until.values_mut() {
            *until = self.between(*until);
        }
        self.agree(&mut until);
        let kept = |(at, step): (usize, &Step)| folders(&step.op).first().is_some_and(|folder| at < until[folder]);
        self.steps.iter().enumerate().map(kept).collect()
    }

    /// A rename between two folders that is kept in one is kept in the other, with all before it.
    fn agree(&self, until: &mut BTreeMap<Inode, usize>) {
        loop {
            let before = until.clone();
            for (at, step) in self.steps.iter().enumerate() {
                let folders = folders(&step.op);
                if folders.iter().any(|folder| at < until[folder]) {
                    for folder in folders {
                        until.entry(folder).and_modify(|until| *until = (*until).max(at + 1));
                    }
                }
            }
            if *until == before {
                return;
            }
        }
    }

    /// All changes of the file system up to some step, at least up to the last that a sync committed.
    fn kept_by_journal(&self) -> Vec<bool> {
        let committed = |step: &Step| match step.op {
            Op::SyncAll => step.begin,
            Op::Sync { inode, data_only } => {
                let last = self.steps[..step.begin].iter().rposition(|step| journalled(&step.op, inode, data_only));
                last.map_or(0, |last| last + 1)
            }
            _ => 0,
        };
        let until = self.between(self.steps.iter().map(committed).max().unwrap_or(0));
        (0..self.steps.len()).map(|at| at < until).collect()
    }

    /// How far names are kept, at least up to `least`.
    fn between(&self, least: usize) -> usize {
        match self.mood {
            Mood::Forgetful | Mood::DataFirst => least,
            Mood::NamesFirst => self.steps.len(),
            Mood::Mixed => least + self.random.below(self.steps.len() - least + 1),
        }
    }
}

/// The folders whose names an operation changes.
fn folders(op: &Op) -> Vec<Inode> {
    match op {
        Op::Name { entry, .. } | Op::Unname { entry, .. } => vec![entry.0],
        Op::Move { from, to, .. } if from.0 == to.0 => vec![from.0],
        Op::Move { from, to, .. } => vec![from.0, to.0],
        Op::Exchange { one, other } if one.0.0 == other.0.0 => vec![one.0.0],
        Op::Exchange { one, other } => vec![one.0.0, other.0.0],
        _ => Vec::new(),
    }
}

/// Whether a sync of `file` commits the journal up to this operation. `fdatasync` looks at what is
/// needed to read the data back: existence and size, not the name.
fn journalled(op: &Op, file: Inode, data_only: bool) -> bool {
    match op {
        Op::Name { entry, inode } => *inode == file || entry.0 == file,
        Op::Unname { entry, inode } => (*inode == file && !data_only) || entry.0 == file,
        Op::Move { from, to, inode } => (*inode == file && !data_only) || from.0 == file || to.0 == file,
        Op::Exchange { one, other } => {
            ((one.1 == file || other.1 == file) && !data_only) || one.0.0 == file || other.0.0 == file
        }
        Op::Write { inode, grows, .. } => *inode == file && *grows,
        Op::Resize { inode, .. } => *inode == file,
        Op::Zero { .. } | Op::Sync { .. } | Op::SyncAll | Op::Say { .. } => false,
    }
}

fn grow(bytes: &mut Vec<u8>, size: usize) {
    if bytes.len() < size {
        bytes.resize(size, 0);
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    grow(bytes, offset + data.len());
    bytes[offset..offset + data.len()].copy_from_slice(data);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the image's modes can be set");
}
