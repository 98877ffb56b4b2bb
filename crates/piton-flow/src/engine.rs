//! Running a checked document.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;
use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use piton_types::{Clock, Event, RunId, TokenUsage, Value, Verification};
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::burst::{Burst, writing};
use crate::control::Control;
use crate::debug::Debugger;
use crate::dispatch::{self, Broken, Ended, Frame};
use crate::error::FlowError;
use crate::events::EventSink;
use crate::flow::{Flow, Given, Handler};
use crate::graph::{Graph, GraphNode};
use crate::inbox::{Answered, Inbox, Waiting};
use crate::journal::{Beginning, Begun, Happened, Journal, JournalError, RunFacts};
use crate::need::Services;
use crate::node::Effect;
use crate::pool::VariablePool;
use crate::selector::{CONVERSATION, SYSTEM};
use crate::value::to_text;

/// What stands before the nodes of the error handler in the log.
pub(crate) const HANDLER: &str = "error-handler";

/// What stands before the checks of the work in the log.
pub(crate) const VERIFICATION: &str = "verification";

/// How much is kept of what a check said.
const SAID: usize = 2000;

/// What a workflow is given, by name.
pub type Inputs = BTreeMap<String, Value>;

/// What a workflow gives, by name.
pub type Outputs = BTreeMap<String, Value>;

/// Where new ids come from.
pub trait Ids: Send + Sync {
    /// A new one.
    fn next(&self) -> String;
}

/// The text of an id of the version 4 of RFC 9562 with these random bytes.
pub(crate) fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// How far a run may go.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// How many nodes may run, in each graph by itself; without a number, as many as there are.
    pub max_steps: Option<u64>,
    /// How long the whole may take.
    pub max_time: Option<Duration>,
    /// How long a node may take that doesn't say so itself.
    pub node_time: Option<Duration>,
    /// How many nodes of a graph may run at once.
    pub concurrency: usize,
    /// Whether a template with a variable that isn't there is an error everywhere.
    pub strict_templates: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_steps: None, max_time: None, node_time: None, concurrency: 16, strict_templates: false }
    }
}

/// What a running workflow needs from its caller.
pub struct Host<'a> {
    /// Keeps what finished.
    pub journal: &'a dyn Journal,
    /// What time it is.
    pub clock: &'a dyn Clock,
    /// New ids.
    pub ids: &'a dyn Ids,
    /// What happened and isn't written yet. Nothing at first.
    pub burst: Burst,
    /// Is told what happens, in order, after the journal has it.
    pub events: EventSink<'a>,
    /// Where programs run; without one, where this process is.
    pub folder: Option<&'a Path>,
    /// What nodes may use.
    pub services: &'a Services,
    /// How far the run may go.
    pub limits: Limits,
    /// Cancels the run.
    pub cancel: CancellationToken,
    /// Who answers questions.
    pub inbox: Option<&'a dyn Inbox>,
    /// Holds the run up, or changes its variables.
    pub control: Option<&'a Control>,
    /// Holds the run up at its nodes.
    pub debugger: Option<&'a dyn Debugger>,
}

static NO_SERVICES: LazyLock<Services> = LazyLock::new(Services::default);

impl<'a> Host<'a> {
    /// A host that offers nothing and sets no limits.
    pub fn new(journal: &'a dyn Journal, clock: &'a dyn Clock, ids: &'a dyn Ids) -> Self {
        Self {
            journal,
            clock,
            ids,
            burst: Burst::default(),
            events: EventSink::None,
            folder: None,
            services: &NO_SERVICES,
            limits: Limits::default(),
            cancel: CancellationToken::new(),
            inbox: None,
            control: None,
            debugger: None,
        }
    }

    pub(crate) fn run(&self) -> RunId {
        self.facts().run.clone()
    }

    pub(crate) fn facts(&self) -> &RunFacts {
        self.journal.facts()
    }

    /// Tells an event, behind those before it and what they tell of. Waits while the listener is far behind.
    pub(crate) async fn tell(&self, event: impl FnOnce() -> Event) {
        if !self.events.has_listener() {
            return;
        }
        // Without a journal there is nothing to be written first.
        if !self.facts().keeps {
            return self.events.tell(event).await;
        }
        self.burst.tell(event());
        if self.burst.is_crowded() {
            self.burst.written().await;
        }
    }

