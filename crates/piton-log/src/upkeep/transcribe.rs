//! Copying a run into a store that names blobs and cuts values in another way: one of the two is encrypted, or both are,
//! with different keys.
//!
//! No record can be taken over as it is, so every value is read, verified on the way, and saved anew; entries keep their
//! numbers, times, fences and kinds. A copy that was cut short goes on behind the last entry that is there, if what is
//! there is the beginning of this run.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use piton_types::{BlobId, Durability, PartName, Seq, Value};

use super::Reach;
use super::copy::Copied;
use crate::run_log::{Content, Draft, DraftPart, NewPart, NewRun};
use crate::{RunLog, SealedEntry};
use piton_store::{Call, MeteredStore, PackId, Pin, Span, Store, StoreError};

/// What parts of files are called in the other store, so that what snapshots share is written once.
#[derive(Debug, Default)]
pub struct Transcript {
    /// Contents of files.
    pub contents: HashMap<BlobId, BlobId>,
    /// Folders, with and without their times.
    pub folders: HashMap<(BlobId, Option<BlobId>), (BlobId, Option<BlobId>)>,
    /// The packs that have it. They are pinned as long as this is used.
    packs: Vec<PackId>,
}

/// No run takes longer to copy.
const PINNED: Duration = Duration::from_secs(24 * 60 * 60);

/// What an entry with a snapshot says in the other store.
#[derive(Debug)]
pub struct Transcribed {
    /// The part `workspace`.
    pub snapshot: Value,
    /// The entry's body.
    pub body: Value,
    /// Packs of the other store that have what is new.
    pub packs: Vec<PackId>,
}

/// Copies a run up to where `log` ends.
pub(super) async fn transcribe_log(
    to: &Arc<dyn Store>,
    log: &RunLog,
    reach: &dyn Reach,
    transcript: &mut Transcript,
) -> Result<Copied, StoreError> {
    let run = log.run();
    let metered = Arc::new(MeteredStore::new(Arc::clone(to)));
    let metrics = metered.metrics();
    let to: Arc<dyn Store> = metered;
    let pin = Pin { life: PINNED, ..Pin::new() };
    match to.pin(&transcript.packs, pin).await {
        Err(StoreError::PackGone { .. }) => *transcript = Transcript::default(),
        pinned => pinned?,
    }
    let entries = log.entries(Span { to: log.head().seq, ..Span::ALL }).await?;
    let removed = log.removed_in(&entries).await?.checkpoints;
    let summary = log.summary().await?;
    let mut target = match to.head(run).await? {
        None => None,
        Some(_) => Some(continued(&to, log, &entries).await?),
    };
    let mut copied = Copied::default();
    let from = target.as_ref().map_or(Seq(0), |target| target.head().seq.next());
    for entry in entries.iter().filter(|entry| entry.seq >= from) {
        let mut body = log.stored_body(entry).await?;
        let (mut values, mut staged) = (BTreeMap::new(), Vec::new());
        for (name, part) in &entry.parts {
            let mut value = match log.stored_part(part).await {
                // Nothing is left of it, and no reader will ask for it.
                Err(StoreError::NotFound { .. }) if removed.contains(&entry.seq) => Value::Null,
                other => other?,
            };
            if name.0 == PartName::WORKSPACE && !value.is_null() {
                let is_removed = removed.contains(&entry.seq);
                let done = reach.transcribe([log.store(), &to], transcript, value, body, is_removed).await?;
                (value, body, staged) = (done.snapshot, done.body, done.packs);
                to.pin(&staged, pin).await?;
                transcript.packs.extend(&staged);
            }
            values.insert(name.clone(), NewPart { schema: part.schema.clone(), version: part.version, value });
        }
        let is_last = entry.seq == log.head().seq;
        let durability = if is_last { Durability::Durable } else { Durability::Relaxed };
        match &mut target {
            None => {
                let new = NewRun {
                    id: run.clone(),
                    name: entry.label.clone(),
                    kind: summary.kind,
                    status: summary.status,
                    parent: summary.parent.clone(),
                    folder: summary.folder.clone(),
                    labels: summary.labels.clone(),
                    body,
                    parts: values,
                    staged,
                    at: entry.at,
                    fence: entry.fence,
                    durability,
                };
                target = Some(RunLog::create(Arc::clone(&to), new).await?);
            }
            Some(target) => {
                let parts = values.iter().map(|(name, part)| DraftPart {
                    name: name.clone(),
                    schema: part.schema.clone(),
                    version: part.version,
                    content: Content::Value(&part.value),
                });
                let draft = Draft {
                    label: entry.label.clone(),
                    body,
                    parts: parts.collect(),
                    staged,
                    index: is_last.then(|| summary.clone()),
                    fence: Some(entry.fence),
                    durability,
                    ..Draft::new(entry.kind, entry.at)
                };
                target.append(draft).await?;
                target.forget_if_removed(entry.kind);
            }
        }
        copied.entries += 1;
    }
    if let Some(target) = target {
        target.close().await?;
    }
    copied.packs = metrics.of(Call::Stage).count;
    copied.bytes = [Call::Commit, Call::RelaxedCommit, Call::Stage].map(|call| metrics.of(call).bytes).iter().sum();
    Ok(copied)
}

/// The copy as far as it goes; `Conflict` if it isn't the beginning of this run.
async fn continued(to: &Arc<dyn Store>, log: &RunLog, entries: &[SealedEntry]) -> Result<RunLog, StoreError> {
    let target = RunLog::open(Arc::clone(to), log.run()).await?;
    let head = target.head();
    let there = target.entries(Span::ALL).await?;
    let alike = |a: &SealedEntry, b: &SealedEntry| {
        (a.seq, a.kind, a.at, a.fence, &a.label) == (b.seq, b.kind, b.at, b.fence, &b.label)
            && a.parts.keys().eq(b.parts.keys())
    };
    let mut same = there.len() <= entries.len() && there.iter().zip(entries).all(|(a, b)| alike(a, b));
    // Hashes can't be compared, so what the two say last is.
    if let (true, Some(a)) = (same, there.last()) {
        let b = &entries[there.len() - 1];
        for (name, part) in a.parts.iter().filter(|(name, _)| name.0 != PartName::WORKSPACE) {
            same = same && same_value(target.stored_part(part).await, log.stored_part(&b.parts[name]).await)?;
        }
        if !a.parts.contains_key(&PartName::from(PartName::WORKSPACE)) {
            same = same && target.stored_body(a).await? == log.stored_body(b).await?;
        }
    }
    match same {
        true => Ok(target),
        false => Err(StoreError::Conflict { run: log.run().clone(), wanted: head.seq.next(), head: Some(head) }),
    }
}

/// Whether two values are the same, as far as both are still there.
fn same_value(a: Result<Value, StoreError>, b: Result<Value, StoreError>) -> Result<bool, StoreError> {
    match (a, b) {
        (Err(StoreError::NotFound { .. }), _) | (_, Err(StoreError::NotFound { .. })) => Ok(true),
        (a, b) => Ok(a? == b?),
    }
}
