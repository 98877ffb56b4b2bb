//! Where a durable run is, as its checkpoints show it (F4): the states of nodes and edges, what is ready, runs and
//! waits, what ends have given, and what was counted. It is the part `engine` of a checkpoint.
//!
//! Whoever goes on with a run doesn't need it: the log has every result, and the position follows from those. It is
//! for people, and for whoever has only the checkpoint. Nothing is made before the first checkpoint, and one costs
//! what changed since the one before.

use std::collections::{BTreeMap, BTreeSet};

use piton_runtime::{Run, RunError};
use piton_store::state::State;
use piton_store::{Content, DraftPart};
use piton_types::{PartName, Path, StepPath, Value};

use crate::graph::{EdgeExit, Graph};
use crate::ready::Ready;
use crate::record;

const SCHEMA: &str = "piton.workflow-position";
const VERSION: u32 = 1;

/// The graph, and how far it has come.
#[derive(Debug)]
pub(crate) struct Position<'a> {
    graph: &'a Graph,
    ready: Ready<'a>,
    places: BTreeMap<&'a str, usize>,
    /// What changed since the last checkpoint, by its key. Empty until there is one.
    nodes: BTreeMap<String, Option<&'static str>>,
    edges: BTreeMap<String, &'static str>,
    /// The steps inside containers that aren't over.
    inside: BTreeSet<String>,
    outputs: BTreeMap<String, Value>,
    last: Option<String>,
    /// Of the newest checkpoint and on; `None` until one is wanted.
    state: Option<State>,
}

/// What is going on besides.
pub(crate) struct Now<'a> {
    /// Steps that began and haven't ended, and whether they wait for somebody.
    pub(crate) begun: &'a BTreeMap<StepPath, bool>,
    /// What was counted.
    pub(crate) counted: Value,
    /// What the run was begun with.
    pub(crate) fingerprint: Value,
}

impl<'a> Position<'a> {
    pub(crate) fn new(graph: &'a Graph) -> Self {
        Self {
            graph,
            ready: Ready::new(graph),
            places: BTreeMap::new(),
            nodes: BTreeMap::new(),
            edges: BTreeMap::new(),
            inside: BTreeSet::new(),
            outputs: BTreeMap::new(),
            last: None,
            state: None,
        }
    }

    /// Takes in that a step ended well and gave `record`. Costs nothing before the first checkpoint.
    pub(crate) fn finished(&mut self, step: &StepPath, record: &Value) {
        if self.state.is_some() {
            self.take(step, record);
        }
    }

    fn take(&mut self, step: &StepPath, record: &Value) {
        let step = step.as_str();
        let Some(&place) = self.places.get(step) else {
            // It lies inside another, which may be over already.
            if let Some((outer, _)) = step.split_once('/')
                && self.places.contains_key(outer)
            {
                self.inside.insert(step.to_owned());
                self.nodes.insert(step.to_owned(), Some("succeeded"));
            }
            return;
        };
        let within = format!("{step}/");
        let over: Vec<_> =
            self.inside.range(within.clone()..).take_while(|other| other.starts_with(&within)).cloned().collect();
        for other in over {
            self.inside.remove(&other);
            self.nodes.insert(other, None);
        }
        let exit = record::exit(record);
        let node = &self.graph.nodes[place];
        self.nodes.insert(step.to_owned(), Some("succeeded"));
        for edge in &node.edges {
            let state = if edge.exit.is_taken(exit) { "taken" } else { "skipped" };
            self.edges.insert(self.edge(place, edge), state);
        }
        if node.is_end {
            self.outputs.extend(record::variables(record).as_map().cloned().unwrap_or_default());
        }
        self.last = Some(step.to_owned());
        self.ready.queue.retain(|other| *other != place);
        self.ready.done(place, exit);
        let lists = [(self.ready.passed.clone(), "skipped"), (self.ready.unwanted.clone(), "cancelled")];
        for (place, state) in lists.iter().flat_map(|(places, state)| places.iter().map(move |place| (*place, *state)))
        {
            self.nodes.insert(self.graph.nodes[place].id.to_string(), Some(state));
            for edge in &self.graph.nodes[place].edges {
                self.edges.insert(self.edge(place, edge), state);
            }
        }
        let unwanted = &self.ready.unwanted;
        self.ready.queue.retain(|place| !unwanted.contains(place));
    }

