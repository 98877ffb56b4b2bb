//! Stores as a whole: what they hold, what is damaged, what was moved or given back.

use piton_log::upkeep::{CheckReport, RunReport};
use piton_runtime::retention::Kept;
use piton_store::Defect;
use piton_types::{CheckpointRef, RunId};
use serde::Serialize;

use super::{text, text_or_null};
use crate::place::Origin;

/// A store that was made, or was there.
#[derive(Debug, Clone, Serialize)]
pub struct InitView {
    /// Its URL.
    pub store: String,
    /// Why it is there: `option`, `variable`, `here` or `state`.
    pub location: &'static str,
    /// How many bytes it takes.
    pub bytes: u64,
    /// How many runs it has.
    pub runs: u64,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// The store that the folder had before, with its runs.
    #[serde(skip)]
    pub left: Option<String>,
}

impl InitView {
    /// The word for why a store is where it is.
    pub(crate) const fn location(origin: Origin) -> &'static str {
        match origin {
            Origin::Option => "option",
            Origin::Configuration => "configuration",
            Origin::Variable => "variable",
            Origin::Here => "here",
            Origin::State => "state",
        }
    }
}

/// A store in a list.
#[derive(Debug, Clone, Serialize)]
pub struct StoreView {
    /// The name by which it is told from others.
    pub name: String,
    /// Its URL.
    pub store: String,
    /// The folder that it was last seen to be the store of; null if it doesn't tell.
    pub folder: Option<String>,
    /// Whether that folder is there.
    pub is_there: bool,
    /// How many bytes it takes.
    pub bytes: u64,
    /// How many runs it has; null if it can't be opened.
    pub runs: Option<u64>,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Why it can't be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A store that was removed.
#[derive(Debug, Clone, Serialize)]
pub struct StoreGoneView {
    /// What it was called.
    pub name: String,
    /// Its URL.
    pub store: String,
    /// How many bytes it took.
    pub bytes: u64,
}

/// A store that has another key.
#[derive(Debug, Clone, Serialize)]
pub struct RotatedView {
    /// Its URL.
    pub store: String,
    /// That it was done.
    pub rotated: bool,
}

/// A damaged place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DefectView {
    /// What is damaged.
    pub what: String,
    /// How.
    pub detail: String,
}

impl From<&Defect> for DefectView {
    fn from(defect: &Defect) -> Self {
        Self { what: defect.what.clone(), detail: defect.detail.clone() }
    }
}

/// A damaged pack.
#[derive(Debug, Clone, Serialize)]
pub struct PackDefectView {
    /// Which.
    pub pack: serde_json::Value,
    /// How.
    pub detail: String,
    /// What it is called.
    #[serde(skip)]
    pub what: String,
}

/// A checkpoint that can't be read whole.
#[derive(Debug, Clone, Serialize)]
pub struct DamagedView {
    /// Which.
    #[serde(serialize_with = "text")]
    pub checkpoint: CheckpointRef,
    /// Which parts of its state.
    pub parts: Vec<String>,
    /// Which of its files.
    pub files: Vec<String>,
}

/// What a check found of a run.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedRun {
    /// The run.
    pub run: RunId,
    /// Whether nothing is damaged.
    pub whole: bool,
    /// How many entries it has.
    pub entries: u64,
    /// How many whole checkpoints.
    pub checkpoints: u64,
    /// How many checkpoints were removed.
    pub removed: u64,
    /// The newest whole checkpoint.
    #[serde(serialize_with = "text_or_null")]
    pub newest_whole: Option<CheckpointRef>,
    /// What is damaged in its log.
    pub defects: Vec<DefectView>,
    /// Which checkpoints that affects.
    pub damaged: Vec<DamagedView>,
}

impl From<&RunReport> for CheckedRun {
    fn from(report: &RunReport) -> Self {
        let at = |seq| CheckpointRef { run: report.run.clone(), seq };
        let damaged = report.damaged.iter().map(|damaged| DamagedView {
            checkpoint: at(damaged.seq),
            parts: damaged.parts.clone(),
            files: damaged.files.clone(),
        });
        Self {
            run: report.run.clone(),
            whole: report.is_whole(),
            entries: report.entries,
            checkpoints: report.whole,
            removed: report.removed,
            newest_whole: report.newest_whole.map(at),
            defects: report.defects.iter().map(DefectView::from).collect(),
            damaged: damaged.collect(),
        }
    }
}

