//! What a node is to the engine, and what the engine is to a node.

use std::fmt;
use std::future::Future;
use std::path::Path as FilePath;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use piton_types::{Clock, Event, RunId, StepPath, TokenUsage, Value, excerpt};
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::engine::{Host, Inputs};
use crate::error::FlowError;
use crate::id::NodeId;
use crate::inbox::{Answered, Form, Question, Waiting};
use crate::journal::{Beginning, Begun, Found, Happened, NodeDone, OnUncertain};
use crate::need::{Need, Services};
use crate::outside::Outside;
use crate::pool::VariablePool;
use crate::problem::Problems;
use crate::selector::Selector;

/// The exit of a node that ended well, for kinds with one exit. An edge that names none leaves by it.
pub const DEFAULT_EXIT: &str = "source";

/// The exit that a node with the error strategy `fail-branch` fails by.
pub const FAIL_EXIT: &str = "fail-branch";

/// A node, ready to run. [`nodes`](crate::nodes) says how to add a kind.
#[async_trait]
pub trait Node: fmt::Debug + Send + Sync {
    /// What it takes from the variables. Computed before its work and recorded with its result; the work
    /// should see nothing else.
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        let _ = variables;
        Ok(Value::map::<&str>([]))
    }

    /// Does its work. Dropped at an await when the run is cancelled or the node's time is over; work
    /// that can't be dropped looks at [`NodeContext::cancelled`].
    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError>;

    /// The variables that it names, for the check of the document.
    fn references(&self) -> Vec<&Selector> {
        Vec::new()
    }

    /// The names of the variables that it gives, for the check of the document; nothing if they aren't known before it runs.
    fn gives(&self) -> Option<Vec<&str>> {
        None
    }

    /// Names that its templates use and that nothing gives, for the check of the document, and the names that there are.
    fn undefined(&self) -> (Vec<&str>, Vec<&str>) {
        (Vec::new(), Vec::new())
    }

    /// What it can't run without.
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    /// Whether it touches the world outside of the run.
    fn effect(&self) -> Effect {
        Effect::Outward
    }

    /// The exits that it can leave by; edges that name another are refused.
    fn exits(&self) -> Exits {
        Exits::One
    }

    /// When it may begin.
    fn join(&self) -> Join {
        Join::All
    }

    /// How long it waits for the others once the first of the edges to it is taken; without a word, as long as it takes.
    fn patience(&self) -> Option<Patience> {
        None
    }

    /// What the workflow is given, as it is wanted, before anything runs; only a start node has a say.
    /// `lenient`: what isn't as it should be is taken as it is.
    fn accepts(&self, inputs: Inputs, lenient: bool) -> Result<Inputs, Problems> {
        let _ = lenient;
        Ok(inputs)
    }

    /// The parts of a text that it will give as soon as they are there; only answers have any.
    fn streams(&self) -> Option<&crate::reply::Reply> {
        None
    }

    /// The graphs inside it.
    fn graphs(&self) -> Vec<&crate::graph::Graph> {
        Vec::new()
    }
}

/// Whether a node touches the world outside of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Its outputs follow from its inputs alone. Doing it again costs nothing but time.
    Pure,
    /// It costs something, changes something or may answer otherwise the next time. Its result is made
    /// durable before anything outward follows.
    Outward,
}

/// The exits of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exits {
    /// The usual one.
    One,
    /// Several, by name.
    Named(Vec<String>),
    /// Any: they are made while it runs.
    Any,
}

/// When a node may begin that several edges lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// When all of them are decided and one is taken.
    All,
    /// When so many are taken, whatever becomes of the others.
    AtLeast {
        /// How many.
        count: usize,
        /// Whether what only leads here is cancelled then.
        cancel: bool,
    },
}

/// How long a node waits for the edges to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// So long after the first is taken.
    pub time: Duration,
    /// Then it begins with what is there; else it fails.
    pub begins: bool,
}

/// What a node gives.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeOutput {
    /// Its variables, by name.
    pub variables: std::collections::BTreeMap<String, Value>,
    /// The exit that it leaves by; without one, the usual.
    pub exit: Option<String>,
    /// Variables of others that it sets, such as those of the conversation, in this order.
    pub assignments: Vec<(Selector, Value)>,
    /// Failures inside it that it went on from.
    pub exceptions: u32,
}

impl NodeOutput {
    /// These variables, by the usual exit.
    pub fn of<K: Into<String>>(variables: impl IntoIterator<Item = (K, Value)>) -> Self {
        let mut output = Self::default();
        for (name, value) in variables {
            output.variables.insert(name.into(), value);
        }
        output
    }

    /// The same, by another exit.
    #[must_use]
    pub fn by(mut self, exit: impl Into<String>) -> Self {
        self.exit = Some(exit.into());
        self
    }
}

/// How many bytes of a message are kept.
const MAX_MESSAGE: usize = 4096;

