//! What the user is told before a run goes on (V1).

use std::fmt;

use piton_types::{CheckpointRef, EntryKind, RunId, RunStatus, Timestamp};
use serde::Serialize;

use super::Search;
use crate::History;

/// Which run goes on, from where, and what was done last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResumeNotice {
    /// The run.
    pub run: RunId,
    /// What it is called.
    pub name: String,
    /// The state that it was found in; `None` if its log can't be read to the end.
    pub status: Option<RunStatus>,
    /// How often its loop went round.
    pub iteration: u32,
    /// How many of its steps are done.
    pub finished_steps: u64,
    /// What was done last.
    pub last: Option<String>,
    /// When.
    pub last_at: Option<Timestamp>,
    /// The checkpoint that its state comes from; without one it goes on from its finished steps alone.
    pub checkpoint: Option<CheckpointRef>,
    /// Why it was put back there, if it was: the checkpoint is the entry that says so, with the state of then.
    pub put_back: Option<String>,
    /// Where it goes on, in its own words.
    pub resume_point: Option<String>,
    /// How many newer entries were passed over because they are damaged.
    pub passed_over: usize,
}

impl ResumeNotice {
    /// From what was found; `history` if the log can be read.
    pub fn new(run: &RunId, name: &str, search: &Search, history: Option<&History>) -> Self {
        let record = search.whole.as_ref().and_then(|whole| whole.record.as_ref());
        let last = history.and_then(|history| history.last_step.as_ref());
        let described = |step: &crate::LastStep| match &step.error {
            Some(error) => format!("step {} failed: {error}", step.path),
            None => format!("step {} finished", step.path),
        };
        Self {
            run: run.clone(),
            name: name.to_owned(),
            status: history.map(|history| history.state.status()),
            iteration: record.map_or(0, |record| record.iteration),
            finished_steps: history.map_or(0, |history| history.finished),
            last: last.map(described).or_else(|| {
                let description = &record?.description;
                (!description.is_empty()).then(|| description.clone())
            }),
            last_at: last.map(|step| step.started_at).or_else(|| search.whole.as_ref().map(|whole| whole.entry.at)),
            checkpoint: search.whole.as_ref().map(|whole| whole.checkpoint.clone()),
            put_back: search
                .whole
                .as_ref()
                .and_then(|whole| (whole.entry.kind == EntryKind::Restored).then(|| whole.entry.label.clone())),
            resume_point: record.and_then(|record| record.recovery.resume_point.clone()),
            passed_over: search.damaged.len(),
        }
    }
}

impl fmt::Display for ResumeNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {}", self.run)?;
        if self.name != self.run.as_str() && !self.name.is_empty() {
            write!(f, " ({})", self.name)?;
        }
        match &self.checkpoint {
            Some(checkpoint) => write!(f, " goes on from checkpoint {checkpoint}")?,
            None => f.write_str(" goes on from its finished steps")?,
        }
        if let Some(why) = &self.put_back {
            write!(f, " ({why})")?;
        }
        if self.iteration > 0 {
            write!(f, ", iteration {}", self.iteration)?;
        }
        match self.finished_steps {
            0 => {}
            1 => f.write_str(", 1 step done")?,
            steps => write!(f, ", {steps} steps done")?,
        }
        if let Some(last) = &self.last {
            write!(f, "; last: {last}")?;
        }
        if let Some(point) = &self.resume_point {
            write!(f, "; next: {point}")?;
        }
        match self.passed_over {
            0 => Ok(()),
            1 => f.write_str("; 1 newer entry is damaged and was passed over"),
            many => write!(f, "; {many} newer entries are damaged and were passed over"),
        }
    }
}