    /// Tells the journal that work is about to begin. What is outward waits for that to be written, with everything
    /// before it. If it may have taken place before and a person is to say so, the person is asked; the step only waits
    /// meanwhile.
    pub(crate) async fn begin(&self, beginning: Beginning, activity: &Activity<'_>) -> Result<Begun, JournalError> {
        // Without a journal nothing is made for it.
        if !self.facts().keeps {
            return Ok(Begun::Go { key: None });
        }
        self.journal.admit(&beginning.step)?;
        if beginning.effect == Effect::Pure {
            if self.burst.is_due() {
                self.burst.written().await;
            }
            self.burst.add(Happened::Began(beginning));
            return Ok(Begun::Go { key: None });
        }
        let mut said = None;
        loop {
            let question = match self.burst.begin(Beginning { said, ..beginning.clone() }).await {
                Begun::Ask(question) => question,
                begun => return Ok(begun),
            };
            let Some(inbox) = self.inbox else { return Ok(Begun::Unknown) };
            let waiting = Waiting { activity, control: self.control, step: &beginning.step };
            match inbox.ask(*question, &waiting).await? {
                Answered::Given(answer) => said = Some(answer),
                Answered::Late | Answered::Withdrawn => return Ok(Begun::Unknown),
            }
        }
    }