/// Why a node failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NodeError {
    /// A word for programs, as in `HttpError`; branches on failure see it as `error_type`.
    pub kind: &'static str,
    /// For people.
    pub message: String,
    /// Whether it may go better the next time. Retries that are limited to such errors look at it.
    pub retryable: bool,
    /// There was no word from outside: what it asked for may have taken place. Another try has the same key.
    pub unanswered: bool,
}

impl NodeError {
    /// An error that would come again.
    pub fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retryable: false, unanswered: false }
    }

    /// An error that may pass by itself.
    pub fn passing(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retryable: true, unanswered: false }
    }

    /// The same with a message of bounded size, as it is kept and told. Secrets are out of it by now: what is cut before
    /// that could leave the beginning of one.
    pub(crate) fn cut(mut self) -> Self {
        self.message = excerpt(&self.message, MAX_MESSAGE).into_owned();
        self
    }
}

impl From<String> for NodeError {
    fn from(message: String) -> Self {
        Self::new("NodeError", message)
    }
}

impl From<&str> for NodeError {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

/// What was used since `before`.
fn less(now: TokenUsage, before: TokenUsage) -> TokenUsage {
    TokenUsage { input: now.input - before.input, output: now.output - before.output, cost: now.cost - before.cost }
}

/// What a node that runs has of the engine.
#[derive(Debug)]
pub struct NodeContext<'a> {
    pub(crate) host: &'a Host<'a>,
    pub(crate) node: &'a NodeId,
    pub(crate) title: &'a str,
    pub(crate) step: &'a StepPath,
    pub(crate) variables: &'a VariablePool,
    /// From 1.
    pub(crate) attempt: u32,
    pub(crate) usage: &'a Mutex<TokenUsage>,
    pub(crate) replies: Option<&'a crate::reply::Replies>,
    /// What went wrong inside it that isn't the node's to handle.
    pub(crate) fatal: &'a Mutex<Option<FlowError>>,
    /// The key of what it does outside, and how many calls have had it.
    pub(crate) key: Option<String>,
    pub(crate) calls: AtomicU32,
    pub(crate) on_uncertain: OnUncertain,
    /// What is going on in it.
    pub(crate) activity: &'a Activity<'a>,
    /// The end of the text that it is making, if it may be the beginning of a secret.
    pub(crate) held: Mutex<String>,
}

impl<'a> NodeContext<'a> {
    /// The node.
    pub const fn node(&self) -> &NodeId {
        self.node
    }

    /// The run.
    pub fn run(&self) -> RunId {
        self.host.run()
    }

    pub(crate) fn run_id(&self) -> &RunId {
        &self.host.facts().run
    }

    /// What people call the node.
    pub const fn title(&self) -> &str {
        self.title
    }

    /// The node's place in the log of the run; inside an iteration it has the item's number.
    pub const fn step(&self) -> &StepPath {
        self.step
    }

    /// Which attempt this is, from 1.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The variables as they were when the node began. For containers; others use their inputs.
    pub const fn variables(&self) -> &VariablePool {
        self.variables
    }

