//! The context of an agent: an editable view of its parts.

use piton_log::state::State;
use piton_log::{Content, DraftPart};
use piton_types::{CheckpointRecord, CheckpointRef, PartName, Path, TokenUsage, Value, from_value, to_value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message::weight;
use super::{AgentError, Budget, Decision, Ledger, Message, ToolOutput};
use crate::{Checkpointed, Run, RunError};

/// What an agent knows, as parts of its run's state. Edits cost what they change; [`save`](Self::save) makes
/// them a checkpoint.
///
/// ```
/// use std::sync::Arc;
/// use piton_runtime::{AgentContext, Context, Message, OpenRun, Run};
/// use piton_store_objects::ObjectStore;
/// use piton_types::{CheckpointRecord, Trigger};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), piton_runtime::RunError> {
/// let context = Context::system(Arc::new(ObjectStore::in_memory()));
/// let open = OpenRun { id: Some("talk".parse()?), ..OpenRun::default() };
/// let run = Run::open(&context, open.clone()).await?;
/// let mut agent = AgentContext::open(&run).await?;
/// agent.push_message(&Message::user("What do bees do?")).await?;
/// agent.set_variable("topic", "bees".into()).await?;
/// agent.save(&run, &CheckpointRecord::by(Trigger::UserInput)).await?;
/// drop(run);
///
/// // Another process, another day.
/// let run = Run::open(&context, open).await?;
/// let agent = AgentContext::open(&run).await?;
/// assert_eq!(agent.messages().await?[0].content, "What do bees do?".into());
/// assert_eq!(agent.variable("topic").await?, Some("bees".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AgentContext {
    pub(super) conversation: State,
    variables: State,
    usage: State,
    pub(super) archive: State,
    /// Whether there is anything in the archive: without, it is no part.
    pub(super) archived: bool,
    ledger: Ledger,
    grown: u64,
}

const VERSION: u32 = 1;

pub(super) fn at(segments: &[&str]) -> Path {
    segments.iter().fold(Path::root(), |path, segment| path.key(*segment))
}

impl AgentContext {
    /// The context as the newest checkpoint of the run has it; an empty one if it has none.
    pub async fn open(run: &Run) -> Result<Self, RunError> {
        let lists = ["messages", "tool_outputs", "decisions", "skills"].map(|name| (name, Value::List(Vec::new())));
        let empty = Value::map(lists.into_iter().chain([("mode", Value::Null), ("trimmed", Value::map::<&str>([]))]));
        let nothing = Value::map::<&str>([]);
        let usage = run.part_state_or(PartName::USAGE, &nothing).await?;
        let ledger = from_value(usage.value().await?).map_err(RunError::value("the part usage"))?;
        let archived = run.part_state(PartName::ARCHIVE).await?;
        Ok(Self {
            conversation: run.part_state_or(PartName::CONVERSATION, &empty).await?,
            variables: run.part_state_or(PartName::VARIABLES, &nothing).await?,
            usage,
            archived: archived.is_some(),
            archive: match archived {
                Some(archive) => archive,
                None => run.part_state_or(PartName::ARCHIVE, &nothing).await?,
            },
            ledger,
            grown: 0,
        })
    }

    /// Adds a message.
    pub async fn push_message(&mut self, message: &Message) -> Result<(), RunError> {
        self.push("messages", message).await
    }

    /// Adds what a tool gave.
    pub async fn push_tool_output(&mut self, output: &ToolOutput) -> Result<(), RunError> {
        self.push("tool_outputs", output).await
    }

    /// Adds a decision.
    pub async fn push_decision(&mut self, decision: &Decision) -> Result<(), RunError> {
        self.push("decisions", decision).await
    }

    async fn push(&mut self, list: &str, item: &(impl Serialize + Sync)) -> Result<(), RunError> {
        let value = to_value(item).map_err(RunError::value(format!("one of {list}")))?;
        self.grown = self.grown.saturating_add(weight(&value));
        Ok(self.conversation.push(&at(&[list]), value).await?)
    }

    /// Every message, oldest first; of trimmed ones the summary.
    pub async fn messages(&self) -> Result<Vec<Message>, RunError> {
        self.read(&self.conversation, &at(&["messages"])).await
    }

    /// What every tool gave, oldest first; of trimmed ones the summary.
    pub async fn tool_outputs(&self) -> Result<Vec<ToolOutput>, RunError> {
        self.read(&self.conversation, &at(&["tool_outputs"])).await
    }

    /// Every decision, oldest first.
    pub async fn decisions(&self) -> Result<Vec<Decision>, RunError> {
        self.read(&self.conversation, &at(&["decisions"])).await
    }

    /// How many messages there are.
    pub async fn message_count(&self) -> Result<usize, RunError> {
        Ok(self.conversation.len(&at(&["messages"])).await?.unwrap_or(0))
    }

