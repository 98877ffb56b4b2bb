//! Checkpoints that make themselves: what [`decide`](crate::decide) says, done (C2).
//!
//! At most one save runs in the background. What changes meanwhile goes into the next, so a fast agent and a
//! slow store meet by making fewer checkpoints, never by a queue that grows. A checkpoint is reported only when
//! it is durable. If a save fails, what it had is still unsaved, and the next one brings it.

use std::sync::Arc;
use std::time::Duration;

use piton_log::DraftPart;
use piton_log::state::State;
use piton_store::Bytes;
use piton_types::{BlobId, CheckpointRecord, CheckpointRef, Trigger};
use tokio::task::JoinHandle;

use crate::triggers::{Action, Occasion, TriggerState, decide, next_due};
use crate::{Run, RunError, TriggerPolicy};

/// State that can be saved as parts of a run.
pub trait Checkpointed: Send + Sync + 'static {
    /// Its parts, to be saved.
    fn draft_parts(&mut self) -> Vec<DraftPart<'_>>;

    /// A copy that can be saved while this one is edited. It shares what both have.
    fn snapshot(&self) -> Box<dyn Checkpointed>;

    /// The states behind the parts, in the same order in every copy; a copy that is older may have fewer.
    fn states(&mut self) -> Vec<&mut State>;
}

/// Makes checkpoints of a run as a policy says.
///
/// ```
/// use std::sync::Arc;
/// use piton_runtime::{AgentContext, Autosave, Context, Message, OpenRun, Run, TriggerPolicy};
/// use piton_store_objects::ObjectStore;
/// use piton_types::Trigger;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), piton_runtime::RunError> {
/// let context = Context::system(Arc::new(ObjectStore::in_memory()));
/// let run = Arc::new(Run::open(&context, OpenRun::default()).await?);
/// let mut agent = AgentContext::open(&run).await?;
/// let mut autosave = Autosave::new(Arc::clone(&run), TriggerPolicy::default());
///
/// agent.push_message(&Message::user("Tidy up.")).await?;
/// autosave.changed(&mut agent).await?;
/// autosave.happened(Trigger::UserInput, "Tidy up.", &mut agent).await?;
/// // What is dangerous waits until the checkpoint is durable.
/// let first = autosave.happened(Trigger::BeforeDangerous, "before: rm -rf build", &mut agent).await?;
/// assert!(first.is_some());
/// autosave.finish(&mut agent).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Autosave {
    run: Arc<Run>,
    policy: TriggerPolicy,
    state: TriggerState,
    saving: Option<Saving>,
    newest: Option<CheckpointRef>,
    /// What the pending checkpoint will be called.
    about: String,
}

/// A save in the background.
#[derive(Debug)]
struct Saving {
    task: JoinHandle<(Result<CheckpointRef, RunError>, Copy)>,
}

/// What was saved, to tell the original.
struct Copy {
    content: Box<dyn Checkpointed>,
    /// Of each state, what wasn't stored before.
    nodes: Vec<Vec<(BlobId, Bytes)>>,
}

impl std::fmt::Debug for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copy").finish_non_exhaustive()
    }
}

impl Autosave {
    /// Watches over a run.
    pub fn new(run: Arc<Run>, policy: TriggerPolicy) -> Self {
        let state = TriggerState::beginning(run.clock().monotonic());
        Self { run, policy, state, saving: None, newest: None, about: String::new() }
    }

    /// The newest checkpoint that is known to be durable.
    pub const fn newest(&self) -> Option<&CheckpointRef> {
        self.newest.as_ref()
    }

    /// How long until [`tick`](Self::tick) is worth calling, if nothing else happens before.
    pub fn due_in(&self) -> Option<Duration> {
        next_due(&self.policy, &self.state).map(|due| due.saturating_sub(self.run.clock().monotonic()))
    }

    /// The state was edited.
    pub async fn changed(&mut self, context: &mut crate::AgentContext) -> Result<Option<CheckpointRef>, RunError> {
        let bytes = context.take_growth();
        self.tell(Occasion::Changed { bytes }, context).await
    }

    /// What a trigger watches for took place; `about` describes the checkpoint that it may lead to.
    ///
    /// Returns the checkpoint if one had to be durable before this may return.
    pub async fn happened(
        &mut self,
        trigger: Trigger,
        about: &str,
        content: &mut dyn Checkpointed,
    ) -> Result<Option<CheckpointRef>, RunError> {
        let more_urgent =
            self.state.pending.is_none_or(|pending| self.policy.priority(trigger) > Some(pending.priority));
        if more_urgent && self.policy.priority(trigger).is_some() {
            about.clone_into(&mut self.about);
        }
        self.tell(Occasion::Happened(trigger), content).await
    }

