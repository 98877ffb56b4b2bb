//! What is known of the repository, and every drift that was seen with what became of it, kept in the log of a run
//! (D5). The entries read as lines of the run's log, too.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use piton_log::{Draft, RunLog};
use piton_runtime::History;
use piton_store::{Span, StoreError};
use piton_types::{Durability, EntryKind, RunId, Seq, Timestamp, Value, from_value, to_value};
use serde::{Deserialize, Serialize};

use super::{DriftError, DriftEvent, DriftOptions, DriftReport, DriftSeverity};
use crate::Workspace;
use crate::order::is_long;

/// How often an entry is tried again behind that of another writer.
const TRIES: usize = 8;

/// What the entries are called.
const LABEL: &str = "drift";

/// What was known last.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Known {
    /// The commit that was checked out.
    pub head: Option<String>,
    /// Upstream's head.
    pub upstream: Option<String>,
    /// How many files differed from what is committed.
    pub uncommitted: usize,
}

/// What became of a drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// Nothing was done.
    Ignored,
    /// The work was moved onto it.
    Rebased,
    /// The work began anew.
    Restarted,
    /// Its user saw to it.
    UserHandled,
}

/// A drift that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tracked {
    /// The entry that has it.
    pub seq: Seq,
    /// When it was seen.
    pub detected_at: Timestamp,
    /// What it was.
    pub event: DriftEvent,
    /// How bad.
    pub severity: Option<DriftSeverity>,
    /// What became of it, and when.
    pub resolution: Option<(Resolution, Timestamp)>,
}

/// All that a run knows of its repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct DriftTracker {
    /// The commit that was checked out when the run began to look.
    pub start: Option<String>,
    /// What was known last.
    pub known: Option<Known>,
    /// Every drift, oldest first.
    pub tracked: Vec<Tracked>,
}

impl DriftTracker {
    /// The worst that isn't resolved.
    pub fn pending(&self) -> Option<DriftSeverity> {
        self.tracked.iter().filter(|drift| drift.resolution.is_none()).filter_map(|drift| drift.severity).max()
    }
}

/// The body of an entry: lines for people, and the record.
#[derive(Serialize, Deserialize)]
struct Body {
    log: Vec<Line>,
    drift: Record,
}

#[derive(Serialize, Deserialize)]
struct Line {
    at: Timestamp,
    text: String,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Record {
    Looked { known: Known, severity: Option<DriftSeverity>, events: Vec<DriftEvent> },
    Resolved { resolution: Resolution },
}

impl Workspace {
    /// What a run knows of its repository.
    #[boxed]
    pub async fn drift_tracker(&self, run: &RunId) -> Result<DriftTracker, DriftError> {
        let mut tracker = DriftTracker::default();
        if self.store().summary(run).await?.is_none() {
            return Ok(tracker);
        }
        let log = RunLog::open(Arc::clone(self.store()), run).await?;
        let mut entries = Vec::new();
        if is_long(&log).await? {
            for seq in History::read(&log).await?.notes {
                entries.push(log.entry(seq).await?);
            }
        } else {
            entries = log.entries(Span::ALL).await?;
        }
        for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Logged && entry.label == LABEL) {
            let Ok(body) = from_value::<Body>(log.body(entry).await?) else { continue };
            match body.drift {
                Record::Looked { known, severity, events } => {
                    if tracker.known.is_none() {
                        tracker.start = known.head.clone();
                    }
                    tracker.known = Some(known);
                    tracker.tracked.extend(events.into_iter().map(|event| Tracked {
                        seq: entry.seq,
                        detected_at: entry.at,
                        event,
                        severity,
                        resolution: None,
                    }));
                }
                Record::Resolved { resolution } => {
                    let open = tracker.tracked.iter_mut().filter(|drift| drift.resolution.is_none());
                    open.for_each(|drift| drift.resolution = Some((resolution, entry.at)));
                }
            }
        }
        Ok(tracker)
    }

    /// Keeps what was found, if it is new.
    #[boxed]
    pub async fn track_drift(
        &self,
        run: &RunId,
        before: &DriftTracker,
        report: &DriftReport,
    ) -> Result<(), DriftError> {
        let known = report.known();
        if report.events.is_empty() && before.known.as_ref() == Some(&known) {
            return Ok(());
        }
        let mut lines: Vec<String> = report.events.iter().map(DriftEvent::as_words).collect();
        if before.known.is_none() {
            let head = known.head.as_deref().unwrap_or("nothing");
            lines.insert(0, format!("the repository is at {head}"));
        }
        let (severity, events) = (report.severity, report.events.clone());
        self.note_drift(run, lines, Record::Looked { known, severity, events }).await
    }

    /// Looks whether the repository moved under a run whose own work changes the files: what it finds is kept, except
    /// for those changes.
    #[boxed]
    pub async fn look_for_drift(&self, run: &RunId, options: DriftOptions) -> Result<DriftReport, DriftError> {
        let tracker = self.drift_tracker(run).await?;
        let mut report = self.check_drift(tracker.known.as_ref(), options).await?;
        report.events.retain(|event| !matches!(event, DriftEvent::LocalChange { .. }));
        self.track_drift(run, &tracker, &report).await?;
        Ok(report)
    }

    /// Says what became of every drift that is still open.
    #[boxed]
    pub async fn resolve_drift(&self, run: &RunId, resolution: Resolution) -> Result<(), DriftError> {
        let line = match resolution {
            Resolution::Ignored => "the drift is ignored",
            Resolution::Rebased => "the work was rebased",
            Resolution::Restarted => "the work begins anew",
            Resolution::UserHandled => "the drift was seen to",
        };
        self.note_drift(run, vec![line.to_owned()], Record::Resolved { resolution }).await
    }

    async fn note_drift(&self, run: &RunId, lines: Vec<String>, drift: Record) -> Result<(), DriftError> {
        // Not between the scan and the entry of a checkpoint.
        let _lock = self.lock(&Arc::default()).await?;
        let at = self.now();
        let log = lines.into_iter().map(|text| Line { at, text }).collect();
        let body: Value = to_value(&Body { log, drift }).expect("texts and numbers are a value");
        let mut tries = 0;
        loop {
            let mut log = self.log(run).await?;
            let draft = Draft {
                label: LABEL.to_owned(),
                body: body.clone(),
                durability: Durability::Durable,
                ..Draft::new(EntryKind::Logged, at)
            };
            tries += 1;
            match log.append(draft).await {
                // The process that drives the run wrote meanwhile: behind that.
                Err(StoreError::Conflict { .. }) if tries < TRIES => {}
                outcome => {
                    outcome?;
                    return Ok(log.close().await?);
                }
            }
        }
    }
}
