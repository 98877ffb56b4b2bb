//! Which node runs when. Nodes run side by side on one task, up to a limit; each has its own snapshot of the
//! variables. A node that ended counts when it is in the [list](crate::burst) of what is written next, in that order.
//!
//! What the journal has finished counts again in the order in which it ended then, and before anything new begins:
//! so a run that goes on has the variables that it had.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, abortable};
use futures_util::stream::FuturesUnordered;
use piton_types::{Event, StepPath, TokenUsage, Value};
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::control::{Control, Working};
use crate::debug::{Moment, Phase, Then};
use crate::engine::{Host, Outputs};
use crate::error::FlowError;
use crate::graph::{Graph, GraphNode};
use crate::journal::{Beginning, Begun, Found, NodeDone};
use crate::node::{Effect, FAIL_EXIT, NodeContext, NodeError, NodeOutput};
use crate::nodes;
use crate::pool::VariablePool;
use crate::ready::Ready;
use crate::record;
use crate::reply::Replies;
use crate::selector::Selector;
use crate::settings::OnError;

/// How a graph ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What its ends gave together.
    pub(crate) outputs: Outputs,
    /// The variables at the end.
    pub(crate) pool: VariablePool,
    /// What was set of variables of others, in order.
    pub(crate) assignments: Vec<(Selector, Value)>,
    /// How many nodes failed without stopping the graph.
    pub(crate) exceptions: u32,
    /// What was used.
    pub(crate) usage: TokenUsage,
    /// The node that ended last.
    pub(crate) last: Option<usize>,
}

/// What keeps a graph from ending well.
pub(crate) struct Broken {
    pub(crate) error: FlowError,
    /// The variables at that moment.
    pub(crate) pool: VariablePool,
    /// What ends had given by then.
    pub(crate) outputs: Outputs,
    pub(crate) exceptions: u32,
    pub(crate) usage: TokenUsage,
}

/// Where a graph runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) host: &'a Host<'a>,
    /// What stands before the ids of its nodes in the log: nothing, or the container and a number.
    pub(crate) prefix: &'a str,
    /// What is going on around it.
    pub(crate) activity: &'a Activity<'a>,
    /// Is cancelled when its time is over, if it has a limit: then it ends, and tells how far it came.
    pub(crate) limit: Option<(&'a CancellationToken, Duration)>,
}