    /// The name of an edge: `a -> b`, or `a[exit] -> b`.
    fn edge(&self, source: usize, edge: &crate::graph::GraphEdge) -> String {
        let (source, target) = (&self.graph.nodes[source].id, &self.graph.nodes[edge.target].id);
        match &edge.exit {
            EdgeExit::Usual => format!("{source} -> {target}"),
            EdgeExit::Named(exit) => format!("{source}[{exit}] -> {target}"),
        }
    }

    /// Begins the state: all nodes and edges as they are, from what the log has.
    async fn begin(&mut self, run: &Run) -> Result<(), RunError> {
        self.places = self.graph.nodes.iter().enumerate().map(|(place, node)| (node.id.as_str(), place)).collect();
        for (place, node) in self.graph.nodes.iter().enumerate().filter(|(_, node)| node.reached) {
            self.nodes.insert(node.id.to_string(), Some("pending"));
            for edge in &node.edges {
                self.edges.insert(self.edge(place, edge), "pending");
            }
        }
        run.for_each_step(|step| {
            if step.is_finished() {
                self.take(&step.path, &step.output);
            }
        });
        let empty = Value::map([("nodes", Value::map::<&str>([])), ("edges", Value::map::<&str>([]))]);
        self.state = Some(run.part_state_or(PartName::ENGINE, &empty).await?);
        Ok(())
    }

    /// The part for a checkpoint, with `node` finished if it is made after one.
    pub(crate) async fn part(
        &mut self,
        run: &Run,
        node: Option<(&StepPath, &Value)>,
        now: Now<'_>,
    ) -> Result<DraftPart<'_>, RunError> {
        if self.state.is_none() {
            self.begin(run).await?;
        }
        if let Some((step, record)) = node {
            self.take(step, record);
        }
        let running = now.begun.iter().filter(|(step, _)| node.is_none_or(|(done, _)| done != *step));
        let (waiting, running): (Vec<_>, Vec<_>) = running.partition(|(_, waits)| **waits);
        let is_running = |id: &str| now.begun.keys().any(|step| step.as_str() == id);
        let ready: Vec<Value> = self
            .ready
            .queue
            .iter()
            .map(|place| self.graph.nodes[*place].id.as_str())
            .filter(|id| !is_running(id))
            .map(Value::from)
            .collect();
        let names = |steps: Vec<(&StepPath, &bool)>| {
            Value::List(steps.into_iter().map(|(step, _)| Value::from(step.as_str())).collect())
        };
        let position = [
            ("ready", Value::List(ready)),
            ("running", names(running)),
            ("waiting", names(waiting)),
            ("last", self.last.as_deref().map_or(Value::Null, Value::from)),
            ("outputs", Value::Map(self.outputs.clone())),
            ("counted", now.counted),
            ("fingerprint", now.fingerprint),
            ("execution", run.id().as_str().into()),
        ];
        let Some(state) = &mut self.state else { unreachable!("it was begun above") };
        let root = Path::root();
        for (name, value) in position {
            state.set(&root.clone().key(name), value).await?;
        }
        let (nodes, edges) = (root.clone().key("nodes"), root.key("edges"));
        for (name, condition) in std::mem::take(&mut self.nodes) {
            let place = nodes.clone().key(name);
            match condition {
                Some(condition) => state.set(&place, condition.into()).await?,
                None => drop(state.remove(&place).await?),
            }
        }
        for (name, condition) in std::mem::take(&mut self.edges) {
            state.set(&edges.clone().key(name), condition.into()).await?;
        }
        let name = PartName::from(PartName::ENGINE);
        Ok(DraftPart { name, schema: SCHEMA.to_owned(), version: VERSION, content: Content::State(state) })
    }
}
