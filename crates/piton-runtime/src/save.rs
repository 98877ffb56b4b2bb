//! Saving state: a checkpoint is an entry with the roots of the run's parts.

use piton_store::state::State;
use piton_store::{Content, Draft, DraftPart};
use piton_types::{CheckpointKind, CheckpointRef, EntryKind, Event, PartName, Trigger, Value, to_value};
use serde::Serialize;

use crate::{Run, RunError};

/// The body of a `Checkpoint` entry.
#[derive(Debug, Serialize)]
struct CheckpointRecord {
    trigger: Trigger,
    kind: CheckpointKind,
}

impl Run {
    /// Saves the given parts as a checkpoint. Parts that aren't given stay as the newest checkpoint has
    /// them, and cost nothing.
    ///
    /// When it returns, the checkpoint is as durable as the run. If it fails, the states in `parts` are
    /// unsaved, as before.
    pub async fn checkpoint(&self, label: &str, mut parts: Vec<DraftPart<'_>>) -> Result<CheckpointRef, RunError> {
        let mut writer = self.writer.lock().await;
        for (name, part) in &writer.parts {
            if parts.iter().all(|given| given.name != *name) {
                parts.push(DraftPart {
                    name: name.clone(),
                    schema: part.schema.clone(),
                    version: part.version,
                    content: Content::Stored(part.root),
                });
            }
        }
        let record = CheckpointRecord { trigger: Trigger::Manual, kind: CheckpointKind::Manual };
        let mut draft = Draft::new(EntryKind::Checkpoint, self.context.clock.now());
        draft.label = label.to_owned();
        draft.body = to_value(&record).map_err(RunError::value("a checkpoint's record"))?;
        draft.parts = parts;
        let seq = self.append(&mut writer, draft).await?;
        match writer.log.entry(seq).await {
            Ok(entry) => writer.parts = entry.parts,
            // The checkpoint stands, but the next one on this handle would carry old parts on.
            Err(error) => {
                self.known().broken = Some(error.to_string());
                return Err(error.into());
            }
        }
        drop(writer);
        let checkpoint = CheckpointRef { run: self.id.clone(), seq };
        self.events.tell(&Event::CheckpointSaved { checkpoint: checkpoint.clone() });
        Ok(checkpoint)
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
    pub async fn part(&self, name: &str) -> Result<Option<Value>, RunError> {
        let writer = self.writer.lock().await;
        match writer.parts.get(&PartName::from(name)) {
            Some(part) => Ok(Some(writer.log.load(part.root).await?)),
            None => Ok(None),
        }
    }

    /// A part of the newest checkpoint, to be edited; what of it is needed is loaded then.
    pub async fn part_state(&self, name: &str) -> Option<State> {
        let writer = self.writer.lock().await;
        writer.parts.get(&PartName::from(name)).map(|part| writer.log.state(part.root))
    }
}
