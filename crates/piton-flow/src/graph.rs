//! A document that was checked, ready to run: nodes with their kinds resolved, edges as indexes, no
//! cycle, one start.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use piton_types::{Path, Segment, Value};

use crate::document::{Document, NodeSpec};
use crate::id::NodeId;
use crate::nodes::{self, Node};
use crate::pool::Selector;
use crate::problem::{Place, Problems};

/// A checked workflow.
#[derive(Debug)]
pub(crate) struct Graph {
    /// The nodes in the order of the document.
    pub(crate) nodes: Vec<GraphNode>,
    /// The place of the start node.
    pub(crate) start: usize,
}

/// A node of a checked workflow.
#[derive(Debug)]
pub(crate) struct GraphNode {
    pub(crate) id: NodeId,
    pub(crate) node: Box<dyn Node>,
    /// Its outputs are the workflow's.
    pub(crate) is_end: bool,
    /// A checkpoint is made when it has finished.
    pub(crate) checkpoint: bool,
    /// Where its edges lead.
    pub(crate) next: Vec<usize>,
    /// How many nodes, of those that run, must finish before it.
    pub(crate) waits_for: usize,
}

/// The only exit of the kinds that have one.
const ONLY_HANDLE: &str = "source";

impl Graph {
    /// Checks a document, and reports everything that is wrong with it.
    pub(crate) fn build(document: &Document) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let places = place_ids(document, &mut problems);
        let edges = resolve_edges(document, &places, &mut problems);
        check_acyclic(document, &edges, &mut problems);
        let start = find_start(document, &mut problems);
        let built: Vec<_> =
            document.nodes.iter().enumerate().map(|(n, spec)| build_node(n, spec, &places, &mut problems)).collect();
        let start = problems.none_or(start)?;
        let Some(start) = start else { return Err(Problems::one(Place::Whole, "it has no start node")) };

        let reached = reach(start, &edges, document.nodes.len());
        let mut nodes: Vec<_> = document
            .nodes
            .iter()
            .zip(built.into_iter().flatten())
            .map(|(spec, node)| GraphNode {
                id: spec.id.clone(),
                node,
                is_end: spec.kind == nodes::END,
                checkpoint: nodes::makes_checkpoint(&spec.kind, &spec.data),
                next: Vec::new(),
                waits_for: 0,
            })
            .collect();
        for (source, target) in edges {
            if reached[source] {
                nodes[source].next.push(target);
                nodes[target].waits_for += 1;
            }
        }
        Ok(Self { nodes, start })
    }
}

fn place_ids<'a>(document: &'a Document, problems: &mut Problems) -> BTreeMap<&'a str, usize> {
    let mut places = BTreeMap::new();
    for (place, node) in document.nodes.iter().enumerate() {
        if let Some(first) = places.get(node.id.as_str()) {
            let path = Path::root().key("nodes").index(place).key("id");
            problems.add_for(node.id.as_str(), path, format!("the id is that of /nodes/{first} already"));
        } else {
            places.insert(node.id.as_str(), place);
        }
    }
    places
}

fn resolve_edges(
    document: &Document,
    places: &BTreeMap<&str, usize>,
    problems: &mut Problems,
) -> BTreeSet<(usize, usize)> {
    let mut edges = BTreeSet::new();
    for (place, edge) in document.edges.iter().enumerate() {
        let path = Path::root().key("edges").index(place);
        let mut end = |key, id: &str| {
            let found = places.get(id).copied();
            if found.is_none() {
                let shown: String = id.chars().take(40).collect();
                problems.add(Place::Path(path.clone().key(key)), format!("there is no node {shown:?}"));
            }
            found
        };
        if let (Some(source), Some(target)) = (end("source", &edge.source), end("target", &edge.target)) {
            edges.insert((source, target));
        }
        if let Some(handle) =
            edge.source_handle.as_deref().filter(|handle| !handle.is_empty() && *handle != ONLY_HANDLE)
        {
            let shown: String = handle.chars().take(40).collect();
            problems.add(Place::Path(path.key("sourceHandle")), format!("the source has no exit {shown:?}"));
        }
    }
    edges
}

