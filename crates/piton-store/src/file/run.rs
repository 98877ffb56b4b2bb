//! The folder of one run, and what this process knows of it.
//!
//! ```text
//! runs/NAME/
//!   checkpoints/0000000007.json     one file per entry that isn't folded
//!   blobs/0000000000-0000000127.segment
//!   lease.json                      who drives it
//!   state.json  history.jsonl       for people; made from the above
//!   uses/                           the packs that it relies on
//!   lock                            appends share it, folding has it alone
//! ```
//!
//! Invariant: entries and segments together cover 0 to the newest entry without a gap. An entry that a
//! segment covers doesn't count, and neither does a segment inside a larger one: they are what a crash left.
//! A gap is damage. Whoever reads across it is told so; what lies on either side can still be read.

use std::cmp::Ordering;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use piton_types::{RunId, RunSummary, Seq};

use super::disk;
use super::entry::EntryFile;
use super::names::escape;
use crate::{Head, SegmentInfo, StoreError};

/// Where the files of a run are.
#[derive(Debug)]
pub(crate) struct RunFiles {
    pub(crate) run: RunId,
    pub(crate) folder: PathBuf,
    /// Writers of this process take turns.
    turn: Mutex<Known>,
}

/// What the last look showed. It is looked at again before it counts.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) end: Option<End>,
    pub(crate) lock: Option<File>,
    /// The readable history has every line.
    pub(crate) told: bool,
}

/// The newest entry.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) head: Head,
    pub(crate) row: RunSummary,
}

/// Which files a log consists of.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// Segments that count, ascending.
    pub(crate) segments: Vec<SegmentInfo>,
    /// Entries that count, ascending.
    pub(crate) entries: Vec<Seq>,
    /// Files that something else stands for.
    pub(crate) leftovers: Vec<PathBuf>,
    /// What is missing in between: from one number to another.
    gaps: Vec<(Seq, Seq)>,
}

impl Shape {
    /// The errors for what is missing of `run` between two numbers.
    pub(crate) fn missing(&self, run: &RunId, from: Seq, to: Seq) -> impl Iterator<Item = StoreError> {
        let inside = self.gaps.iter().map(move |(first, last)| (*first.max(&from), *last.min(&to)));
        inside.filter(|(first, last)| first <= last).map(move |(first, last)| {
            let what = match first == last {
                true => format!("entry {first} of run {run}"),
                false => format!("entries {first} to {last} of run {run}"),
            };
            StoreError::corrupt(what, "it is missing")
        })
    }

    /// An error if something is missing between two numbers.
    pub(crate) fn whole(&self, run: &RunId, from: Seq, to: Seq) -> Result<(), StoreError> {
        self.missing(run, from, to).next().map_or(Ok(()), Err)
    }
}

impl RunFiles {
    pub(crate) fn new(runs: &Path, run: &RunId) -> Self {
        Self { run: run.clone(), folder: runs.join(escape(run.as_str())), turn: Mutex::default() }
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.folder.join("blobs")
    }

    /// Which packs it relies on.
    pub(crate) fn uses(&self) -> PathBuf {
        self.folder.join("uses")
    }

    pub(crate) fn entry(&self, seq: Seq) -> PathBuf {
        self.checkpoints().join(format!("{:010}.json", seq.0))
    }

    pub(crate) fn segment(&self, info: SegmentInfo) -> PathBuf {
        self.blobs().join(format!("{:010}-{:010}.segment", info.first.0, info.last.0))
    }

