//! Piton: durable checkpoints for AI agents and workflows. A climber places a piton, and falls no
//! further than the last one.
//!
//! This crate is the promised API; the crates below it may change without notice.
//!
//! # Durable steps
//!
//! A [`Run`] is a piece of long work. Each [`step`](Scope::step) runs once: its result is in the log
//! before the next begins, so whoever goes on after a crash gets it from there.
//!
//! ```
//! use std::sync::Arc;
//! use piton::{Context, ObjectStore, OpenRun, Run, RunError};
//!
//! async fn report(context: &Context) -> Result<String, RunError> {
//!     let open = OpenRun { id: Some("nightly".parse()?), name: "nightly report".into(), ..OpenRun::default() };
//!     let mut run = Run::open(context, open).await?;
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
//! # async fn main() -> Result<(), RunError> {
//! let context = Context::system(Arc::new(ObjectStore::in_memory()));
//! assert_eq!(report(&context).await?, "I found: bees dance");
//!
//! // Opened again, the run is finished, and knows its outcome.
//! let again = Run::open(&context, OpenRun { id: Some("nightly".parse()?), ..OpenRun::default() }).await?;
//! assert_eq!(again.outcome(), Some("I found: bees dance".into()));
//! # Ok(())
//! # }
//! ```
//!
//! With `SqliteStore::open("runs.db", SqliteOptions::default())` in the place of the memory store, the
//! same program survives its own death and the machine's.
//!
//! # Workflows
//!
//! A workflow is a document. `run_durable` makes each of its nodes a durable step, and
//! `resume_durable` goes on with it in any process, without the document: the log has it. A node with
//! `checkpoint: true` in its data makes a checkpoint of the variables so far.
//!
//! ```
//! # #[cfg(not(feature = "flow"))]
//! # fn main() {}
//! # #[cfg(feature = "flow")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), piton::FlowError> {
//! use std::sync::Arc;
//! use piton::{Context, FlowOptions, Format, ObjectStore, RunStatus, StartFlow, run_durable};
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
//! let start = StartFlow {
//!     document: document.to_owned(),
//!     format: Format::Yaml,
//!     inputs: [("name".to_owned(), "Ada".into())].into(),
//!     id: None,
//!     name: "greeting".to_owned(),
//!     folder: None,
//!     options: FlowOptions::default(),
//! };
//! let context = Context::system(Arc::new(ObjectStore::in_memory()));
//! let outcome = run_durable(&context, start).await?;
//! assert_eq!(outcome.status, RunStatus::Completed);
//! assert_eq!(outcome.outputs["text"], "Hello Ada!".into());
//! # Ok(())
//! # }
//! ```
//!
//! # Agents
//!
//! [`AgentContext`] keeps a conversation, variables and what was used as parts of a run, [`Autosave`] makes
//! checkpoints when its [`TriggerPolicy`] says so, before a [dangerous](danger) operation above all, and
//! [`recovery`] finds out from where a run can go on. [`executions`] has flows of named steps; [`notify`] tells
//! somebody how a run ended.
//!
//! # Features
//!
//! `sqlite` (on): the default store. `flow` (on): workflows. `workspace` (on): snapshots of a folder. `resolver` (on):
//! a language model that puts two versions of a file together.

pub mod executions;
#[cfg(feature = "workspace")]
mod files;
mod open;
#[cfg(feature = "resolver")]
mod resolver;
#[cfg(all(feature = "workspace", feature = "flow"))]
mod run_files;
#[cfg(feature = "flow")]
pub mod workflows;

