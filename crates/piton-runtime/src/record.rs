//! The bodies of the entries that a run writes. They are stored: fields may be added, with a default,
//! and are never given another meaning.

use piton_types::{
    BlobId, CheckpointRef, Holder, ProgressReport, RunId, RunState, Seq, StepPath, Timestamp, TokenUsage, Value,
    Verification, WaitFor,
};
use serde::{Deserialize, Serialize};

use crate::Deadline;

/// The body of a `Claimed` entry: who took the run, and the state that it is in since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// Who.
    pub holder: Holder,
    /// Tells the claims of one process apart.
    pub claim: u64,
    /// In progress.
    pub state: RunState,
}

/// What entry 0 has besides the queued state, for a run that comes from another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum Origin {
    /// It branched off; what it needs of its parent's log came along.
    Fork {
        /// Where.
        checkpoint: CheckpointRef,
        /// One more than its parent had, so that no effect has a key of before.
        epoch: u32,
        /// The newest attempt at every step.
        steps: Vec<StepRecord>,
        /// What became of every effect.
        effects: Vec<EffectRecord>,
        /// The questions that were answered.
        answers: Vec<AnswerRecord>,
    },
    /// It is a step of another run.
    Child {
        /// The run.
        run: RunId,
        /// The step.
        step: StepPath,
    },
}

/// Why an attempt at a step failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The work said so.
    Work,
    /// The work panicked.
    Panic,
    /// The work took longer than it may.
    Timeout,
    /// What the work gave can't be stored.
    Output,
    /// It isn't known whether the work took place.
    Unanswered,
}

/// The body of a `StepDone` entry: one attempt at a step, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Its place in the run.
    pub path: StepPath,
    /// How many steps this process had begun before it.
    pub index: u32,
    /// How many durable calls its scope had made before it; nothing if the engine names its steps itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u32>,
    /// The hash of the input, plain in every store so that a copy of the run still fits; nothing if it will never be
    /// compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_hash: Option<BlobId>,
    /// What it took in.
    pub input: Value,
    /// What it gave out; null if it failed.
    pub output: Value,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// In which way it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureKind>,
    /// When it is tried again, if it failed and is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Deadline>,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// Which attempt it was, from 1.
    pub attempt: u32,
    /// The run that did the work, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// What the attempt used, with all that is inside it.
    #[serde(default, skip_serializing_if = "TokenUsage::is_zero")]
    pub usage: TokenUsage,
    /// What was logged since the entry before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<LogLine>,
    /// What an engine that counts had counted for the whole run when this ended; null if it doesn't. The fields
    /// `prompt_tokens`, `completion_tokens` and `cost` are what the run had used by then.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub tally: Value,
}

impl StepRecord {
    /// Whether the step ended well, so that it never runs again.
    pub const fn is_finished(&self) -> bool {
        self.error.is_none()
    }
}

/// A line that a run wrote, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When.
    pub at: Timestamp,
    /// What.
    pub text: String,
}

/// How an effect stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectStatus {
    /// It took place.
    Done,
    /// It didn't.
    NotDone,
    /// It may have: that isn't known.
    Uncertain,
    /// It took place and was taken back.
    Compensated,
}

/// How to take an effect back, in words that the program which does it understands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compensation {
    /// What to do.
    pub name: String,
    /// With what.
    pub arguments: Value,
}

/// The body of an `EffectIntent` entry: what is about to be attempted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IntentRecord {
    /// Its place in the run.
    pub path: StepPath,
    /// How many durable calls its scope had made before it; nothing if it is a step of an engine, whose end is the
    /// receipt.
    pub place: Option<u32>,
    /// The same for every attempt: the service that performs the effect can tell a repetition by it.
    pub key: BlobId,
    /// The hash of the input.
    pub input_hash: BlobId,
    /// What it takes.
    pub input: Value,
    /// How to take it back, if that is possible.
    pub compensation: Option<Compensation>,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// How many calls before it were answered, if with a failure: each of them had a key of its own.
    #[serde(default)]
    pub call: u32,
}

/// The body of an `EffectReceipt` entry: how an effect ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceiptRecord {
    /// The effect.
    pub path: StepPath,
    /// Its key.
    pub key: BlobId,
    /// How it stands now.
    pub status: EffectStatus,
    /// What it gave.
    pub output: Value,
    /// What went wrong, if something did.
    pub error: Option<String>,
    /// When it is tried again, if it didn't take place and is.
    #[serde(default)]
    pub retry: Option<Deadline>,
    /// Who says so: the call itself, a probe, or a person.
    pub by: Witness,
    /// How long it took.
    pub duration_ms: u64,
}

/// Who says how an effect ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Witness {
    /// The call that performed it.
    Call,
    /// A look at the world.
    Probe,
    /// This person.
    Person(String),
}

/// An effect as the log has it: what was intended, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectRecord {
    /// The newest intent.
    pub intent: IntentRecord,
    /// Its receipt; without one it is uncertain.
    pub receipt: Option<ReceiptRecord>,
}

impl EffectRecord {
    /// How it stands.
    pub fn status(&self) -> EffectStatus {
        self.receipt.as_ref().map_or(EffectStatus::Uncertain, |receipt| receipt.status)
    }
}

/// The body of an `Asked` entry: a question, and that the run waits for its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuestionRecord {
    /// Its place in the run, by which it is answered.
    pub path: StepPath,
    /// How many durable calls its scope had made before it; nothing if it belongs to an effect.
    pub place: Option<u32>,
    /// The hash of what was asked.
    pub input_hash: BlobId,
    /// For whom or what it waits.
    pub wait_for: WaitFor,
    /// What to show.
    pub prompt: String,
    /// When it stops waiting.
    pub deadline: Option<Deadline>,
    /// Whether the process that asked goes on holding the run.
    pub held: bool,
    /// Waiting.
    pub state: RunState,
    /// Something that only who was told of the question knows.
    #[serde(default)]
    pub token: String,
    /// What the answer should look like, in the words of the engine that asks; null if it doesn't say.
    #[serde(default)]
    pub form: Value,
}

/// The body of an `Answer` entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnswerRecord {
    /// The question.
    pub path: StepPath,
    /// The place of the question.
    pub place: Option<u32>,
    /// The hash of what was asked.
    pub input_hash: BlobId,
    /// What was said.
    pub value: Value,
    /// By whom; empty if the time was up.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// No answer came in time, and this is taken instead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
}

/// What the process that drives a run is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Stop, to go on later.
    Stop {
        /// How long steps that run may go on; without it, until they end.
        grace_ms: Option<u64>,
    },
    /// Give it up.
    Cancel,
}

/// The body of a `Requested` entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// What.
    pub order: Order,
    /// Why.
    pub reason: String,
}

/// The body of a `Restored` entry: the run goes on from `to`, and what lies between counts no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRecord {
    /// The last entry that counts.
    pub to: Seq,
    /// Why.
    pub reason: String,
    /// The run's epoch from now on.
    pub epoch: u32,
}

/// The body of a `Logged` entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogRecord {
    /// The lines.
    pub log: Vec<LogLine>,
    /// How far the run has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressReport>,
    /// What was checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verified: Vec<Verification>,
    /// Files that were changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}
