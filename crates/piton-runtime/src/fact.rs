//! What one entry of a run's log says.

use std::sync::Arc;

use piton_log::{RunLog, SealedEntry};
use piton_store::StoreError;
use piton_types::{EntryKind, Queued, RunState, StepPath, Value, from_value};
use serde::de::DeserializeOwned;

use crate::index::IndexRecord;
use crate::record::{
    AnswerRecord, ClaimRecord, IntentRecord, LogRecord, Origin, QuestionRecord, ReceiptRecord, RequestRecord,
    RestoreRecord, StepRecord,
};

/// The body of an entry.
#[derive(Debug, Clone)]
pub(crate) enum Fact {
    Created(Box<Queued>, Option<Box<Origin>>),
    Claimed(ClaimRecord),
    State(RunState),
    Step(Arc<StepRecord>),
    Intent(IntentRecord),
    Receipt(ReceiptRecord),
    Asked(QuestionRecord),
    Answer(AnswerRecord),
    Requested(RequestRecord),
    Restored(RestoreRecord),
    Logged(LogRecord),
    Indexed(Arc<IndexRecord>),
    /// A checkpoint, or a note about checkpoints: nothing that a run follows.
    Checkpoint,
}

/// The field of entry 0 that says where a run comes from.
pub(crate) const ORIGIN: &str = "origin";

impl Fact {
    /// Reads the body of an entry.
    pub(crate) async fn read(log: &RunLog, entry: &SealedEntry) -> Result<Self, StoreError> {
        if matches!(entry.kind, EntryKind::Checkpoint | EntryKind::Removed | EntryKind::FilesRestored) {
            return Ok(Self::Checkpoint);
        }
        let mut body = log.body(entry).await?;
        let origin = match &mut body {
            Value::Map(map) if entry.kind == EntryKind::Created => map.remove(ORIGIN),
            _ => None,
        };
        fn decode<T: DeserializeOwned>(log: &RunLog, entry: &SealedEntry, body: Value) -> Result<T, StoreError> {
            from_value(body).map_err(|error| {
                StoreError::corrupt(format!("the body of entry {} of run {}", entry.seq, log.run()), error.to_string())
            })
        }
        Ok(match entry.kind {
            EntryKind::Created => {
                let RunState::Queued(queued) = decode(log, entry, body)? else {
                    let what = format!("entry {} of run {}", entry.seq, log.run());
                    return Err(StoreError::corrupt(what, "it doesn't create a run"));
                };
                let origin = origin.map(|origin| decode(log, entry, origin)).transpose()?;
                Self::Created(Box::new(queued), origin.map(Box::new))
            }
            EntryKind::Claimed => Self::Claimed(decode(log, entry, body)?),
            EntryKind::StateChanged => Self::State(decode(log, entry, body)?),
            EntryKind::StepDone => Self::Step(Arc::new(decode(log, entry, body)?)),
            EntryKind::EffectIntent => Self::Intent(decode(log, entry, body)?),
            EntryKind::EffectReceipt => Self::Receipt(decode(log, entry, body)?),
            EntryKind::Asked => Self::Asked(decode(log, entry, body)?),
            EntryKind::Answer => Self::Answer(decode(log, entry, body)?),
            EntryKind::Requested => Self::Requested(decode(log, entry, body)?),
            EntryKind::Restored => Self::Restored(decode(log, entry, body)?),
            EntryKind::Logged => Self::Logged(decode(log, entry, body)?),
            EntryKind::Indexed => Self::Indexed(Arc::new(decode(log, entry, body)?)),
            EntryKind::Checkpoint | EntryKind::Removed | EntryKind::FilesRestored => Self::Checkpoint,
        })
    }

    /// The call that it belongs to.
    pub(crate) fn path(&self) -> Option<&StepPath> {
        match self {
            Self::Step(step) => Some(&step.path),
            Self::Intent(intent) => Some(&intent.path),
            Self::Asked(question) => Some(&question.path),
            Self::Receipt(receipt) => Some(&receipt.path),
            Self::Answer(answer) => Some(&answer.path),
            _ => None,
        }
    }

    /// The call that begins with it, if it isn't about one that began before.
    pub(crate) fn begins(&self) -> Option<&StepPath> {
        match self {
            Self::Receipt(_) | Self::Answer(_) => None,
            other => other.path(),
        }
    }

    /// The state that the run is in since this entry, if it changed it.
    pub(crate) fn state(&self) -> Option<RunState> {
        match self {
            Self::Created(queued, _) => Some(RunState::Queued((**queued).clone())),
            Self::Claimed(claim) => Some(claim.state.clone()),
            Self::State(state) => Some(state.clone()),
            Self::Asked(question) => Some(question.state.clone()),
            _ => None,
        }
    }
}