    /// What this place offers.
    pub const fn services(&self) -> &'a Services {
        self.host.services
    }

    /// What time it is.
    pub const fn clock(&self) -> &'a dyn Clock {
        self.host.clock
    }

    /// A new id, unique in this run at least.
    pub fn new_id(&self) -> String {
        self.host.ids.next()
    }

    /// Whether a variable that isn't there, or a comparison that makes no sense, is an error.
    pub const fn is_strict(&self) -> bool {
        self.host.limits.strict_templates
    }

    /// Keeps an error that ends the run, whatever the node makes of it.
    pub(crate) fn fail_run(&self, error: FlowError) -> NodeError {
        let message = error.to_string();
        self.fatal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
        NodeError::new("RunError", message)
    }

    /// Whether the run can't go on.
    pub(crate) fn is_broken(&self) -> bool {
        self.fatal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).is_some()
    }

    /// Where programs run; without one, where this process is.
    pub const fn folder(&self) -> Option<&'a FilePath> {
        self.host.folder
    }

    /// Is cancelled when the run is. Futures are dropped then; this is for what isn't one.
    pub const fn cancelled(&self) -> &CancellationToken {
        &self.host.cancel
    }

    /// Tells a piece of the text that the node is making. Waits while the listener is far behind.
    ///
    /// `variable` is the one that will have the whole text, as in `text`; answers that show it pass the
    /// piece on in their order.
    pub async fn text(&self, variable: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.host.events.has_listener() {
            let shown = match self.services().get::<Outside>() {
                Some(outside) => outside.secrets().redact_piece(&mut self.held(), text),
                None => text.to_owned(),
            };
            self.tell_text(shown).await;
        }
        if let Some(replies) = self.replies {
            replies.text(self.host, self.node.as_str(), variable, text).await;
        }
    }

    /// Tells the end of the text, which wasn't the beginning of a secret.
    pub(crate) async fn tell_rest(&self) {
        let rest = std::mem::take(&mut *self.held());
        self.tell_text(rest).await;
    }

    async fn tell_text(&self, text: String) {
        if !text.is_empty() {
            let host = self.host;
            host.tell(|| Event::StepText { run: host.run(), step: self.step.clone(), text }).await;
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, String> {
        self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Counts tokens and cost; added to what the node and the run have used.
    pub fn used(&self, usage: TokenUsage) {
        if self.host.facts().keeps {
            self.host.burst.add(Happened::Used(usage));
        }
        self.used_inside(usage);
    }

    /// Adds to what the node has used what nodes inside it have counted already.
    pub(crate) fn used_inside(&self, usage: TokenUsage) {
        *self.usage.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += usage;
    }

    /// What this attempt at the node has used.
    pub(crate) fn used_so_far(&self) -> TokenUsage {
        *self.usage.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The key of the next call that the node makes outside, for services that recognise repetitions: the same if the
    /// call is made again because its answer was lost, in whichever process. Without a store there is
    /// none.
    pub fn next_key(&self) -> Option<String> {
        let key = self.key.as_ref()?;
        Some(match self.calls.fetch_add(1, Ordering::Relaxed) {
            0 => key.clone(),
            more => format!("{key}-{more}"),
        })
    }

    /// What becomes of the node's work if the process dies in the middle.
    pub const fn on_uncertain(&self) -> OnUncertain {
        self.on_uncertain
    }

    /// A part of the node's work outside that is recorded by itself, as in a turn of an agent: if the journal has
    /// its result it isn't done again. `name` is unique within the node, and there is one part at a time. `work` gets
    /// the key of its call.
    ///
    /// # Errors
    ///
    /// What the work says, or that it may have taken place before.
    pub async fn part<F>(
        &self,
        name: &str,
        inputs: &Value,
        on_uncertain: OnUncertain,
        work: impl FnOnce(Option<String>) -> F,
    ) -> Result<Value, NodeError>
    where
        F: Future<Output = Result<Value, NodeError>>,
    {
        let host = self.host;
        if !host.facts().keeps {
            return work(None).await;
        }
        let step: StepPath = format!("{}/{name}", self.step)
            .parse()
            .map_err(|_| NodeError::new("EngineError", format!("{name:?} can't be a part of {}", self.step)))?;
        let failed = |error: crate::JournalError| self.fail_run(FlowError::Journal(error));
        // Also for a container, which otherwise isn't while others inside it are.
        let _busy = (self.activity.count() == 0).then(|| self.activity.begin());
        // A part that failed is tried again with its node.
        if let Found::Finished { record, usage, .. } = host.journal.find(&step).await.map_err(failed)? {
            self.used_inside(usage);
            host.tell(|| Event::StepSkipped { run: host.run(), step: step.clone() }).await;
            return Ok(record);
        }
        let effect = Effect::Outward;
        let beginning = Beginning {
            step: step.clone(),
            inputs: inputs.clone(),
            effect,
            on_uncertain,
            waits: false,
            checkpoint: false,
            said: None,
        };
        let begun = host.begin(beginning, self.activity).await.map_err(failed)?;
        let (started_at, started) = (host.clock.now(), host.clock.monotonic());
        let before = self.used_so_far();
        let result = match begun {
            Begun::Go { key } => work(key).await,
            Begun::Done(value) => Ok(value),
            Begun::Unknown | Begun::Ask(_) => {
                let message = format!("the process died while {step} ran, so it may have taken place");
                Err(NodeError::new("Uncertain", message))
            }
        };
        let result = result.map_err(NodeError::cut);
        let duration = host.clock.monotonic().saturating_sub(started);
        host.burst.ended(NodeDone {
            step,
            inputs: inputs.clone(),
            result: result.clone().map_err(|error| error.message),
            started_at,
            duration,
            effect,
            checkpoint: false,
            retry: None,
            unanswered: result.as_ref().is_err_and(|error| error.unanswered),
            usage: less(self.used_so_far(), before),
        });
        result
    }

    /// Asks a person and waits for the answer. `number` tells the questions of one node apart, from 1. While it
    /// waits, the node isn't busy: no time is counted, and a stop doesn't wait for its end. The prompt is asked without the
    /// secrets that [`Outside`] knows.
    pub async fn ask(
        &self,
        number: u32,
        prompt: &str,
        form: &Form,
        timeout: Option<Duration>,
    ) -> Result<Answered, NodeError> {
        let Some(inbox) = self.host.inbox else {
            return Err(NodeError::new("NoAnswer", "it asks a person, and this run has no way to"));
        };
        let step = match (self.attempt, number) {
            (1, 1) => Ok(self.step.clone()),
            (attempt, number) => format!("{}#{attempt}.{number}", self.step).parse(),
        };
        let step = step.map_err(|_| NodeError::new("EngineError", "it lies too deep inside others to ask"))?;
        let prompt = match self.services().get::<Outside>() {
            Some(outside) => outside.secrets().redact(prompt),
            None => prompt.to_owned(),
        };
        let question = Question { step, prompt, form: form.clone(), timeout };
        let waiting = Waiting { activity: self.activity, control: self.host.control, step: self.step };
        let answered = inbox.ask(question, &waiting).await;
        answered.map_err(|error| self.fail_run(FlowError::Journal(error)))
    }

    /// Waits.
    pub async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
