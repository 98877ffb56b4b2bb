//! A document that was checked, ready to run: nodes with their kinds resolved, edges as indexes, no
//! cycle, one start.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use piton_types::{Segment, Value};

use crate::document::{Document, NodeSpec, VariableSpec};
use crate::id::NodeId;
use crate::kind::{Build, Fault, Kinds, join};
use crate::need::NodeNeed;
use crate::node::{DEFAULT_EXIT, Effect, Exits, FAIL_EXIT, Join, Node, Patience};
use crate::nodes;
use crate::problem::{Place, Problems};
use crate::read::cut;
use crate::selector::{CONVERSATION, ENVIRONMENT, SYSTEM};
use crate::settings::{OnError, Settings};

/// A checked workflow.
#[derive(Debug)]
pub struct Graph {
    /// The nodes in the order of the document.
    pub(crate) nodes: Vec<GraphNode>,
    /// The place of the start node.
    pub(crate) start: usize,
    /// The places of the nodes that give text as it comes, in the order in which they can run.
    pub(crate) replies: Vec<usize>,
    /// Whether a node may end before all that leads to it.
    pub(crate) may_cancel: bool,
}

/// A node of a checked workflow.
#[derive(Debug)]
pub(crate) struct GraphNode {
    pub(crate) id: NodeId,
    pub(crate) kind: String,
    pub(crate) title: String,
    pub(crate) node: Box<dyn Node>,
    pub(crate) effect: Effect,
    pub(crate) settings: Settings,
    /// Its outputs are the workflow's.
    pub(crate) is_end: bool,
    /// Where its edges lead.
    pub(crate) edges: Vec<GraphEdge>,
    /// How many edges, of nodes that may run, lead to it.
    pub(crate) waits_for: usize,
    /// When it may begin.
    pub(crate) join: Join,
    /// How long it waits for the others once the first edge to it is taken.
    pub(crate) patience: Option<Patience>,
    /// For a node that may begin early and cancels what only leads to it: which nodes those are.
    pub(crate) only_for_it: Vec<usize>,
    /// Whether it can be reached from the start. A node that can't be doesn't run, and no other waits for it.
    pub(crate) reached: bool,
}

/// An edge of a checked workflow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GraphEdge {
    pub(crate) exit: EdgeExit,
    pub(crate) target: usize,
}

/// When an edge is taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EdgeExit {
    /// Whenever the node ends well.
    Usual,
    /// When the node leaves by this exit.
    Named(String),
}

impl EdgeExit {
    fn read(handle: Option<&str>) -> Self {
        match handle {
            None | Some("" | DEFAULT_EXIT | "success-branch") => Self::Usual,
            Some(name) => Self::Named(name.to_owned()),
        }
    }

    /// Whether a node that leaves by `exit` takes it.
    pub(crate) fn is_taken(&self, exit: Option<&str>) -> bool {
        match self {
            Self::Usual => exit != Some(FAIL_EXIT),
            Self::Named(name) => exit == Some(name),
        }
    }
}

/// What a check found.
pub(crate) struct Checked {
    /// The graph, unless there are errors.
    pub(crate) graph: Option<Graph>,
    /// Errors and warnings.
    pub(crate) problems: Problems,
}

