//! Keeping a checkpoint within its limit (C3): an error, or older messages and tool outputs give way to
//! summaries. Nothing is lost by that: the full text moves to the part `archive`, which every later checkpoint
//! carries at no cost, and a summary says where its own is.

use piton_store::StoreError;
use piton_types::{BlobId, CheckpointRecord, CheckpointRef, Path, Trigger, Value, from_value, to_value};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::context::at;
use super::message::{text_of, weight};
use super::{AgentContext, Extractive, Message, Summarised, Summariser, ToolOutput};
use crate::{Checkpointed, MAX_CHECKPOINT, Run, RunError};

/// What stays in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrimPolicy {
    /// The newest messages.
    pub messages: usize,
    /// The newest tool outputs.
    pub tool_outputs: usize,
    /// What is this short, in bytes; and how long a summary may be.
    pub summary_bytes: usize,
}

impl Default for TrimPolicy {
    fn default() -> Self {
        Self { messages: 50, tool_outputs: 5, summary_bytes: 400 }
    }
}

/// What to do about a checkpoint that is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExceed {
    /// `TooLarge`, and nothing is changed.
    #[default]
    Error,
    /// Trim; if that isn't enough, `TooLarge`.
    Trim,
}

/// How large a checkpoint may be, and what is done about one that is larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SizeLimits {
    /// The most new data of one checkpoint in bytes, the snapshot of the working directory aside.
    pub checkpoint_bytes: u64,
    /// What to do about more.
    pub on_exceed: OnExceed,
    /// What stays in full when it is trimmed.
    pub trim: TrimPolicy,
}

impl Default for SizeLimits {
    fn default() -> Self {
        Self { checkpoint_bytes: MAX_CHECKPOINT, on_exceed: OnExceed::default(), trim: TrimPolicy::default() }
    }
}

/// What was trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trimmed {
    /// So many messages.
    pub messages: usize,
    /// So many tool outputs.
    pub tool_outputs: usize,
}

/// What can be summarised.
trait Item: Serialize + DeserializeOwned + Send + Sync {
    const LIST: &str;

    /// The same, with a summary in the place of its text.
    fn shortened(self, summary: String, summarised: Summarised) -> Self;

    fn text(&self) -> String;
}

impl Item for Message {
    const LIST: &str = "messages";

    fn shortened(self, summary: String, summarised: Summarised) -> Self {
        Self { content: Value::from(summary), summarised: Some(summarised), ..self }
    }

    fn text(&self) -> String {
        text_of(&self.content)
    }
}

impl Item for ToolOutput {
    const LIST: &str = "tool_outputs";

    fn shortened(self, summary: String, summarised: Summarised) -> Self {
        Self { input: Value::Null, output: Value::from(summary), summarised: Some(summarised), ..self }
    }

    fn text(&self) -> String {
        text_of(&self.output)
    }
}

impl AgentContext {
    /// Makes a checkpoint of it that keeps to the limits.
    ///
    /// Where it is trimmed, the archive is saved first, in checkpoints of its own that keep to the limit too;
    /// if the process dies between them, nothing is lost and nothing is half trimmed.
    ///
    /// # Errors
    ///
    /// `TooLarge` from the store if it doesn't fit, trimmed or not.
    pub async fn save_within(
        &mut self,
        run: &Run,
        record: &CheckpointRecord,
        limits: &SizeLimits,
        summariser: &dyn Summariser,
    ) -> Result<CheckpointRef, RunError> {
        let limit = limits.checkpoint_bytes;
        let saved = run.save_checkpoint(record, self.draft_parts(), Some(limit)).await;
        let too_large = matches!(saved, Err(RunError::Store(StoreError::TooLarge { .. })));
        if !too_large || limits.on_exceed == OnExceed::Error {
            return saved;
        }
        // On a copy: if it doesn't fit even so, nothing was changed here.
        let mut trimmed = self.clone();
        trimmed.trim_some(&limits.trim, summariser, Some((run, limit))).await?;
        let saved = run.save_checkpoint(record, trimmed.draft_parts(), Some(limit)).await?;
        *self = trimmed;
        Ok(saved)
    }

