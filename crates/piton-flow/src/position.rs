//! Where a durable run is, as its checkpoints show it (F4): the states of nodes and edges, what is ready, runs and
//! waits, what ends have given, and what was counted. It is the part `engine` of a checkpoint.
//!
//! A process that goes on with a run doesn't need it: the log has every result, and the position follows from those of the
//! outermost nodes. It is for people, and for readers that have only the checkpoint. Nothing is made before the first checkpoint, and one costs
//! what changed since the one before.
//!
//! What the part `variables` of the same checkpoint tells isn't said again: a node that isn't listed has succeeded, and
//! its edges are taken, if that part has what it gave; else it is pending, and so are they. Listed are nodes that
//! have several exits, once they are done, and those that were passed over. So most nodes cost one edit of a few words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use piton_log::state::State;
use piton_log::{Content, DraftPart};
use piton_runtime::{Run, RunError, Turn};
use piton_types::{PartName, Path, Seq, StepPath, Value};

use crate::checkpoint::{TraversalState, Whole};
use crate::graph::{EdgeExit, Graph};
use crate::ready::Ready;
use crate::record;

const SCHEMA: &str = "piton.workflow-position";
const VERSION: u32 = 1;

/// The graph, and how far it has come.
#[derive(Debug)]
pub(crate) struct Position {
    graph: Arc<Graph>,
    ready: Ready<Arc<Graph>>,
    places: BTreeMap<Arc<str>, usize>,
    /// The nodes to be listed since the last checkpoint. Empty until there is one.
    nodes: BTreeMap<String, Value>,
    /// How each node stands: done, passed over or still to come.
    states: Vec<TraversalState>,
    /// By which exit each node left.
    exits: Vec<Option<String>>,
    /// By node: the one whose end made it ready.
    predecessors: Vec<Option<usize>>,
    outputs: BTreeMap<String, Value>,
    /// An end gave something.
    has_outputs: bool,
    last: Option<String>,
    /// A checkpoint was wanted.
    pub(crate) is_begun: bool,
    /// A checkpoint of this process lists nodes.
    is_listed: bool,
}

/// What is going on besides.
pub(crate) struct Now<'a> {
    /// Steps that began and haven't ended, and whether they wait for a person.
    pub(crate) begun: &'a BTreeMap<StepPath, bool>,
    /// What was counted.
    pub(crate) counted: &'a Value,
    /// Whether the store wants to be told everything at once.
    pub(crate) in_full: bool,
}

impl Now<'_> {
    /// The steps that began, without the one that is done, and that wait for a person or don't.
    fn that_wait(&self, waiting: bool, done: Option<&StepPath>) -> impl Iterator<Item = &str> {
        let begun = self.begun.iter().filter(move |(step, waits)| **waits == waiting && Some(*step) != done);
        begun.map(|(step, _)| step.as_str())
    }
}

impl Position {
    pub(crate) fn new(graph: &Arc<Graph>) -> Self {
        Self {
            graph: Arc::clone(graph),
            ready: Ready::new(Arc::clone(graph)),
            places: BTreeMap::new(),
            nodes: BTreeMap::new(),
            states: vec![TraversalState::Pending; graph.nodes.len()],
            exits: vec![None; graph.nodes.len()],
            predecessors: vec![None; graph.nodes.len()],
            outputs: BTreeMap::new(),
            has_outputs: false,
            last: None,
            is_begun: false,
            is_listed: false,
        }
    }

    /// Takes in that a step ended well and gave `record`. Costs nothing before the first checkpoint.
    pub(crate) fn finished(&mut self, step: &StepPath, record: &Value) {
        if self.is_begun {
            self.take(step, record);
        }
    }

    fn take(&mut self, step: &StepPath, record: &Value) {
        let step = step.as_str();
        // What lies inside another is told by its variables alone.
        let Some(&place) = self.places.get(step) else { return };
        // Passed over, though the log has it: the document is another than the one that it ran by.
        let was_over = std::mem::replace(&mut self.states[place], TraversalState::Taken) != TraversalState::Pending;
        let exit = record::exit(record);
        self.exits[place] = exit.map(str::to_owned);
        let branches = self.graph.nodes[place].edges.iter().any(|leads| leads.exit != EdgeExit::Usual);
        if exit.is_some() || branches || was_over {
            let edge = |exits: &EdgeExit| if exits.is_taken(exit) { "taken" } else { "skipped" };
            self.nodes.insert(step.to_owned(), self.described(place, "succeeded", edge));
        }
        if self.graph.nodes[place].is_end {
            self.outputs.extend(record::variables(record).as_map().cloned().unwrap_or_default());
            self.has_outputs = true;
        }
        self.last = Some(step.to_owned());
        self.ready.queue.retain(|other| *other != place);
        if was_over {
            return;
        }
        let queued = self.ready.queue.len();
        self.ready.done(place, exit);
        self.ready.queue.iter().skip(queued).for_each(|&next| self.predecessors[next] = Some(place));
        let gone = [
            (&self.ready.passed, "skipped", TraversalState::Skipped),
            (&self.ready.unwanted, "cancelled", TraversalState::Cancelled),
        ];
        for (places, state, stands) in gone {
            for &place in places {
                self.states[place] = stands;
                let described = self.described(place, state, |_| state);
                self.nodes.insert(self.graph.nodes[place].id.to_string(), described);
            }
        }
        let unwanted = &self.ready.unwanted;
        self.ready.queue.retain(|place| !unwanted.contains(place));
    }