impl Graph {
    /// Checks a document, and reports everything that is wrong with it. `around` are the graphs that it
    /// lies in.
    pub(crate) fn check(document: &Document, kinds: &Kinds, around: Option<&Scope<'_>>) -> Checked {
        let mut problems = Problems::default();
        let depth = around.map_or(0, |around| around.depth + 1);
        let places = place_ids(document, &mut problems);
        let edges = resolve_edges(document, &places, &mut problems);
        // Where an edge leads nowhere, what it should have led to is no news.
        let is_whole = !problems.has_errors();
        let order = check_acyclic(document, &edges, &mut problems);
        let start = find_start(document, depth, &edges, &places, &mut problems);
        let reached = start.map_or_else(|| vec![true; edges.len()], |start| reach(start, &edges));
        let scope = Scope { places: &places, around, depth };
        let built: Vec<_> =
            document.nodes.iter().map(|spec| build_node(spec, document, kinds, &scope, &mut problems)).collect();
        let mut rank = vec![0; edges.len()];
        order.iter().enumerate().for_each(|(number, &place)| rank[place] = number);
        for (place, spec) in document.nodes.iter().enumerate() {
            let (node, settings) = &built[place];
            if let Some(node) = node {
                scope.check_references(spec, &**node, reached[place], &mut problems);
                check_names(document, depth, spec, &**node, &built, &places, &mut problems);
                if is_whole {
                    let later = later(place, &**node, &rank, &edges, &places);
                    check_order(document, spec, &later, &mut problems);
                }
            }
            if let (Some(node), Some(settings)) = (node, settings) {
                check_exits(document, spec, &**node, settings, &edges[place], &mut problems);
            }
        }
        if is_whole {
            check_ways(document, &reached, &mut problems);
        }
        let (Some(start), false) = (start, problems.has_errors()) else { return Checked { graph: None, problems } };
        let mut nodes: Vec<_> = document
            .nodes
            .iter()
            .zip(built.into_iter().filter_map(|(node, settings)| node.zip(settings)))
            .zip(reached)
            .map(|((spec, (node, settings)), reached)| GraphNode {
                id: spec.id.clone(),
                kind: spec.kind.clone(),
                title: spec.title.clone(),
                effect: node.effect(),
                node,
                settings,
                is_end: spec.kind == nodes::END,
                edges: Vec::new(),
                waits_for: 0,
                join: Join::All,
                patience: None,
                only_for_it: Vec::new(),
                reached,
            })
            .collect();
        for (source, edges) in edges.into_iter().enumerate() {
            if !nodes[source].reached {
                continue;
            }
            for edge in edges.keys() {
                nodes[edge.target].waits_for += 1;
            }
            nodes[source].edges = edges.into_keys().collect();
        }
        for place in 0..nodes.len() {
            let join = nodes[place].node.join();
            nodes[place].join = join;
            nodes[place].patience = nodes[place].node.patience();
            if matches!(join, Join::AtLeast { cancel: true, .. }) {
                nodes[place].only_for_it = leading_only_to(place, &nodes, &order);
            }
        }
        let replies = order.into_iter().filter(|&n| nodes[n].reached && nodes[n].node.streams().is_some()).collect();
        Checked {
            graph: Some(Self {
                may_cancel: nodes.iter().any(|node| !node.only_for_it.is_empty()),
                nodes,
                start,
                replies,
            }),
            problems,
        }
    }

    /// Checks the error handler of a document, whose nodes may name those of the document.
    pub(crate) fn check_handler(handler: &Document, document: &Document, kinds: &Kinds) -> Checked {
        let places = place_ids(document, &mut Problems::default());
        Self::check(handler, kinds, Some(&Scope { places: &places, around: None, depth: 0 }))
    }

    /// What its nodes need, also of those inside others.
    pub(crate) fn needs(&self, found: &mut Vec<NodeNeed>) {
        self.nodes.iter().filter(|node| node.reached).for_each(|node| node.needs(found));
    }
}

impl GraphNode {
    /// What it needs, with what is inside it.
    pub(crate) fn needs(&self, found: &mut Vec<NodeNeed>) {
        let needs = self.node.needs().into_iter();
        found.extend(needs.map(|need| NodeNeed { node: self.id.to_string(), need }));
        self.node.graphs().into_iter().for_each(|inner| inner.needs(found));
    }
}

/// Words that begin selectors and name no node: of the system, of containers, of the error handler.
const WORDS: [&str; 8] = [SYSTEM, ENVIRONMENT, CONVERSATION, "__scope__", "loop", "iteration", "error", "rag"];

/// The ids that the nodes of a graph may name.
#[derive(Debug)]
pub(crate) struct Scope<'a> {
    places: &'a HashMap<&'a str, usize>,
    around: Option<&'a Self>,
    /// How many containers are around it.
    pub(crate) depth: usize,
}

