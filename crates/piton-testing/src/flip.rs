//! Every byte of a folder damaged in turn. One scratch copy serves all mutations: it is damaged,
//! checked by the test's closure, and put back in order, whatever the closure did to it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::scratch::{Scratch, copy_tree};

/// How many examples a [`Tally`] keeps of each outcome.
const EXAMPLES: usize = 20;

/// What is done to a file at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The byte there is xor'ed with this: one bit, or more.
    Xor(u8),
    /// The byte there becomes 0.
    Zero,
    /// The byte there and the next one change places.
    SwapWithNext,
    /// The byte there is missing; the rest moves up.
    Drop,
    /// The file ends there.
    Cut,
}

/// One damage to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// The file, relative to the folder.
    pub file: PathBuf,
    /// Where.
    pub offset: usize,
    /// What.
    pub change: Change,
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {:?}", self.file.display(), self.offset, self.change)
    }
}

/// What became of a damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All that was stored was read as it was written: the byte didn't matter, or was repaired.
    Same,
    /// Refused with this error.
    Detected(String),
    /// Something that was stored is gone without a word.
    Lost(String),
    /// Something was read that was never written.
    Silent(String),
}

/// How often each outcome came, with the first examples of each.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Damage without effect.
    pub same: usize,
    /// Damage found.
    pub detected: usize,
    /// Data gone without a word.
    pub lost: usize,
    /// Wrong data.
    pub silent: usize,
    /// The first of those that were lost.
    pub lost_examples: Vec<(Mutation, String)>,
    /// The first of those that were silent.
    pub silent_examples: Vec<(Mutation, String)>,
    /// Each different error text, and how often it came.
    pub errors: BTreeMap<String, usize>,
}

impl Tally {
    /// All mutations.
    pub fn total(&self) -> usize {
        self.same + self.detected + self.lost + self.silent
    }

    fn add(&mut self, mutation: Mutation, outcome: Outcome) {
        let keep = |examples: &mut Vec<_>, what| {
            if examples.len() < EXAMPLES {
                examples.push((mutation, what));
            }
        };
        match outcome {
            Outcome::Same => self.same += 1,
            Outcome::Detected(error) => {
                self.detected += 1;
                *self.errors.entry(error).or_default() += 1;
            }
            Outcome::Lost(what) => {
                self.lost += 1;
                keep(&mut self.lost_examples, what);
            }
            Outcome::Silent(what) => {
                self.silent += 1;
                keep(&mut self.silent_examples, what);
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { same, detected, lost, silent, .. } = self;
        write!(f, "{} mutations: {detected} detected, {same} the same, {lost} lost, {silent} silent", self.total())?;
        for (kind, examples) in [("lost", &self.lost_examples), ("silent", &self.silent_examples)] {
            for (mutation, what) in examples {
                write!(f, "\n  {kind}: {mutation}: {what}")?;
            }
        }
        Ok(())
    }
}

/// Which damage to try.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// What to do at each place.
    pub changes: Vec<Change>,
    /// The first offset of each file.
    pub start: usize,
    /// Every so manieth byte; 1 for all.
    pub stride: usize,
}

impl Default for Sweep {
    /// Every byte, one bit of it; which one follows from the offset, so that all eight come up.
    fn default() -> Self {
        Self { changes: Vec::new(), start: 0, stride: 1 }
    }
}

impl Sweep {
    /// These changes at every byte.
    pub fn every_byte(changes: &[Change]) -> Self {
        Self { changes: changes.to_vec(), ..Self::default() }
    }

    /// Damages a copy of `dir` in every way that this stands for and asks `check`, which gets the
    /// folder of the copy, what became of it. Changes that change nothing are left out.
    ///
    /// # Panics
    /// If `check` panics, with the mutation that made it; if the folder can't be copied.
    pub fn run(&self, dir: &Path, mut check: impl FnMut(&Path, &Mutation) -> Outcome) -> Tally {
        assert!(self.stride > 0, "a stride of 0 never ends");
        let original = files(dir);
        let scratch = Scratch::in_memory();
        copy_tree(dir, scratch.path()).expect("the folder can be copied");
        let mut tally = Tally::default();
        for (file, bytes) in &original {
            for offset in (self.start..bytes.len()).step_by(self.stride) {
                let bit = [Change::Xor(1 << (offset % 8))];
                let changes = if self.changes.is_empty() { &bit[..] } else { &self.changes };
                for &change in changes {
                    let Some(damaged) = apply(bytes, offset, change) else { continue };
                    fs::write(scratch.join(file), damaged).expect("the copy can be written");
                    let mutation = Mutation { file: file.clone(), offset, change };
                    let outcome = catch_unwind(AssertUnwindSafe(|| check(scratch.path(), &mutation)))
                        .unwrap_or_else(|cause| panic!("{mutation}: the check panicked: {}", message(&*cause)));
                    tally.add(mutation, outcome);
                    put_back(dir, scratch.path(), &original);
                }
            }
        }
        tally
    }
}

/// The damaged content; `None` if it is the same.
fn apply(bytes: &[u8], offset: usize, change: Change) -> Option<Vec<u8>> {
    let mut damaged = bytes.to_vec();
    match change {
        Change::Xor(mask) => damaged[offset] ^= mask,
        Change::Zero => damaged[offset] = 0,
        Change::SwapWithNext if offset + 1 < bytes.len() => damaged.swap(offset, offset + 1),
        Change::SwapWithNext => return None,
        Change::Drop => drop(damaged.remove(offset)),
        Change::Cut => damaged.truncate(offset),
    }
    (damaged != bytes).then_some(damaged)
}

/// Makes the copy what it was. Contents are compared, not times: a file may change twice in a tick.
fn put_back(dir: &Path, copy: &Path, original: &BTreeMap<PathBuf, Vec<u8>>) {
    let now = files(copy);
    for extra in now.keys().filter(|file| !original.contains_key(*file)) {
        fs::remove_file(copy.join(extra)).expect("a file of the copy can be removed");
    }
    for (file, bytes) in original {
        if now.get(file) != Some(bytes) {
            let target = copy.join(file);
            let folder = target.parent().expect("it lies below the copy");
            fs::create_dir_all(folder).expect("a folder of the copy can be made again");
            fs::write(&target, bytes).expect("the copy can be written");
            let permissions = fs::metadata(dir.join(file)).expect("the original is untouched").permissions();
            fs::set_permissions(&target, permissions).expect("the copy's permissions can be set");
        }
    }
}

/// The regular files below `dir`, by relative path.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(dir.join(&folder)).expect("the folder can be listed") {
            let entry = entry.expect("the folder can be listed");
            let (kind, path) = (entry.file_type().expect("a file has a type"), folder.join(entry.file_name()));
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let bytes = fs::read(entry.path()).expect("the file can be read");
                found.insert(path, bytes);
            }
        }
    }
    found
}

fn message(cause: &(dyn std::any::Any + Send)) -> &str {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("it doesn't say why")
}
