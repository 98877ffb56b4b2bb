//! Workflows as documents: a graph of nodes, checked before it runs and run in the order of its edges.
//!
//! - [`Document`] is a workflow as it is written, in YAML, JSON or TOML. Parsing and checking report
//!   every [`Problem`] at once, each with its place.
//! - [`run`] runs a checked document. What finished goes into a [`Journal`]; with [`NoJournal`] nothing
//!   is kept and nothing is paid for it.
//! - With the feature `checkpoint`, `run_durable` and `resume_durable` run a document as a durable run:
//!   each finished node is one entry of its log, and a node that finished never runs again. The entry of
//!   a node with `checkpoint: true` in its data is a checkpoint: it carries the variables so far.
//!
//! [`nodes`] has the kinds of nodes that there are, and says how to add one. A document with a kind that isn't there
//! needs it, and says so before anything runs.

mod activity;
#[cfg(feature = "checkpoint")]
mod alone;
#[cfg(feature = "checkpoint")]
mod body;
mod bundle;
mod burst;
#[cfg(feature = "checkpoint")]
mod checkpoint;
mod condition;
mod control;
mod debug;
mod dispatch;
mod document;
#[cfg(feature = "checkpoint")]
mod durable;
mod engine;
mod error;
mod events;
#[cfg(feature = "checkpoint")]
mod fingerprint;
mod flow;
mod format;
mod graph;
mod guard;
mod hooks;
mod id;
mod inbox;
mod journal;
mod kind;
mod lines;
mod need;
mod node;
pub mod nodes;
mod outside;
#[cfg(feature = "plugin-system")]
mod plugin;
mod pool;
#[cfg(feature = "checkpoint")]
mod position;
mod problem;
#[cfg(feature = "checkpoint")]
mod progress;
mod read;
mod ready;
mod record;
mod reply;
#[cfg(feature = "checkpoint")]
mod resume;
mod runner;
mod selector;
mod settings;
mod system;
#[cfg(feature = "checkpoint")]
mod tally;
mod template;
#[cfg(feature = "checkpoint")]
mod uncertain;
mod value;
#[cfg(feature = "checkpoint")]
mod variables;

#[cfg(feature = "checkpoint")]
pub use alone::run_alone;
#[cfg(feature = "checkpoint")]
pub use body::{ConfigFile, configured_by};
pub use bundle::{Bundle, DocumentFiles};
pub use burst::Burst;
#[cfg(feature = "checkpoint")]
pub use checkpoint::{Checkpoint, ConsumedResources, TraversalState};
pub use control::Control;
pub use debug::{Debugger, Moment, Phase, Then, When};
pub use document::{Document, Edge, ErrorHandler, NodeSpec, VariableSpec};
#[cfg(feature = "checkpoint")]
pub use durable::RunJournal;
pub use engine::{Finished, Host, Ids, Inputs, Limits, Outputs, run};
pub use error::FlowError;
pub use events::EventSink;
#[cfg(feature = "checkpoint")]
pub use fingerprint::{
    ChangeSeverity, ContextFingerprint, EnvironmentChange, Impact, ResumeDiagnostic, diff_fingerprints,
};
pub use flow::{Flow, Given, Report};
pub use format::Format;
pub use graph::Graph;
pub use hooks::WorkflowHooks;
pub use id::{InvalidNodeId, NodeId};
pub use inbox::{Answered, Field, Form, Inbox, Question, Waiting, yes_or_no};
pub use journal::{
    Beginning, Begun, Found, Happened, Journal, JournalError, NoJournal, NodeDone, OnUncertain, RunFacts, Written,
};
pub use kind::{Build, Built, Faults, Kind, Kinds};
pub use need::{Need, NodeNeed, Services};
pub use node::{DEFAULT_EXIT, Effect, Exits, FAIL_EXIT, Join, Node, NodeContext, NodeError, NodeOutput, Patience};
pub use nodes::file_with;
pub use outside::{
    Audit, AuditEntry, AuditError, AuditFile, AuditKind, Credential, Governor, Knowledge, Outside, OutsideConfig,
    Programs, Quotas, SecurityLevel, ServerDescription, ToolServer, ToolServers, Used,
};
#[cfg(feature = "plugin-system")]
pub use plugin::{Plugin, PluginContext, PluginError, PluginMetadata, PluginPhase};
pub use pool::VariablePool;
pub use problem::{Place, Problem, Problems, Severity};
#[cfg(feature = "checkpoint")]
pub use progress::how_far;
pub use reply::Reply;
#[cfg(feature = "checkpoint")]
pub use resume::{ResumeExamination, ResumePolicy, Setting, examine_history, examine_resume};
#[cfg(feature = "checkpoint")]
pub use runner::{
    AnswerError, Companion, Conversation, FlowOptions, NextTurn, RunOutcome, Schedule, StartFlow, answer_question,
    choose, create_durable, create_following, next_turn, open_questions, resume_durable, resume_with_document,
    run_durable, schedule_of,
};
pub use runner::{
    ExecutionStatus, HandleError, OpenQuestion, SafeStopSignal, StopReport, WorkflowHandle, WorkflowRunner,
    WorkflowRunnerBuilder,
};
pub use selector::{Mapping, Selector};
pub use template::Template;
