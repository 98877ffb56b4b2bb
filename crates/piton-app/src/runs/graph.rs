//! The document of a run as a drawing, with how each node stands. Reads the newest attempts, and as many as are needed to
//! find every node that is drawn, up to a bound.

use std::collections::HashMap;
use std::sync::Arc;

use piton_log::RunLog;
use piton_runtime::{History, Pager, StepRecord, WholeHistory};
use piton_types::{RunId, RunKind, RunStatus};
use serde::Serialize;
use serde_json::Value as Json;

use crate::app::App;
use crate::drawing::Picture;
use crate::failure::Failure;
use crate::references::run_id;
use crate::runs::fork::document_of;
use crate::views::documents::GraphView;

/// How many attempts are read at a time, and in all.
const PAGE: usize = 256;
const MOST: usize = 4096;

/// A run as a drawing.
#[derive(Debug, Serialize)]
pub struct RunGraph {
    /// The run.
    pub run: RunId,
    /// Its state.
    pub status: RunStatus,
    /// The boxes and lines of its document.
    #[serde(flatten)]
    pub picture: Picture,
    /// How the nodes stand, by their paths: `node`, and inside a container `container/node` whatever the round.
    pub states: HashMap<String, NodeState>,
    /// Whether there were more attempts than were read: a node that isn't named may have run long ago.
    pub more: bool,
}

/// How a node stands.
#[derive(Debug, Clone, Serialize)]
pub struct NodeState {
    /// `completed`, `failed` or `waiting`; a node that isn't named is pending or was skipped.
    pub state: &'static str,
    /// How many attempts there were.
    pub attempts: u32,
    /// How often it ended well.
    pub runs: u32,
    /// How long its newest attempt took.
    pub duration_ms: Option<u64>,
    /// When its newest attempt began.
    pub started_at: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

/// Draws a run.
pub async fn graph(app: &App, run: &RunId) -> Result<RunGraph, Failure> {
    let store = app.look().await?;
    let run = run_id(app, &store, run).await?;
    let log = RunLog::open(Arc::clone(&store), &run).await?;
    let summary = log.summary().await?;
    let document = match summary.kind {
        RunKind::Workflow => document_of(&WholeHistory::read_to(&log, log.head().seq).await?, summary.kind),
        _ => None,
    };
    let document = document.ok_or_else(|| {
        Failure::not_found(format!("run {run} has no document"))
            .hint("only workflows are drawn; its steps say what it did.")
    })?;
    let too_large = || Failure::fixable("the document is too large for a drawing");
    let picture = Picture::of(&GraphView::from(&document)).ok_or_else(too_large)?;
    let mut states: HashMap<String, NodeState> = HashMap::new();
    let (mut pager, mut read) = (Pager::new(&log), 0);
    while read < MOST && pager.cursor().is_some() {
        let page = pager.steps(PAGE).await?;
        read += page.len();
        for past in page.iter().filter(|past| !past.undone) {
            count(&mut states, &past.step);
        }
    }
    let history = History::read(&log).await?;
    for question in &history.questions {
        let place = place_of(question.path.as_str());
        let state = states.entry(place).or_insert(NodeState::new("waiting"));
        state.state = "waiting";
    }
    let more = pager.cursor().is_some();
    store.close().await?;
    Ok(RunGraph { run, status: summary.status, picture, states, more })
}

impl NodeState {
    const fn new(state: &'static str) -> Self {
        Self { state, attempts: 0, runs: 0, duration_ms: None, started_at: None, error: None }
    }
}

/// Adds an attempt; the newest come first.
fn count(states: &mut HashMap<String, NodeState>, step: &StepRecord) {
    let is_finished = step.is_finished();
    let state = states.entry(place_of(step.path.as_str())).or_insert_with(|| NodeState {
        duration_ms: Some(step.duration_ms),
        started_at: Some(step.started_at.to_string()),
        error: step.error.clone(),
        ..NodeState::new(if is_finished { "completed" } else { "failed" })
    });
    state.attempts += 1;
    state.runs += u32::from(is_finished);
}

/// The place of a step in the drawing: without the numbers of rounds.
fn place_of(path: &str) -> String {
    let parts = path.split('/').filter(|part| part.parse::<u64>().is_err());
    parts.map(|part| part.split('#').next().unwrap_or(part)).collect::<Vec<_>>().join("/")
}

impl RunGraph {
    /// As JSON in which each box has its state.
    pub fn json(&self) -> Result<Json, Failure> {
        let mut json = serde_json::to_value(self)
            .map_err(|error| Failure::internal("a drawing has no JSON form").because(&error))?;
        self.lay_over(&mut json, "");
        if let Json::Object(fields) = &mut json {
            fields.remove("states");
        }
        Ok(json)
    }

    fn lay_over(&self, level: &mut Json, above: &str) {
        let is_over = self.status.is_final();
        for node in level["nodes"].as_array_mut().into_iter().flatten() {
            let place = format!("{above}{}", node["id"].as_str().unwrap_or_default());
            let known = self.states.get(&place);
            let begun =
                self.states.keys().any(|other| other.strip_prefix(&place).is_some_and(|rest| rest.starts_with('/')));
            let state = match known {
                Some(known) => known.state,
                None if begun && !is_over => "running",
                None if is_over && !self.more => "skipped",
                None => "pending",
            };
            node["state"] = state.into();
            node["attempts"] = known.map_or(0, |known| known.attempts).into();
            node["runs"] = known.map_or(0, |known| known.runs).into();
            node["duration_ms"] = known.map_or(Json::Null, |known| known.duration_ms.into());
            node["started_at"] = known.map_or(Json::Null, |known| known.started_at.clone().into());
            node["error"] = known.map_or(Json::Null, |known| known.error.clone().into());
            if !node["inside"].is_null() {
                self.lay_over(&mut node["inside"], &format!("{place}/"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_have_one_place() {
        for (path, place) in [("a", "a"), ("loop/3/a", "loop/a"), ("a#2", "a"), ("loop/3/inner/12/b#1", "loop/inner/b")]
        {
            assert_eq!(place_of(path), place);
        }
    }
}
