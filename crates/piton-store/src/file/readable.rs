//! What people and scripts read: `state.json` and `history.jsonl`. Both are made from the log. Piton itself
//! believes neither of them; `state.json` only helps to list a run whose newest entry is damaged.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use piton_types::{EntryHash, Fence, RunSummary, Seq};
use serde::{Deserialize, Serialize};

use super::disk;
use super::entry::{EntryFile, Shown};
use super::run::RunFiles;
use crate::StoreError;
use crate::checked::{self, FORMAT};

/// `state.json`.
#[derive(Serialize, Deserialize)]
pub(crate) struct StateFile {
    format: u32,
    /// The newest entry when it was written.
    as_of: Seq,
    pub(crate) run: RunSummary,
}

impl StateFile {
    pub(crate) fn encode(as_of: Seq, run: RunSummary) -> Result<Vec<u8>, StoreError> {
        checked::seal(&Self { format: FORMAT, as_of, run })
    }

    /// The row that was last written, whole or not at all.
    pub(crate) fn read(files: &RunFiles) -> Option<RunSummary> {
        let bytes = disk::read(&files.folder.join("state.json")).ok()??;
        let file: Self = checked::open(&bytes, String::new).ok()?;
        (file.run.id == files.run).then_some(file.run)
    }
}

/// A line of `history.jsonl`.
#[derive(Serialize)]
struct Line<'a> {
    seq: Seq,
    #[serde(flatten)]
    about: &'a Shown,
    fence: Fence,
    hash: EntryHash,
}

/// Only the number.
#[derive(Deserialize)]
struct Numbered {
    seq: Seq,
}

/// As much of the end as surely holds a line.
const TAIL: u64 = 64 << 10;

/// Adds the line of `entry`. If this is the first that the process adds, the lines that a crash kept from
/// being written come before it.
pub(crate) fn tell(files: &RunFiles, told: &mut bool, entry: &EntryFile) -> std::io::Result<()> {
    let path = files.folder.join("history.jsonl");
    let mut file = disk::private().read(true).append(true).create(true).open(path)?;
    let mut lines = Vec::new();
    if !std::mem::replace(told, true) {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        if !tail.is_empty() && tail.last() != Some(&b'\n') {
            lines.push(b'\n');
        }
        let known = tail.split(|byte| *byte == b'\n').rev();
        let newest = known.filter_map(|line| serde_json::from_slice::<Numbered>(line).ok()).map(|line| line.seq).next();
        let missing = newest.map_or(0, |seq| seq.0 + 1)..entry.seq.0;
        for seq in missing.map(Seq) {
            // What is folded by now has had its line, or must do without.
            if let Ok(Some(bytes)) = disk::read(&files.entry(seq))
                && let Ok(earlier) = EntryFile::decode(&bytes, &files.run, seq)
            {
                add(&mut lines, &earlier)?;
            }
        }
    }
    add(&mut lines, entry)?;
    file.write_all(&lines)
}

fn add(lines: &mut Vec<u8>, entry: &EntryFile) -> std::io::Result<()> {
    let head = entry.head();
    serde_json::to_writer(
        &mut *lines,
        &Line { seq: head.seq, about: &entry.about, fence: head.fence, hash: head.hash },
    )?;
    lines.push(b'\n');
    Ok(())
}