impl Scope<'_> {
    fn has(&self, id: &str) -> bool {
        self.places.contains_key(id) || self.around.is_some_and(|around| around.has(id))
    }

    /// That the variables that a node names can be there: of a node of its graph or of one around it.
    fn check_references(&self, spec: &NodeSpec, node: &dyn Node, reached: bool, problems: &mut Problems) {
        for selector in node.references() {
            if self.has(&selector.node) || WORDS.contains(&selector.node.as_str()) {
                continue;
            }
            let message = format!("it uses a variable of {:?}, which is not a node", cut(&selector.node));
            let path = spec.place.clone().key("data");
            if reached {
                problems.add_for(spec.id.as_str(), path, message);
            } else {
                problems.warn(Some(spec.id.as_str()), path, message);
            }
            if let Some(near) = nearest(&selector.node, self.places.keys().copied()) {
                problems.hint(format!("did you mean {near:?}?"));
            }
        }
    }
}

/// A node and its settings, as far as they could be read.
type BuiltNode = (Option<Box<dyn Node>>, Option<Settings>);

/// System variables that a run can have.
const SYSTEM_NAMES: [&str; 15] = [
    "query",
    "files",
    "conversation_id",
    "user_id",
    "app_id",
    "workflow_id",
    "workflow_run_id",
    "dialogue_count",
    "timestamp",
    "history",
    "error_message",
    "error_node_id",
    "error_node_type",
    "error_type",
    "workflow_outputs",
];

/// What a node with a branch for failures gives there.
const FAILURE_NAMES: [&str; 2] = ["error_message", "error_type"];

/// Warns of variables that a node names and no other gives, as far as that is known.
fn check_names(
    document: &Document,
    depth: usize,
    spec: &NodeSpec,
    node: &dyn Node,
    built: &[BuiltNode],
    places: &HashMap<&str, usize>,
    problems: &mut Problems,
) {
    let mut warn = |said: String, name: &str, known: &[&str]| {
        problems.warn(Some(spec.id.as_str()), spec.place.clone().key("data"), said);
        if let Some(near) = nearest(name, known.iter().copied()) {
            problems.hint(format!("did you mean {near:?}?"));
        }
    };
    for selector in node.references() {
        let Some(name) = selector.path.first() else { continue };
        let specs = |specs: &'_ [VariableSpec]| specs.iter().map(|spec| spec.name.clone()).collect::<Vec<_>>();
        let known: Vec<String> = match selector.node.as_str() {
            SYSTEM => SYSTEM_NAMES.map(str::to_owned).to_vec(),
            // The graphs inside others have the variables of the outermost.
            ENVIRONMENT if depth == 0 => specs(&document.environment),
            CONVERSATION if depth == 0 => specs(&document.conversation),
            id => {
                let Some((Some(other), Some(settings))) = places.get(id).map(|place| &built[*place]) else { continue };
                let (Some(gives), false) = (other.gives(), matches!(settings.on_error, OnError::Default(_))) else {
                    continue;
                };
                gives.into_iter().chain(FAILURE_NAMES).map(str::to_owned).collect()
            }
        };
        if !known.contains(name) {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            warn(format!("it uses {:?}, which {:?} doesn't give", cut(name), cut(&selector.node)), name, &known);
        }
    }
    let (undefined, known) = node.undefined();
    for name in undefined {
        warn(format!("its template uses {:?}, which isn't among its variables", cut(name)), name, &known);
    }
}

/// The nodes that a node names although they can only run after it.
fn later<'a>(
    place: usize,
    node: &'a dyn Node,
    rank: &[usize],
    edges: &Edges,
    places: &HashMap<&str, usize>,
) -> BTreeSet<&'a str> {
    let named = node.references().into_iter().filter_map(|selector| {
        let named = *places.get(selector.node.as_str())?;
        // Only what has a later place in some order can be behind it; that is seldom so.
        (rank[named] > rank[place]).then_some((selector.node.as_str(), named))
    });
    let mut behind: Option<Vec<bool>> = None;
    let is_behind =
        |(name, named): (&'a str, usize)| behind.get_or_insert_with(|| reach(place, edges))[named].then_some(name);
    named.filter_map(is_behind).collect()
}

