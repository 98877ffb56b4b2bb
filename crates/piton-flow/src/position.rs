//! Where a durable run is, as its checkpoints show it (F4): the states of nodes and edges, what is ready, runs and
//! waits, what ends have given, and what was counted. It is the part `engine` of a checkpoint.
//!
//! Whoever goes on with a run doesn't need it: the log has every result, and the position follows from those. It is
//! for people, and for whoever has only the checkpoint. Nothing is made before the first checkpoint, and one costs
//! what changed since the one before.
//!
//! What the part `variables` of the same checkpoint tells isn't said again: a node that isn't listed has succeeded, and
//! its edges are taken, if that part has what it gave; else it is pending, and so are they. Listed are nodes that
//! have several exits, once they are done, and those that were passed over. So most nodes cost one edit of a few words.

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
    /// The nodes to be listed since the last checkpoint. Empty until there is one.
    nodes: BTreeMap<String, Value>,
    /// Which nodes are done or passed over.
    over: Vec<bool>,
    outputs: BTreeMap<String, Value>,
    /// An end gave something since the last checkpoint.
    has_outputs: bool,
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
    pub(crate) fingerprint: &'a Value,
}

impl<'a> Position<'a> {
    pub(crate) fn new(graph: &'a Graph) -> Self {
        Self {
            graph,
            ready: Ready::new(graph),
            places: BTreeMap::new(),
            nodes: BTreeMap::new(),
            over: vec![false; graph.nodes.len()],
            outputs: BTreeMap::new(),
            has_outputs: false,
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
        // What lies inside another is told by its variables alone.
        let Some(&place) = self.places.get(step) else { return };
        // Passed over, though the log has it: the document is another than the one that it ran by.
        let was_over = std::mem::replace(&mut self.over[place], true);
        let exit = record::exit(record);
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
        self.ready.done(place, exit);
        for (places, state) in [(&self.ready.passed, "skipped"), (&self.ready.unwanted, "cancelled")] {
            for &place in places {
                self.over[place] = true;
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
        self.places = self.graph.nodes.iter().enumerate().map(|(place, node)| (node.id.as_str(), place)).collect();
        for (step, record) in steps {
            self.take(step, record);
        }
    }

    /// The nodes that are still to come after these steps: neither done nor passed over.
    pub(crate) fn pending<'s>(
        graph: &'a Graph,
        steps: impl IntoIterator<Item = (&'s StepPath, &'s Value)>,
    ) -> BTreeSet<String> {
        let mut position = Self::new(graph);
        position.follow(steps);
        let nodes = graph.nodes.iter().zip(position.over);
        nodes.filter(|(node, over)| node.reached && !over).map(|(node, _)| node.id.to_string()).collect()
    }

    /// Begins the state, from what the log has.
    async fn begin(&mut self, run: &Run, fingerprint: &Value) -> Result<(), RunError> {
        let begun = Value::map([("execution", run.id().as_str().into())]);
        let mut state = run.part_state_or(PartName::ENGINE, &begun).await?;
        state.set(&Path::root().key("fingerprint"), fingerprint.clone()).await?;
        let mut steps = Vec::new();
        run.for_each_step(|step| {
            if step.is_finished() {
                steps.push((step.path.clone(), step.output.clone()));
            }
        });
        self.follow(steps.iter().map(|(step, record)| (step, record)));
        state.set(&Path::root().key("nodes"), Value::Map(self.nodes.clone())).await?;
        self.nodes.clear();
        self.state = Some(state);
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
            self.begin(run, now.fingerprint).await?;
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
        // What changes every time is one value, so it costs one edit.
        let position = Value::map([
            ("ready", Value::List(ready)),
            ("running", names(running)),
            ("waiting", names(waiting)),
            ("last", self.last.as_deref().map_or(Value::Null, Value::from)),
            ("counted", now.counted),
        ]);
        let Some(state) = &mut self.state else { unreachable!("it was begun above") };
        let root = Path::root();
        state.set(&root.clone().key("now"), position).await?;
        // What is done is crossed off only then: whoever waits for this may be dropped.
        if self.has_outputs {
            state.set(&root.clone().key("outputs"), Value::Map(self.outputs.clone())).await?;
            self.has_outputs = false;
        }
        let nodes = root.key("nodes");
        while let Some(listed) = self.nodes.first_entry() {
            state.set(&nodes.clone().key(listed.key().clone()), listed.get().clone()).await?;
            listed.remove();
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
