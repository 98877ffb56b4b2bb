//! The index of a run: what counts so far, in an entry of the log, so that a process that opens the run reads that
//! and the entries behind it, and not the whole log.
//!
//! The driver writes one every so many entries, and after going back. It is made from the log alone, by the same fold
//! that opens a run, so it says what the entries before it say. An index is a short cut and never the truth: one that is
//! damaged is passed over for an older one, or for the whole log.
//!
//! An index has a *head* with everything that is always needed, and a [map](tree) of calls: by its path, each call has
//! the entries that count of it. Those are read when the program asks for the call.

mod base;
mod recall;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeSet;

use piton_types::{Fence, ProgressReport, RunState, Seq, StepPath, Timestamp, Value, Verification};
use serde::{Deserialize, Serialize};

pub(crate) use base::{Base, Recalled};
pub(crate) use tree::{Changes, Page, PageRef, Pages};

use crate::record::{ClaimRecord, LogRecord, RequestRecord};

/// How many entries come between two indexes.
pub(crate) const EVERY: u32 = 128;

/// The body of an `Indexed` entry: what the entries before it say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct IndexRecord {
    /// What counts.
    pub(crate) line: LineHead,
    /// What took place.
    pub(crate) past: Past,
    /// The map of calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<PageRef>,
    /// The pages of the map that are new.
    pub(crate) pages: Vec<Page>,
}

/// What counts of a log, calls aside.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LineHead {
    /// How many attempts at steps ended.
    pub(crate) ended: u64,
    /// How many steps finished, and the one that did last.
    pub(crate) finished: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_finished: Option<StepPath>,
    /// The attempt at a step that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_step: Option<LastStep>,
    /// What the engine had counted when the newest of them ended.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(crate) tally: Value,
    /// What the driver was asked to do, and hasn't done yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<RequestRecord>,
    /// Whether the process that asked last goes on holding the run.
    pub(crate) waiting_held: bool,
    /// Raised by everything after which an effect is another one.
    pub(crate) epoch: u32,
    /// The step that the run failed of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed_of: Option<StepPath>,
    /// The newest checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<Seq>,
    /// What the program said of its work.
    #[serde(default, skip_serializing_if = "Noted::is_empty")]
    pub(crate) noted: Noted,
    /// Questions without an answer, and effects without a receipt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) open: Vec<StepPath>,
}

/// What the program said of its work, as far as it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Noted {
    /// The newest report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<ProgressReport>,
    /// The newest check of each name, in the order of the first of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) verified: Vec<Verification>,
    /// Files that were changed.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) files: BTreeSet<String>,
}

impl Noted {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes in what an entry says.
    pub(crate) fn take(&mut self, record: LogRecord) {
        let LogRecord { log: _, progress, verified, files } = record;
        self.progress = progress.or(self.progress.take());
        for check in verified {
            match self.verified.iter_mut().find(|before| before.name == check.name) {
                Some(before) => *before = check,
                None => self.verified.push(check),
            }
        }
        self.files.extend(files);
    }
}

/// What took place, whether it counts or was undone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Past {
    /// The state that the run is in.
    pub(crate) state: RunState,
    /// Who took it last, with which fence, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<(Fence, ClaimRecord)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claimed_at: Option<Timestamp>,
    /// When a process first drove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<Timestamp>,
    /// When it ended, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<Timestamp>,
    /// How often it was queued again after a failure.
    pub(crate) retries: u32,
    /// How often it was taken over from a process that didn't end it.
    pub(crate) takeovers: u32,
    /// How many there were of each.
    pub(crate) totals: Totals,
    /// Nothing came after the newest claim.
    #[serde(skip)]
    pub(crate) is_claimed_only: bool,
    /// The newest checkpoint, and the newest entry that removed some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<Seq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) removed: Option<Seq>,
    /// Entries of lines that have a label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<Seq>,
}

/// How much there is in a run's log, with what was undone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Attempts at steps that ended.
    pub attempts: u64,
    /// Those that ended well.
    pub finished: u64,
    /// Attempts at steps and effects that failed and were to be made again without a word from outside.
    pub repeated: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Lines that the run wrote.
    pub lines: u64,
    /// Answers to questions.
    pub answers: u64,
    /// How often it was put back.
    pub restores: u64,
}

/// The attempt at a step that ended last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStep {
    /// Its place in the run.
    pub path: StepPath,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
}

/// Which entries count of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallIndex {
    /// The first of it, or of anything inside it.
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<Seq>,
    /// The newest attempt at a step, and its place in the order in which attempts ended.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<(Seq, u64)>,
    /// The newest intent of an effect.
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    pub(crate) intent: Option<Seq>,
    /// Its receipt: an entry of its own, or the end of the step.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<Seq>,
    /// The newest question.
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    pub(crate) question: Option<Seq>,
    /// Its answer.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Seq>,
    /// How many attempts there were when it was to be tried again.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub(crate) reopened: Option<u32>,
    /// It failed, and isn't tried again unless the run is.
    #[serde(rename = "x", default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) failed: bool,
}

/// The keys of the map.
pub(crate) mod key {
    use piton_types::StepPath;

    /// A call.
    pub(crate) fn call(path: &StepPath) -> String {
        format!("c{path}")
    }

    /// A call that failed.
    pub(crate) fn failed(path: &StepPath) -> String {
        format!("f{path}")
    }

    /// The failed calls inside another.
    pub(crate) fn failed_inside(path: &StepPath) -> String {
        format!("f{path}/")
    }

    /// Which call a scope made at a place. No path has a line feed.
    pub(crate) fn place(scope: &str, place: u32) -> String {
        format!("p{scope}\n{place:08x}")
    }

    /// The last place of a scope.
    pub(crate) fn last(scope: &str) -> String {
        format!("s{scope}")
    }
}
