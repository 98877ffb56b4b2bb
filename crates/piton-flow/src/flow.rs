//! A whole document that was checked: its graph, its variables, its error handler, and what it needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_types::{RunId, Timestamp, Value};

use crate::document::Document;
use crate::engine::Inputs;
use crate::error::FlowError;
use crate::graph::{Graph, given};
use crate::kind::Kinds;
use crate::need::{NodeNeed, Services};
use crate::node::Node;
use crate::pool::VariablePool;
use crate::problem::{Problem, Problems, Severity};
use crate::selector::{CONVERSATION, ENVIRONMENT, SYSTEM, Selector};

/// A document, checked and ready to run any number of times.
#[derive(Debug)]
pub struct Flow {
    pub(crate) graph: Arc<Graph>,
    pub(crate) handler: Option<Handler>,
    /// What checks the work of a run that ended well.
    pub(crate) verify: Option<Graph>,
    environment: BTreeMap<String, Value>,
    conversation: BTreeMap<String, Value>,
    needs: Vec<NodeNeed>,
}

/// What runs when a node has failed.
#[derive(Debug)]
pub(crate) struct Handler {
    pub(crate) recovers: bool,
    pub(crate) graph: Graph,
}

/// What a run is given.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Given {
    /// The inputs of the start node.
    pub inputs: Inputs,
    /// System variables, such as `query`, `files`, `user_id`.
    pub system: BTreeMap<String, Value>,
    /// Environment variables, in the place of those that the document has.
    pub environment: BTreeMap<String, Value>,
    /// Conversation variables, in the place of those that the document begins with.
    pub conversation: BTreeMap<String, Value>,
    /// Inputs that aren't as they should be are taken as they are, and so are those that the workflow doesn't ask for.
    pub lenient: bool,
}

impl Given {
    /// The same with the system variables that every run has, where they aren't given.
    #[must_use]
    pub fn with_system(mut self, document: &Document, run: &RunId, now: Timestamp) -> Self {
        let every: [(&str, Value); 8] = [
            ("query", "".into()),
            ("files", Value::List(Vec::new())),
            ("conversation_id", run.as_str().into()),
            ("user_id", "".into()),
            ("workflow_id", document.name.as_deref().unwrap_or("workflow").into()),
            ("workflow_run_id", run.as_str().into()),
            ("dialogue_count", i64::from(document.is_chat).into()),
            ("timestamp", (now.as_millis() / 1000).into()),
        ];
        for (name, value) in every {
            self.system.entry(name.to_owned()).or_insert(value);
        }
        self
    }
}

impl From<Inputs> for Given {
    fn from(inputs: Inputs) -> Self {
        Self { inputs, ..Self::default() }
    }
}

/// Everything that is to be said of a document.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Errors and warnings, in the order of the document.
    pub problems: Problems,
    /// What it needs, node by node. Known only if there are no errors.
    pub needs: Vec<NodeNeed>,
    /// How many nodes it has, with those inside others.
    pub nodes: usize,
}

impl Report {
    /// Whether the document can run where its needs are met.
    pub fn is_valid(&self) -> bool {
        !self.problems.has_errors()
    }

    /// The errors.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.severity == Severity::Error)
    }

    /// The warnings.
    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.severity == Severity::Warning)
    }
}

pub(crate) struct CheckedFlow {
    pub(crate) flow: Option<Flow>,
    pub(crate) report: Report,
}

impl Flow {
    /// The nodes that read a variable of a node, by themselves or by what is inside them.
    pub fn readers(&self, node: &str, variable: &str) -> Vec<&str> {
        let reads = |selector: &Selector| selector.node == node && selector.path.first().is_some_and(|v| v == variable);
        let readers = self.graph.nodes.iter().filter(|graph_node| reads_any(&*graph_node.node, &reads));
        readers.map(|graph_node| graph_node.id.as_str()).collect()
    }

    /// Checks a document.
    ///
    /// # Errors
    ///
    /// Everything that keeps it from running; no warnings.
    pub fn build(document: &Document, kinds: &Kinds) -> Result<Self, Problems> {
        let checked = Self::check(document, kinds);
        checked.flow.ok_or_else(|| checked.report.problems.errors())
    }