pub use open::open;
pub use piton_log::state;
pub use piton_log::{Content, DraftPart, EmbeddedStore, LogCheckpointStore, upkeep};
pub use piton_runtime::{
    Admission, AnswerRecord, Call, CheckpointInfo, ClaimRecord, Compensation, Context, Cursor, Deadline, EffectAnswer,
    EffectFailure, EffectOptions, EffectRecord, EffectStatus, Entry, Failure, FailureKind, ForkRun, History, Intended,
    LastStep, LeaseOptions, LeaseWatch, Lines, Listener, Liveness, LogLine, OpenRun, Origin, Outcome, Pager, PastEntry,
    PastStep, Probed, QuestionRecord, Recorded, Refusal, Requested, RetryPolicy, RolledBack, Run, RunError, Scope,
    Standing, StartAt, StepDone, StepError, StepOptions, StepRecord, StepStanding, Stopper, SystemClock, SystemRandom,
    Totals, Turn, Uncertain, UndoneEffect, Wait, Waits, WholeHistory, Witness, answer, calling_program, cancel, fork,
    fork_into, listen_for_nudges, liveness, process, roll_back, stop, this_process, undone_effects,
};
pub use piton_runtime::{
    AgentContext, AgentError, Autosave, Budget, Checkpointed, Decision, Extractive, GrowthRule, Ledger, MAX_CHECKPOINT,
    Message, OnExceed, Paid, Rule, SizeLimits, Summarised, Summariser, TimerRule, ToolOutput, TriggerPolicy,
    TrimPolicy, Trimmed, danger, notify, recovery, retention,
};
pub use piton_store::{
    Bytes, CheckpointError, CheckpointStore, EncryptedCheckpointStore, EncryptedStore, Expected, Key,
    MemoryCheckpointStore, MeteredStore, Metrics, RedactedStore, Redaction, RedactionError, RedactionPolicy, RunQuery,
    Saved, SecretFiles, Store, StoreError, async_trait, is_encrypted,
};
pub use piton_store_objects::{FileCheckpointStore, FolderOptions, ObjectStore};
pub use piton_types::{
    CheckpointKind, CheckpointRecord, CheckpointRef, Clock, Completed, Durability, Event, Failed, Fence, Holder,
    IllegalMove, InvalidId, Part, PartName, Parts, Path, Priority, Progress, Random, RecoveryInfo, RequiredFile,
    RequiredProgram, Requirements, Retention, RunId, RunKind, RunState, RunStatus, RunSummary, Seq, StepPath, StepRef,
    Timestamp, TokenUsage, Trigger, Value, ValueError, from_json, from_value, to_json, to_value,
};

#[cfg(feature = "flow")]
pub use piton_flow::{
    AnswerError, Companion, ExecutionStatus, FlowOptions, HandleError, OpenQuestion, Plugin, PluginContext,
    PluginError, PluginMetadata, PluginPhase, SafeStopSignal, StopReport, WorkflowHandle, WorkflowRunner,
    WorkflowRunnerBuilder, answer_question, choose, open_questions,
};
#[cfg(feature = "flow")]
pub use piton_flow::{
    Answered, Beginning, Begun, Build, Built, Bundle, Burst, ChangeSeverity, ContextFingerprint, Control, DEFAULT_EXIT,
    Document, DocumentFiles, Edge, Effect, EnvironmentChange, EventSink, Exits, FAIL_EXIT, Faults, Field, Finished,
    Flow, FlowError, Form, Format, Found, Given, Happened, Host, Ids, Impact, Inbox, Inputs, Join, Journal,
    JournalError, Kind, Kinds, Limits, Mapping, Need, NoJournal, Node, NodeContext, NodeDone, NodeError, NodeId,
    NodeNeed, NodeOutput, NodeSpec, OnUncertain, Outputs, Place, Problem, Problems, Question, Report, ResumeDiagnostic,
    ResumeExamination, ResumePolicy, RunFacts, RunJournal, RunOutcome, Selector, Services, Setting, Severity,
    StartFlow, Template, VariablePool, Waiting, Written, diff_fingerprints, examine_history, examine_resume, file_with,
    resume_durable, resume_with_document, run, run_alone, run_durable, yes_or_no,
};

#[cfg(feature = "sqlite")]
pub use piton_store_sqlite::{
    DamagedWal, SqliteCheckpointStore, SqliteDriver, SqliteOptions, SqliteStore, gather as gather_damaged,
    replace as replace_damaged,
};

/// Snapshots of a working folder, what changed in it, and the way back.
#[cfg(feature = "workspace")]
pub mod workspace {
    pub use piton_workspace::*;

    pub use crate::files::{FileChanges, TellingAsk, UpstreamChanges};
    #[cfg(feature = "resolver")]
    pub use crate::resolver::{ModelResolver, ModelResolverOptions};
    #[cfg(feature = "flow")]
    pub use crate::run_files::RunFiles;
}
