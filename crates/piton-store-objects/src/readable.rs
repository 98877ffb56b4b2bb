//! What people and scripts read: `state.json` and `history.jsonl`. Both are made from the log. Piton itself believes
//! neither of them; `state.json` only helps to list a run whose newest entry is damaged.

use piton_store::StoreError;
use piton_store::checked::FORMAT;
use piton_types::{Durability, EntryHash, Fence, RunSummary, Seq};
use serde::{Deserialize, Serialize};

use crate::commit::{CommitObject, Shown, StoredEntry};
use crate::objects::{Objects, Part, change, read};
use crate::run::{Known, Run};

/// `state.json`.
#[derive(Serialize, Deserialize)]
struct StateObject {
    format: u32,
    /// The newest entry when it was written.
    as_of: Seq,
    run: RunSummary,
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

/// The row that was last written, whole or not at all.
pub(crate) async fn read_state(objects: &dyn Objects, run: &Run) -> Option<RunSummary> {
    let (state, _): (StateObject, _) = read(objects, &run.names.at("state.json")).await.ok()??;
    (state.run.id == run.id).then_some(state.run)
}

/// Brings both up to date with a commit; `state.json` only if the row changed.
pub(crate) async fn show(
    objects: &dyn Objects,
    run: &Run,
    known: &mut Known,
    commit: &CommitObject,
    is_changed: bool,
) -> Result<(), StoreError> {
    if objects.is_remote() {
        return Ok(());
    }
    if objects.is_persistent() {
        tell(objects, run, known, commit).await?;
    }
    match (&commit.row, commit.entries.last()) {
        (Some(row), Some(last)) if is_changed => {
            let state = || StateObject { format: FORMAT, as_of: last.seq, run: row.clone() };
            change(objects, &run.names.at("state.json"), Durability::Durable, |_| Ok((Some(state()), ()))).await
        }
        _ => Ok(()),
    }
}

/// Adds the lines of a commit. If these are the first that the handle adds, the lines that a crash kept from being
/// written come before them.
async fn tell(objects: &dyn Objects, run: &Run, known: &mut Known, commit: &CommitObject) -> Result<(), StoreError> {
    let name = run.names.at("history.jsonl");
    let mut lines = Vec::new();
    if !std::mem::replace(&mut known.told, true) {
        let tail = objects.get(&name, Part::Last(TAIL)).await?.map(|object| object.bytes).unwrap_or_default();
        if !tail.is_empty() && tail.last() != Some(&b'\n') {
            lines.push(b'\n');
        }
        let newest =
            tail.split(|byte| *byte == b'\n').rev().find_map(|line| serde_json::from_slice::<Numbered>(line).ok());
        let from = newest.map_or(Seq(0), |line| line.seq.next());
        if commit.entries.first().is_some_and(|entry| entry.seq > from) {
            // What is folded by now has had its line, or must do without.
            for (number, _) in run.numbers(objects).await? {
                if let Ok(Some(earlier)) = run.object(objects, number).await
                    && earlier.base == commit.base
                {
                    let missing = earlier.entries.iter().filter(|entry| {
                        entry.seq >= from && commit.entries.first().is_some_and(|first| entry.seq < first.seq)
                    });
                    missing.for_each(|entry| add(&mut lines, entry));
                }
            }
        }
    }
    commit.entries.iter().for_each(|entry| add(&mut lines, entry));
    objects.tell(&name, &lines).await
}

fn add(lines: &mut Vec<u8>, entry: &StoredEntry) {
    let line = Line { seq: entry.seq, about: &entry.about, fence: entry.fence, hash: entry.hash };
    serde_json::to_writer(&mut *lines, &line).expect("it is written to memory, and its keys are texts");
    lines.push(b'\n');
}