/// Runs everything that the start of a graph leads to.
pub(crate) async fn drive(graph: &Graph, pool: VariablePool, frame: Frame<'_>) -> Result<Ended, Broken> {
    let host = frame.host;
    // Whatever is done here is work; only while nodes run, it is theirs.
    let _busy = frame.activity.begin();
    let nodes = frame.activity.inside();
    let replies = (!graph.replies.is_empty() && frame.prefix.is_empty() && host.events.has_listener())
        .then(|| Replies::new(graph));
    let mut ready = Ready::new(graph);
    let mut running = FuturesUnordered::new();
    let mut ended = Ended {
        outputs: Outputs::new(),
        pool,
        assignments: Vec::new(),
        exceptions: 0,
        usage: TokenUsage::default(),
        last: None,
    };
    let mut steps = 0_u64;
    let (mut handles, mut ended_early) = (HashMap::new(), HashSet::new());
    let most = host.limits.concurrency.max(1);
    // What is ready and not begun: what the journal has, by the order in which it ended, and what is to run.
    let (mut known, mut fresh) = (BTreeMap::new(), VecDeque::new());
    // Nodes that don't wait for ever: when their time is over, and which of them are late.
    let (mut timers, mut late) = (FuturesUnordered::new(), HashSet::new());
    loop {
        for place in std::mem::take(&mut ready.impatient) {
            let Some(patience) = graph.nodes[place].patience else { continue };
            // What it did when its time was over counts again, at its place in the order.
            match find(&graph.nodes[place], frame).await {
                Ok(Begins { found: Found::Open { .. }, .. }) => timers.push(async move {
                    tokio::time::sleep(patience.time).await;
                    place
                }),
                Ok(_) => {
                    ready.begin(place);
                    // What ended before it still counts; what didn't is left out when its turn comes.
                    ready.unwanted.clear();
                }
                Err(error) => return Err(broken(error, ended)),
            }
        }
        while let Some(place) = ready.queue.pop_front() {
            steps += 1;
            if host.limits.max_steps.is_some_and(|most| steps > most) {
                let most = host.limits.max_steps.unwrap_or_default();
                return Err(broken(FlowError::TooManySteps { most }, ended));
            }
            let begins = match find(&graph.nodes[place], frame).await {
                Ok(begins) => begins,
                Err(error) => return Err(broken(error, ended)),
            };
            match begins.found {
                Found::Finished { record, order, usage } => {
                    known.insert(order, (place, begins.step, Ok((record, usage))));
                }
                Found::Failed { message, order } => drop(known.insert(order, (place, begins.step, Err(message)))),
                Found::Open { attempts, wait } => fresh.push_back((place, begins.step, attempts, wait)),
            }
        }
        let (place, result, order) = if let Some((order, (place, step, found))) = known.pop_first() {
            let node = &graph.nodes[place];
            host.control.into_iter().for_each(|control| control.completed(&step));
            host.tell(|| Event::StepSkipped { run: host.run(), step }).await;
            let result = match found {
                Ok((record, usage)) => Ok(Done { output: record::read(record), usage, failed: None }),
                Err(message) => Err(FlowError::Node { node: node.id.clone(), message }),
            };
            (place, result, Some(order))
        } else {
            // What runs goes on while nothing new may begin. One that waits for a person takes no place from others.
            let may_begin = |fresh: &VecDeque<_>, running: &FuturesUnordered<_>| {
                let open = host.control.is_none_or(|control| !control.is_closed());
                // One at a time, under a debugger.
                let place = if host.debugger.is_some() { running.is_empty() } else { nodes.count() < most };
                open && place && !fresh.is_empty()
            };
            while may_begin(&fresh, &running) {
                let Some((place, step, attempts, wait)) = fresh.pop_front() else { break };
                if hold(&graph.nodes[place], &step, None, Phase::Before, &ended.pool, frame).await == Then::Leave {
                    fresh.push_front((place, step, attempts, wait));
                    break;
                }
                if let Some(control) = host.control.filter(|control| control.has_updates(&ended.pool)) {
                    // One that began in an earlier process begins with the variables that it had.
                    let before = match began(&graph.nodes[place], &step, host).await {
                        Ok(before) => before,
                        Err(error) => return Err(broken(error, ended)),
                    };
                    control.make_updates(&mut ended.pool, before, &mut ended.assignments);
                }
                let (pool, replies) = (ended.pool.clone(), replies.as_ref());
                // Busy from now on, although it wasn't polled yet.
                let (begun, nodes) = (nodes.begin(), &nodes);
                let patience = graph.nodes[place].patience.filter(|patience| !patience.begins && late.contains(&place));
                let work = async move {
                    let activity = nodes.inside();
                    let _busy = activity.begin();
                    drop(begun);
                    let node = &graph.nodes[place];
                    let waited = patience.map(|patience| patience.time);
                    let before = Before { attempts, wait, waited };
                    (place, run_node(node, step, before, pool, replies, frame, &activity).await)
                };
                let (work, handle) = abortable(work);
                if graph.may_cancel {
                    handles.insert(place, handle);
                }
                running.push(work);
            }
            if running.is_empty() && fresh.is_empty() {
                break;
            }
            let next = {
                let _rest = frame.activity.rest();
                let next = std::future::poll_fn(|cx| match running.poll_next_unpin(cx) {
                    Poll::Ready(Some(Ok(ended))) => Poll::Ready(Next::Ended(ended)),
                    // It was cut short.
                    Poll::Ready(Some(Err(_))) => Poll::Ready(Next::Look),
                    _ => match timers.poll_next_unpin(cx) {
                        Poll::Ready(Some(place)) => Poll::Ready(Next::Late(place)),
                        _ if may_begin(&fresh, &running) => Poll::Ready(Next::Look),
                        _ => Poll::Pending,
                    },
                });
                tokio::select! {
                    biased;
                    () = host.cancel.cancelled() => return Err(broken(FlowError::Cancelled, ended)),
                    most = over(frame.limit) => return Err(broken(FlowError::TooLong { most }, ended)),
                    () = opened(host.control) => Next::Look,
                    next = next => next,
                }
            };
            match next {
                Next::Ended((place, result)) => (place, result, None),
                Next::Look => continue,
                Next::Late(place) => {
                    if ready.begin(place) {
                        late.insert(place);
                        leave_out(&mut ready, &mut fresh, &mut handles, &mut ended_early);
                    }
                    continue;
                }
            }
        };
        if ended_early.contains(&place) {
            continue;
        }
        // A long line of nodes that never wait must not hold up other tasks.
        tokio::task::consume_budget().await;
        let node = &graph.nodes[place];
        let done = match result {
            Ok(done) => done,
            Err(error @ FlowError::Node { .. }) if host.control.is_some_and(Control::is_stopping) => {
                let step = match place_in_log(node, frame) {
                    Ok(step) => step,
                    Err(error) => return Err(broken(error, ended)),
                };
                // It is recorded. Until the run goes on it is unfinished.
                if host.control.is_some_and(|control| control.has_failed(&step)) {
                    fresh.push_front((place, step, 0, Duration::ZERO));
                    continue;
                }
                return Err(broken(error, ended));
            }
            Err(error) => {
                if host.debugger.is_some()
                    && order.is_none()
                    && let (FlowError::Node { message, .. }, Ok(step)) = (&error, place_in_log(node, frame))
                {
                    hold(node, &step, Some(message), Phase::After, &ended.pool, frame).await;
                }
                return Err(broken(error, ended));
            }
        };
        // What was set by hand before it ended comes before what it gives, now as when the run goes on from its log.
        if let Some(control) = host.control {
            control.make_updates(&mut ended.pool, order, &mut ended.assignments);
        }
        let NodeOutput { variables, exit, assignments, exceptions } = done.output;
        ended.exceptions += exceptions;
        ended.usage += done.usage;
        if node.is_end {
            ended.outputs.extend(variables.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        ended.pool.set_scope(node.id.shared(), variables);
        for (selector, value) in assignments {
            ended.pool.assign(&selector, value.clone());
            ended.assignments.push((selector, value));
        }
        ended.last = Some(place);
        ready.done(place, exit.as_deref());
        if let Some(replies) = &replies {
            replies.ended(host, place, &ready.passed, &ended.pool).await;
        }
        if node.patience.is_some() {
            ready.unwanted.extend(&node.only_for_it);
        }
        leave_out(&mut ready, &mut fresh, &mut handles, &mut ended_early);
        if host.debugger.is_some()
            && order.is_none()
            && let Ok(step) = place_in_log(node, frame)
        {
            let then = hold(node, &step, done.failed.as_deref(), Phase::After, &ended.pool, frame).await;
            if then == Then::Leave {
                // It isn't over, even if this was its last node.
                let _rest = frame.activity.rest();
                tokio::select! {
                    () = host.cancel.cancelled() => return Err(broken(FlowError::Cancelled, ended)),
                    () = opened(host.control) => {}
                }
            }
        }
    }
    Ok(ended)
}

/// Lets a debugger hold the run up at a node. If the run is left there, nothing begins any more.
async fn hold(
    node: &GraphNode,
    step: &StepPath,
    error: Option<&str>,
    phase: Phase,
    pool: &VariablePool,
    frame: Frame<'_>,
) -> Then {
    let host = frame.host;
    let Some(debugger) = host.debugger else { return Then::GoOn };
    if host.control.is_some_and(Control::is_closed) {
        return Then::Leave;
    }
    let mut variables = pool.clone();
    if let Some(control) = host.control {
        control.make_updates(&mut variables, None, &mut Vec::new());
    }
    let moment = Moment { host, step, node: &node.id, kind: &node.kind, title: &node.title, phase, error, variables };
    if !debugger.stops(&moment) {
        return Then::GoOn;
    }
    if host.facts().keeps {
        host.burst.written().await;
    }
    let then = {
        // A run that stands takes no time, and may be stopped.
        let _rest = frame.activity.rest();
        debugger.stopped(moment).await
    };
    if then == Then::Leave {
        match host.control {
            Some(control) => control.close(),
            None => host.cancel.cancel(),
        }
    }
    then
}

/// What a graph that runs waits for.
enum Next {
    /// A node ended.
    Ended((usize, Result<Done, FlowError>)),
    /// A node has waited for its branches as long as it wants to.
    Late(usize),
    /// Something may begin.
    Look,
}

/// Cancels what isn't wanted any more.
fn leave_out(
    ready: &mut Ready<&Graph>,
    fresh: &mut VecDeque<(usize, StepPath, u32, Duration)>,
    handles: &mut HashMap<usize, AbortHandle>,
    ended_early: &mut HashSet<usize>,
) {
    if ready.unwanted.is_empty() {
        return;
    }
    ready.queue.retain(|place| !ready.unwanted.contains(place));
    fresh.retain(|(place, ..)| !ready.unwanted.contains(place));
    for place in &ready.unwanted {
        ended_early.insert(*place);
        if let Some(handle) = handles.remove(place) {
            handle.abort();
        }
    }
}

/// Ends when the time of a graph is over.
async fn over(limit: Option<(&CancellationToken, Duration)>) -> Duration {
    match limit {
        Some((over, most)) => {
            over.cancelled().await;
            most
        }
        None => std::future::pending().await,
    }
}

/// Ends when nodes may begin that may not now.
async fn opened(control: Option<&Control>) {
    match control.filter(|control| control.is_closed()) {
        Some(control) => control.opened().await,
        None => std::future::pending().await,
    }
}

fn broken(error: FlowError, ended: Ended) -> Broken {
    Broken { error, pool: ended.pool, outputs: ended.outputs, exceptions: ended.exceptions, usage: ended.usage }
}

struct Done {
    output: NodeOutput,
    usage: TokenUsage,
    /// Why it failed, if the graph goes on all the same.
    failed: Option<String>,
}

/// A node that is ready.
struct Begins {
    step: StepPath,
    found: Found,
}

/// Where a node stands in the log.
fn place_in_log(node: &GraphNode, frame: Frame<'_>) -> Result<StepPath, FlowError> {
    if frame.prefix.is_empty() {
        return Ok(node.id.step().clone());
    }
    format!("{}{}", frame.prefix, node.id).parse().map_err(|_| FlowError::Node {
        node: node.id.clone(),
        message: "it lies too deep inside others for its place in the log".to_owned(),
    })
}

/// Its place in the log, and what the journal has of it.
async fn find(node: &GraphNode, frame: Frame<'_>) -> Result<Begins, FlowError> {
    let host = frame.host;
    let step = place_in_log(node, frame)?;
    let found =
        if host.facts().keeps { host.journal.find(&step).await.map_err(FlowError::Journal)? } else { Found::NOTHING };
    Ok(Begins { step, found })
}

/// The place in the order of the first node inside a container that the journal has, if it is open there.
async fn began(node: &GraphNode, step: &StepPath, host: &Host<'_>) -> Result<Option<u64>, FlowError> {
    for graph in node.node.graphs().into_iter().filter(|_| host.facts().keeps) {
        // The container itself says what is wrong with its place.
        let Ok(first) = format!("{step}/1/{}", graph.nodes[graph.start].id).parse() else { continue };
        if let Found::Finished { order, .. } = host.journal.find(&first).await.map_err(FlowError::Journal)? {
            return Ok(Some(order));
        }
    }
    Ok(None)
}

/// What was before a node begins.
struct Before {
    /// How often it was tried.
    attempts: u32,
    /// How long to wait before the next attempt.
    wait: Duration,
    /// It waited so long for its branches in vain.
    waited: Option<Duration>,
}

/// What a node gives, of running it now.
async fn run_node(
    node: &GraphNode,
    step: StepPath,
    before: Before,
    pool: VariablePool,
    replies: Option<&Replies>,
    frame: Frame<'_>,
    activity: &Activity<'_>,
) -> Result<Done, FlowError> {
    let host = frame.host;
    // A container isn't worked at itself: the nodes inside it are.
    let is_container = !node.node.graphs().is_empty();
    // What the attempts of this process used, and the one that runs.
    let (mut all, usage) = (TokenUsage::default(), Mutex::new(TokenUsage::default()));
    let (mut attempt, mut wait) = (before.attempts + 1, before.wait);
    loop {
        if !wait.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // The next attempt is made when the run goes on.
                () = stopping(host.control) => {
                    let _rest = activity.rest();
                    std::future::pending::<()>().await;
                }
            }
        }
        let _working = Working::at(&step, host.control.filter(|_| !is_container));
        let inputs = match before.waited {
            None => node.node.inputs(&pool),
            Some(time) => {
                let message = format!("node timeout: its branches weren't there within {} s", time.as_secs_f64());
                Err(NodeError::new("Timeout", message))
            }
        };
        let begun = begin(node, &step, inputs.as_ref().unwrap_or(&Value::Null), frame, activity).await?;
        if attempt == before.attempts + 1 {
            let title = || (node.title != node.id.as_str()).then(|| node.title.clone());
            host.tell(|| Event::StepStarted { run: host.run(), step: step.clone(), title: title() }).await;
            // The inbox tells that it waits.
            if node.kind == nodes::HUMAN_INPUT && host.facts().keeps {
                host.burst.written().await;
            }
        }
        let (started_at, started) = (host.clock.now(), host.clock.monotonic());
        let fatal = Mutex::new(None);
        // It may have taken place, and isn't to be done again: not by a retry either.
        let mut is_given_up = false;
        let (inputs, result) = match (inputs, begun) {
            (Err(error), _) => (Value::Null, Err(error)),
            (Ok(inputs), Begun::Done(Value::Map(record))) => (inputs, Ok(record::read(Value::Map(record)))),
            (Ok(inputs), Begun::Done(other)) => (inputs, Ok(NodeOutput::of([("output", other)]))),
            (Ok(inputs), Begun::Unknown | Begun::Ask(_)) => {
                let message = "the process died while it ran, so it may have taken place; it isn't done again";
                is_given_up = true;
                (inputs, Err(NodeError { unanswered: true, ..NodeError::new("Uncertain", message) }))
            }
            (Ok(inputs), Begun::Go { key }) => {
                let context = NodeContext {
                    host,
                    node: &node.id,
                    title: &node.title,
                    step: &step,
                    variables: &pool,
                    attempt,
                    usage: &usage,
                    replies,
                    fatal: &fatal,
                    key,
                    calls: AtomicU32::new(0),
                    on_uncertain: node.settings.on_uncertain,
                    activity,
                    held: Mutex::default(),
                };
                let time = node.settings.time.or(host.limits.node_time);
                let rest = is_container.then(|| activity.rest());
                let result = within(time, activity, node.node.run(&inputs, &context)).await;
                drop(rest);
                context.tell_rest().await;
                (inputs, result)
            }
        };
        if let Some(fatal) = fatal.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(fatal);
        }
        let duration = host.clock.monotonic().saturating_sub(started);
        let used = std::mem::take(&mut *usage.lock().unwrap_or_else(PoisonError::into_inner));
        all += used;
        let ended = Attempt { node, step: &step, inputs: &inputs, started_at, duration, usage: used };
        let error = match result {
            Ok(output) => return Ok(ended.succeed(output, all, None, host).await),
            Err(error) => error.cut(),
        };
        let retry = &node.settings.retry;
        let again = attempt <= retry.most && (error.retryable || !retry.only_retryable) && !is_given_up;
        if !again {
            return ended.give_up(error, all, host).await;
        }
        wait = retry.wait(attempt, host.chance());
        ended.fail(&error, Some(wait), None, host).await;
        host.tell(|| Event::StepRetried { run: host.run(), step: step.clone(), attempt, error: error.message.clone() })
            .await;
        attempt += 1;
    }
}

