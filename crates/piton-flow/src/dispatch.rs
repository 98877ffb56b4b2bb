//! Which node runs when. An edge is taken or not once its source has ended; a node is ready when all
//! its edges are decided and one of them is taken, and is passed over when none is.
//!
//! Nodes run side by side on one task, up to a limit; each has its own snapshot of the variables. What
//! a node gives is in the journal before anything that depends on it begins.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::abortable;
use futures_util::stream::FuturesUnordered;
use piton_types::{Event, StepPath, TokenUsage, Value};

use crate::engine::{Host, Outputs};
use crate::error::FlowError;
use crate::graph::{Graph, GraphNode};
use crate::journal::NodeDone;
use crate::node::{FAIL_EXIT, Join, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
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

/// The nodes that may run, and what the others wait for.
struct Ready<'a> {
    graph: &'a Graph,
    queue: VecDeque<usize>,
    /// By node: edges that aren't decided yet.
    undecided: Vec<usize>,
    /// By node: how many edges to it were taken.
    taken: Vec<usize>,
    /// By node: it is in the queue, or was.
    begun: Vec<bool>,
    /// Nodes that will not run, as found by the last node that ended.
    passed: Vec<usize>,
    /// Nodes that are no longer wanted, likewise.
    unwanted: Vec<usize>,
}

impl<'a> Ready<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self {
            graph,
            queue: VecDeque::from([graph.start]),
            undecided: graph.nodes.iter().map(|node| node.waits_for).collect(),
            taken: vec![0; graph.nodes.len()],
            begun: vec![false; graph.nodes.len()],
            passed: Vec::new(),
            unwanted: Vec::new(),
        }
    }

    /// A node ended, by this exit. Afterwards `passed` has the nodes that will not run because of it.
    fn done(&mut self, node: usize, exit: Option<&str>) {
        self.passed.clear();
        self.unwanted.clear();
        let mut decided = 0;
        self.decide(node, |edge| edge.is_taken(exit));
        while let Some(&passed) = self.passed.get(decided) {
            decided += 1;
            self.decide(passed, |_| false);
        }
    }

    fn decide(&mut self, source: usize, is_taken: impl Fn(&crate::graph::EdgeExit) -> bool) {
        for edge in &self.graph.nodes[source].edges {
            let target = edge.target;
            self.taken[target] += usize::from(is_taken(&edge.exit));
            self.undecided[target] -= 1;
            let node = &self.graph.nodes[target];
            let enough = match node.join {
                Join::All => false,
                Join::AtLeast { count, .. } => self.taken[target] >= count,
            };
            if self.begun[target] || !(enough || self.undecided[target] == 0) {
                continue;
            }
            if self.taken[target] == 0 {
                self.passed.push(target);
                continue;
            }
            self.begun[target] = true;
            self.queue.push_back(target);
            if enough && self.undecided[target] > 0 {
                self.unwanted.extend(&node.only_for_it);
            }
        }
    }
}

/// Where a graph runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) host: &'a Host<'a>,
    /// What stands before the ids of its nodes in the log: nothing, or the container and a number.
    pub(crate) prefix: &'a str,
}

/// Runs everything that the start of a graph leads to.
pub(crate) async fn drive(graph: &Graph, pool: VariablePool, frame: Frame<'_>) -> Result<Ended, Broken> {
    let host = frame.host;
    let replies = (!graph.replies.is_empty() && frame.prefix.is_empty() && host.events.is_somebody())
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
    loop {
        while running.len() < most && !ready.queue.is_empty() {
            if let Some(control) = host.control {
                // What runs goes on while nothing new may begin.
                if control.is_closed() {
                    if running.is_empty() {
                        control.opened().await;
                    } else {
                        break;
                    }
                }
                control.take_updates().into_iter().for_each(|(selector, value)| ended.pool.assign(&selector, value));
            }
            let Some(place) = ready.queue.pop_front() else { break };
            steps += 1;
            if host.limits.max_steps.is_some_and(|most| steps > most) {
                let most = host.limits.max_steps.unwrap_or_default();
                return Err(broken(FlowError::TooManySteps { most }, ended));
            }
            let (pool, replies) = (ended.pool.clone(), replies.as_ref());
            let work = async move { (place, run_node(&graph.nodes[place], pool, replies, frame).await) };
            let (work, handle) = abortable(work);
            if graph.may_cancel {
                handles.insert(place, handle);
            }
            running.push(work);
        }
        let next = tokio::select! {
            biased;
            () = host.cancel.cancelled() => return Err(broken(FlowError::Cancelled, ended)),
            next = running.next() => next,
        };
        let Some(next) = next else { break };
        // Nobody waits for it any more.
        let Ok((place, result)) = next else { continue };
        if ended_early.contains(&place) {
            continue;
        }
        // A long line of nodes that never wait must not hold up everybody else.
        tokio::task::consume_budget().await;
        let node = &graph.nodes[place];
        let done = match result {
            Ok(done) => done,
            Err(error) => return Err(broken(error, ended)),
        };
        let NodeOutput { variables, exit, assignments, exceptions } = done.output;
        ended.exceptions += exceptions;
        add(&mut ended.usage, done.usage);
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
        if !ready.unwanted.is_empty() {
            ready.queue.retain(|place| !ready.unwanted.contains(place));
            for place in &ready.unwanted {
                ended_early.insert(*place);
                if let Some(handle) = handles.remove(place) {
                    handle.abort();
                }
            }
        }
    }
    Ok(ended)
}

fn broken(error: FlowError, ended: Ended) -> Broken {
    Broken { error, pool: ended.pool, outputs: ended.outputs, exceptions: ended.exceptions, usage: ended.usage }
}

