//! Keeping what is whole of a damaged store: in a new one, beside it. The damaged one isn't touched.
//!
//! Of each run everything up to the first entry that can't be read is taken over. Checkpoints in it whose state is lost
//! are marked as removed, and so are the numbers of the entries behind it, so that none of them is used again for
//! something else. The checkpoints behind the damage that are whole become a run of their own. A row of the index that is
//! lost is made anew from the log, as far as that says it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use piton_types::{CheckpointRef, EntryKind, PartName, RunId, RunKind, RunStatus, RunSummary, Seq, Timestamp, Value};

use super::Reach;
use super::check::{RunReport, read_and_check};
use super::copy::{Care, copy_log};
use super::tolerant::Tolerant;
use crate::{Content, Draft, DraftPart, NewRun, RunLog, SealedEntry};
use piton_store::{PackId, Pin, RunQuery, Store, StoreError};

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Salvaged {
    /// The run.
    pub run: RunId,
    /// The last entry that was taken over; `None` if not even the first could be.
    pub entries_to: Option<Seq>,
    /// Checkpoints whose state is lost.
    pub lost: BTreeSet<Seq>,
    /// How many entries can't be read before the last one that can. It can't be known whether they were checkpoints.
    pub unread: u64,
    /// Checkpoints from behind the damage, and the run that has their states now, in this order.
    pub saved: Option<(Vec<Seq>, RunId)>,
}

/// Takes over what is whole of a run.
pub async fn salvage_run(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    run: &RunId,
    reach: &dyn Reach,
) -> Result<Salvaged, StoreError> {
    let (report, graph) = read_and_check(from, run, reach).await?;
    let from = &Tolerant::over(from);
    let mut end = None;
    for entry in &graph.entries {
        let follows = match end {
            None => entry.seq == Seq(0),
            Some((seq, hash)) => entry.seq == Seq::next(seq) && entry.parent == hash,
        };
        if !follows {
            break;
        }
        end = Some((entry.seq, entry.hash));
    }
    let last = graph.entries.last().map(|entry| entry.seq);
    let unread = last.map_or(0, |last| u64::from(last.0) + 1 - graph.entries.len() as u64);
    let damaged = report.damaged.iter().filter(|damaged| damaged.parts.iter().any(|part| part != "body"));
    let lost: BTreeSet<_> = damaged.map(|damaged| damaged.seq).collect();
    let mut salvaged = Salvaged { run: run.clone(), entries_to: None, lost, unread, saved: None };
    if let Some((seq, _)) = end {
        let log = RunLog::open_at(Arc::clone(from), run, seq).await?;
        let summary = summary_at(from, &log, &graph.entries).await?;
        copy_log([from, to], &log, summary, reach, Care::WhatIsWhole).await?;
        salvaged.entries_to = Some(seq);
        let lost: BTreeSet<_> = salvaged.lost.iter().copied().filter(|lost| *lost <= seq).collect();
        let mut copy = RunLog::open(Arc::clone(to), run).await?;
        if !lost.is_empty() {
            copy.remove_checkpoints(&lost, "damaged").await?;
        }
        while last.is_some_and(|last| copy.head().seq < last) {
            let number = copy.head().seq.next();
            copy.remove_checkpoints(&BTreeSet::from([number]), "behind damage").await?;
        }
    }
    let behind: Vec<_> = whole_behind(from, &report, &graph.entries, end.map(|(seq, _)| seq)).await;
    if !behind.is_empty() {
        let id = save_apart(from, to, &report, &behind, reach).await?;
        salvaged.saved = Some((behind, id));
    }
    Ok(salvaged)
}

/// The whole checkpoints behind the entry `end`, or all of them.
async fn whole_behind(
    from: &Arc<dyn Store>,
    report: &RunReport,
    entries: &[SealedEntry],
    end: Option<Seq>,
) -> Vec<Seq> {
    let Some(newest) = report.newest_whole else { return Vec::new() };
    let removed = match RunLog::open_at(Arc::clone(from), &report.run, newest).await {
        Ok(log) => log.removed_in(entries).await.unwrap_or_default().checkpoints,
        Err(_) => BTreeSet::new(),
    };
    let damaged: BTreeSet<_> = report.damaged.iter().map(|damaged| damaged.seq).collect();
    let whole = entries.iter().filter(|entry| !entry.parts.is_empty()).map(|entry| entry.seq);
    let behind = whole.filter(|seq| end.is_none_or(|end| *seq > end));
    behind.filter(|seq| !damaged.contains(seq) && !removed.contains(seq)).collect()
}

