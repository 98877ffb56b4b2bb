//! Saving state: a checkpoint is an entry with the roots of the run's parts.

use async_recursion::async_recursion as boxed;
use piton_log::state::State;
use piton_log::{Content, Draft, DraftPart};
use piton_types::{CheckpointRecord, CheckpointRef, PartName, Seq, Trigger, Value};

use crate::core::{Core, Writer};
use crate::{Run, RunError};

/// How much new data a checkpoint may bring, the snapshot of the working directory aside (C3).
pub const MAX_CHECKPOINT: u64 = 5_000_000;

impl Run {
    /// Saves the given parts as a checkpoint, by hand. Parts that aren't given stay as the newest checkpoint
    /// has them, and cost nothing.
    ///
    /// When it returns, the checkpoint is as durable as the run. If it fails, the states in `parts` are
    /// unsaved, as before.
    pub async fn checkpoint(&self, label: &str, parts: Vec<DraftPart<'_>>) -> Result<CheckpointRef, RunError> {
        self.save_checkpoint(&CheckpointRecord::by(Trigger::Manual).described(label), parts, None).await
    }

    /// Saves the given parts as a checkpoint with all that is known about it (C1). Its description is what
    /// lists show.
    ///
    /// With a `limit` it brings at most so many bytes of new data, that of the part `workspace` aside; more
    /// is `TooLarge` from the store, and nothing was stored or changed. See [`MAX_CHECKPOINT`].
    pub async fn save_checkpoint(
        &self,
        record: &CheckpointRecord,
        parts: Vec<DraftPart<'_>>,
        limit: Option<u64>,
    ) -> Result<CheckpointRef, RunError> {
        self.turn().await?.save_checkpoint(record, parts, limit).await
    }

    /// Saves one whole value as the part `name`; see [`checkpoint`](Self::checkpoint).
    pub async fn save(&self, name: &str, value: &Value) -> Result<CheckpointRef, RunError> {
        let part = DraftPart {
            name: PartName::from(name),
            schema: format!("piton.{name}"),
            version: 1,
            content: Content::Value(value),
        };
        self.checkpoint(name, vec![part]).await
    }

    /// A part of the newest checkpoint, whole.
    #[boxed]
    pub async fn part(&self, name: &str) -> Result<Option<Value>, RunError> {
        let writer = self.core().writer().await?;
        match writer.parts.get(&PartName::from(name)) {
            Some(part) => Ok(Some(writer.log.load(part).await?)),
            None => Ok(None),
        }
    }

    /// A part of the newest checkpoint, to be edited; what of it is needed is loaded then.
    #[boxed]
    pub async fn part_state(&self, name: &str) -> Result<Option<State>, RunError> {
        let writer = self.core().writer().await?;
        match writer.parts.get(&PartName::from(name)) {
            Some(part) => Ok(Some(writer.log.state(part))),
            None => Ok(None),
        }
    }

    /// A part of the newest checkpoint, to be edited; if there is none, a new state of `value`, which
    /// the next checkpoint can save.
    pub async fn part_state_or(&self, name: &str, value: &Value) -> Result<State, RunError> {
        self.turn().await?.part_state_or(name, value)
    }
}

impl Core {
    /// Appends an entry that carries state. Parts of the newest checkpoint that the draft leaves out are
    /// carried on.
    pub(crate) async fn append_checkpoint(&self, writer: &mut Writer, draft: Draft<'_>) -> Result<Seq, RunError> {
        let seq = self.append_with(writer, draft, self.durability).await?;
        writer.checkpoint = Some(seq);
        writer.parts = writer.log.take_appended_parts();
        Ok(seq)
    }
}