/// Tells the journal that a node is about to begin.
async fn begin(
    node: &GraphNode,
    step: &StepPath,
    inputs: &Value,
    frame: Frame<'_>,
    activity: &Activity<'_>,
) -> Result<Begun, FlowError> {
    let host = frame.host;
    // Without a journal nothing is made for it.
    if !host.facts().keeps {
        return Ok(Begun::Go { key: None });
    }
    let beginning = Beginning {
        step: step.clone(),
        inputs: if node.effect == Effect::Outward { inputs.clone() } else { Value::Null },
        effect: node.effect,
        on_uncertain: node.settings.on_uncertain,
        waits: node.kind == nodes::HUMAN_INPUT,
        checkpoint: node.settings.checkpoint_before,
        said: None,
    };
    host.begin(beginning, activity).await.map_err(FlowError::Journal)
}

/// Ends when the run is to stop.
async fn stopping(control: Option<&Control>) {
    match control {
        Some(control) => control.stopping().await,
        None => std::future::pending().await,
    }
}

/// Waiting for a person takes no time.
async fn within<T>(
    time: Option<Duration>,
    activity: &Activity<'_>,
    work: impl Future<Output = Result<T, NodeError>>,
) -> Result<T, NodeError> {
    match time {
        None => work.await,
        Some(time) => activity.within(time, work).await.unwrap_or_else(|| {
            let message = format!("node timeout: it took longer than {} s", time.as_secs_f64());
            Err(NodeError { unanswered: true, ..NodeError::passing("Timeout", message) })
        }),
    }
}

