//! What the log of a run says: read once, when a run is opened or looked at.

use std::collections::BTreeMap;

use piton_store::{RunLog, SealedEntry, Span, StoreError};
use piton_types::{EntryKind, Fence, Parts, Queued, RunState, Seq, StepPath, Value, from_value};
use serde::de::DeserializeOwned;

use crate::{ClaimRecord, StepRecord};

/// A run as its log tells it.
#[derive(Debug, Clone)]
pub struct History {
    /// The document and inputs that it was created with.
    pub input: Value,
    /// The state that it is in.
    pub state: RunState,
    /// Who took it last, with which fence.
    pub claim: Option<(Fence, ClaimRecord)>,
    /// Every attempt at every step, in the order in which they ended.
    pub steps: Vec<StepRecord>,
    /// The newest checkpoint and its parts.
    pub checkpoint: Option<(Seq, Parts)>,
    /// How often it was queued again after a failure.
    pub retries: u32,
}

impl History {
    /// Reads the whole log, as far as the handle knows it.
    pub async fn read(log: &RunLog) -> Result<Self, StoreError> {
        let entries = log.entries(Span { to: log.head().seq, ..Span::ALL }).await?;
        let first =
            entries.first().ok_or_else(|| StoreError::corrupt(format!("run {}", log.run()), "entry 0 is missing"))?;
        let queued = created(log, first).await?;
        let (input, state) = (queued.input.clone(), RunState::Queued(queued));
        let mut history = Self { input, state, claim: None, steps: Vec::new(), checkpoint: None, retries: 0 };
        for entry in &entries {
            history.take(log, entry).await?;
        }
        Ok(history)
    }

    /// The document and inputs alone.
    pub(crate) async fn read_input(log: &RunLog) -> Result<Value, StoreError> {
        Ok(created(log, &log.entry(Seq(0)).await?).await?.input)
    }

    async fn take(&mut self, log: &RunLog, entry: &SealedEntry) -> Result<(), StoreError> {
        if !entry.parts.is_empty() {
            self.checkpoint = Some((entry.seq, entry.parts.clone()));
        }
        match entry.kind {
            EntryKind::Claimed => {
                let record: ClaimRecord = decode(log, entry).await?;
                self.state = record.state.clone();
                self.claim = Some((entry.fence, record));
            }
            EntryKind::StateChanged => {
                self.state = decode(log, entry).await?;
                self.retries += u32::from(matches!(self.state, RunState::Queued(_)));
            }
            EntryKind::StepDone => self.steps.push(decode(log, entry).await?),
            // Entry 0 was read first. The others don't bear on steps and state.
            EntryKind::Created
            | EntryKind::EffectIntent
            | EntryKind::EffectReceipt
            | EntryKind::Answer
            | EntryKind::Checkpoint
            | EntryKind::Restored => {}
        }
        Ok(())
    }

    /// The newest attempt at every step.
    pub(crate) fn newest_steps(&self) -> BTreeMap<StepPath, StepRecord> {
        self.steps.iter().map(|step| (step.path.clone(), step.clone())).collect()
    }
}

/// What entry 0 has.
async fn created(log: &RunLog, first: &SealedEntry) -> Result<Queued, StoreError> {
    match decode(log, first).await? {
        RunState::Queued(queued) if first.kind == EntryKind::Created => Ok(queued),
        _ => Err(StoreError::corrupt(format!("entry {} of run {}", first.seq, log.run()), "it doesn't create a run")),
    }
}

async fn decode<T: DeserializeOwned>(log: &RunLog, entry: &SealedEntry) -> Result<T, StoreError> {
    let body = log.body(entry).await?;
    from_value(body).map_err(|error| {
        StoreError::corrupt(format!("the body of entry {} of run {}", entry.seq, log.run()), error.to_string())
    })
}