/// That a node doesn't name what isn't there yet.
fn check_order(document: &Document, spec: &NodeSpec, later: &BTreeSet<&str>, problems: &mut Problems) {
    for name in later {
        let message = format!("it uses a variable of {:?}, which runs after it", cut(name));
        problems.note(document.is_strict, Some(spec.id.as_str()), spec.place.clone().key("data"), message);
    }
}

fn place_ids<'a>(document: &'a Document, problems: &mut Problems) -> HashMap<&'a str, usize> {
    let mut places = HashMap::with_capacity(document.nodes.len());
    for (place, node) in document.nodes.iter().enumerate() {
        if let Some(first) = places.get(node.id.as_str()) {
            let first: &NodeSpec = &document.nodes[*first];
            let message = format!("duplicate node id: it is that of {} already", first.place);
            problems.add_for(node.id.as_str(), node.place.clone().key("id"), message);
        } else {
            places.insert(node.id.as_str(), place);
        }
    }
    places
}

/// The edges of every node, each with its place in the document.
type Edges = Vec<BTreeMap<GraphEdge, usize>>;

fn resolve_edges(document: &Document, places: &HashMap<&str, usize>, problems: &mut Problems) -> Edges {
    let mut edges = vec![BTreeMap::new(); document.nodes.len()];
    for (place, edge) in document.edges.iter().enumerate() {
        let mut end = |key, id: &str| {
            let found = places.get(id).copied();
            if found.is_none() {
                problems.add(Place::Path(edge.place.clone().key(key)), format!("there is no node {:?}", cut(id)));
                if let Some(near) = nearest(id, places.keys().copied()) {
                    problems.hint(format!("did you mean {near:?}?"));
                }
            }
            found
        };
        if let (Some(source), Some(target)) = (end("source", &edge.source), end("target", &edge.target)) {
            let exit = EdgeExit::read(edge.source_handle.as_deref());
            let known = edges[source].insert(GraphEdge { exit, target }, place);
            if let Some(first) = known {
                let message = format!("duplicate edge: {} is the same", document.edges[first].place);
                problems.note(document.is_strict, None, edge.place.clone(), message);
            }
        }
    }
    edges
}

/// An id that the author of the document may have meant. Looked for only among short lists of short ids.
pub(crate) fn nearest<'a>(wrong: &str, ids: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = wrong.chars().take(64).collect();
    let mut best: Option<(usize, &str)> = None;
    for id in ids.take(1_000) {
        let found: Vec<char> = id.chars().take(64).collect();
        let away = distance(&wanted, &found);
        // Of equally near ones the first by name, so that the answer is always the same.
        if best.is_none_or(|other| (away, id) < other) {
            best = Some((away, id));
        }
    }
    best.filter(|(away, _)| *away <= 1 + wanted.len() / 4).map(|(_, id)| id)
}

fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Takes away what has nothing before it until nothing is left, or a cycle is. Returns the order.
fn check_acyclic(document: &Document, edges: &Edges, problems: &mut Problems) -> Vec<usize> {
    let mut waits = vec![0_usize; document.nodes.len()];
    edges.iter().flat_map(BTreeMap::keys).for_each(|edge| waits[edge.target] += 1);
    let mut free: VecDeque<usize> = (0..waits.len()).filter(|&node| waits[node] == 0).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(node) = free.pop_front() {
        order.push(node);
        for edge in edges[node].keys() {
            waits[edge.target] -= 1;
            if waits[edge.target] == 0 {
                free.push_back(edge.target);
            }
        }
    }
    let Some(any) = waits.iter().position(|&waits| waits > 0) else { return order };
    // Everything that is left has something left before it; going back leads into a circle.
    let mut before = vec![None; document.nodes.len()];
    for (source, edges) in edges.iter().enumerate().filter(|(source, _)| waits[*source] > 0) {
        edges.keys().for_each(|edge| before[edge.target] = Some(source));
    }
    let mut way = vec![any];
    let mut seen = BTreeSet::from([any]);
    let last = loop {
        let Some(node) = way.last().and_then(|&node| before[node]) else { break any };
        way.push(node);
        if !seen.insert(node) {
            break node;
        }
    };
    let first = way.iter().position(|&node| node == last).unwrap_or(0);
    let mut names: Vec<_> = way[first..].iter().rev().map(|&node| document.nodes[node].id.as_str()).collect();
    if names.len() > 12 {
        names.splice(6..names.len() - 5, ["…"]);
    }
    let path = document.place.clone().key("edges");
    problems.add(Place::Path(path), format!("cycle: they go in a circle: {}", names.join(" → ")));
    order
}

fn find_start(
    document: &Document,
    depth: usize,
    edges: &Edges,
    places: &HashMap<&str, usize>,
    problems: &mut Problems,
) -> Option<usize> {
    let kinds: &[&str] = if depth == 0 { &["start"] } else { &["start", "iteration-start", "loop-start"] };
    let mut starts = (0..document.nodes.len()).filter(|&place| kinds.contains(&document.nodes[place].kind.as_str()));
    if let Some(first) = starts.next() {
        for place in starts {
            let spec = &document.nodes[place];
            problems.add_for(spec.id.as_str(), spec.place.clone(), "there is a start node already");
        }
        return Some(first);
    }
    if let Some(named) = document.start.as_deref().and_then(|id| places.get(id)) {
        return Some(*named);
    }
    let begins = |spec: &NodeSpec| spec.kind.starts_with("trigger-") || spec.kind == "datasource";
    let triggered = document.nodes.iter().position(begins);
    if triggered.is_some() {
        return triggered;
    }
    if depth > 0 {
        // The one node that nothing leads to.
        let mut led_to = vec![false; document.nodes.len()];
        edges.iter().flat_map(BTreeMap::keys).for_each(|edge| led_to[edge.target] = true);
        let mut free = (0..led_to.len()).filter(|&place| !led_to[place]);
        if let (Some(only), None) = (free.next(), free.next()) {
            return Some(only);
        }
    }
    problems.add(Place::Path(document.place.clone().key("nodes")), "there is no start node");
    problems.hint("add a node with `data: {type: start}` and lead an edge from it to the first");
    None
}

fn build_node(
    spec: &NodeSpec,
    document: &Document,
    kinds: &Kinds,
    scope: &Scope<'_>,
    problems: &mut Problems,
) -> BuiltNode {
    let build = Build { spec, document, kinds, scope };
    let settings = Settings::read(&spec.kind, &spec.data);
    let node = match kinds.get(&spec.kind) {
        Some(kind) => kind.build(&build),
        None => Ok(nodes::missing(&spec.kind)),
    };
    // An export may have been saved in the middle of the work: what is still empty is no mistake.
    let node = match node {
        Err(faults) if !document.is_strict && faults.0.iter().all(|fault| is_unfinished(fault, &spec.data)) => {
            let mut told = Vec::new();
            for fault in faults.0 {
                let Fault::Here { path, message } = fault else { continue };
                let place = join(&spec.place.clone().key("data"), &path);
                problems.warn(Some(spec.id.as_str()), place, format!("unfinished: {message}"));
                told.push(message);
            }
            Ok(nodes::unfinished(told.join("; ")))
        }
        node => node,
    };
    let mut complain = |fault| match fault {
        Fault::Here { path, message } => {
            problems.add_for(spec.id.as_str(), join(&spec.place.clone().key("data"), &path), message);
        }
        Fault::Inside(problem) => problems.push(problem),
    };
    let settings = settings.map_err(|faults| faults.0.into_iter().for_each(&mut complain)).ok();
    let node = node.map_err(|faults| faults.0.into_iter().for_each(&mut complain)).ok();
    (node, settings)
}