/// One attempt at a node, ended.
struct Attempt<'a> {
    node: &'a GraphNode,
    step: &'a StepPath,
    inputs: &'a Value,
    started_at: piton_types::Timestamp,
    duration: Duration,
    usage: TokenUsage,
}

impl Attempt<'_> {
    /// Adds the end of the attempt to what is written next, behind the event that tells of it.
    fn record(
        &self,
        result: Result<Value, String>,
        retry: Option<Duration>,
        unanswered: bool,
        event: Option<Event>,
        host: &Host<'_>,
    ) {
        event.into_iter().for_each(|event| host.burst.tell(event));
        host.burst.ended(NodeDone {
            step: self.step.clone(),
            inputs: self.inputs.clone(),
            result,
            started_at: self.started_at,
            duration: self.duration,
            effect: self.node.effect,
            checkpoint: self.node.settings.checkpoint,
            retry,
            unanswered,
            usage: self.usage,
        });
    }

    async fn fail(&self, error: &NodeError, retry: Option<Duration>, event: Option<Event>, host: &Host<'_>) {
        if host.facts().keeps {
            self.record(Err(error.message.clone()), retry, error.unanswered, event, host);
        } else if let Some(event) = event {
            host.events.tell(|| event).await;
        }
    }

    async fn succeed(self, output: NodeOutput, usage: TokenUsage, failed: Option<String>, host: &Host<'_>) -> Done {
        let event = || match failed.clone() {
            Some(error) => Event::StepFailed { run: host.run(), step: self.step.clone(), error },
            None => Event::StepFinished { run: host.run(), step: self.step.clone(), duration: self.duration, usage },
        };
        host.control.into_iter().for_each(|control| control.completed(self.step));
        if host.facts().keeps {
            let event = host.events.has_listener().then(event);
            self.record(Ok(record::write(&output)), None, false, event, host);
        } else {
            host.events.tell(event).await;
        }
        Done { output, usage, failed }
    }

    /// The node failed for good: the run goes on as it says, or fails.
    async fn give_up(self, error: NodeError, usage: TokenUsage, host: &Host<'_>) -> Result<Done, FlowError> {
        if self.node.settings.on_error == OnError::Fail {
            // While the run stops it is no reason to end it: the node is tried again when the run goes on.
            let stopping = host.control.filter(|control| control.is_stopping());
            let message = &error.message;
            let event = || Event::StepFailed { run: host.run(), step: self.step.clone(), error: message.clone() };
            let event = host.events.has_listener().then(event);
            self.fail(&error, stopping.map(|_| Duration::ZERO), event, host).await;
            stopping.into_iter().for_each(|control| control.failed(self.step.clone(), message.clone()));
            return Err(FlowError::Node { node: self.node.id.clone(), message: error.message });
        }
        let NodeError { kind, message, .. } = error;
        let told = |variables: &mut BTreeMap<String, Value>| {
            variables.entry("error_message".to_owned()).or_insert_with(|| message.clone().into());
            variables.entry("error_type".to_owned()).or_insert_with(|| kind.into());
        };
        let mut output = match &self.node.settings.on_error {
            OnError::Fail | OnError::Branch => NodeOutput::default().by(FAIL_EXIT),
            OnError::Default(values) => NodeOutput { variables: values.clone(), ..NodeOutput::default() },
        };
        told(&mut output.variables);
        output.exceptions = 1;
        Ok(self.succeed(output, usage, Some(message), host).await)
    }
}