    /// Puts summaries in the place of older messages and tool outputs. Costs what is trimmed, once.
    pub async fn trim(&mut self, policy: &TrimPolicy, summariser: &dyn Summariser) -> Result<Trimmed, RunError> {
        self.trim_some(policy, summariser, None).await
    }

    async fn trim_some(
        &mut self,
        policy: &TrimPolicy,
        summariser: &dyn Summariser,
        saving: Option<(&Run, u64)>,
    ) -> Result<Trimmed, RunError> {
        Ok(Trimmed {
            messages: self.trim_list::<Message>(policy.messages, policy, summariser, saving).await?,
            tool_outputs: self.trim_list::<ToolOutput>(policy.tool_outputs, policy, summariser, saving).await?,
        })
    }

    async fn trim_list<T: Item>(
        &mut self,
        keep: usize,
        policy: &TrimPolicy,
        summariser: &dyn Summariser,
        saving: Option<(&Run, u64)>,
    ) -> Result<usize, RunError> {
        let list = at(&[T::LIST]);
        let end = self.conversation.len(&list).await?.unwrap_or(0).saturating_sub(keep);
        let done = at(&["trimmed", T::LIST]);
        let begin = usize::try_from(self.read::<u64>(&self.conversation, &done).await?).unwrap_or(usize::MAX);
        let (mut count, mut waiting) = (0, 0);
        for index in begin..end {
            let place = list.clone().index(index);
            let Some(value) = self.conversation.get(&place).await? else { continue };
            let bytes = weight(&value);
            if bytes <= policy.summary_bytes as u64 {
                continue;
            }
            if let Some((run, limit)) = saving
                && waiting > 0
                && (waiting + bytes) * 2 > limit
            {
                self.save_archive(run, limit).await?;
                waiting = 0;
            }
            let full = piton_log::state::encode(&piton_store::Hashing::PLAIN, &value)?.root;
            self.archive.set(&at(&[&full.to_string()]), value.clone()).await?;
            self.archived = true;
            waiting += bytes;
            let item: T = from_value(value).map_err(RunError::value(format!("one of {}", T::LIST)))?;
            let text = item.text();
            let (summary, by) = match summariser.summarise(&text, policy.summary_bytes).await {
                Ok(summary) => (summary, summariser.name().to_owned()),
                Err(error) => {
                    let by = format!("{} ({} failed: {error})", Extractive.name(), summariser.name());
                    (Extractive.extract(&text, policy.summary_bytes), by)
                }
            };
            let short = item.shortened(summary, Summarised { full: format!("blob://{full}"), by, bytes });
            let short = to_value(&short).map_err(RunError::value(format!("one of {}", T::LIST)))?;
            self.conversation.set(&place, short).await?;
            count += 1;
        }
        if end > begin {
            self.conversation.set(&done, Value::from(end as u64)).await?;
        }
        if let Some((run, limit)) = saving.filter(|_| waiting > 0) {
            self.save_archive(run, limit).await?;
        }
        Ok(count)
    }

    async fn save_archive(&mut self, run: &Run, limit: u64) -> Result<(), RunError> {
        let record = CheckpointRecord::by(Trigger::ContextGrowth).described("older messages, in full");
        run.save_checkpoint(&record, vec![self.archive_part()], Some(limit)).await.map(drop)
    }

    /// The whole of something that was trimmed, by the reference that stands with its summary; `None` if there
    /// is no such thing.
    pub async fn full(&self, reference: &str) -> Result<Option<Value>, RunError> {
        let hash = reference.strip_prefix("blob://").unwrap_or(reference);
        let hash: BlobId = hash.parse()?;
        Ok(self.archive.get(&Path::root().key(hash.to_string())).await?)
    }
}
