//! Where the engine keeps what finished, so that it needn't be done again. The engine knows nothing of
//! stores; whoever has one brings a journal.

use std::time::Duration;

use async_trait::async_trait;
use piton_types::{CheckpointRef, Event, RunId, StepPath, Timestamp, TokenUsage, Value};
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
    /// Nothing is known of it.
    pub const NOTHING: Self = Self::Open { attempts: 0, wait: Duration::ZERO };
}

/// What becomes of work of which nobody knows whether it took place, because the process died in the middle.
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
#[derive(Debug, Clone, Copy)]
pub struct Beginning<'a> {
    /// Which, at its place in the run.
    pub step: &'a StepPath,
    /// What it takes in.
    pub inputs: &'a Value,
    /// Whether it touches the world outside.
    pub effect: Effect,
    /// What becomes of it if the process dies in the middle.
    pub on_uncertain: OnUncertain,
    /// It waits for somebody.
    pub waits: bool,
    /// A checkpoint is wanted before it begins.
    pub checkpoint: bool,
    /// What a person said when [asked](Begun::Ask) what became of it.
    pub said: Option<&'a Value>,
}

/// Whether work may begin.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// It may.
    Go {
        /// The same for every attempt that wasn't answered, in whichever process: for services that recognise
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
#[derive(Debug)]
pub struct NodeDone<'a> {
    /// Which, at its place in the run.
    pub step: &'a StepPath,
    /// What it took in.
    pub inputs: &'a Value,
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
}

/// Where the results of finished nodes are kept.
#[async_trait]
pub trait Journal: Send + Sync {
    /// The run that is journalled.
    fn run(&self) -> &RunId;

    /// Whether it keeps anything. If not, nothing is made for it to keep, and it is asked for nothing else.
    fn keeps(&self) -> bool {
        true
    }

    /// How long the run took in earlier processes.
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    /// How often the run was tried again after it had failed.
    fn retries(&self) -> u32 {
        0
    }

    /// How a node stands. The engine asks before it runs one, and doesn't run it if it ended before.
    async fn find(&self, step: &StepPath) -> Result<Found, JournalError>;

    /// A node, or a part of its work, is about to begin. For what is outward, everything that finished before is
    /// durable when this returns.
    async fn begin(&self, beginning: Beginning<'_>) -> Result<Begun, JournalError>;

    /// Counts what was used.
    fn used(&self, usage: TokenUsage) {
        let _ = usage;
    }

    /// Keeps a line for people, with the next entry at the latest a second later.
    fn line(&self, line: String) {
        let _ = line;
    }

    /// Keeps the result of a node. When it returns `Ok`, the result counts, and is as durable as the journal makes it before
    /// anything outward [begins](Self::begin); only then does the engine go on with what depends on the node. If it
    /// fails, the run stops.
    ///
    /// Returns the checkpoint that it made, if one is durable already. What becomes so later is told by
    /// [`saved`](Self::saved); nodes that only follow from others needn't wait for that.
    async fn record(&self, done: NodeDone<'_>) -> Result<Option<CheckpointRef>, JournalError>;

    /// Waits until every result is kept that was recorded before: somebody is about to be told of one.
    async fn kept(&self) -> Result<(), JournalError> {
        Ok(())
    }

    /// Whether results were recorded that aren't kept yet, or events are held back: then others are to be, too.
    fn is_ahead(&self) -> bool {
        false
    }

    /// Holds an event back until every result is kept that was recorded before. Nobody is told that a node finished which
    /// may have to run again. Says whether so many are held that some should be told first.
    fn hold(&self, event: Event) -> bool {
        let _ = event;
        false
    }

    /// The first of the events that were held back, once it may be told.
    fn release(&self) -> Option<Event> {
        None
    }

    /// Waits until an event may be [released](Self::release); for ever while there is none.
    async fn releasable(&self) {
        std::future::pending::<()>().await;
    }

    /// Whether there are results that aren't kept yet, or checkpoints that nobody was told of.
    fn is_saving(&self) -> bool {
        false
    }

    /// Waits until checkpoints are durable that weren't when [`record`](Self::record) returned, and says which, with the
    /// nodes after which they were made. Waits for ever while there are none. It may be dropped and called again, and says
    /// the same until it is [told](Self::told) of.
    async fn saved(&self) -> Result<Vec<(StepPath, CheckpointRef)>, JournalError> {
        std::future::pending().await
    }

    /// A checkpoint was told of.
    fn told(&self, checkpoint: &CheckpointRef) {
        let _ = checkpoint;
    }
}

/// Keeps nothing.
#[derive(Debug, Clone)]
pub struct NoJournal {
    run: RunId,
}

impl NoJournal {
    /// For a run of this id, which only events will show.
    pub const fn new(run: RunId) -> Self {
        Self { run }
    }
}

#[async_trait]
impl Journal for NoJournal {
    fn run(&self) -> &RunId {
        &self.run
    }

    fn keeps(&self) -> bool {
        false
    }

    async fn find(&self, _step: &StepPath) -> Result<Found, JournalError> {
        Ok(Found::NOTHING)
    }

    async fn begin(&self, _beginning: Beginning<'_>) -> Result<Begun, JournalError> {
        Ok(Begun::Go { key: None })
    }

    async fn record(&self, _done: NodeDone<'_>) -> Result<Option<CheckpointRef>, JournalError> {
        Ok(None)
    }
}
