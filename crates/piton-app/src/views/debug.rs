//! What a debugger shows: one view for each stop, and one for each answer.

use piton_flow::{Phase, RunOutcome};
use piton_types::{RunId, StepPath};
use serde::Serialize;
use serde_json::Value as Json;

use super::run::{OutcomeView, QuestionView};
use crate::debug::Breakpoint;

/// Why a run stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It is about to do its first step here.
    Initial,
    /// There is a breakpoint.
    Breakpoint,
    /// A node failed.
    Error,
    /// It was to run to this node.
    Reached,
    /// It was to go one step.
    Step,
    /// It was put back.
    Back,
    /// It is completed.
    Completed,
    /// It has failed.
    Failed,
    /// It waits for answers.
    Waiting,
    /// It was paused from elsewhere.
    Paused,
}

impl StopReason {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Breakpoint => "breakpoint",
            Self::Error => "error",
            Self::Reached => "reached",
            Self::Step => "step",
            Self::Back => "back",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
        }
    }
}

/// Where a run stopped.
#[derive(Debug, Clone, Serialize)]
pub struct StopView {
    /// The run, if it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Why.
    pub reason: StopReason,
    /// At which side of the node; nothing if it stands at none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The node's place in the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepPath>,
    /// What the node does.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What a node gave that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gave: Option<Json>,
    /// Why the node or the run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What a completed run gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Json>,
    /// What a run waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionView>,
}

impl StopView {
    /// A run that stands at no node.
    pub(crate) fn at_rest(reason: StopReason, outcome: &RunOutcome) -> Self {
        let OutcomeView { run, outputs, error, questions, .. } = OutcomeView::from(outcome);
        Self {
            run: Some(run),
            reason,
            phase: None,
            node: None,
            step: None,
            kind: None,
            title: None,
            gave: None,
            error,
            outputs: Some(outputs).filter(|outputs| !outputs.is_null()),
            questions,
        }
    }
}

/// What a debugger answers.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ReplyView {
    /// The run goes on; the next stop is told.
    GoesOn,
    /// The run is put back; what that entails, one thing a line.
    GoesBack {
        /// Before which step or behind which entry it goes on.
        to: String,
        /// What is done again, and what stays.
        entails: Vec<String>,
    },
    /// It is left as it is.
    Quits,
    /// The breakpoints that there are now.
    Breakpoints {
        /// At nodes.
        breakpoints: Vec<Breakpoint>,
        /// After nodes that fail.
        on_error: bool,
    },
    /// Variables, by node and name; or the one that was asked for.
    Variables {
        /// Their values.
        variables: Json,
    },
    /// Variables were set.
    Set {
        /// Which.
        variables: Vec<String>,
    },
    /// Where the run stands.
    State {
        /// The stop.
        stop: Box<StopView>,
        /// At nodes.
        breakpoints: Vec<Breakpoint>,
        /// After nodes that fail.
        on_error: bool,
    },
}

impl ReplyView {
    /// Whether the run leaves the stop.
    pub const fn leaves(&self) -> bool {
        matches!(self, Self::GoesOn | Self::GoesBack { .. } | Self::Quits)
    }
}