/// What a check found of a store.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedView {
    /// Whether nothing is damaged.
    pub whole: bool,
    /// What is damaged in the store itself.
    pub defects: Vec<DefectView>,
    /// Which packs are damaged.
    pub packs: Vec<PackDefectView>,
    /// The runs.
    pub runs: Vec<CheckedRun>,
    /// What deduplication and compression are worth, if the whole store was checked and is whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<SizesView>,
    /// Whether only the logs were read, and not what they lead to.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_outline: bool,
    /// How many bytes the packs have.
    #[serde(skip)]
    pub pack_bytes: u64,
}

impl From<&CheckReport> for CheckedView {
    fn from(report: &CheckReport) -> Self {
        let packs = report.packs.iter().map(|(pack, defect)| PackDefectView {
            pack: serde_json::json!(pack),
            detail: defect.detail.clone(),
            what: defect.what.clone(),
        });
        Self {
            whole: report.is_whole(),
            defects: report.defects.iter().map(DefectView::from).collect(),
            packs: packs.collect(),
            runs: report.runs.iter().map(CheckedRun::from).collect(),
            sizes: None,
            in_outline: false,
            pack_bytes: report.pack_bytes,
        }
    }
}

/// What deduplication and compression are worth, as a check counted it.
#[derive(Debug, Clone, Serialize)]
pub struct SizesView {
    /// What all checkpoints would take by themselves.
    pub logical: u64,
    /// What their different values take.
    pub unique: u64,
    /// What is stored of them.
    pub stored: u64,
    /// How much less the different values take.
    pub deduplication: Option<f64>,
    /// How much less is stored of them.
    pub compression: Option<f64>,
}

/// Space that was given back.
#[derive(Debug, Clone, Serialize)]
pub struct CollectedView {
    /// How many runs were removed.
    pub runs: u64,
    /// How many checkpoints of other runs.
    pub checkpoints: u64,
    /// How many packs were written anew.
    pub repacked: u64,
    /// How many packs wait to be deleted.
    pub condemned: u64,
    /// How many bytes were deleted.
    pub bytes: u64,
    /// Whether more is left for the next time.
    pub more: bool,
    /// How many bytes the store took before.
    pub bytes_before: u64,
    /// How many it takes now.
    pub bytes_after: u64,
    /// What was done.
    #[serde(skip)]
    pub kept: Kept,
}

/// Runs that were copied.
#[derive(Debug, Clone, Serialize)]
pub struct CopiedView {
    /// Which.
    pub runs: Vec<RunId>,
    /// How many entries are new.
    pub entries: u64,
    /// How many packs.
    pub packs: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// What a machine has of all that Piton can use.
#[derive(Debug, Clone, Serialize)]
pub struct DoctorView {
    /// Whether Piton can do its work.
    pub ok: bool,
    /// What was looked at.
    pub findings: Vec<FindingView>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
pub struct FindingView {
    /// What.
    pub check: &'static str,
    /// How it came out.
    pub status: Verdict,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    pub fix: Option<String>,
}

/// How a look came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Something works less well, or not at all, that not every user needs.
    Warning,
    /// Piton can't do its work.
    Problem,
}

impl Verdict {
    /// In a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// What was counted.
pub(crate) fn sizes(sizes: piton_log::upkeep::Sizes, stored: u64) -> SizesView {
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    let ratio = |a: u64, b: u64| (b > 0).then(|| (a as f64 / b as f64 * 100.0).round() / 100.0);
    // Folders count among the different values only: in a tiny store they may be most of it.
    let logical = sizes.logical.max(sizes.unique);
    SizesView {
        logical,
        unique: sizes.unique,
        stored,
        deduplication: ratio(logical, sizes.unique),
        compression: ratio(sizes.unique, stored),
    }
}
