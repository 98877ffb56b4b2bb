//! The newest checkpoint that is whole: its entry, its record and every value of its state can be read.
//!
//! Damage is passed over and reported, wherever it is: in a value, in an entry, or at the very end of the log,
//! where not even the newest entry can be read. Everything else that a store may say (it is away, it is too new)
//! is an error as always.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use piton_log::{RunLog, SealedEntry};
use piton_store::{Span, Store, StoreError};
use piton_types::{CheckpointRecord, CheckpointRef, EntryKind, PartName, RunId, Seq, from_value};

use crate::History;
use crate::fact::Fact;

/// How many entries are read at a time.
const PAGE: usize = 64;

/// A checkpoint of which every byte was read.
#[derive(Debug)]
pub struct Whole {
    /// Its name.
    pub checkpoint: CheckpointRef,
    /// Its entry.
    pub entry: SealedEntry,
    /// What is known about it; nothing if it is a step's entry.
    pub record: Option<CheckpointRecord>,
    /// The log as it was then.
    pub log: RunLog,
}

/// Something that was passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The entry; `None` for the end of the log, if not even its number can be read.
    pub seq: Option<Seq>,
    /// How it shows.
    pub detail: String,
}

/// What was found.
#[derive(Debug)]
pub struct Search {
    /// The newest whole checkpoint, if there is one.
    pub whole: Option<Whole>,
    /// What is newer and damaged, newest first.
    pub damaged: Vec<Damaged>,
}

/// Finds the newest whole checkpoint of a run among those that count: what the run was put back from isn't among them.
///
/// # Errors
///
/// `NotFound` if there is no such run; whatever else the store says that isn't damage.
#[boxed]
pub async fn newest_whole(store: &Arc<dyn Store>, run: &RunId) -> Result<Search, StoreError> {
    let mut damaged = Vec::new();
    let log = match RunLog::open(Arc::clone(store), run).await {
        Ok(log) => log,
        Err(StoreError::Corrupt { what, detail }) => {
            damaged.push(Damaged { seq: None, detail: format!("{what}: {detail}") });
            match newest_readable(store, run).await? {
                Some(log) => log,
                None => return Ok(Search { whole: None, damaged }),
            }
        }
        Err(other) => return Err(other),
    };
    let mut to = log.head().seq;
    // The index knows where the newest one is, unless some were removed since.
    match History::read(&log).await.map(|history| (history.line.checkpoint, history.past.removed)) {
        Ok((None, _)) => return Ok(Search { whole: None, damaged }),
        Ok((Some(newest), removed)) if removed.is_none_or(|removed| removed < newest) => to = newest,
        Ok(_) | Err(StoreError::Corrupt { .. }) => {}
        Err(error) => return Err(error),
    }
    // Whatever removes a checkpoint comes after it, and so is met first. That one is gone is no damage.
    let mut removed = std::collections::BTreeSet::new();
    // The newest entry that counts; what lies above it was undone.
    let mut counts = to;
    loop {
        let page = match log.entries(Span { to, ..Span::newest(PAGE) }).await {
            // One of them is damaged: one by one, to lose only that one.
            Err(StoreError::Corrupt { .. }) => log.entry(to).await.map(|entry| vec![entry]),
            other => other,
        };
        let oldest = match page {
            Ok(entries) => {
                let oldest = entries.last().map_or(to, |entry| entry.seq);
                removed.extend(log.removed_in(&entries).await?.checkpoints);
                for entry in entries {
                    if entry.seq > counts {
                        continue;
                    }
                    if !entry.parts.is_empty() && !removed.contains(&entry.seq) {
                        match read_all(store, run, &entry).await {
                            Ok((log, record)) => {
                                let checkpoint = CheckpointRef { run: run.clone(), seq: entry.seq };
                                return Ok(Search { whole: Some(Whole { checkpoint, entry, record, log }), damaged });
                            }
                            Err(error) => damaged.push(damage(entry.seq, error)?),
                        }
                    }
                    if entry.kind == EntryKind::Restored {
                        match Fact::read(&log, &entry).await {
                            Ok(Fact::Restored(restore)) => counts = restore.to,
                            Ok(_) => {}
                            // Then everything below it may count.
                            Err(error) => drop(damage(entry.seq, error)?),
                        }
                    }
                }
                oldest
            }
            Err(error) => {
                damaged.push(damage(to, error)?);
                to
            }
        };
        match oldest.0.checked_sub(1) {
            Some(before) => to = Seq(before),
            None => return Ok(Search { whole: None, damaged }),
        }
    }
}

