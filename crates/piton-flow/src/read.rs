//! From what a text says to a [`Document`]: the flat form, and the export of Dify.
//!
//! The two differ in where things stand: a node of the export is wrapped for a canvas, and what is
//! inside an iteration or loop lies beside it with a `parentId`. Both come out the same.

use std::collections::{BTreeMap, BTreeSet};

use piton_types::{Path, Value};

use crate::document::{Document, Edge, ErrorHandler, NodeSpec, Source, VariableSpec};
use crate::id::NodeId;
use crate::problem::{Place, Problems};
use crate::settings::typed;

/// The document that `value` is.
pub(crate) fn document(value: Value, source: Source) -> Result<Document, Problems> {
    let mut problems = Problems::default();
    if value.as_map().is_none() {
        problems.add(Place::Whole, format!("it should be a map with nodes and edges, not {}", value.kind()));
        return Err(problems);
    }
    let mut read = match value.field("workflow") {
        Some(workflow @ Value::Map(_)) => export(&value, workflow, &mut problems),
        _ if value.field("app").is_some() && value.field("nodes").is_none() => {
            problems.add(Place::Path(Path::root().key("workflow")), "there is no workflow in this app");
            problems.hint("only apps of the kinds workflow and advanced-chat have one");
            return Err(problems);
        }
        _ => flat(&value, &mut problems),
    };
    read.source = Some(source);
    if problems.has_errors() {
        read.locate(&mut problems);
        return Err(problems);
    }
    Ok(read)
}

fn flat(value: &Value, problems: &mut Problems) -> Document {
    check_version(value, problems);
    let mut document = graph(value, &Path::root(), problems);
    variables_of(value, &Path::root(), &mut document, problems);
    document.mcp_servers = value.field("mcp_servers").cloned().unwrap_or_default();
    document.name = text(value, "name");
    document
}

fn export(value: &Value, workflow: &Value, problems: &mut Problems) -> Document {
    check_version(value, problems);
    if let Some(kind) = value.field("kind").filter(|kind| !matches!(kind.as_str(), Some("app" | "rag_pipeline"))) {
        let message = format!("an export of an app is wanted, not {}", shown(kind));
        problems.add(Place::Path(Path::root().key("kind")), message);
    }
    let at = Path::root().key("workflow");
    let Some(inner @ Value::Map(_)) = workflow.field("graph") else {
        problems.add(Place::Path(at.clone().key("graph")), "it is missing");
        return Document::empty(at);
    };
    let mut document = graph(inner, &at.clone().key("graph"), problems);
    loosen(&mut document);
    variables_of(workflow, &at, &mut document, problems);
    let app = value.field("app");
    document.name = app.and_then(|app| text(app, "name"));
    document.is_chat = app.and_then(|app| text(app, "mode")).as_deref() == Some("advanced-chat");
    if let Some(features) = workflow.field("features") {
        let said = |text: &String| !text.trim().is_empty();
        document.opening_statement = text(features, "opening_statement").filter(said);
        let questions = features.field("suggested_questions").and_then(Value::as_list).unwrap_or_default();
        let questions = questions.iter().filter_map(Value::as_str).map(str::to_owned);
        document.suggested_questions = questions.filter(said).collect();
    }
    document
}

/// An export may have been saved in the middle of the work.
fn loosen(document: &mut Document) {
    document.is_strict = false;
    document.nodes.iter_mut().filter_map(|node| node.inside.as_deref_mut()).for_each(loosen);
}

fn check_version(document: &Value, problems: &mut Problems) {
    let known = match document.field("version") {
        None | Some(Value::Null | Value::Float(0.0..1.0) | Value::Int(0)) => true,
        Some(Value::String(version)) => version == "0" || version.starts_with("0."),
        Some(_) => false,
    };
    if !known {
        let found = document.field("version").map(shown).unwrap_or_default();
        let message = format!("unsupported version {found}: this engine reads 0.x");
        problems.add(Place::Path(Path::root().key("version")), message);
    }
}