/// Takes away what has nothing before it until nothing is left, or a cycle is.
fn check_acyclic(document: &Document, edges: &BTreeSet<(usize, usize)>, problems: &mut Problems) {
    let mut before = vec![Vec::new(); document.nodes.len()];
    let mut after = before.clone();
    for &(source, target) in edges {
        before[target].push(source);
        after[source].push(target);
    }
    let mut waits: Vec<_> = before.iter().map(Vec::len).collect();
    let mut free: Vec<_> = (0..waits.len()).filter(|&node| waits[node] == 0).collect();
    while let Some(node) = free.pop() {
        for &next in &after[node] {
            waits[next] -= 1;
            if waits[next] == 0 {
                free.push(next);
            }
        }
    }
    // Whatever is left waits for something that is left, so going back from one ends up in a circle.
    let Some(mut at) = waits.iter().position(|&waits| waits > 0) else { return };
    let (mut seen, mut way) = (vec![false; waits.len()], Vec::new());
    while !std::mem::replace(&mut seen[at], true) {
        way.push(at);
        at = before[at].iter().copied().find(|&node| waits[node] > 0).unwrap_or(at);
    }
    let circle = way.iter().skip_while(|&&node| node != at).chain([&at]);
    let names: Vec<_> = circle.map(|&node| document.nodes[node].id.as_str()).collect();
    let names = names.into_iter().rev().collect::<Vec<_>>().join(" → ");
    problems.add(Place::Path(Path::root().key("edges")), format!("they go in a circle: {names}"));
}

fn find_start(document: &Document, problems: &mut Problems) -> Option<usize> {
    let mut starts = (0..document.nodes.len()).filter(|&place| document.nodes[place].kind == nodes::START);
    let first = starts.next();
    if first.is_none() {
        problems.add(Place::Path(Path::root().key("nodes")), "there is no start node");
    }
    for place in starts {
        let path = Path::root().key("nodes").index(place);
        problems.add_for(document.nodes[place].id.as_str(), path, "there is a start node already");
    }
    first
}

fn build_node(
    place: usize,
    spec: &NodeSpec,
    places: &BTreeMap<&str, usize>,
    problems: &mut Problems,
) -> Option<Box<dyn Node>> {
    let data = Path::root().key("nodes").index(place).key("data");
    let mut complain = |inner: &Path, message: String| {
        let mut path = data.clone();
        inner.segments().iter().cloned().for_each(|segment: Segment| path.push(segment));
        problems.add_for(spec.id.as_str(), path, message);
    };
    for key in nodes::NOT_YET {
        let used = spec.data.field(key).is_some_and(|found| !matches!(found, Value::Null | Value::Bool(false)));
        if used {
            complain(&Path::root().key(key), "this version of the engine doesn't have it".to_owned());
        }
    }
    if let Some(found) = spec.data.field(nodes::CHECKPOINT)
        && !matches!(found, Value::Null | Value::Bool(_))
    {
        complain(&Path::root().key(nodes::CHECKPOINT), format!("true or false is wanted, not {}", found.kind()));
    }
    let node = match nodes::build(spec) {
        Ok(node) => node,
        Err(error) => {
            complain(&error.path, error.message);
            return None;
        }
    };
    for Selector { node: named, .. } in node.selectors() {
        if !places.contains_key(named.as_str()) {
            let shown: String = named.chars().take(40).collect();
            complain(&Path::root(), format!("it uses a variable of {shown:?}, which is not a node"));
        }
    }
    Some(node)
}

/// Which nodes can be reached from the start. The others don't run and nobody waits for them.
fn reach(start: usize, edges: &BTreeSet<(usize, usize)>, count: usize) -> Vec<bool> {
    let mut reached = vec![false; count];
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        if !std::mem::replace(&mut reached[node], true) {
            queue.extend(edges.range((node, 0)..=(node, usize::MAX)).map(|&(_, target)| target));
        }
    }
    reached
}