    /// The turn of the calling thread.
    pub(crate) fn turn(&self) -> MutexGuard<'_, Known> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the run against other processes: `shared` for appending, alone for folding. `None` if there is
    /// no such run.
    pub(crate) fn lock<'a>(&self, known: &'a mut Known, shared: bool) -> Result<Option<Locked<'a>>, StoreError> {
        let path = self.folder.join("lock");
        loop {
            let file = match known.lock.take() {
                Some(file) => file,
                None => match disk::private().read(true).write(true).create(true).truncate(false).open(&path) {
                    Ok(file) => file,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                    Err(error) => return Err(StoreError::from_io(&error, &path)),
                },
            };
            disk::lock(&file, shared, &path)?;
            // The run may have been removed, and another one of the same name begun.
            let ours = file.metadata().map_err(|error| StoreError::from_io(&error, &path))?.ino();
            if path.symlink_metadata().is_ok_and(|data| data.ino() == ours) {
                let Known { lock, end, told } = known;
                return Ok(Some(Locked { file: lock.insert(file), end, told }));
            }
            known.end = None;
            known.told = false;
        }
    }

    /// The newest entry; `None` if there is no such run. What was known is believed if that entry is still there
    /// and the next one isn't.
    pub(crate) fn end(&self, known: &mut Option<End>) -> Result<Option<End>, StoreError> {
        let exists = |seq| self.entry(seq).symlink_metadata().is_ok();
        if let Some(end) = known
            && exists(end.head.seq)
            && !exists(end.head.seq.next())
        {
            return Ok(Some(end.clone()));
        }
        *known = None;
        // A fold may take an entry away between two looks, but never the newest.
        for _ in 0..100 {
            let Some(newest) = self.numbers()?.into_iter().max() else { return Ok(None) };
            if let Some(bytes) = disk::read(&self.entry(newest))? {
                let file = EntryFile::decode(&bytes, &self.run, newest)?;
                *known = Some(End { head: file.head(), row: file.row });
                return Ok(known.clone());
            }
        }
        Err(StoreError::corrupt(format!("run {}", self.run), "its newest entry can't be read"))
    }

    /// The numbers of all entry files.
    fn numbers(&self) -> Result<Vec<Seq>, StoreError> {
        let names = disk::names(&self.checkpoints())?.unwrap_or_default();
        Ok(names.iter().filter_map(|name| number(name.strip_suffix(".json")?)).collect())
    }

    /// All entries and segments that count. `NotFound` if there is no such run.
    pub(crate) fn shape(&self) -> Result<Shape, StoreError> {
        // A fold that is under way can make a listing miss both the old and the new. Then its lock is
        // waited for, which nobody holds for long.
        match self.try_shape() {
            Ok(shape) if shape.gaps.is_empty() => Ok(shape),
            Ok(_) | Err(StoreError::Corrupt { .. }) => {
                let mut known = self.turn();
                let _lock = self.lock(&mut known, true)?;
                self.try_shape()
            }
            other => other,
        }
    }

    /// The same, for whoever has the lock or will look again.
    pub(crate) fn try_shape(&self) -> Result<Shape, StoreError> {
        // Entries first: what is folded in between is then in both lists, not in neither.
        let mut numbers = self.numbers()?;
        if numbers.is_empty() {
            return Err(StoreError::no_run(&self.run));
        }
        numbers.sort_unstable();
        let names = disk::names(&self.blobs())?.unwrap_or_default();
        let mut infos: Vec<_> = names
            .iter()
            .filter_map(|name| {
                let (first, last) = name.strip_suffix(".segment")?.split_once('-')?;
                Some(SegmentInfo { first: number(first)?, last: number(last)? }).filter(|info| info.first <= info.last)
            })
            .collect();
        infos.sort_unstable_by_key(|info| (info.first, std::cmp::Reverse(info.last)));
        let mut shape = Shape::default();
        for info in infos {
            match shape.segments.last() {
                Some(last) if info.last <= last.last => shape.leftovers.push(self.segment(info)),
                _ => shape.segments.push(info),
            }
        }
        for seq in numbers {
            let place = shape.segments.partition_point(|info| info.last < seq);
            match shape.segments.get(place).is_some_and(|info| info.first <= seq) {
                true => shape.leftovers.push(self.entry(seq)),
                false => shape.entries.push(seq),
            }
        }
        shape.gaps = self.gaps(&shape)?;
        Ok(shape)
    }

    /// What is missing in between. An error if something is there twice, or if the newest entry is missing.
    fn gaps(&self, shape: &Shape) -> Result<Vec<(Seq, Seq)>, StoreError> {
        let mut spans: Vec<_> = shape.segments.iter().map(|info| (info.first, info.last)).collect();
        spans.extend(shape.entries.iter().map(|seq| (*seq, *seq)));
        spans.sort_unstable();
        let (mut next, mut gaps) = (0_u64, Vec::new());
        for (first, last) in spans {
            match u64::from(first.0).cmp(&next) {
                Ordering::Less => {
                    return Err(StoreError::corrupt(format!("entry {first} of run {}", self.run), "it is there twice"));
                }
                Ordering::Equal => {}
                Ordering::Greater => {
                    let missing = u32::try_from(next).expect("it is below the number of an entry");
                    gaps.push((Seq(missing), Seq(first.0 - 1)));
                }
            }
            next = u64::from(last.0) + 1;
        }
        match shape.entries.is_empty() {
            false => Ok(gaps),
            true => Err(StoreError::corrupt(format!("run {}", self.run), "its newest entry is missing")),
        }
    }
}

/// A run that is locked against other processes.
pub(crate) struct Locked<'a> {
    file: &'a File,
    pub(crate) end: &'a mut Option<End>,
    pub(crate) told: &'a mut bool,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        drop(self.file.unlock());
    }
}

fn number(text: &str) -> Option<Seq> {
    (text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok().map(Seq))?
}