/// Nodes and edges, with what lies inside others moved there.
fn graph(value: &Value, at: &Path, problems: &mut Problems) -> Document {
    let mut document = Document::empty(at.clone());
    let mut children: BTreeMap<String, Vec<NodeSpec>> = BTreeMap::new();
    let mut parents: BTreeMap<String, String> = BTreeMap::new();
    let mut notes = BTreeSet::new();
    for (place, node) in items(value, "nodes", at, problems).iter().enumerate() {
        if is_note(node) {
            notes.extend(text(node, "id"));
            continue;
        }
        let Some(spec) = read_node(node, at.clone().key("nodes").index(place), problems) else { continue };
        match parent(node, &spec) {
            Some(parent) => {
                parents.insert(spec.id.as_str().to_owned(), parent.clone());
                children.entry(parent).or_default().push(spec);
            }
            None => document.nodes.push(spec),
        }
    }
    let mut inner_edges: BTreeMap<String, Vec<Edge>> = BTreeMap::new();
    for (place, edge) in items(value, "edges", at, problems).iter().enumerate() {
        let Some(edge) = read_edge(edge, at.clone().key("edges").index(place), problems) else { continue };
        if notes.contains(&edge.source) || notes.contains(&edge.target) {
            continue;
        }
        match (parents.get(&edge.source), parents.get(&edge.target)) {
            (Some(a), Some(b)) if a == b => inner_edges.entry(a.clone()).or_default().push(edge),
            _ => document.edges.push(edge),
        }
    }
    if !children.is_empty() {
        let mut nodes = std::mem::take(&mut document.nodes);
        for node in &mut nodes {
            adopt(node, at, &mut children, &mut inner_edges, 0);
        }
        document.nodes = nodes;
        for orphan in children.into_values().flatten() {
            let path = orphan.place.clone().key("parentId");
            problems.warn(Some(orphan.id.as_str()), path, "it lies inside a node that isn't there, and is left out");
        }
    }
    document.start = None;
    document
}

/// Puts the nodes that name `node` as their parent inside it, and theirs inside them.
fn adopt(
    node: &mut NodeSpec,
    at: &Path,
    children: &mut BTreeMap<String, Vec<NodeSpec>>,
    edges: &mut BTreeMap<String, Vec<Edge>>,
    depth: usize,
) {
    // A node that is its own grandparent is never reached from a node that has no parent.
    if depth > 100 || node.inside.is_some() {
        return;
    }
    let Some(mut nodes) = children.remove(node.id.as_str()) else { return };
    for child in &mut nodes {
        adopt(child, at, children, edges, depth + 1);
    }
    let mut inside = Document::empty(at.clone());
    inside.nodes = nodes;
    inside.edges = edges.remove(node.id.as_str()).unwrap_or_default();
    inside.start = text(&node.data, "start_node_id");
    node.inside = Some(Box::new(inside));
}

/// The node that a node of an export lies in.
fn parent(node: &Value, spec: &NodeSpec) -> Option<String> {
    let named =
        text(node, "parentId").or_else(|| text(&spec.data, "iteration_id")).or_else(|| text(&spec.data, "loop_id"));
    named.filter(|parent| !parent.is_empty() && parent != spec.id.as_str())
}

/// Notes on the canvas are for people.
fn is_note(node: &Value) -> bool {
    let kind = node.field("type").and_then(Value::as_str);
    let inner = node.field("data").and_then(|data| data.field("type")).and_then(Value::as_str);
    kind == Some("custom-note") || (inner == Some("") && kind.is_some_and(|kind| kind.starts_with("custom")))
}

