//! The log of a run, page by page, newest first: steps, checkpoints, lines. A page costs what it shows.

use std::sync::Arc;

use piton_log::{RunLog, SealedEntry};
use piton_store::{Span, StoreError};
use piton_types::{EntryKind, Parts, Seq, Timestamp};
use serde::{Deserialize, Serialize};

use crate::fact::Fact;
use crate::history::damaged;
use crate::record::{LogLine, StepRecord};

/// How many entries are read at a time, at most.
pub(crate) const PAGE: usize = 256;

/// Where a page ended, for the next one to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The entry that comes next.
    pub next: Seq,
    /// The newest entry from there on that counts, if any does.
    pub counts: Option<Seq>,
}

/// Goes back through the log of a run.
#[derive(Debug)]
pub struct Pager<'a> {
    log: &'a RunLog,
    at: Option<Cursor>,
}

/// An entry on a page.
#[derive(Debug, Clone)]
pub struct PastEntry {
    /// The entry.
    pub entry: SealedEntry,
    /// Whether the run was put back to before it.
    pub undone: bool,
}

/// An attempt at a step on a page.
#[derive(Debug, Clone, PartialEq)]
pub struct PastStep {
    /// Its entry.
    pub seq: Seq,
    /// Whether the run was put back to before it.
    pub undone: bool,
    /// The attempt.
    pub step: Arc<StepRecord>,
}

/// What a list of checkpoints shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// Its entry.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// What the entry records besides.
    pub kind: EntryKind,
    /// The name of the step, or a description.
    pub label: String,
    /// Its parts.
    pub parts: Parts,
    /// Whether the run was put back to before it.
    pub undone: bool,
}

impl CheckpointInfo {
    pub(crate) fn new(entry: &SealedEntry, undone: bool) -> Self {
        let SealedEntry { seq, at, kind, label, parts, .. } = entry.clone();
        Self { seq, at, kind, label, parts, undone }
    }
}

impl<'a> Pager<'a> {
    /// From the newest entry that the handle knows.
    pub fn new(log: &'a RunLog) -> Self {
        let newest = log.head().seq;
        Self::from(log, Cursor { next: newest, counts: Some(newest) })
    }

    /// From where another one ended.
    pub const fn from(log: &'a RunLog, cursor: Cursor) -> Self {
        Self { log, at: Some(cursor) }
    }

    /// Where it is; `None` at the beginning of the log.
    pub const fn cursor(&self) -> Option<Cursor> {
        self.at
    }

    /// The next entries, newest first; none at the beginning of the log.
    pub async fn entries(&mut self, limit: usize) -> Result<Vec<PastEntry>, StoreError> {
        let Some(at) = self.at else { return Ok(Vec::new()) };
        let found = self.log.entries(Span { to: at.next, ..Span::newest(limit) }).await?;
        let (mut at, mut page) = (None, Vec::with_capacity(found.len()));
        let mut line = self.at.and_then(|at| at.counts);
        for entry in found {
            let before = entry.seq.0.checked_sub(1).map(Seq);
            let counts = line.is_some_and(|next| entry.seq <= next);
            if counts {
                line = match entry.kind {
                    EntryKind::Restored => match Fact::read(self.log, &entry).await? {
                        Fact::Restored(restore) if restore.to >= entry.seq => {
                            return Err(damaged(self.log, "it was put back to an entry that isn't there"));
                        }
                        Fact::Restored(restore) => Some(restore.to),
                        _ => before,
                    },
                    _ => before,
                };
            }
            at = before.map(|next| Cursor { next, counts: line });
            page.push(PastEntry { entry, undone: !counts });
        }
        self.at = at;
        Ok(page)
    }

    /// The next attempts at steps, at most `limit`, newest first.
    pub async fn steps(&mut self, limit: usize) -> Result<Vec<PastStep>, StoreError> {
        let mut found = Vec::new();
        while found.len() < limit && self.at.is_some() {
            for PastEntry { entry, undone } in self.entries((limit - found.len()).min(PAGE)).await? {
                if entry.kind == EntryKind::StepDone
                    && let Fact::Step(step) = Fact::read(self.log, &entry).await?
                {
                    found.push(PastStep { seq: entry.seq, undone, step });
                }
            }
        }
        Ok(found)
    }

    /// The next checkpoints, at most `limit`, newest first.
    pub async fn checkpoints(&mut self, limit: usize) -> Result<Vec<CheckpointInfo>, StoreError> {
        let mut found = Vec::new();
        while found.len() < limit && self.at.is_some() {
            let page = self.entries((limit - found.len()).min(PAGE)).await?;
            let checkpoints = page.iter().filter(|past| !past.entry.parts.is_empty());
            found.extend(checkpoints.map(|past| CheckpointInfo::new(&past.entry, past.undone)));
        }
        Ok(found)
    }

    /// The next lines that the run wrote, newest first; all of an entry together, so there may be a few more than
    /// `limit`.
    pub async fn lines(&mut self, limit: usize) -> Result<Vec<LogLine>, StoreError> {
        let mut found = Vec::new();
        while found.len() < limit && self.at.is_some() {
            for PastEntry { entry, .. } in self.entries((limit - found.len()).min(PAGE)).await? {
                if !matches!(entry.kind, EntryKind::StepDone | EntryKind::Logged) {
                    continue;
                }
                match Fact::read(self.log, &entry).await? {
                    Fact::Step(step) => found.extend(step.log.iter().rev().cloned()),
                    Fact::Logged(record) => found.extend(record.log.into_iter().rev()),
                    _ => {}
                }
            }
        }
        Ok(found)
    }
}