    pub(crate) fn check(document: &Document, kinds: &Kinds) -> CheckedFlow {
        let mut checked = Graph::check(document, kinds, None);
        let mut problems = std::mem::take(&mut checked.problems);
        let handler = document.error_handler.as_ref().map(|handler| {
            let inner = Graph::check_handler(&handler.graph, document, kinds);
            problems.extend(inner.problems);
            inner.graph.map(|graph| Handler { recovers: handler.recovers, graph })
        });
        let verify = document.verify.as_deref().map(|verify| {
            let inner = Graph::check_handler(verify, document, kinds);
            problems.extend(inner.problems);
            inner.graph
        });
        let mut needs = Vec::new();
        let mut flow = None;
        if let Some(graph) = checked.graph {
            graph.needs(&mut needs);
            if let Some(Some(handler)) = &handler {
                handler.graph.needs(&mut needs);
            }
            if let Some(Some(verify)) = &verify {
                verify.needs(&mut needs);
            }
            if !problems.has_errors() {
                flow = Some(Self {
                    graph: Arc::new(graph),
                    handler: handler.flatten(),
                    verify: verify.flatten(),
                    environment: given(&document.environment),
                    conversation: given(&document.conversation),
                    needs: needs.clone(),
                });
            }
        }
        document.locate(&mut problems);
        CheckedFlow { flow, report: Report { problems, needs, nodes: count(document) } }
    }

    /// What it needs, node by node.
    pub fn needs(&self) -> &[NodeNeed] {
        &self.needs
    }

    /// The needs that `services` don't meet.
    pub fn unmet(&self, services: &Services) -> Vec<NodeNeed> {
        self.needs.iter().filter(|need| !services.meet(&need.need)).cloned().collect()
    }

    /// The needs of these nodes, and of the checks of the work, that `services` don't meet. What handles errors is needed
    /// only if something fails.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn unmet_of(&self, pending: &std::collections::BTreeSet<String>, services: &Services) -> Vec<NodeNeed> {
        let mut needs = Vec::new();
        let nodes = self.graph.nodes.iter().filter(|node| pending.contains(node.id.as_str()));
        nodes.for_each(|node| node.needs(&mut needs));
        self.verify.iter().for_each(|verify| verify.needs(&mut needs));
        needs.retain(|need| !services.meet(&need.need));
        needs
    }

    /// What a run is given, as it is wanted, if it may begin where these services are.
    pub(crate) fn accept(&self, given: Given, services: &Services) -> Result<Given, FlowError> {
        let unmet = self.unmet(services);
        if !unmet.is_empty() {
            return Err(FlowError::Needs(unmet));
        }
        self.accept_inputs(given)
    }

    /// What a run is given, as it is wanted.
    pub(crate) fn accept_inputs(&self, mut given: Given) -> Result<Given, FlowError> {
        let start = &self.graph.nodes[self.graph.start].node;
        given.inputs = start.accepts(given.inputs, given.lenient).map_err(FlowError::Inputs)?;
        Ok(given)
    }

    /// The variables that a run begins with.
    pub(crate) fn pool(&self, given: Given) -> VariablePool {
        let mut pool = VariablePool::new(given.inputs);
        let over = |base: &BTreeMap<String, Value>, given: BTreeMap<String, Value>| {
            let mut all = base.clone();
            all.extend(given);
            all
        };
        pool.set_scope(SYSTEM, given.system);
        pool.set_scope(ENVIRONMENT, over(&self.environment, given.environment));
        pool.set_scope(CONVERSATION, over(&self.conversation, given.conversation));
        pool
    }
}

fn count(document: &Document) -> usize {
    document.nodes.iter().map(|node| 1 + node.inside.as_deref().map_or(0, count)).sum()
}
/// Whether a node, or one inside it, reads something that is wanted.
fn reads_any(node: &dyn Node, wanted: &dyn Fn(&Selector) -> bool) -> bool {
    node.references().into_iter().any(wanted)
        || node.graphs().into_iter().any(|graph| graph.nodes.iter().any(|inner| reads_any(&*inner.node, wanted)))
}