    /// Time passed.
    pub async fn tick(&mut self, content: &mut dyn Checkpointed) -> Result<Option<CheckpointRef>, RunError> {
        self.tell(Occasion::Tick, content).await
    }

    /// Waits for what is being saved, and saves what is pending or isn't saved yet. Returns the newest
    /// checkpoint.
    pub async fn finish(&mut self, content: &mut dyn Checkpointed) -> Result<Option<CheckpointRef>, RunError> {
        while self.saving.is_some() {
            self.settle(content).await?;
        }
        let unsaved = content.states().iter().any(|state| !state.unsaved().is_empty());
        if unsaved || self.state.pending.is_some() {
            let trigger = self.state.pending.map_or(Trigger::Manual, |pending| pending.trigger);
            self.state = TriggerState::beginning(self.run.clock().monotonic());
            self.save(trigger, content).await?;
        }
        Ok(self.newest.clone())
    }

    async fn tell(
        &mut self,
        occasion: Occasion,
        content: &mut dyn Checkpointed,
    ) -> Result<Option<CheckpointRef>, RunError> {
        // What ended meanwhile first, so that the decision knows of it.
        if self.saving.as_ref().is_some_and(|saving| saving.task.is_finished()) {
            self.settle(content).await?;
        }
        match self.decide(occasion) {
            Action::Nothing => Ok(None),
            Action::Save(trigger) => {
                self.begin(trigger, content);
                Ok(None)
            }
            Action::SaveFirst(trigger) => {
                self.settle(content).await?;
                self.state.saving = true;
                self.save(trigger, content).await.map(Some)
            }
        }
    }

    fn decide(&mut self, occasion: Occasion) -> Action {
        let (state, action) = decide(&self.policy, self.state, occasion, self.run.clock().monotonic());
        self.state = state;
        action
    }

    fn record(&mut self, trigger: Trigger) -> CheckpointRecord {
        CheckpointRecord::by(trigger).described(std::mem::take(&mut self.about))
    }

    /// Saves, and returns when it is durable.
    async fn save(&mut self, trigger: Trigger, content: &mut dyn Checkpointed) -> Result<CheckpointRef, RunError> {
        let record = self.record(trigger);
        let saved = self.run.save_checkpoint(&record, content.draft_parts(), None).await;
        self.note(saved, content)
    }

    /// Saves a copy in the background.
    fn begin(&mut self, trigger: Trigger, content: &mut dyn Checkpointed) {
        let (run, record) = (Arc::clone(&self.run), self.record(trigger));
        let mut copy = content.snapshot();
        let task = tokio::spawn(async move {
            let nodes = copy.states().iter().map(|state| state.unsaved()).collect();
            let saved = run.save_checkpoint(&record, copy.draft_parts(), None).await;
            (saved, Copy { content: copy, nodes })
        });
        self.saving = Some(Saving { task });
    }

    /// Waits for the save in the background, if there is one.
    async fn settle(&mut self, content: &mut dyn Checkpointed) -> Result<(), RunError> {
        let Some(Saving { task }) = self.saving.take() else { return Ok(()) };
        let (saved, mut copy) = task.await.map_err(|error| RunError::Broken {
            run: self.run.id().clone(),
            cause: format!("a save in the background ended badly: {error}"),
        })?;
        if saved.is_ok() {
            let copies = copy.content.states();
            for ((state, copy), nodes) in content.states().into_iter().zip(copies).zip(&copy.nodes) {
                state.saved_before(copy, nodes);
            }
        }
        self.note(saved, content).map(drop)
    }

    fn note(
        &mut self,
        saved: Result<CheckpointRef, RunError>,
        content: &mut dyn Checkpointed,
    ) -> Result<CheckpointRef, RunError> {
        let occasion = if saved.is_ok() { Occasion::Saved } else { Occasion::Failed };
        let action = self.decide(occasion);
        let checkpoint = saved?;
        self.newest = Some(checkpoint.clone());
        // Something was waiting for its turn.
        if let Action::Save(trigger) | Action::SaveFirst(trigger) = action {
            self.begin(trigger, content);
        }
        Ok(checkpoint)
    }
}
