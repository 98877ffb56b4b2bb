//! Runs: work that is recorded as it goes, so that the process that continues it doesn't do it twice.
//!
//! - [`Run`] is one run being driven by this process: [`step`](Scope::step) runs a piece of work once and
//!   records its result, [`effect`](Scope::effect) does the same for an action on the outside world,
//!   [`sleep`](Scope::sleep) and [`wait_for`](Scope::wait_for) outlive the process,
//!   [`Run::checkpoint`] saves state, [`Run::complete`] and [`Run::fail`] end it. [`Run::drive`] does all
//!   of that around a program.
//! - [`Scope`] is where a run's calls get their names from, and [`branch`](Scope::branch) makes another
//!   for what runs beside.
//! - [`Context`] is what a run needs from outside: a store, a clock, randomness, who we are.
//! - [`History`] is what the log of a run says, for a reader that only wants to look.
//! - [`answer`], [`stop`], [`cancel`], [`fork`], [`roll_back`]: what others do to a run.
//!
//! Of all processes at most one drives a run. Opening a run appends a claim with a higher fence; a run
//! whose holder is alive is refused with [`RunError::Held`], one whose holder is dead on this host is
//! taken over at once, one whose holder is elsewhere once the holder gave no sign of life for as long as
//! [`LeaseOptions`] say, and whatever the old one still tries to write is refused by its fence.
//!
//! A tokio runtime with time is needed.

mod agent;
mod alone;
mod asking;
mod attempt;
mod autosave;
mod child;
mod context;
mod core;
mod deadline;
mod difference;
mod drive;
mod effect;
mod engine;
mod error;
mod events;
mod fact;
mod finish;
mod folder;
mod fork;
mod history;
mod holder;
mod index;
mod lease;
mod line;
mod lines;
mod live;
pub mod notify;
mod nudge;
mod open;
mod pages;
mod platform;
mod programs;
mod progress;
mod queue;
mod record;
pub mod recovery;
mod restore;
pub mod retention;
mod retry;
mod run;
mod save;
mod scope;
mod size;
mod sleep;
mod step;
mod stop;
mod system;
mod triggers;
mod turn;
mod usage;
mod wait;
mod watch;
mod whole;

pub use agent::{
    AgentContext, AgentError, Budget, Decision, Extractive, Ledger, Message, OnExceed, Paid, SizeLimits, Summarised,
    Summariser, ToolOutput, TrimPolicy, Trimmed,
};
pub use autosave::{Autosave, Checkpointed};
pub use context::Context;
pub use deadline::Deadline;
pub use drive::Outcome;
pub use effect::{EffectAnswer, EffectFailure, EffectOptions, Probed, Uncertain};
pub use engine::{Intended, StepStanding};
pub use error::{Call, RunError};
pub use events::Listener;
pub use finish::{Ending, Failure};
pub use folder::folder_log;
pub use fork::{ForkRun, fork, fork_into};
pub use history::History;
pub use holder::{Liveness, calling_program, liveness, process, this_process};
pub use index::{LastStep, Totals};
pub use lease::{LeaseOptions, LeaseWatch, Standing};
pub use lines::Lines;
pub use nudge::listen_for_nudges;
pub use open::{Admission, Looking, OpenRun, Refusal, StartAt};
pub use pages::{CheckpointInfo, Cursor, Pager, PastEntry, PastStep};
pub use programs::{ProgramError, Programs, submit_program};
pub use progress::AtWork;
pub use queue::{Driver, Submission, Taken, Undriven, WorkerOptions, place_in_queue, submit, wake, work};
pub use record::{
    AnswerRecord, ClaimRecord, Compensation, EffectRecord, EffectStatus, FailureKind, IntentRecord, LogLine, Order,
    Origin, QuestionRecord, ReceiptRecord, RequestRecord, RestoreRecord, StepRecord, Witness,
};
pub use restore::{RolledBack, UndoneEffect, roll_back, undone_effects};
pub use retry::{Condition, RetryPolicy};
pub use run::{Run, Stopper};
pub use save::MAX_CHECKPOINT;
pub use scope::Scope;
pub use step::{ErrorCondition, Recorded, StepDone, StepError, StepOptions};
pub use stop::{Requested, cancel, stop};
pub use system::{SystemClock, SystemRandom};
pub use triggers::{GrowthRule, Rule, TimerRule, TriggerPolicy};
pub use turn::{Entry, Turn};
pub use wait::{Wait, Waits, answer};
pub use whole::WholeHistory;
