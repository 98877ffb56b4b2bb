//! What can go wrong with a workflow.

use std::time::Duration;

use crate::id::NodeId;
use crate::journal::JournalError;
use crate::need::NodeNeed;
use crate::problem::Problems;

fn listed(needs: &[NodeNeed]) -> String {
    let mut listed: Vec<_> = needs.iter().map(|need| format!("node {:?} needs {}", need.node, need.need)).collect();
    listed.truncate(20);
    listed.join("; ")
}

/// An error of a workflow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The document can't be run. Nothing was.
    #[error("Validation failed: {0}")]
    Document(Problems),

    /// The inputs aren't what the workflow asks for. Nothing was run.
    #[error("the inputs are not valid: {0}")]
    Inputs(Problems),

    /// The document needs what isn't here. Nothing was run.
    #[error("Validation failed: {}", listed(.0))]
    Needs(Vec<NodeNeed>),

    /// More nodes ran than the limits allow.
    #[error("Max steps exceeded: more than {most} nodes")]
    TooManySteps {
        /// How many are allowed.
        most: u64,
    },

    /// The run took longer than the limits allow.
    #[error("Max execution time exceeded: more than {} s", .most.as_secs_f64())]
    TooLong {
        /// How long is allowed.
        most: Duration,
    },

    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,

    /// A node failed. What finished before it is in the journal.
    #[error("node {node} failed: {message}")]
    Node {
        /// The node.
        node: NodeId,
        /// Why.
        message: String,
    },

    /// What was to go along with the run can't. No node was run.
    #[cfg(feature = "checkpoint")]
    #[error("what goes along with the run can't begin")]
    Companion {
        /// Why.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The id of the run isn't one. Nothing was run.
    #[error("{0:?} can't be the id of a run")]
    Id(String),

    /// What is called before a workflow keeps it from running. Nothing was written.
    #[error("{run} isn't run: {reason}")]
    Hook {
        /// The run.
        run: piton_types::RunId,
        /// Why.
        reason: String,
    },

    /// The way to models and the network can't be set up. Nothing was run.
    #[error("what the workflow reaches can't be set up")]
    Outside(#[source] piton_model::net::NetError),

    /// A plugin can't be used. Nothing was run.
    #[cfg(feature = "plugin-system")]
    #[error("the plugin {plugin:?} can't be used: {error}")]
    Plugin {
        /// Its name.
        plugin: String,
        /// Why.
        error: crate::plugin::PluginError,
    },

    /// The journal failed, so the run stopped where it was.
    #[error("the journal failed")]
    Journal(#[source] JournalError),

    /// The run can't be opened, driven or ended.
    #[cfg(feature = "checkpoint")]
    #[error(transparent)]
    Run(#[from] piton_runtime::RunError),

    /// The surroundings of the run are too different from those that it was begun in. Nothing was changed.
    #[cfg(feature = "checkpoint")]
    #[error("run {workflow_id} was begun in other surroundings:\n{diagnostic}")]
    ResumeRejected {
        /// The run.
        workflow_id: piton_types::RunId,
        /// The whole report, for people.
        diagnostic: String,
        /// Everything that changed.
        changes: Vec<crate::fingerprint::EnvironmentChange>,
    },

    /// Work that was to come, or had begun, is gone from the document: under no policy does the run go on with it.
    /// Nothing was changed.
    #[cfg(feature = "checkpoint")]
    #[error("run {run} can't go on with that document, which no longer has {}", .nodes.join(", "))]
    PendingNodesGone {
        /// The run.
        run: piton_types::RunId,
        /// Steps that are pending.
        nodes: Vec<String>,
    },

    /// The document was not read from a text, so a process that goes on with the run could read nothing.
    #[cfg(feature = "checkpoint")]
    #[error("only a document that was read from a text can be kept")]
    NoText,

    /// The run exists and has another document or other inputs. Nothing was changed.
    #[cfg(feature = "checkpoint")]
    #[error("run {run} exists with {what} of its own")]
    Differs {
        /// The run.
        run: piton_types::RunId,
        /// What differs.
        what: &'static str,
    },

    /// The last question of the conversation isn't answered yet, and is another one. Nothing was changed.
    #[cfg(feature = "checkpoint")]
    #[error("the question before isn't answered: run {run} is {status}")]
    TurnOpen {
        /// The run of that turn.
        run: piton_types::RunId,
        /// How it stands.
        status: piton_types::RunStatus,
    },

    /// The conversation hasn't come to that turn. Nothing was changed.
    #[cfg(feature = "checkpoint")]
    #[error("there is no turn {turn} of conversation {conversation} yet: the next one is {next}")]
    NoSuchTurn {
        /// The conversation.
        conversation: piton_types::RunId,
        /// The turn that was asked for.
        turn: u32,
        /// The next one.
        next: u32,
    },

    /// A conversation needs a store, where its turns are found again. Nothing was run.
    #[cfg(feature = "checkpoint")]
    #[error("a conversation needs a store that keeps its turns")]
    NoStore,

    /// The step can't be tried out on that entry, from which the run doesn't come to it next. Nothing was run.
    #[cfg(feature = "checkpoint")]
    #[error("step {step} isn't next at {at}{}", before.as_ref().map(|before| format!(": {before} comes before it")).unwrap_or_default())]
    NotNext {
        /// The entry.
        at: piton_types::CheckpointRef,
        /// The step.
        step: piton_types::StepPath,
        /// What comes before it, if that is known.
        before: Option<piton_types::StepPath>,
    },

    /// The run isn't a workflow, so there is no document to go on with.
    #[cfg(feature = "checkpoint")]
    #[error("run {run} is not a workflow")]
    NotAWorkflow {
        /// The run.
        run: piton_types::RunId,
    },
}
