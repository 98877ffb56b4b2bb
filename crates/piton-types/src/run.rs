//! The states of a run and the moves between them (R1, R2).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{CheckpointRef, RunId, RunKind, Timestamp, Value};

/// The state of a run, without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum RunStatus {
    /// Not begun, or waiting for a retry.
    Queued = 0,
    /// A process drives it, or did until it died.
    InProgress = 1,
    /// Stopped by an operator, to go on later.
    Paused = 2,
    /// Waiting for a person or a service.
    Waiting = 3,
    /// Ended well. Final.
    Completed = 4,
    /// Ended badly. Can be retried.
    Failed = 5,
    /// Given up. Final.
    Cancelled = 6,
}

use RunStatus::{
    Cancelled, Completed as Done, Failed as Broken, InProgress as Running, Paused as Held, Queued as New,
    Waiting as Asking,
};

/// Which states may follow which. What isn't here is illegal.
const MOVES: [(RunStatus, &[RunStatus]); 7] = [
    (New, &[Running, Cancelled]),
    (Running, &[Held, Asking, Done, Broken]),
    (Held, &[Running, Cancelled]),
    (Asking, &[Running, Cancelled, Broken]),
    (Broken, &[New]),
    (Done, &[]),
    (Cancelled, &[]),
];

impl RunStatus {
    /// Every status.
    pub const ALL: [Self; 7] = [New, Running, Held, Asking, Done, Broken, Cancelled];

    /// Whether a run may go from this state to `next` in one move.
    pub fn may_become(self, next: Self) -> bool {
        MOVES.iter().any(|(from, to)| *from == self && to.contains(&next))
    }

    /// Whether nothing can follow.
    pub fn is_final(self) -> bool {
        MOVES.iter().any(|(from, to)| *from == self && to.is_empty())
    }

    /// The word used in the CLI, in JSON and in stores.
    pub const fn as_str(self) -> &'static str {
        match self {
            New => "queued",
            Running => "in_progress",
            Held => "paused",
            Asking => "waiting",
            Done => "completed",
            Broken => "failed",
            Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for RunStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The state of a run with its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum RunState {
    /// Not begun.
    Queued(Queued),
    /// Being driven.
    InProgress(InProgress),
    /// Stopped, to go on later.
    Paused(Paused),
    /// Waiting for an answer.
    Waiting(Waiting),
    /// Ended well.
    Completed(Completed),
    /// Ended badly.
    Failed(Failed),
    /// Given up.
    Cancelled {
        /// When.
        at: Timestamp,
        /// Why.
        reason: String,
    },
}

/// Data of a queued run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// When it was queued.
    pub created_at: Timestamp,
    /// Higher goes first.
    pub priority: i32,
    /// A guess at the work, in whatever unit the caller uses.
    pub estimated_complexity: Option<f64>,
    /// What it will work on.
    pub input: Value,
}

/// Data of a run in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InProgress {
    /// The agent or node at work.
    pub current: Option<String>,
    /// The step at work.
    pub step: Option<String>,
    /// How often the loop went round.
    pub iteration: u32,
    /// When it was first started.
    pub started_at: Timestamp,
    /// When it last did something.
    pub last_activity_at: Timestamp,
    /// What was gathered so far.
    pub context: Value,
    /// What was done last, for a person.
    pub last_progress: Option<String>,
}

/// Data of a paused run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Paused {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
    /// What to do to go on.
    pub resume_instructions: Option<String>,
    /// Where it goes on.
    pub checkpoint: Option<CheckpointRef>,
}

/// What a waiting run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// Something only the user knows.
    UserInput,
    /// A service.
    ExternalApi,
    /// A yes or a no.
    HumanApproval,
}

/// Data of a waiting run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// For what.
    pub wait_for: WaitFor,
    /// What was shown.
    pub prompt: String,
    /// When it stops waiting.
    pub timeout_at: Option<Timestamp>,
}

/// What came of a check of a run's work, such as its tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// What was checked. A later check of the same name takes the place of an earlier one.
    pub name: String,
    /// Whether all was as it should be.
    pub passed: bool,
    /// What the check said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// Data of a completed run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Completed {
    /// When.
    pub at: Timestamp,
    /// What it gave.
    pub output: Value,
    /// The files it changed.
    pub files_modified: Vec<String>,
    /// What was checked: a list of [`Verification`]; null if nothing was.
    pub verification: Value,
    /// How many steps failed without stopping it.
    #[serde(default)]
    pub exceptions: u32,
    /// The failure that it recovered from.
    #[serde(default)]
    pub recovered_from: Option<String>,
    /// What a run that follows it takes along, such as the variables of a conversation.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub kept: Value,
}

