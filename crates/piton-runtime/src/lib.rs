//! Runs: work that is recorded as it goes, so that whoever continues it doesn't do it twice.
//!
//! - [`Run`] is one run being driven by this process: [`Run::step`] runs a piece of work once and
//!   records its result, [`Run::checkpoint`] saves state, [`Run::complete`] and [`Run::fail`] end it.
//! - [`Context`] is what a run needs from outside: a store, a clock, randomness, who we are.
//! - [`History`] is what the log of a run says, for whoever only wants to look.
//!
//! Of all processes at most one drives a run. Opening a run appends a claim with a higher fence; a run
//! whose holder is alive is refused with [`RunError::Held`], one whose holder is dead on this host is
//! taken over at once, and whatever the dead one still tries to write is refused by its fence. A holder
//! on another host counts as alive: whether it is can only be told by heartbeats, which nothing sends
//! yet.

mod agent;
mod autosave;
mod context;
pub mod danger;
mod error;
mod events;
mod finish;
mod history;
mod holder;
mod live;
pub mod notify;
mod open;
mod platform;
mod record;
pub mod recovery;
mod run;
mod save;
mod step;
mod system;
mod triggers;

pub use agent::{
    AgentContext, AgentError, Budget, Decision, Extractive, Ledger, Message, OnExceed, Paid, SizeLimits, Summarised,
    Summariser, ToolOutput, TrimPolicy, Trimmed,
};
pub use autosave::{Autosave, Checkpointed};
pub use context::Context;
pub use error::RunError;
pub use events::Listener;
pub use finish::Failure;
pub use history::History;
pub use holder::{Liveness, liveness, this_process};
pub use open::OpenRun;
pub use record::{ClaimRecord, StepRecord};
pub use run::Run;
pub use save::MAX_CHECKPOINT;
pub use step::{Recorded, StepDone};
pub use system::{SystemClock, SystemRandom};
pub use triggers::{
    Action, GrowthRule, Occasion, Pending, Rule, TimerRule, TriggerPolicy, TriggerState, decide, next_due,
};
