//! A workflow as it is written. Reading takes care of shapes; whether the whole makes sense is for
//! [`Document::validate`].

use piton_types::{Path, Value};

use crate::format::Format;
use crate::graph::Graph;
use crate::id::NodeId;
use crate::problem::{Place, Problems};

/// A workflow document in the flat form: `version`, `nodes` and `edges`.
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
/// assert_eq!(problems.iter().next().unwrap().to_string(), r#"/edges/0/target: there is no node "gone""#);
/// # Ok::<(), piton_flow::Problems>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its nodes, in the order of the text.
    pub nodes: Vec<NodeSpec>,
    /// Its edges, in the order of the text.
    pub edges: Vec<Edge>,
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
}

/// An edge as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The id of the node that it leaves.
    pub source: String,
    /// The id of the node that it leads to.
    pub target: String,
    /// The exit of the source that it leaves by, for nodes that have several.
    pub source_handle: Option<String>,
}

/// Parts of the format that this version doesn't run. Ignoring them would run another workflow than the
/// one that was written.
const NOT_YET: [&str; 4] = ["environment_variables", "conversation_variables", "error_handler", "mcp_servers"];

impl Document {
    /// Reads a document. All problems of the shape are reported at once; a text that isn't of its
    /// format has just the first.
    pub fn parse(text: &str, format: Format) -> Result<Self, Problems> {
        let value = format.read(text)?;
        let mut problems = Problems::default();
        if value.as_map().is_none() {
            problems.add(Place::Whole, format!("it should be a map with nodes and edges, not {}", value.kind()));
            return Err(problems);
        }
        check_version(&value, &mut problems);
        for key in NOT_YET {
            let used = value.field(key).is_some_and(|found| !is_empty(found));
            if used {
                problems.add(Place::Path(Path::root().key(key)), "this version of the engine doesn't have it");
            }
        }
        let nodes = items(&value, "nodes", &mut problems);
        let nodes = nodes.iter().enumerate().filter_map(|(n, node)| read_node(n, node, &mut problems)).collect();
        let edges = items(&value, "edges", &mut problems);
        let edges = edges.iter().enumerate().filter_map(|(n, edge)| read_edge(n, edge, &mut problems)).collect();
        problems.none_or(Self { nodes, edges })
    }

    /// Checks that the document can run, and reports everything that is wrong with it.
    pub fn validate(&self) -> Result<(), Problems> {
        Graph::build(self).map(drop)
    }
}

fn check_version(document: &Value, problems: &mut Problems) {
    let known = match document.field("version") {
        None | Some(Value::Float(0.0..1.0) | Value::Int(0)) => true,
        Some(Value::String(version)) => version == "0" || version.starts_with("0."),
        Some(_) => false,
    };
    if !known {
        problems.add(Place::Path(Path::root().key("version")), "it is not one that this version reads (0.x)");
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::List(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
        _ => false,
    }
}

fn items<'a>(document: &'a Value, key: &str, problems: &mut Problems) -> &'a [Value] {
    match document.field(key) {
        Some(Value::List(items)) => items,
        other => {
            let found = other
                .map_or("it is missing".to_owned(), |found| format!("a list should be here, not {}", found.kind()));
            problems.add(Place::Path(Path::root().key(key)), found);
            &[]
        }
    }
}

/// The text of a field; ids that YAML reads as numbers are meant as texts.
fn text(map: &Value, key: &str) -> Option<String> {
    match map.field(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

fn read_node(place: usize, node: &Value, problems: &mut Problems) -> Option<NodeSpec> {
    let path = Path::root().key("nodes").index(place);
    let Some(id) = text(node, "id") else {
        problems.add(Place::Path(path.key("id")), "an id should be here");
        return None;
    };
    let id: NodeId = match id.parse() {
        Ok(id) => id,
        Err(error) => {
            let shown: String = id.chars().take(40).collect();
            problems.add_for(shown, path.key("id"), error.to_string());
            return None;
        }
    };
    let Some(data @ Value::Map(_)) = node.field("data") else {
        problems.add_for(id.as_str(), path.key("data"), "a map should be here");
        return None;
    };
    let Some(kind) = text(data, "type") else {
        problems.add_for(id.as_str(), path.key("data").key("type"), "the kind of the node should be here");
        return None;
    };
    let title = text(data, "title").filter(|title| !title.is_empty()).unwrap_or_else(|| id.to_string());
    Some(NodeSpec { id, kind, title, data: data.clone() })
}

fn read_edge(place: usize, edge: &Value, problems: &mut Problems) -> Option<Edge> {
    let path = Path::root().key("edges").index(place);
    let (source, target) = (text(edge, "source"), text(edge, "target"));
    for (key, found) in [("source", &source), ("target", &target)] {
        if found.is_none() {
            problems.add(Place::Path(path.clone().key(key)), "the id of a node should be here");
        }
    }
    Some(Edge { source: source?, target: target?, source_handle: text(edge, "sourceHandle") })
}