fn variables_of(value: &Value, at: &Path, document: &mut Document, problems: &mut Problems) {
    document.environment = variables(value, "environment_variables", at, problems);
    document.conversation = variables(value, "conversation_variables", at, problems);
    document.verify = checks(value, at, problems);
    if let Some(handler) = value.field("error_handler").filter(|handler| **handler != Value::Null) {
        let at = at.clone().key("error_handler");
        let recovers = match handler.field("mode").and_then(Value::as_str) {
            Some("recover") => true,
            None | Some("notify") => false,
            Some(other) => {
                let message = format!("{:?} is neither recover nor notify", cut(other));
                problems.add(Place::Path(at.clone().key("mode")), message);
                false
            }
        };
        match handler.field("sub_graph") {
            Some(inner @ Value::Map(_)) => {
                let graph = Box::new(graph(inner, &at.key("sub_graph"), problems));
                document.error_handler = Some(ErrorHandler { recovers, graph });
            }
            _ => problems.add(Place::Path(at.key("sub_graph")), "a map with nodes and edges should be here"),
        }
    }
}

/// Programs that check the work: a list of shell commands, or of programs with their arguments. They become a graph of
/// their own, so whatever holds for nodes that run programs holds for them.
fn checks(value: &Value, at: &Path, problems: &mut Problems) -> Option<Box<Document>> {
    let at = at.clone().key("verify");
    let found = match value.field("verify") {
        None | Some(Value::Null) => return None,
        Some(Value::List(found)) => found,
        Some(other) => {
            problems.add(Place::Path(at), format!("a list of commands should be here, not {}", other.kind()));
            return None;
        }
    };
    let mut document = Document::empty(at.clone());
    let mut before = "begin".to_owned();
    document.nodes.extend(check_node(&before, "start", "", Value::map::<&str>([]), &at));
    for (place, check) in found.iter().enumerate() {
        let path = at.clone().index(place);
        let (title, command) = match check {
            Value::String(line) if !line.trim().is_empty() => {
                (line.clone(), vec!["sh".into(), "-c".into(), line.as_str().into()])
            }
            Value::List(words) if !words.is_empty() && words.iter().all(|word| word.as_str().is_some()) => {
                let title: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                (title.join(" "), words.clone())
            }
            _ => {
                problems.add(Place::Path(path), "a command should be here, or a list of its words");
                continue;
            }
        };
        // A program that can't be started is a check that failed.
        let code = Value::map([("exit_code", Value::from(CANT_START))]);
        let data = Value::map([
            ("command", Value::List(command)),
            ("allow_failure", true.into()),
            ("error_strategy", "default-value".into()),
            ("default_value", code),
        ]);
        let id = format!("check-{}", place + 1);
        document.nodes.extend(check_node(&id, "command", &title, data, &path));
        let place = path;
        document.edges.push(Edge { source: before, target: id.clone(), source_handle: None, place });
        before = id;
    }
    if document.nodes.len() == 1 {
        return None;
    }
    let outputs = Value::map([("outputs", Value::List(Vec::new()))]);
    document.nodes.extend(check_node("done", "end", "", outputs, &at));
    document.edges.push(Edge { source: before, target: "done".to_owned(), source_handle: None, place: at });
    Some(Box::new(document))
}

/// What a shell gives for a program that it can't run.
const CANT_START: i64 = 127;

fn check_node(id: &str, kind: &str, title: &str, data: Value, place: &Path) -> Option<NodeSpec> {
    let (id, kind, title) = (id.parse().ok()?, kind.to_owned(), title.to_owned());
    Some(NodeSpec { id, kind, title, data, inside: None, place: place.clone() })
}