impl Completed {
    /// A run that gave this.
    pub const fn new(at: Timestamp, output: Value) -> Self {
        Self {
            at,
            output,
            files_modified: Vec::new(),
            verification: Value::Null,
            exceptions: 0,
            recovered_from: None,
            kept: Value::Null,
        }
    }
}

/// Data of a failed run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// When.
    pub at: Timestamp,
    /// Which kind of error, as a program would tell it.
    pub error_type: String,
    /// What happened.
    pub message: String,
    /// Where, if known.
    pub trace: Option<String>,
    /// Whether a retry can help.
    pub recoverable: bool,
    /// How often it was tried again.
    pub retry_count: u32,
    /// The step that it failed of, if it was one: that is tried again when the run is.
    #[serde(default)]
    pub step: Option<String>,
}

/// A move that the table does not have. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {from} can't become {to}")]
pub struct IllegalMove {
    /// The state it is in.
    pub from: RunStatus,
    /// The state that was asked for.
    pub to: RunStatus,
}

impl RunState {
    /// Which state this is.
    pub const fn status(&self) -> RunStatus {
        match self {
            Self::Queued(_) => New,
            Self::InProgress(_) => Running,
            Self::Paused(_) => Held,
            Self::Waiting(_) => Asking,
            Self::Completed(_) => Done,
            Self::Failed(_) => Broken,
            Self::Cancelled { .. } => Cancelled,
        }
    }

    /// The state after moving to `next`, if that move is legal.
    pub fn move_to(&self, next: Self) -> Result<Self, IllegalMove> {
        let (from, to) = (self.status(), next.status());
        if from.may_become(to) { Ok(next) } else { Err(IllegalMove { from, to }) }
    }
}

/// What a store's index knows of a run: enough to list runs without opening their logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The run.
    pub id: RunId,
    /// What it is called; need not be unique.
    pub name: String,
    /// What kind of work it is.
    pub kind: RunKind,
    /// Its state.
    pub status: RunStatus,
    /// When it came to be.
    pub created_at: Timestamp,
    /// When its log last grew.
    pub updated_at: Timestamp,
    /// For a fork, the checkpoint that it branched from.
    pub parent: Option<CheckpointRef>,
    /// The working directory it belongs to, if any.
    pub folder: Option<String>,
    /// What it is found by beside its name.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(status: RunStatus) -> RunState {
        let at = Timestamp::from_millis(1);
        match status {
            New => {
                RunState::Queued(Queued { created_at: at, priority: 0, estimated_complexity: None, input: Value::Null })
            }
            Running => RunState::InProgress(InProgress {
                current: None,
                step: None,
                iteration: 0,
                started_at: at,
                last_activity_at: at,
                context: Value::Null,
                last_progress: None,
            }),
            Held => RunState::Paused(Paused { at, reason: "r".into(), resume_instructions: None, checkpoint: None }),
            Asking => RunState::Waiting(Waiting { wait_for: WaitFor::UserInput, prompt: "?".into(), timeout_at: None }),
            Done => RunState::Completed(Completed::new(at, Value::Null)),
            Broken => RunState::Failed(Failed {
                at,
                error_type: "e".into(),
                message: "m".into(),
                trace: None,
                recoverable: true,
                retry_count: 0,
                step: None,
            }),
            Cancelled => RunState::Cancelled { at, reason: "r".into() },
        }
    }

    /// R1, every pair: the legal moves are spelled out here a second time, from the specification.
    #[test]
    fn every_move_is_as_specified() {
        let legal = [
            "queued→in_progress",
            "queued→cancelled",
            "in_progress→paused",
            "in_progress→waiting",
            "in_progress→completed",
            "in_progress→failed",
            "paused→in_progress",
            "paused→cancelled",
            "waiting→in_progress",
            "waiting→cancelled",
            "waiting→failed",
            "failed→queued",
        ];
        let mut seen = 0;
        for from in RunStatus::ALL {
            for to in RunStatus::ALL {
                let expected = legal.contains(&format!("{from}→{to}").as_str());
                let state = sample(from);
                let moved = state.move_to(sample(to));
                assert_eq!(moved.is_ok(), expected, "{from} → {to}");
                if !expected {
                    assert_eq!(moved, Err(IllegalMove { from, to }));
                }
                assert_eq!(state, sample(from), "the state moved from is unchanged");
                seen += usize::from(expected);
            }
        }
        assert_eq!(seen, legal.len());
        assert!(RunStatus::ALL.into_iter().filter(|status| status.is_final()).eq([Done, Cancelled]));
    }

    /// R2: every state's data survives being stored.
    #[test]
    fn states_survive_a_round_trip() {
        for status in RunStatus::ALL {
            let state = sample(status);
            let value = crate::to_value(&state).unwrap();
            assert_eq!(value.field("status").and_then(Value::as_str), Some(status.as_str()));
            assert_eq!(crate::from_value::<RunState>(value).unwrap(), state);
        }
    }
}
