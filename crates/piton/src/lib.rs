//! Piton: durable checkpoints for AI agents and workflows. A climber places a piton, and falls no
//! further than the last one.
//!
//! This crate is the promised API; the crates below it may change without notice. Its names are in these modules:
//! [`run`] for durable steps, [`flow`] for workflow documents, [`files`] for a working folder, [`store`] for where all of
//! it lives, [`agent`] for an agent's own loop. What workflows reach is in [`outside`]; [`names`] has the names of the documents that Piton was designed by; [`engine`] has the hooks for those who build engines and node kinds.
//!
//! # Durable steps
//!
//! A [`Run`](run::Run) is a piece of long work. Each [`step`](run::Scope::step) runs once: its result is in the log
//! before the next begins, so the process that goes on after a crash gets it from there.
//!
//! ```
//! use piton::run::{Context, RunError};
//!
//! async fn report(piton: &Context) -> Result<String, RunError> {
//!     let mut run = piton.run("nightly").await?;
//!     let found: Vec<String> = run
//!         .step("search", "bees", async |topic| Ok::<_, std::io::Error>(vec![format!("{topic} dance")]))
//!         .await?;
//!     let text: String = run
//!         .step("write", &found, async |found| Ok::<_, std::io::Error>(format!("I found: {}", found.join(", "))))
//!         .await?;
//!     run.complete(&text).await?;
//!     Ok(text)
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let piton = piton::open("memory:").await?;
//! assert_eq!(report(&piton).await?, "I found: bees dance");
//!
//! // Opened again, the run is finished, and knows its outcome.
//! assert_eq!(piton.run("nightly").await?.outcome(), Some("I found: bees dance".into()));
//! # Ok(())
//! # }
//! ```
//!
//! With `sqlite:runs.db` in the place of `memory:`, the same program survives its own death and the machine's.
//!
//! # Workflows
//!
//! A workflow is a document. With a store each of its nodes is a durable step, and the same id goes on with it in any
//! process. A node with `checkpoint: true` in its data makes a checkpoint of the variables so far. [`flow`] has more scenes.
//!
//! ```
//! # #[cfg(not(feature = "flow"))]
//! # fn main() {}
//! # #[cfg(feature = "flow")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use piton::flow::{Document, ExecutionStatus, Format, WorkflowRunner};
//!
//! let document = "
//! nodes:
//!   - {id: ask, data: {type: start, variables: [{variable: name, type: string, required: true}]}}
//!   - {id: greet, data: {type: template-transform, template: 'Hello {{ name }}!',
//!       variables: [{variable: name, value_selector: [ask, name]}]}}
//!   - {id: tell, data: {type: end, outputs: [{variable: text, value_selector: [greet, output]}]}}
//! edges:
//!   - {source: ask, target: greet}
//!   - {source: greet, target: tell}
//! ";
//! let piton = piton::open("memory:").await?;
//! let handle = WorkflowRunner::builder(Document::parse(document, Format::Yaml)?)
//!     .user_inputs([("name".to_owned(), "Ada".into())].into())
//!     .store(piton.store)
//!     .workflow_id("greeting")
//!     .build()
//!     .run()
//!     .await?;
//! let ExecutionStatus::Completed(outputs) = handle.wait().await else { panic!() };
//! assert_eq!(outputs["text"], "Hello Ada!".into());
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! All but `postgres`, the store for teams, are on by default. `sqlite`: the default store. `flow`: workflows. `security`: quotas, credential groups and the
//! audit log of workflows. `plugin-system`: plugins for workflows. `workspace`: snapshots of a folder. `resolver`: a
//! language model that merges two versions of a file.

#[cfg(feature = "workspace")]
mod changes;
pub mod executions;
#[cfg(feature = "flow")]
pub mod flow;
#[cfg(all(
    feature = "flow",
    feature = "plugin-system",
    feature = "security",
    feature = "sqlite",
    feature = "workspace"
))]
pub mod names;
mod open;
#[cfg(feature = "flow")]
pub mod outside;
#[cfg(feature = "resolver")]
mod resolver;
#[cfg(all(feature = "workspace", feature = "flow"))]
mod run_files;

pub use open::open;

/// Durable runs: steps, effects, questions, sleeps, and what others do to a run.
pub mod run {
    pub use piton_runtime::{
        AtWork, Context, EffectFailure, EffectOptions, ForkRun, History, Listener, OpenRun, Outcome, Probed, Programs,
        RetryPolicy, Run, RunError, Scope, StartAt, StepError, StepOptions, Submission, Uncertain, Wait, Waits,
        WorkerOptions, answer, cancel, fork, recovery, roll_back, stop, submit_program,
    };
    pub use piton_types::{
        CheckpointRef, Event, Progress, ProgressReport, RunId, RunStatus, RunSummary, StepPath, Value, Verification,
    };
}

/// A working folder: snapshots, what changed and by whom, and the way back.
#[cfg(feature = "workspace")]
pub mod files {
    pub use piton_workspace::{
        Changes, ConflictResolution, Goal, OptimisticLock, Reports, Reservations, RestoreOptions, RestorePlan, Session,
        TextDiff, ToolCall, ToolFailure, ToolOutcome, Workspace, WorkspaceError, WorkspaceOptions,
    };
}

/// Where everything lives.
pub mod store {
    pub use piton_log::{EmbeddedStore, LogCheckpointStore};
    pub use piton_store::{
        Bytes, CheckpointError, CheckpointStore, EncryptedStore, Expected, Key, MemoryCheckpointStore, RedactedStore,
        Redaction, RedactionPolicy, RunQuery, Saved, Store, StoreError, async_trait,
    };
    pub use piton_store_objects::FileCheckpointStore;
    #[cfg(feature = "sqlite")]
    pub use piton_store_sqlite::{SqliteCheckpointStore, SqliteOptions};
}

/// An agent's own loop: a conversation with a budget, and checkpoints that make themselves.
pub mod agent {
    pub use piton_agents::danger::{self, Operation};
    pub use piton_runtime::{
        AgentContext, AgentError, Autosave, Budget, Message, Paid, Summariser, TriggerPolicy, TrimPolicy, notify,
    };
    pub use piton_types::TokenUsage;
}

/// Hooks for engines that name their own steps, for kinds of nodes, and for what joins files to runs.
pub mod engine {
    #[cfg(feature = "workspace")]
    pub use crate::changes::{FileChanges, TellingAsk, UpstreamChanges};
    #[cfg(feature = "resolver")]
    pub use crate::resolver::{ModelResolver, ModelResolverOptions};
    #[cfg(all(feature = "workspace", feature = "flow"))]
    pub use crate::run_files::RunFiles;
    #[cfg(feature = "flow")]
    pub use piton_flow::{
        Build, Built, Effect, Journal, Kind, Kinds, Node, NodeContext, NodeError, NodeOutput, Services,
    };
    #[cfg(all(feature = "flow", feature = "plugin-system"))]
    pub use piton_flow::{Plugin, PluginContext, PluginError, PluginMetadata, PluginPhase};
    pub use piton_runtime::{Recorded, StepDone, StepStanding, Turn};
    pub use piton_types::{Clock, Random};
}