fn variables(value: &Value, key: &str, at: &Path, problems: &mut Problems) -> Vec<VariableSpec> {
    let at = at.clone().key(key);
    let mut found: Vec<VariableSpec> = Vec::new();
    let mut add = |variable: VariableSpec, path: Path, problems: &mut Problems| {
        if found.iter().any(|other| other.name == variable.name) {
            let message = format!("there is a variable {:?} already", cut(&variable.name));
            problems.add(Place::Path(path), message);
        } else {
            found.push(variable);
        }
    };
    match value.field(key) {
        None | Some(Value::Null) => {}
        Some(Value::List(items)) => {
            for (place, item) in items.iter().enumerate() {
                let path = at.clone().index(place);
                let Some(name) = text(item, "name") else {
                    problems.add(Place::Path(path.key("name")), "a name should be here");
                    continue;
                };
                let kind =
                    text(item, "value_type").or_else(|| text(item, "type")).unwrap_or_else(|| "string".to_owned());
                let value = item.field("value").or_else(|| item.field("default")).cloned().unwrap_or_default();
                let value = match kind.as_str() {
                    "number" | "integer" | "float" | "boolean" => typed(&kind, value),
                    _ => value,
                };
                add(VariableSpec { name, kind, value }, path.key("name"), problems);
            }
        }
        // Names and values.
        Some(Value::Map(entries)) => {
            for (name, value) in entries {
                let variable = VariableSpec { name: name.clone(), kind: "string".to_owned(), value: value.clone() };
                add(variable, at.clone().key(name), problems);
            }
        }
        Some(other) => problems.add(Place::Path(at), format!("a list should be here, not {}", other.kind())),
    }
    found
}

fn items<'a>(document: &'a Value, key: &str, at: &Path, problems: &mut Problems) -> &'a [Value] {
    match document.field(key) {
        Some(Value::List(items)) => items,
        Some(Value::Null) if key == "edges" => &[],
        other => {
            let found = other
                .map_or("it is missing".to_owned(), |found| format!("a list should be here, not {}", found.kind()));
            problems.add(Place::Path(at.clone().key(key)), found);
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

fn read_node(node: &Value, path: Path, problems: &mut Problems) -> Option<NodeSpec> {
    let Some(id) = text(node, "id") else {
        problems.add(Place::Path(path.key("id")), "an id should be here");
        return None;
    };
    let id: NodeId = match id.parse() {
        Ok(id) => id,
        Err(error) => {
            problems.add_for(cut(&id), path.key("id"), error.to_string());
            return None;
        }
    };
    let data = match node.field("data") {
        Some(data @ Value::Map(_)) => data.clone(),
        // Nodes of a sub-graph may have their kind beside their data.
        None if node.field("type").is_some() => Value::map::<&str>([]),
        _ => {
            problems.add_for(id.as_str(), path.key("data"), "a map should be here");
            return None;
        }
    };
    let Some(kind) = text(&data, "type").or_else(|| text(node, "type").filter(|kind| !kind.starts_with("custom")))
    else {
        problems.add_for(id.as_str(), path.key("data").key("type"), "the kind of the node should be here");
        return None;
    };
    let title = text(&data, "title").filter(|title| !title.is_empty());
    let title =
        title.or_else(|| text(node, "title")).filter(|title| !title.is_empty()).unwrap_or_else(|| id.to_string());
    let inside = match data.field("sub_graph") {
        Some(inner @ Value::Map(_)) => {
            let at = path.clone().key("data").key("sub_graph");
            Some(Box::new(graph(inner, &at, problems)))
        }
        _ => None,
    };
    Some(NodeSpec { id, kind, title, data, inside, place: path })
}

fn read_edge(edge: &Value, path: Path, problems: &mut Problems) -> Option<Edge> {
    let (source, target) = (text(edge, "source"), text(edge, "target"));
    for (key, found) in [("source", &source), ("target", &target)] {
        if found.is_none() {
            problems.add(Place::Path(path.clone().key(key)), "the id of a node should be here");
        }
    }
    let source_handle = text(edge, "sourceHandle").or_else(|| text(edge, "source_handle"));
    Some(Edge { source: source?, target: target?, source_handle, place: path })
}

/// The beginning of a text that the author of a document wrote. The whole may be too long to repeat.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{:?}", cut(text)),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        other => other.kind().to_string(),
    }
}

impl Document {
    pub(crate) fn empty(place: Path) -> Self {
        Self {
            nodes: Vec::new(),
            edges: Vec::new(),
            environment: Vec::new(),
            conversation: Vec::new(),
            error_handler: None,
            verify: None,
            mcp_servers: Value::Null,
            name: None,
            start: None,
            is_chat: false,
            opening_statement: None,
            suggested_questions: Vec::new(),
            is_strict: true,
            place,
            source: None,
        }
    }
}
