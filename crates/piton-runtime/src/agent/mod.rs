//! What an agent knows, as parts of its run's state: the conversation, its variables, what it used.
//!
//! | part | schema | content |
//! |---|---|---|
//! | `conversation` | `piton.conversation` 1 | `messages`, `tool_outputs`, `decisions` (lists), `mode`, `skills`, `trimmed` |
//! | `variables` | `piton.variables` 1 | values by name |
//! | `usage` | `piton.usage` 1 | tokens, cost and calls so far, and the budget |
//! | `archive` | `piton.archive` 1 | the full text of what was trimmed, by its hash |
//!
//! Everything is appended or set by path, so a checkpoint costs what changed, however long the conversation
//! is. Large values leave the record by themselves: in the stored form anything above 96 bytes is a blob of its
//! own, named by its hash, and nothing above 4 KiB is kept in one piece (`docs/format.md`). So there is no
//! threshold to choose, and the record of a checkpoint stays far below 10 KB whatever it carries.

mod budget;
mod context;
mod message;
mod paid;
mod summary;
mod trim;

pub use budget::{AgentError, Budget, Ledger};
pub use context::AgentContext;
pub use message::{Decision, Message, Summarised, ToolOutput};
pub use paid::Paid;
pub use summary::{Extractive, Summariser};
pub use trim::{OnExceed, SizeLimits, TrimPolicy, Trimmed};
