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
//! The node kinds of this version are `start`, `template-transform`, `command` and `end`. A document
//! with any other is refused, node by node.

mod dispatch;
mod document;
#[cfg(feature = "checkpoint")]
mod durable;
mod engine;
mod error;
mod format;
mod graph;
mod id;
mod journal;
mod nodes;
mod platform;
mod pool;
mod problem;
mod template;
#[cfg(feature = "checkpoint")]
mod variables;

pub use document::{Document, Edge, NodeSpec};
#[cfg(feature = "checkpoint")]
pub use durable::{RunJournal, RunOutcome, StartFlow, resume_durable, run_durable};
pub use engine::{Host, Inputs, Outputs, run};
pub use error::FlowError;
pub use format::Format;
pub use id::{InvalidNodeId, NodeId};
pub use journal::{Journal, JournalError, NoJournal, NodeDone};
pub use problem::{Place, Problem, Problems};
