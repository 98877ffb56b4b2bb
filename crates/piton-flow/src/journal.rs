//! Where the engine keeps what finished, so that it needn't be done again. The engine knows nothing of stores: the
//! caller that has one brings a journal.
//!
//! The engine gives a journal what happened in bursts, each in the order in which it happened.

use std::time::Duration;

use async_trait::async_trait;
use piton_types::{CheckpointRef, RunId, StepPath, Timestamp, TokenUsage, Value};
use serde::{Deserialize, Serialize};

use crate::inbox::Question;
use crate::node::Effect;

/// An error of a journal. The engine only passes it on.
pub type JournalError = Box<dyn std::error::Error + Send + Sync>;

/// How a node stands in the journal.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// It is to run.
    Open {
        /// How often it failed so far, if it is to be tried again.
        attempts: u32,
        /// How long to wait before the next attempt.
        wait: Duration,
    },
    /// It ended well, here or in an earlier process.
    Finished {
        /// What it gave.
        record: Value,
        /// Its place in the order in which nodes ended, which is the order in which they count again.
        order: u64,
        /// What it used.
        usage: TokenUsage,
    },
    /// It failed for good.
    Failed {
        /// Why.
        message: String,
        /// Its place in the order in which nodes ended.
        order: u64,
    },
}

impl Found {
    /// The journal knows nothing of it.
    pub const NOTHING: Self = Self::Open { attempts: 0, wait: Duration::ZERO };
}

/// What becomes of work that may have taken place or not, because the process died in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUncertain {
    /// It is done again, with the same key.
    #[default]
    Retry,
    /// A person is asked.
    Ask,
    /// The node fails.
    Fail,
}

/// A node, or a part of its work, that is about to begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Beginning {
    /// Which, at its place in the run.
    pub step: StepPath,
    /// What it takes in, if it is outward.
    pub inputs: Value,
    /// Whether it touches the world outside.
    pub effect: Effect,
    /// What becomes of it if the process dies in the middle.
    pub on_uncertain: OnUncertain,
    /// It waits for a person.
    pub waits: bool,
    /// A checkpoint is wanted before it begins.
    pub checkpoint: bool,
    /// What a person said when [asked](Begun::Ask) what became of it.
    pub said: Option<Value>,
}

/// Whether work may begin.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// It may.
    Go {
        /// The same for every attempt that wasn't answered, in every process: for services that recognise
        /// repetitions. Only what is outward has one.
        key: Option<String>,
    },
    /// A person says that it took place, and gave this.
    Done(Value),
    /// It may have taken place before, and isn't to be done again.
    Unknown,
    /// It may have taken place before: this is to be asked, and the journal told the answer.
    Ask(Box<Question>),
}

/// A node that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDone {
    /// Which, at its place in the run.
    pub step: StepPath,
    /// What it took in.
    pub inputs: Value,
    /// What it gave out, or why it failed.
    pub result: Result<Value, String>,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Duration,
    /// Whether it touched the world outside.
    pub effect: Effect,
    /// A checkpoint is wanted here, if the node ended well.
    pub checkpoint: bool,
    /// It failed and is tried again after this time.
    pub retry: Option<Duration>,
    /// It failed without a word from outside: what it asked for may have taken place.
    pub unanswered: bool,
    /// What it used, with all that is inside it.
    pub usage: TokenUsage,
}

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// A node, or a part of its work, is about to begin.
    Began(Beginning),
    /// One ended.
    Ended(NodeDone),
    /// So much was used.
    Used(TokenUsage),
    /// A line for people. It needs no commit of its own: it is kept with the next entry, or about a second later.
    Line(String),
}

/// What a journal made of something that happened.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Written {
    /// Whether work that was about to begin may.
    pub begun: Option<Begun>,
    /// The checkpoint that was made.
    pub checkpoint: Option<CheckpointRef>,
}

/// What a journal knows of its run before anything happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// The run that is journalled.
    pub run: RunId,
    /// Whether anything is kept. If not, nothing is made for it to keep, and the journal is asked for nothing else.
    pub keeps: bool,
    /// How long the run took in earlier processes.
    pub elapsed: Duration,
    /// How often the run was tried again after it had failed.
    pub retries: u32,
}

impl RunFacts {
    /// Of a run that is new.
    pub const fn new(run: RunId) -> Self {
        Self { run, keeps: true, elapsed: Duration::ZERO, retries: 0 }
    }
}

/// Where the results of finished nodes are kept.
#[async_trait]
pub trait Journal: Send + Sync {
    /// The run that is journalled.
    fn facts(&self) -> &RunFacts;

    /// How a node stands. The engine asks before it runs one, and doesn't run it if it ended before.
    async fn find(&self, step: &StepPath) -> Result<Found, JournalError>;

    /// That a node, or a part of its work, may begin now. If not, the run stops.
    fn admit(&self, step: &StepPath) -> Result<(), JournalError>;

    /// Keeps what happened, all of it or none, and says of each what became of it: as many as `burst` has. When it
    /// returns, what ended and what was made is durable, and so is that outward work is about to begin, as far as
    /// another process must know of it. If it fails, the run stops.
    ///
    /// The engine calls it once at a time.
    async fn write(&self, burst: Vec<Happened>) -> Result<Vec<Written>, JournalError>;
}

/// Keeps nothing.
#[derive(Debug, Clone)]
pub struct NoJournal(RunFacts);

impl NoJournal {
    /// For a run of this id, which only events will show.
    pub fn new(run: RunId) -> Self {
        Self(RunFacts { keeps: false, ..RunFacts::new(run) })
    }
}

#[async_trait]
impl Journal for NoJournal {
    fn facts(&self) -> &RunFacts {
        &self.0
    }

    async fn find(&self, _step: &StepPath) -> Result<Found, JournalError> {
        Ok(Found::NOTHING)
    }

    fn admit(&self, _step: &StepPath) -> Result<(), JournalError> {
        Ok(())
    }

    async fn write(&self, burst: Vec<Happened>) -> Result<Vec<Written>, JournalError> {
        Ok(vec![Written { begun: Some(Begun::Go { key: None }), checkpoint: None }; burst.len()])
    }
}