/// The row of a run as of where `log` ends, whatever its row says that may speak of what is lost, or be lost itself.
async fn summary_at(from: &Arc<dyn Store>, log: &RunLog, entries: &[SealedEntry]) -> Result<RunSummary, StoreError> {
    let (run, end) = (log.run(), log.head());
    let before = || entries.iter().rev().filter(|entry| entry.seq <= end.seq);
    let row = match from.summary(run).await {
        Ok(row) => row,
        // A list may know it from elsewhere.
        Err(StoreError::Corrupt { .. }) => {
            let query = RunQuery { id_prefix: run.to_string(), ..RunQuery::default() };
            from.list(query).await.unwrap_or_default().into_iter().find(|row| row.id == *run)
        }
        Err(other) => return Err(other),
    };
    let is_all = matches!(from.head(run).await, Ok(Some(head)) if head == end);
    if let (true, Some(row)) = (is_all, &row) {
        return Ok(row.clone());
    }
    let mut status = None;
    for entry in before().filter(|entry| entry.kind == EntryKind::StateChanged) {
        let body = log.body(entry).await?;
        status = body.field("status").and_then(|status| piton_types::from_value(status.clone()).ok());
        if status.is_some() {
            break;
        }
    }
    let updated_at = before().next().map_or_else(Timestamp::default, |newest| newest.at);
    // A run of which the end is lost waits until the user goes on with it.
    let status = status.unwrap_or(RunStatus::Paused);
    if let Some(row) = row {
        return Ok(RunSummary { status, updated_at, ..row });
    }
    let first = before().last().filter(|first| first.seq == Seq(0));
    let name = first.map_or_else(|| run.to_string(), |first| first.label.clone());
    let body = match first {
        Some(first) => log.body(first).await?,
        None => Value::Null,
    };
    let has_files = before().any(|entry| entry.parts.contains_key(&PartName::from(PartName::WORKSPACE)));
    let kind = match (has_files, body.field("document")) {
        (true, _) if name.starts_with("files of ") => RunKind::Workspace,
        (true, None) => RunKind::Guard,
        (_, Some(_)) => RunKind::Workflow,
        (false, None) => RunKind::Steps,
    };
    let created_at = first.map_or(updated_at, |first| first.at);
    let (parent, folder, labels) = (None, None, BTreeSet::new());
    Ok(RunSummary { id: run.clone(), name, kind, status, created_at, updated_at, parent, folder, labels })
}

/// Makes a run of its own of checkpoints whose run can't be taken over that far. It is named by the newest.
async fn save_apart(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    report: &RunReport,
    checkpoints: &[Seq],
    reach: &dyn Reach,
) -> Result<RunId, StoreError> {
    let newest = *checkpoints.last().expect("there is at least one");
    let log = RunLog::open_at(Arc::clone(from), &report.run, newest).await?;
    let entry = log.entry(newest).await?;
    let text: String = report.run.as_str().chars().take(50).collect();
    let id: RunId = format!("{text}-saved-{newest}").parse()?;
    if to.summary(&id).await?.is_some() {
        return Ok(id);
    }
    let summary = summary_at(from, &log, std::slice::from_ref(&entry)).await?;
    let new = NewRun {
        name: summary.name,
        kind: summary.kind,
        status: RunStatus::Paused,
        parent: Some(CheckpointRef { run: report.run.clone(), seq: newest }),
        folder: summary.folder,
        body: log.body(&entry).await?,
        ..NewRun::new(id.clone(), entry.at)
    };
    let mut copy = RunLog::create(Arc::clone(to), new).await?;
    for seq in checkpoints {
        add_checkpoint([from, to], &report.run, *seq, &mut copy, reach).await?;
    }
    copy.close().await?;
    Ok(id)
}

/// Adds the state of a checkpoint to a run that is made of such.
async fn add_checkpoint(
    [from, to]: [&Arc<dyn Store>; 2],
    run: &RunId,
    seq: Seq,
    copy: &mut RunLog,
    reach: &dyn Reach,
) -> Result<(), StoreError> {
    let log = RunLog::open_at(Arc::clone(from), run, seq).await?;
    let entry = log.entry(seq).await?;
    let mut values = BTreeMap::new();
    let mut staged: BTreeSet<PackId> = BTreeSet::new();
    let pin = Pin::new();
    for (name, part) in &entry.parts {
        let value = log.load(part).await?;
        if name.0 == PartName::WORKSPACE {
            let blobs: Vec<_> = reach.reach(from, vec![value.clone()]).await?.into_iter().collect();
            let there = to.locate(&blobs).await?;
            let missing = blobs.iter().zip(&there).filter(|(_, there)| there.is_none());
            let missing: Vec<_> = missing.map(|(blob, _)| *blob).collect();
            // Also those that another run has brought: this one relies on them too.
            staged.extend(there.into_iter().flatten());
            let packs: BTreeSet<_> = from.locate(&missing).await?.into_iter().flatten().collect();
            for pack in packs {
                let (bytes, ids) = (piton_store::pack(&**from, pack).await?, from.pack_ids(pack).await?);
                staged.insert(piton_store::stage(&**to, bytes, &ids, pin).await?);
            }
        }
        values.insert(name.clone(), (part.clone(), value));
    }
    let mut draft = Draft::new(EntryKind::Checkpoint, entry.at);
    draft.label.clone_from(&entry.label);
    draft.body = log.body(&entry).await?;
    draft.staged = staged.into_iter().collect();
    draft.pin = Some(pin);
    draft.parts = values
        .iter()
        .map(|(name, (part, value))| DraftPart {
            name: name.clone(),
            schema: part.schema.clone(),
            version: part.version,
            content: Content::Value(value),
        })
        .collect();
    copy.append(draft).await.map(drop)
}