    /// Something in 0..1 that differs from one call to the next.
    pub(crate) fn chance(&self) -> f64 {
        let mut hash = std::hash::DefaultHasher::new();
        self.ids.next().hash(&mut hash);
        (hash.finish() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl std::fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("run", &self.facts().run).field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// How a run ended that didn't fail; or that failed and was recovered from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Finished {
    /// What it gave.
    pub outputs: Outputs,
    /// How many nodes failed without stopping it. If there are any, it was a partial success.
    pub exceptions: u32,
    /// The failure that the error handler recovered from.
    pub recovered_from: Option<String>,
    /// What the checks of its work came to.
    pub verification: Vec<Verification>,
    /// What it used.
    pub usage: TokenUsage,
    /// The conversation's variables at the end.
    pub conversation: BTreeMap<String, Value>,
}

/// Runs a flow from its start to its ends and returns what the ends give together.
///
/// Nodes that the journal has finished don't run again.
///
/// # Errors
///
/// [`FlowError::Inputs`] and [`FlowError::Needs`] before anything runs; [`FlowError::Node`] when a node
/// fails, after its failure is in the journal; [`FlowError::Journal`] when the journal fails; and what
/// the limits and a cancellation lead to.
pub async fn run(flow: &Flow, given: impl Into<Given>, host: &Host<'_>) -> Result<Finished, FlowError> {
    let given = flow.accept(given.into(), host.services)?;
    host.events.tell(|| Event::RunStarted { run: host.run(), resumed: false }).await;
    let activity = Activity::default();
    let ended =
        writing(host, drive(flow, given, host, &activity)).await.unwrap_or_else(|error| Err(FlowError::Journal(error)));
    host.events
        .tell(|| match &ended {
            Ok(finished) => finished.event(host.run()),
            Err(error) => Event::RunFailed { run: host.run(), error: error.to_string() },
        })
        .await;
    ended
}

impl Finished {
    /// What is told of it.
    pub(crate) fn event(&self, run: RunId) -> Event {
        let outputs = Value::Map(self.outputs.clone());
        match (&self.recovered_from, self.exceptions) {
            (Some(error), _) => Event::RunRecovered { run, outputs, error: error.clone() },
            (None, 0) => Event::RunSucceeded { run, outputs },
            (None, exceptions) => Event::RunPartial { run, outputs, exceptions },
        }
    }
}

/// Runs a flow that accepts what it is given, without a word about its begin and end. `activity` tells whether
/// anything is being done; time in which nothing is doesn't count.
pub(crate) async fn drive(
    flow: &Flow,
    given: Given,
    host: &Host<'_>,
    activity: &Activity<'_>,
) -> Result<Finished, FlowError> {
    let over = CancellationToken::new();
    let most = host.limits.max_time;
    let frame = Frame { host, prefix: "", activity, limit: most.map(|most| (&over, most)) };
    let mut work = pin!(dispatch::drive(&flow.graph, flow.pool(given), frame));
    let ended = match most {
        None => work.await,
        Some(most) => match activity.within(most.saturating_sub(host.facts().elapsed), work.as_mut()).await {
            Some(ended) => ended,
            None => {
                over.cancel();
                work.await
            }
        },
    };
    let broken = match ended {
        Ok(ended) => {
            let Some(checks) = &flow.verify else { return Ok(finished(&flow.graph, ended)) };
            let checking = verify(checks, ended.pool.clone(), frame);
            let checked = match most {
                None => checking.await?,
                Some(most) => activity.within(most, checking).await.unwrap_or(Err(FlowError::TooLong { most }))?,
            };
            return Ok(Finished { verification: checked, ..finished(&flow.graph, ended) });
        }
        Err(broken) => broken,
    };
    let Some(handler) = &flow.handler else { return Err(broken.error) };
    if matches!(broken.error, FlowError::Journal(_) | FlowError::Cancelled) {
        return Err(broken.error);
    }
    // It has as much time as the rest had.
    let handling = handle(flow, handler, broken, Frame { limit: None, ..frame });
    match most {
        None => handling.await,
        Some(most) => activity.within(most, handling).await.unwrap_or(Err(FlowError::TooLong { most })),
    }
}

fn finished(graph: &Graph, ended: Ended) -> Finished {
    let mut outputs = ended.outputs;
    // A conversation has no end node: what it gives is its answers.
    if !graph.nodes.iter().any(|node| node.is_end) {
        let answers: Vec<String> = graph
            .replies
            .iter()
            .filter_map(|&place| ended.pool.scope(graph.nodes[place].id.as_str())?.get("answer"))
            .map(to_text)
            .collect();
        if !answers.is_empty() {
            outputs.insert("answer".to_owned(), answers.concat().into());
        }
    }
    Finished {
        outputs,
        exceptions: ended.exceptions,
        recovered_from: None,
        verification: Vec::new(),
        usage: ended.usage,
        conversation: ended.pool.scope(CONVERSATION).cloned().unwrap_or_default(),
    }
}

/// Runs the checks of the work, one behind the other. They see all variables; that one fails is what it came to, and
/// no failure of the run.
async fn verify(checks: &Graph, mut pool: VariablePool, frame: Frame<'_>) -> Result<Vec<Verification>, FlowError> {
    pool.set_inputs(Inputs::new());
    let prefix = format!("{VERIFICATION}/");
    let ended =
        dispatch::drive(checks, pool, Frame { prefix: &prefix, ..frame }).await.map_err(|broken| broken.error)?;
    let check = |node: &GraphNode| {
        let gave = ended.pool.scope(node.id.as_str())?;
        let text = |name: &str| gave.get(name).map(to_text).filter(|text| !text.trim().is_empty());
        let exit_code = gave.get("exit_code").and_then(Value::as_i64)?;
        let said = text("error_message").or_else(|| text("stderr")).or_else(|| text("stdout")).unwrap_or_default();
        let said = said.trim();
        let from = said.ceil_char_boundary(said.len().saturating_sub(SAID));
        Some(Verification { name: node.title.clone(), passed: exit_code == 0, detail: said[from..].to_owned() })
    };
    Ok(checks.nodes.iter().filter_map(check).collect())
}

/// Runs the error handler. It sees all variables so far, and what went wrong as system variables.
async fn handle(flow: &Flow, handler: &Handler, broken: Broken, frame: Frame<'_>) -> Result<Finished, FlowError> {
    let mut pool = broken.pool;
    let (node, kind) = match &broken.error {
        FlowError::Node { node, .. } => {
            let found = flow.graph.nodes.iter().find(|other| other.id == *node);
            (node.as_str(), found.map_or("", |node| node.kind.as_str()))
        }
        _ => ("", ""),
    };
    let word = match &broken.error {
        FlowError::Node { .. } => "NodeExecutionError",
        FlowError::TooManySteps { .. } => "MaxStepsExceeded",
        FlowError::TooLong { .. } => "Timeout",
        _ => "InternalError",
    };
    let told = [
        ("error_message", broken.error.to_string().into()),
        ("error_node_id", node.into()),
        ("error_node_type", kind.into()),
        ("error_type", word.into()),
        ("workflow_outputs", Value::Map(broken.outputs)),
    ];
    let mut system = pool.scope(SYSTEM).cloned().unwrap_or_default();
    system.extend(told.map(|(name, value)| (name.to_owned(), value)));
    pool.set_scope(SYSTEM, system);
    pool.set_inputs(Inputs::new());
    // What handled an earlier failure of the run is no answer to this one.
    let prefix = match frame.host.facts().retries {
        0 => format!("{HANDLER}/"),
        before => format!("{HANDLER}#{}/", before + 1),
    };
    let ended = dispatch::drive(&handler.graph, pool, Frame { prefix: &prefix, ..frame }).await;
    match ended {
        Ok(ended) if handler.recovers => {
            let mut finished = finished(&handler.graph, ended);
            finished.exceptions += broken.exceptions;
            finished.usage += broken.usage;
            finished.recovered_from = Some(broken.error.to_string());
            Ok(finished)
        }
        // The failure stays the run's own, whatever became of its handling.
        _ => Err(broken.error),
    }
}