    /// A node with its edges, each by the name of its target, behind that of its exit if it has one.
    fn described(&self, place: usize, state: &str, edge: impl Fn(&EdgeExit) -> &'static str) -> Value {
        let node = &self.graph.nodes[place];
        let state = ("state", Value::from(state));
        if node.edges.is_empty() {
            return Value::map([state]);
        }
        let edges = node.edges.iter().map(|leads| {
            let target = &self.graph.nodes[leads.target].id;
            let name = match &leads.exit {
                EdgeExit::Usual => target.to_string(),
                EdgeExit::Named(exit) => format!("[{exit}] {target}"),
            };
            (name, Value::from(edge(&leads.exit)))
        });
        Value::map([state, ("edges", Value::map(edges))])
    }

    /// Takes up the nodes and edges as they are after these steps, which ended well, in this order.
    fn follow<'s>(&mut self, steps: impl IntoIterator<Item = (&'s StepPath, &'s Value)>) {
        self.places = self.graph.nodes.iter().enumerate().map(|(place, node)| (node.id.shared(), place)).collect();
        for (step, record) in steps {
            self.take(step, record);
        }
    }

    /// The nodes that are still to come after these steps: neither done nor passed over.
    pub(crate) fn pending<'s>(
        graph: &Arc<Graph>,
        steps: impl IntoIterator<Item = (&'s StepPath, &'s Value)>,
    ) -> BTreeSet<String> {
        let mut position = Self::new(graph);
        position.follow(steps);
        let nodes = graph.nodes.iter().zip(position.states);
        let pending = nodes.filter(|(node, state)| node.reached && *state == TraversalState::Pending);
        pending.map(|(node, _)| node.id.to_string()).collect()
    }

    /// Begins, with what is recorded of the graph's nodes. That is for the first checkpoint of this process.
    pub(crate) async fn begin(&mut self, run: &Run) -> Result<(), RunError> {
        if !std::mem::replace(&mut self.is_begun, true) {
            let nodes = self.graph.nodes.iter().map(|node| node.id.step().clone()).collect();
            let steps = run.finished_among(nodes).await?;
            self.follow(steps.iter().map(|step| (&step.path, &step.output)));
        }
        Ok(())
    }

    /// Where the run is, for a checkpoint; with `node` finished, if it is made after one.
    pub(crate) fn moved(&mut self, node: Option<(&StepPath, &Value)>, now: &Now<'_>) -> Moved {
        let is_first = !std::mem::replace(&mut self.is_listed, true);
        if let Some((step, record)) = node {
            self.take(step, record);
        }
        let ready = self.that_are_ready(now).map(|place| self.graph.nodes[place].id.as_str().into());
        let done = node.map(|(step, _)| step);
        let that_wait = |waiting| Value::List(now.that_wait(waiting, done).map(Value::from).collect());
        // What changes every time is one value, so it costs one edit.
        let position = Value::map([
            ("counted", now.counted.clone()),
            ("last", self.last.as_deref().map_or(Value::Null, Value::from)),
            ("ready", Value::List(ready.collect())),
            ("running", that_wait(false)),
            ("waiting", that_wait(true)),
        ]);
        let whole = now.in_full.then(|| self.whole(now, done));
        let outputs = self.has_outputs.then(|| Value::Map(self.outputs.clone()));
        let now = [("now", position)].into_iter().chain(outputs.map(|outputs| ("outputs", outputs))).collect();
        Moved { now, nodes: std::mem::take(&mut self.nodes), is_first, whole }
    }

    fn that_are_ready<'s>(&'s self, now: &'s Now<'_>) -> impl Iterator<Item = usize> + 's {
        let has_begun = |place: usize| now.begun.contains_key(self.graph.nodes[place].id.step());
        self.ready.queue.iter().copied().filter(move |place| !has_begun(*place))
    }

    /// Where the run is, with nothing left to be looked up elsewhere.
    fn whole(&self, now: &Now<'_>, done: Option<&StepPath>) -> Whole {
        let id = |place: usize| self.graph.nodes[place].id.to_string();
        let mut edge_states = BTreeMap::new();
        for (place, node) in self.graph.nodes.iter().enumerate() {
            for leads in &node.edges {
                let name = match &leads.exit {
                    EdgeExit::Usual => format!("{} -> {}", node.id, id(leads.target)),
                    EdgeExit::Named(exit) => format!("{} [{exit}] -> {}", node.id, id(leads.target)),
                };
                let state = match self.states[place] {
                    TraversalState::Taken if !leads.exit.is_taken(self.exits[place].as_deref()) => {
                        TraversalState::Skipped
                    }
                    state => state,
                };
                edge_states.insert(name, state);
            }
        }
        let ready: Vec<usize> = self.that_are_ready(now).collect();
        let that_wait = |waiting| now.that_wait(waiting, done).map(str::to_owned).collect();
        Whole {
            completed_node_id: self.last.clone(),
            node_states: self.states.iter().enumerate().map(|(place, state)| (id(place), *state)).collect(),
            edge_states,
            ready_queue: ready.iter().copied().map(id).collect(),
            ready_predecessor: ready
                .iter()
                .filter_map(|&place| Some((id(place), id(self.predecessors[place]?))))
                .collect(),
            running_nodes: that_wait(false),
            waiting_nodes: that_wait(true),
            final_outputs: self.outputs.clone(),
        }
    }
}

