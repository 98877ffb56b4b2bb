//! A workflow's checkpoint in full (F4), as an application's own [`CheckpointStore`](piton_store::CheckpointStore) is
//! given it: every node and edge with its state, what is ready, runs and waits, the variables, and what was counted.
//!
//! It is written by name in [`fields`] and read by name as a [`Checkpoint`]. Stores with a history have the same in the
//! parts `engine` and `variables`, which cost only what changed.

use std::collections::BTreeMap;

use piton_store::CheckpointError;
use piton_types::{RunStatus, Value, from_json, from_value};
use serde::{Deserialize, Serialize};

use crate::engine::Outputs;
use crate::fingerprint::ContextFingerprint;
use crate::tally::Tally;

/// How a node or an edge stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraversalState {
    /// It isn't decided yet: the node hasn't ended.
    #[default]
    Pending,
    /// The node ended well; the edge leads on.
    Taken,
    /// No way leads there.
    Skipped,
    /// It is no longer wanted: what it would have led to began without it.
    Cancelled,
}

/// What a workflow had used by its checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsumedResources {
    /// Tokens sent to models.
    pub total_prompt_tokens: u64,
    /// Tokens received from models.
    pub total_completion_tokens: u64,
    /// What models cost.
    pub total_llm_cost: f64,
    /// Calls of tools.
    pub total_tool_calls: u64,
}

/// What is saved of a workflow in an application's own store. `docs/format.md` has the document field by field.
///
/// ```
/// use std::sync::Arc;
/// use piton_flow::{Checkpoint, Document, Format, TraversalState, WorkflowRunner};
/// use piton_store::{CheckpointStore, MemoryCheckpointStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let schema = Document::parse("
/// nodes:
///   - {id: in, data: {type: start}}
///   - {id: work, data: {type: template-transform, template: done, variables: []}}
///   - {id: ask, data: {type: human-input, prompt: 'Go on?', variables: []}}
///   - {id: out, data: {type: end, outputs: []}}
/// edges: [{source: in, target: work}, {source: work, target: ask}, {source: ask, target: out}]
/// ", Format::Yaml)?;
/// let store = Arc::new(MemoryCheckpointStore::new());
/// let runner = WorkflowRunner::builder(schema).checkpoint_store(store.clone()).workflow_id("order-7").build();
/// runner.run().await?.wait_or_paused().await;
///
/// let saved = store.load("order-7").await?.expect("it waits");
/// let checkpoint = Checkpoint::read(&saved.bytes)?;
/// assert_eq!(checkpoint.completed_node_id.as_deref(), Some("work"));
/// assert_eq!(checkpoint.node_states["out"], TraversalState::Pending);
/// assert_eq!(checkpoint.variables["work"].field("output"), Some(&"done".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Checkpoint {
    /// The run's id, which names what is saved.
    pub workflow_id: String,
    /// The same in every process that goes on with the run.
    #[serde(default)]
    pub execution_id: String,
    /// How the run stood when this was saved.
    pub status: RunStatus,
    /// When the checkpoint was made, in milliseconds since 1970; nothing if the run hadn't come to one.
    #[serde(default)]
    pub created_at: Option<i64>,
    /// The node that ended last.
    #[serde(default)]
    pub completed_node_id: Option<String>,
    /// Each node of the document.
    #[serde(default)]
    pub node_states: BTreeMap<String, TraversalState>,
    /// Each edge, as `source -> target`, or `source [exit] -> target` if it belongs to an exit.
    #[serde(default)]
    pub edge_states: BTreeMap<String, TraversalState>,
    /// The nodes that may run, in that order.
    #[serde(default)]
    pub ready_queue: Vec<String>,
    /// Which node's end made each of them ready.
    #[serde(default)]
    pub ready_predecessor: BTreeMap<String, String>,
    /// What had begun and touches the world outside.
    #[serde(default)]
    pub running_nodes: Vec<String>,
    /// What waits for a person.
    #[serde(default)]
    pub waiting_nodes: Vec<String>,
    /// What nodes gave, and what was assigned: by scope, then by name.
    #[serde(default)]
    pub variables: BTreeMap<String, Value>,
    /// How many nodes ended well.
    #[serde(default)]
    pub step_count: u64,
    /// How many failures it went on from.
    #[serde(default)]
    pub exceptions_count: u64,
    /// What ends have given so far.
    #[serde(default)]
    pub final_outputs: Outputs,
    /// How long it was driven.
    #[serde(default)]
    pub elapsed_secs: f64,
    /// What it had used.
    #[serde(default)]
    pub consumed_resources: ConsumedResources,
    /// What it was begun with.
    #[serde(default)]
    pub context_fingerprint: Option<ContextFingerprint>,
}

impl Checkpoint {
    /// Reads what [`CheckpointStore::load`](piton_store::CheckpointStore::load) gave.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Corrupted`] if it isn't the checkpoint of a workflow.
    pub fn read(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let value = from_json(bytes).map_err(|error| CheckpointError::Corrupted(error.to_string()))?;
        from_value(value).map_err(|error| CheckpointError::Corrupted(error.to_string()))
    }
}

/// What follows from where a workflow is.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Whole {
    pub(crate) completed_node_id: Option<String>,
    pub(crate) node_states: BTreeMap<String, TraversalState>,
    pub(crate) edge_states: BTreeMap<String, TraversalState>,
    pub(crate) ready_queue: Vec<String>,
    pub(crate) ready_predecessor: BTreeMap<String, String>,
    pub(crate) running_nodes: Vec<String>,
    pub(crate) waiting_nodes: Vec<String>,
    pub(crate) final_outputs: BTreeMap<String, Value>,
}

/// The part `checkpoint`: all fields but those that the store knows and the variables, which are a part of their own.
pub(crate) fn fields(run: &str, whole: &Whole, tally: Tally, fingerprint: &Value) -> Value {
    let Ok(Value::Map(mut fields)) = piton_types::to_value(whole) else {
        unreachable!("it is made of maps, lists and texts")
    };
    let consumed = ConsumedResources {
        total_prompt_tokens: tally.prompt_tokens,
        total_completion_tokens: tally.completion_tokens,
        total_llm_cost: tally.cost,
        total_tool_calls: tally.tool_calls,
    };
    let counted = [
        ("execution_id", Value::from(run)),
        ("step_count", tally.steps.into()),
        ("exceptions_count", tally.exceptions.into()),
        ("elapsed_secs", tally.elapsed().as_secs_f64().into()),
        ("consumed_resources", piton_types::to_value(&consumed).unwrap_or_default()),
        ("context_fingerprint", fingerprint.clone()),
    ];
    fields.extend(counted.map(|(name, value)| (name.to_owned(), value)));
    Value::Map(fields)
}