pub(crate) fn add(sum: &mut TokenUsage, more: TokenUsage) {
    sum.input += more.input;
    sum.output += more.output;
    sum.cost += more.cost;
}

struct Done {
    output: NodeOutput,
    usage: TokenUsage,
}

/// What a node gives: as the journal has it, or of running it now.
async fn run_node(
    node: &GraphNode,
    pool: VariablePool,
    replies: Option<&Replies>,
    frame: Frame<'_>,
) -> Result<Done, FlowError> {
    let host = frame.host;
    let step = if frame.prefix.is_empty() {
        node.id.step().clone()
    } else {
        format!("{}{}", frame.prefix, node.id).parse().map_err(|_| FlowError::Node {
            node: node.id.clone(),
            message: "it lies too deep inside others for its place in the log".to_owned(),
        })?
    };
    if let Some(found) = host.journal.recorded(&step).await.map_err(FlowError::Journal)? {
        host.events.tell(|| Event::StepSkipped { run: host.run(), step: step.clone() }).await;
        return Ok(Done { output: record::read(found), usage: TokenUsage::default() });
    }
    host.events.tell(|| Event::StepStarted { run: host.run(), step: step.clone() }).await;
    let usage = Mutex::new(TokenUsage::default());
    let mut attempt = 1;
    loop {
        let (started_at, started) = (host.clock.now(), host.clock.monotonic());
        let fatal = Mutex::new(None);
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
        };
        let (inputs, result) = match node.node.inputs(&pool) {
            Ok(inputs) => {
                let result =
                    within(node.settings.time.or(host.limits.node_time), node.node.run(&inputs, &context)).await;
                (inputs, result)
            }
            Err(error) => (Value::Null, Err(error)),
        };
        if let Some(fatal) = fatal.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(fatal);
        }
        let duration = host.clock.monotonic().saturating_sub(started);
        let ended = Attempt { node, step: &step, inputs: &inputs, started_at, duration };
        let error = match result {
            Ok(output) => {
                let usage = *usage.lock().unwrap_or_else(PoisonError::into_inner);
                return ended.succeed(output, usage, None, host).await;
            }
            Err(error) => error,
        };
        let retry = &node.settings.retry;
        let again = attempt <= retry.most && (error.retryable || !retry.only_retryable);
        if !again {
            let usage = *usage.lock().unwrap_or_else(PoisonError::into_inner);
            return ended.give_up(error, usage, host).await;
        }
        ended.record(Err(&error.message), host).await?;
        let wait = retry.wait(attempt, host.chance());
        host.events
            .tell(|| Event::StepRetried { run: host.run(), step: step.clone(), attempt, error: error.message.clone() })
            .await;
        tokio::time::sleep(wait).await;
        attempt += 1;
    }
}

async fn within<T>(time: Option<Duration>, work: impl Future<Output = Result<T, NodeError>>) -> Result<T, NodeError> {
    match time {
        None => work.await,
        Some(time) => tokio::time::timeout(time, work).await.unwrap_or_else(|_| {
            Err(NodeError::passing("Timeout", format!("node timeout: it took longer than {} s", time.as_secs_f64())))
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
}

impl Attempt<'_> {
    async fn record(
        &self,
        result: Result<&Value, &str>,
        host: &Host<'_>,
    ) -> Result<Option<piton_types::CheckpointRef>, FlowError> {
        let done = NodeDone {
            step: self.step,
            inputs: self.inputs,
            result,
            started_at: self.started_at,
            duration: self.duration,
            effect: self.node.effect,
            checkpoint: self.node.settings.checkpoint,
        };
        host.journal.record(done).await.map_err(FlowError::Journal)
    }

    async fn succeed(
        self,
        output: NodeOutput,
        usage: TokenUsage,
        failed: Option<String>,
        host: &Host<'_>,
    ) -> Result<Done, FlowError> {
        // Without a journal nothing is made for it.
        let checkpoint =
            if host.journal.keeps() { self.record(Ok(&record::write(&output)), host).await? } else { None };
        host.events
            .tell(|| match failed {
                Some(error) => Event::StepFailed { run: host.run(), step: self.step.clone(), error },
                None => {
                    Event::StepFinished { run: host.run(), step: self.step.clone(), duration: self.duration, usage }
                }
            })
            .await;
        if let Some(checkpoint) = checkpoint {
            host.events.tell(|| Event::CheckpointSaved { checkpoint }).await;
        }
        Ok(Done { output, usage })
    }

    /// The node failed for good: the run goes on as it says, or fails.
    async fn give_up(self, error: NodeError, usage: TokenUsage, host: &Host<'_>) -> Result<Done, FlowError> {
        let NodeError { kind, message, .. } = error;
        let told = |variables: &mut std::collections::BTreeMap<String, Value>| {
            variables.entry("error_message".to_owned()).or_insert_with(|| message.clone().into());
            variables.entry("error_type".to_owned()).or_insert_with(|| kind.into());
        };
        let mut output = match &self.node.settings.on_error {
            OnError::Fail => {
                self.record(Err(&message), host).await?;
                host.events
                    .tell(|| Event::StepFailed { run: host.run(), step: self.step.clone(), error: message.clone() })
                    .await;
                return Err(FlowError::Node { node: self.node.id.clone(), message });
            }
            OnError::Branch => NodeOutput::default().by(FAIL_EXIT),
            OnError::Default(values) => NodeOutput { variables: values.clone(), ..NodeOutput::default() },
        };
        told(&mut output.variables);
        output.exceptions = 1;
        self.succeed(output, usage, Some(message), host).await
    }
}
