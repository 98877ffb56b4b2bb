//! A workflow as it is written. Reading takes care of shapes; whether the whole makes sense is for
//! [`Document::check`].

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_types::{Path, Value};

use crate::flow::{Flow, Report};
use crate::format::Format;
use crate::id::NodeId;
use crate::kind::Kinds;
use crate::lines;
use crate::problem::{Place, Problems};
use crate::read;
use crate::value::to_text;

/// A workflow document: the flat form (`nodes` and `edges` at the top) or an export of Dify
/// (`workflow.graph`). Both are read into this.
///
/// ```
/// use piton_flow::{Document, Format};
/// let text = "
/// nodes:
///   - {id: in, data: {type: start, variables: [{variable: name, type: string, required: true}]}}
///   - {id: out, data: {type: end, outputs: [{variable: name, value_selector: [in, name]}]}}
/// edges:
///   - {source: in, target: out}
/// ";
/// Document::parse(text, Format::Yaml)?.validate()?;
/// let problems = Document::parse(&text.replace("target: out", "target: gone"), Format::Yaml)?.validate().unwrap_err();
/// assert_eq!(problems.iter().next().unwrap().to_string(), r#"/edges/0/target (line 6): there is no node "gone""#);
/// # Ok::<(), piton_flow::Problems>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its nodes, in the order of the text.
    pub nodes: Vec<NodeSpec>,
    /// Its edges, in the order of the text.
    pub edges: Vec<Edge>,
    /// Values that are the same for every run.
    pub environment: Vec<VariableSpec>,
    /// Values that live as long as the conversation.
    pub conversation: Vec<VariableSpec>,
    /// What runs when a node has failed and nothing else takes care of it.
    pub error_handler: Option<ErrorHandler>,
    /// Programs that check the work of a run that ended well: a graph of `command` nodes, one behind the other.
    pub verify: Option<Box<Self>>,
    /// The MCP servers that it names, as they are written.
    pub mcp_servers: Value,
    /// What the app is called, if the document says so.
    pub name: Option<String>,
    /// The id of the first node, where the document says so.
    pub start: Option<String>,
    /// Whether it is a chat: each run answers what the user says, `sys.query`.
    pub is_chat: bool,
    /// What a chat says before the first question. `{{name}}` stands for an input of that name.
    pub opening_statement: Option<String>,
    /// What the user could ask first.
    pub suggested_questions: Vec<String>,
    /// Whether it was written by hand, so that what is unfinished is a mistake.
    pub(crate) is_strict: bool,
    /// Where it stands in the text.
    pub(crate) place: Path,
    pub(crate) source: Option<Source>,
}

/// A node as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSpec {
    /// Its name.
    pub id: NodeId,
    /// What it does.
    pub kind: String,
    /// What to show for it; the id if nothing else is given.
    pub title: String,
    /// Everything that its kind calls for.
    pub data: Value,
    /// The graph inside it, for containers.
    pub inside: Option<Box<Document>>,
    /// Where it stands in the text.
    pub(crate) place: Path,
}

/// An edge as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Edge {
    /// The id of the node that it leaves.
    pub source: String,
    /// The id of the node that it leads to.
    pub target: String,
    /// The exit of the source that it leaves by, for nodes that have several.
    pub source_handle: Option<String>,
    /// Where it stands in the text.
    pub(crate) place: Path,
}

/// An environment or conversation variable.
#[derive(Debug, Clone, PartialEq)]
pub struct VariableSpec {
    /// Its name.
    pub name: String,
    /// What it is, as in `string` or `secret`.
    pub kind: String,
    /// Its value to begin with.
    pub value: Value,
}

/// What runs when a node has failed.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorHandler {
    /// Whether the run counts as recovered afterwards.
    pub recovers: bool,
    /// What runs.
    pub graph: Box<Document>,
}

/// The text that a document was read from, to find lines in.
#[derive(Clone, PartialEq)]
pub(crate) struct Source {
    pub(crate) text: Arc<str>,
    pub(crate) format: Format,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {} bytes", self.format, self.text.len())
    }
}

impl Document {
    /// Reads a document. All problems of the shape are reported at once; a text that isn't of its
    /// format has just the first.
    pub fn parse(text: &str, format: Format) -> Result<Self, Problems> {
        let value = format.read(text)?;
        let source = Source { text: text.into(), format };
        read::document(value, source)
    }

    /// The ids of all nodes, with those inside others and of the error handler.
    pub fn node_ids(&self) -> Vec<&NodeId> {
        let mut found = Vec::new();
        for node in &self.nodes {
            found.push(&node.id);
            found.extend(node.inside.iter().flat_map(|inside| inside.node_ids()));
        }
        found.extend(self.error_handler.iter().flat_map(|handler| handler.graph.node_ids()));
        found
    }

    /// The node whose id is most like a wrong one, if any is.
    pub fn nearest_node(&self, wrong: &str) -> Option<&NodeId> {
        let ids = self.node_ids();
        let nearest = crate::graph::nearest(wrong, ids.iter().map(|id| id.as_str()))?;
        ids.into_iter().find(|id| id.as_str() == nearest)
    }

    /// The opening statement of a chat, with the inputs in their places.
    pub fn opening(&self, inputs: &BTreeMap<String, Value>) -> Option<String> {
        let mut statement = self.opening_statement.clone()?;
        for (name, value) in inputs {
            statement = statement.replace(&format!("{{{{{name}}}}}"), &to_text(value));
        }
        Some(statement)
    }

    /// Checks that the document can run with the engine's own kinds, and reports everything that is
    /// wrong with it. Warnings and needs are no reason to refuse it: see [`Document::check`].
    pub fn validate(&self) -> Result<(), Problems> {
        Flow::build(self, &Kinds::builtin()).map(drop)
    }

    /// Everything that is to be said of the document: errors, warnings, and what it needs.
    pub fn check(&self, kinds: &Kinds) -> Report {
        Flow::check(self, kinds).report
    }

    /// Adds lines to problems that have just a path.
    pub(crate) fn locate(&self, problems: &mut Problems) {
        self.source.iter().for_each(|source| source.locate(problems));
    }
}

impl Source {
    /// Adds lines to problems that have just a path.
    pub(crate) fn locate(&self, problems: &mut Problems) {
        lines::locate(
            self,
            problems.iter_mut().filter(|problem| problem.line.is_none()).filter_map(|problem| match &problem.place {
                Place::Path(path) => Some((path, &mut problem.line)),
                _ => None,
            }),
        );
        problems.sort();
    }
}