/// Where the run is, as the change from the checkpoint before.
#[derive(Debug)]
pub(crate) struct Moved {
    /// What changes every time, and what ends have given, if they have.
    now: Vec<(&'static str, Value)>,
    /// The nodes to be listed.
    nodes: BTreeMap<String, Value>,
    /// It is the first one of this process: what is listed takes the place of what was.
    is_first: bool,
    /// All of it, for a store that keeps nothing but the newest checkpoint.
    pub(crate) whole: Option<Whole>,
}

/// The part `engine`.
#[derive(Debug, Default)]
pub(crate) struct EnginePart {
    /// Of the newest checkpoint and on; `None` until one is wanted.
    state: Option<State>,
}

impl EnginePart {
    /// Begins the state, and says up to which entry the newest checkpoint has what finished.
    pub(crate) async fn begin(&mut self, turn: &Turn<'_>, fingerprint: &Value) -> Result<Option<Seq>, RunError> {
        let root = Path::root();
        let state = match &mut self.state {
            Some(state) => state,
            none => {
                let begun = Value::map([("execution", turn.run().as_str().into()), ("nodes", Value::map::<&str>([]))]);
                let mut state = turn.part_state_or(PartName::ENGINE, &begun)?;
                state.set(&root.clone().key("fingerprint"), fingerprint.clone()).await?;
                none.insert(state)
            }
        };
        let entry = state.get(&root.key("now").key("entry")).await?;
        Ok(entry.and_then(|entry| u32::try_from(entry.as_i64()?).ok()).map(Seq))
    }

    /// The part for a checkpoint.
    pub(crate) async fn part(&mut self, turn: &Turn<'_>, moved: &Moved) -> Result<DraftPart<'_>, RunError> {
        let root = Path::root();
        let Some(state) = &mut self.state else { unreachable!("it was begun") };
        let mut now = moved.now.clone();
        if let Some((_, Value::Map(now))) = now.first_mut() {
            now.insert("entry".to_owned(), turn.next_entry().0.into());
        }
        state.merge(&root, &now).await?;
        if moved.is_first {
            state.set(&root.clone().key("nodes"), Value::Map(moved.nodes.clone())).await?;
        } else {
            for (node, described) in &moved.nodes {
                state.set(&root.clone().key("nodes").key(node.clone()), described.clone()).await?;
            }
        }
        let name = PartName::from(PartName::ENGINE);
        Ok(DraftPart { name, schema: SCHEMA.to_owned(), version: VERSION, content: Content::State(state) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Document, Flow, Format, Kinds};

    /// A document that took the place of another may lead past what has run.
    #[test]
    fn what_ran_by_another_document_decides_nothing_twice() {
        let text = "
nodes:
  - {id: in, data: {type: start, variables: [{variable: x}]}}
  - {id: if, data: {type: if-else, cases: [{case_id: 'true', logical_operator: and, conditions: [{variable_selector: [in, x], comparison_operator: is, value: '1'}]}]}}
  - {id: c, data: {type: template-transform, template: c}}
  - {id: d, data: {type: template-transform, template: d}}
  - {id: out, data: {type: end, outputs: []}}
edges:
  - {source: in, target: if}
  - {source: if, sourceHandle: 'true', target: d}
  - {source: if, sourceHandle: 'false', target: c}
  - {source: c, target: out}
  - {source: d, target: out}
";
        let flow = Flow::build(&Document::parse(text, Format::Yaml).unwrap(), &Kinds::builtin()).unwrap();
        let ran = [
            ("in", Value::map::<&str>([])),
            ("if", Value::map([("#exit", "true".into())])),
            ("c", Value::map([("output", "c".into())])),
        ]
        .map(|(step, record)| (step.parse::<StepPath>().unwrap(), record));
        let pending = Position::pending(&flow.graph, ran.iter().map(|(step, record)| (step, record)));
        assert_eq!(pending, ["d", "out"].map(str::to_owned).into());
    }
}