/// Looks at one checkpoint.
///
/// # Errors
///
/// `NotFound` if there is no such entry, or it is no checkpoint; whatever else the store says that isn't damage.
#[boxed]
pub async fn whole_at(store: &Arc<dyn Store>, checkpoint: &CheckpointRef) -> Result<Search, StoreError> {
    let CheckpointRef { run, seq } = checkpoint;
    let entry = match RunLog::open_at(Arc::clone(store), run, *seq).await {
        Ok(log) => log.entry(*seq).await,
        Err(error) => Err(error),
    };
    let read = match entry {
        Ok(entry) if entry.parts.is_empty() => {
            return Err(StoreError::NotFound { what: format!("checkpoint {checkpoint}") });
        }
        Ok(entry) => read_all(store, run, &entry).await.map(|(log, record)| (entry, log, record)),
        Err(StoreError::NotFound { what }) => return Err(StoreError::NotFound { what }),
        Err(error) => Err(error),
    };
    match read {
        Ok((entry, log, record)) => {
            let whole = Some(Whole { checkpoint: checkpoint.clone(), entry, record, log });
            Ok(Search { whole, damaged: Vec::new() })
        }
        Err(error) => Ok(Search { whole: None, damaged: vec![damage(*seq, error)?] }),
    }
}

/// An error that is damage; any other is passed on.
fn damage(seq: Seq, error: StoreError) -> Result<Damaged, StoreError> {
    match error {
        StoreError::Corrupt { what, detail } => Ok(Damaged { seq: Some(seq), detail: format!("{what}: {detail}") }),
        // What an entry refers to isn't there.
        StoreError::NotFound { what } => Ok(Damaged { seq: Some(seq), detail: format!("{what} is missing") }),
        other => Err(other),
    }
}

/// Reads everything that belongs to a checkpoint, by a log that ends there, so that nothing newer can be in
/// the way.
async fn read_all(
    store: &Arc<dyn Store>,
    run: &RunId,
    entry: &SealedEntry,
) -> Result<(RunLog, Option<CheckpointRecord>), StoreError> {
    let log = RunLog::open_at(Arc::clone(store), run, entry.seq).await?;
    let body = log.body(entry).await?;
    for part in entry.parts.values() {
        log.load(part).await?;
    }
    if entry.kind != EntryKind::Checkpoint {
        return Ok((log, None));
    }
    match from_value(body) {
        Ok(record) => Ok((log, Some(record))),
        // A checkpoint of files says of itself what the workspace knows, and that is none of ours.
        Err(_) if entry.parts.contains_key(&PartName::from(PartName::WORKSPACE)) => Ok((log, None)),
        Err(error) => {
            Err(StoreError::corrupt(format!("the record of checkpoint {run}@{}", entry.seq), error.to_string()))
        }
    }
}

/// The log as of the newest entry that can be read, though its end can't.
async fn newest_readable(store: &Arc<dyn Store>, run: &RunId) -> Result<Option<RunLog>, StoreError> {
    let open = async |seq| match RunLog::open_at(Arc::clone(store), run, seq).await {
        Ok(log) => Ok(Some(log)),
        Err(StoreError::Corrupt { .. } | StoreError::NotFound { .. }) => Ok(None),
        Err(other) => Err(other),
    };
    // The number of the newest entry isn't known. Whether one up to `to` can be found tells on which side of
    // the damage `to` is: halve until something can be read, then close in from below.
    let (mut low, mut high) = (None, u64::from(u32::MAX));
    while low.is_none() && high > 0 {
        low = probe(store, run, high / 2).await?;
        if low.is_none() {
            high /= 2;
        }
    }
    let mut next = low.map_or(0, |seq| u64::from(seq.0) + 1);
    while next < high {
        let middle = u64::midpoint(next, high);
        match probe(store, run, middle).await? {
            Some(seq) => {
                low = low.max(Some(seq));
                next = middle + 1;
            }
            None => high = middle,
        }
    }
    if let Some(seq) = low
        && let Some(log) = open(seq).await?
    {
        return Ok(Some(log));
    }
    // What is folded lies elsewhere.
    let segments = match store.segments(run).await {
        Err(StoreError::Corrupt { .. }) => Vec::new(),
        other => other?,
    };
    for segment in segments.iter().rev() {
        if let Some(log) = open(segment.last).await? {
            return Ok(Some(log));
        }
    }
    Ok(None)
}

/// The newest entry up to `to` that isn't folded, if it can be read.
async fn probe(store: &Arc<dyn Store>, run: &RunId, to: u64) -> Result<Option<Seq>, StoreError> {
    let to = Seq(u32::try_from(to).unwrap_or(u32::MAX));
    match store.read(run, Span { to, ..Span::newest(1) }).await {
        Ok(found) => Ok(found.first().map(|record| record.seq)),
        Err(StoreError::Corrupt { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}
