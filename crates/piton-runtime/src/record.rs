//! The bodies of the entries that a run writes. They are stored: fields may be added, with a default,
//! and are never given another meaning.

use piton_types::{BlobId, Holder, RunState, StepPath, Timestamp, Value};
use serde::{Deserialize, Serialize};

/// The body of a `Claimed` entry: who took the run, and the state that it is in since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// Who.
    pub holder: Holder,
    /// Tells the claims of one process apart.
    pub claim: u64,
    /// In progress.
    pub state: RunState,
}

/// The body of a `StepDone` entry: one attempt at a step, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Its place in the run.
    pub path: StepPath,
    /// How many steps this process had begun before it.
    pub index: u32,
    /// The hash of the input, plain in every store so that a copy of the run still fits.
    pub input_hash: BlobId,
    /// What it took in.
    pub input: Value,
    /// What it gave out; null if it failed.
    pub output: Value,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// Which attempt it was, from 1.
    pub attempt: u32,
}

impl StepRecord {
    /// Whether the step ended well, so that it never runs again.
    pub const fn is_finished(&self) -> bool {
        self.error.is_none()
    }
}