    pub(super) async fn read<T: DeserializeOwned + Default>(&self, state: &State, path: &Path) -> Result<T, RunError> {
        match state.get(path).await? {
            Some(value) => from_value(value).map_err(RunError::value(format!("{path} of an agent's context"))),
            None => Ok(T::default()),
        }
    }

    /// The mode that the agent is in: planning, acting, …
    pub async fn mode(&self) -> Result<Option<String>, RunError> {
        self.read(&self.conversation, &at(&["mode"])).await
    }

    /// Sets the mode.
    pub async fn set_mode(&mut self, mode: Option<&str>) -> Result<(), RunError> {
        let mode = mode.map_or(Value::Null, Value::from);
        Ok(self.conversation.set(&at(&["mode"]), mode).await?)
    }

    /// The skills that are active.
    pub async fn skills(&self) -> Result<Vec<String>, RunError> {
        self.read(&self.conversation, &at(&["skills"])).await
    }

    /// Sets the active skills.
    pub async fn set_skills(&mut self, skills: &[&str]) -> Result<(), RunError> {
        let skills = skills.iter().map(|&skill| Value::from(skill)).collect::<Vec<_>>();
        Ok(self.conversation.set(&at(&["skills"]), Value::from(skills)).await?)
    }

    /// A variable.
    pub async fn variable(&self, name: &str) -> Result<Option<Value>, RunError> {
        Ok(self.variables.get(&at(&[name])).await?)
    }

    /// Sets a variable.
    pub async fn set_variable(&mut self, name: &str, value: Value) -> Result<(), RunError> {
        self.grown = self.grown.saturating_add(weight(&value));
        Ok(self.variables.set(&at(&[name]), value).await?)
    }

    /// Takes a variable away. Says whether there was one.
    pub async fn remove_variable(&mut self, name: &str) -> Result<bool, RunError> {
        Ok(self.variables.remove(&at(&[name])).await?)
    }

    /// What was used so far, and what may be.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Sets what may be used in all. It holds for every process that goes on with the run, from the next checkpoint on.
    pub async fn set_budget(&mut self, budget: Budget) -> Result<(), RunError> {
        self.set_ledger(Ledger { budget, ..self.ledger }).await
    }

    /// Adds what a call used. [`paid`](Self::paid) does that in the commit that records the call.
    pub async fn add_usage(&mut self, usage: TokenUsage) -> Result<(), AgentError> {
        Ok(self.set_ledger(self.ledger.after(usage)?).await?)
    }

    async fn set_ledger(&mut self, ledger: Ledger) -> Result<(), RunError> {
        let value = to_value(&ledger).map_err(RunError::value("the part usage"))?;
        self.usage.set(&Path::root(), value).await?;
        self.ledger = ledger;
        Ok(())
    }

    /// By how many bytes the context grew since this was last asked.
    pub fn take_growth(&mut self) -> u64 {
        std::mem::take(&mut self.grown)
    }

    /// How many bytes the next checkpoint brings that no earlier one has.
    pub fn unsaved_bytes(&self) -> u64 {
        let archive = self.archived.then_some(&self.archive);
        let states = [&self.conversation, &self.variables, &self.usage].into_iter().chain(archive);
        states.flat_map(State::unsaved).map(|(_, node)| node.len() as u64).sum()
    }

    /// Makes a checkpoint of it, which brings as much as it takes.
    /// [`save_within`](Self::save_within) keeps to a limit.
    pub async fn save(&mut self, run: &Run, record: &CheckpointRecord) -> Result<CheckpointRef, RunError> {
        run.save_checkpoint(record, self.draft_parts(), None).await
    }

    pub(super) fn archive_part(&mut self) -> DraftPart<'_> {
        part(PartName::ARCHIVE, &mut self.archive)
    }
}

fn part<'a>(name: &str, state: &'a mut State) -> DraftPart<'a> {
    DraftPart { name: name.into(), schema: format!("piton.{name}"), version: VERSION, content: Content::State(state) }
}

impl Checkpointed for AgentContext {
    fn draft_parts(&mut self) -> Vec<DraftPart<'_>> {
        let mut parts = vec![
            part(PartName::CONVERSATION, &mut self.conversation),
            part(PartName::VARIABLES, &mut self.variables),
            part(PartName::USAGE, &mut self.usage),
        ];
        if self.archived {
            parts.push(part(PartName::ARCHIVE, &mut self.archive));
        }
        parts
    }

    fn snapshot(&self) -> Box<dyn Checkpointed> {
        Box::new(self.clone())
    }

    fn states(&mut self) -> Vec<&mut State> {
        let mut states = vec![&mut self.conversation, &mut self.variables, &mut self.usage];
        states.extend(self.archived.then_some(&mut self.archive));
        states
    }
}
