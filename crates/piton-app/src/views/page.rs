//! Parts of long lists, and what is seen at a glance. A page names the cursor of the next one.

use std::collections::BTreeMap;

use piton_store::{Depth, Totals};
use piton_workspace::{Moment, Record, Role};
use serde::Serialize;

use super::entry::{EventView, LoggedEntry};
use super::files::MomentView;
use super::run::{ListedRun, QueueView, RunView, UsageView, WholeStep, WorkerView};

/// Some of the runs, newest first.
#[derive(Debug, Serialize)]
pub struct RunsPage {
    /// The runs.
    pub runs: Vec<ListedRun>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// Some of a run's attempts at steps, newest first.
#[derive(Debug, Serialize)]
pub struct StepsPage {
    /// The attempts.
    pub steps: Vec<SizedStep>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// An attempt whose large values are left out.
#[derive(Debug, Serialize)]
pub struct SizedStep {
    /// The attempt. What was given and what came out are null if they are large.
    #[serde(flatten)]
    pub step: WholeStep,
    /// How many bytes of JSON it was given.
    pub input_bytes: usize,
    /// How many bytes of JSON it gave.
    pub output_bytes: usize,
}

/// Some of the entries of a log.
#[derive(Debug, Serialize)]
pub struct EntriesPage {
    /// The entries, newest first.
    pub entries: Vec<LoggedEntry>,
}

/// The checkpoints of a run.
#[derive(Debug, Serialize)]
pub struct CheckpointsPage {
    /// The checkpoints, newest first.
    pub checkpoints: Vec<LoggedEntry>,
}

/// Some of the events of a run, oldest first.
#[derive(Debug, Serialize)]
pub struct EventsPage {
    /// The events.
    pub events: Vec<EventView>,
    /// The number to go on after; null if there are no more yet.
    pub next: Option<u32>,
}

/// Some of the checkpoints of a folder's files, newest first.
#[derive(Debug, Serialize)]
pub struct MomentsPage {
    /// The checkpoints.
    pub moments: Vec<TimelineMoment>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// A checkpoint of files with what it was made for.
#[derive(Debug, Serialize)]
pub struct TimelineMoment {
    /// The checkpoint.
    #[serde(flatten)]
    pub moment: MomentView,
    /// `saved`, `opened`, `closed`, `dropped`, `backup` or `restored`.
    pub role: &'static str,
    /// Whether it ended something that can be taken back.
    pub operation: bool,
    /// The checkpoint that the session or tool call began with, or that was made before the restore.
    pub since: Option<String>,
    /// The step of the run that caused it.
    pub step: Option<String>,
    /// The tool that caused it.
    pub tool: Option<String>,
    /// Who is behind it, in words.
    pub author: Option<String>,
    /// What the user says of it.
    pub description: String,
}

/// How a store stands, at a glance.
#[derive(Debug, Serialize)]
pub struct SummaryView {
    /// How many runs are in each state.
    pub counts: BTreeMap<&'static str, u64>,
    /// How many are in progress though no process drives them.
    pub stalled: usize,
    /// What there was in the last 24 hours.
    pub today: TodayView,
    /// How many bytes the store takes.
    pub bytes: u64,
    /// How many it may take.
    pub budget: Option<u64>,
    /// How many runs wait for workers; null if the store has no queue.
    pub queue: Option<Depth>,
    /// The workers.
    pub workers: Vec<WorkerView>,
}

/// What there was in the last 24 hours.
#[derive(Debug, Default, Serialize)]
pub struct TodayView {
    /// How many runs were active.
    pub runs: usize,
    /// What they used, of those that were counted.
    pub usage: UsageView,
    /// Whether there were more runs than are counted.
    pub more: bool,
}

/// A store as a whole.
#[derive(Debug, Serialize)]
pub struct StoreView {
    /// Its URL.
    pub store: String,
    /// The folder.
    pub folder: String,
    /// How many bytes it takes.
    pub bytes: u64,
    /// How many it may take.
    pub budget: Option<u64>,
    /// How many runs it has.
    pub runs: u64,
    /// What it holds, by counting; null if it can't be counted.
    pub totals: Option<Totals>,
}

/// What waits for workers.
#[derive(Debug, Serialize)]
pub struct QueuePage {
    /// How many runs.
    pub depth: Depth,
    /// The runs, newest first.
    pub queue: Vec<QueuedRun>,
}

/// A run that waits for a worker, or that one has.
#[derive(Debug, Serialize)]
pub struct QueuedRun {
    /// The run.
    #[serde(flatten)]
    pub run: RunView,
    /// How it waits.
    pub queue: QueueView,
}

impl TimelineMoment {
    /// What a checkpoint was made for.
    pub fn of(moment: &Moment, view: MomentView) -> Self {
        let Record { path, tool, author, description, role, .. } = &moment.record;
        let (role, since) = match role {
            Role::Saved => ("saved", None),
            Role::Opened => ("opened", None),
            Role::Closed { since, .. } => ("closed", Some(since)),
            Role::Dropped { since } => ("dropped", Some(since)),
            Role::Backup { .. } => ("backup", None),
            Role::Restored { backup, .. } => ("restored", Some(backup)),
        };
        Self {
            moment: view,
            role,
            operation: moment.is_operation(),
            since: since.map(ToString::to_string),
            step: path.as_ref().map(ToString::to_string),
            tool: tool.clone(),
            author: author.clone(),
            description: description.clone(),
        }
    }
}