/// Whether what is wrong is that the author hasn't filled it in yet.
fn is_unfinished(fault: &Fault, data: &Value) -> bool {
    let Fault::Here { path, message } = fault else { return false };
    let found = path.segments().iter().try_fold(data, |value, segment| match (value, segment) {
        (Value::Map(entries), Segment::Key(key)) => entries.get(key),
        (Value::List(items), Segment::Index(index)) => items.get(*index),
        _ => None,
    });
    message.starts_with("missing field") || found.is_none_or(crate::value::is_empty)
}

/// That every node can run, and that there is an end.
fn check_ways(document: &Document, reached: &[bool], problems: &mut Problems) {
    for (spec, _) in document.nodes.iter().zip(reached).filter(|(_, reached)| !**reached) {
        let message = "unreachable node: nothing leads to it from the start, so it never runs";
        problems.note(document.is_strict, Some(spec.id.as_str()), spec.place.clone(), message);
    }
    let is_end = |spec: &NodeSpec| matches!(spec.kind.as_str(), "end" | "answer");
    let is_inside = document.nodes.iter().any(|spec| matches!(spec.kind.as_str(), "iteration-start" | "loop-start"));
    if !document.nodes.iter().any(is_end) && !document.nodes.is_empty() && !is_inside && document.start.is_none() {
        let path = document.place.clone().key("nodes");
        problems.note(document.is_strict, None, path, "there is neither an end nor an answer node");
        problems.hint("add a node with `data: {type: end}` that says what the workflow gives");
    }
}

/// An edge that leaves by an exit which isn't there is never taken.
fn check_exits(
    document: &Document,
    spec: &NodeSpec,
    node: &dyn Node,
    settings: &Settings,
    edges: &BTreeMap<GraphEdge, usize>,
    problems: &mut Problems,
) {
    let fails = settings.on_error == OnError::Branch;
    for (edge, place) in edges {
        let EdgeExit::Named(name) = &edge.exit else { continue };
        let exits = node.exits();
        let known = match &exits {
            Exits::One => false,
            Exits::Named(names) => names.contains(name),
            Exits::Any => true,
        };
        if known || (fails && name == FAIL_EXIT) {
            continue;
        }
        let path = document.edges[*place].place.clone().key("sourceHandle");
        let message = format!("it has no exit {:?}, so this edge is never taken", cut(name));
        problems.note(document.is_strict, Some(spec.id.as_str()), path, message);
        if let Exits::Named(names) = &exits {
            problems.hint(format!("its exits are {}", names.join(", ")));
        } else if name == FAIL_EXIT {
            problems.hint("give it the error strategy `fail-branch`");
        }
    }
}

/// The nodes from which all ways lead to `place`.
fn leading_only_to(place: usize, nodes: &[GraphNode], order: &[usize]) -> Vec<usize> {
    let mut leads = vec![false; nodes.len()];
    leads[place] = true;
    for &node in order.iter().rev().filter(|&&node| node != place) {
        let edges = &nodes[node].edges;
        leads[node] = !edges.is_empty() && edges.iter().all(|edge| leads[edge.target]);
    }
    (0..nodes.len()).filter(|&node| leads[node] && node != place).collect()
}

/// Which nodes can be reached from the start. The others don't run, and no node waits for them.
fn reach(start: usize, edges: &Edges) -> Vec<bool> {
    let mut reached = vec![false; edges.len()];
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        if !std::mem::replace(&mut reached[node], true) {
            queue.extend(edges[node].keys().map(|edge| edge.target));
        }
    }
    reached
}

/// The variables that a document gives to begin with.
pub(crate) fn given(variables: &[VariableSpec]) -> BTreeMap<String, Value> {
    variables.iter().map(|variable| (variable.name.clone(), variable.value.clone())).collect()
}
