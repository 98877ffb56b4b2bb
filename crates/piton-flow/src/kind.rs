//! The kinds of nodes that an engine has, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use piton_types::{Path, Segment, Value, from_value};
use serde::de::DeserializeOwned;

use crate::document::{Document, NodeSpec};
use crate::graph::{Graph, Scope};
use crate::node::Node;
use crate::problem::Problem;
use crate::template::{Functions, Template};
use crate::value::{number, to_text};

/// A kind of nodes: makes a node from its data, or says everything that is wrong with them.
///
/// A function `fn(&Build<'_>) -> Built` is one.
pub trait Kind: Send + Sync {
    /// The node that the data describe.
    fn build(&self, build: &Build<'_>) -> Built;
}

/// A node, or what is wrong with its data.
pub type Built = Result<Box<dyn Node>, Faults>;

impl<F> Kind for F
where
    F: Fn(&Build<'_>) -> Built + Send + Sync,
{
    fn build(&self, build: &Build<'_>) -> Built {
        self(build)
    }
}

/// What a kind makes a node from.
#[derive(Debug, Clone, Copy)]
pub struct Build<'a> {
    /// The node as it is written.
    pub spec: &'a NodeSpec,
    /// The whole document, for what stands beside the nodes, such as `mcp_servers`.
    pub document: &'a Document,
    pub(crate) kinds: &'a Kinds,
    pub(crate) scope: &'a Scope<'a>,
}

/// How many containers may lie inside one another.
const MAX_DEPTH: usize = 16;

impl Build<'_> {
    /// The data as a type of the kind's own.
    ///
    /// A field that is null counts as one that isn't there: forms leave them so.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, Faults> {
        read(without_nulls(&self.spec.data), &Path::root())
    }

    /// A field of the data as a type, or nothing if it is missing or null.
    pub fn field<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Faults> {
        match self.spec.data.field(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value.clone(), &Path::root().key(key)).map(Some),
        }
    }

    /// Whether what is unfinished counts as wrong. An export may have been saved in the middle of the work.
    pub const fn is_strict(&self) -> bool {
        self.document.is_strict
    }

    /// A template at a place of the data, which may say `{{#node.variable#}}`; a variable that isn't there is an error.
    pub fn template(&self, source: &str, at: Path) -> Result<Template, Faults> {
        Template::with_references(source, self.functions()).map_err(|message| Faults::one(at, message))
    }

    /// The functions that templates may call.
    pub(crate) const fn functions(&self) -> &Functions {
        &self.kinds.functions
    }

    /// That a text which is the point of the node isn't empty.
    pub(crate) fn filled(&self, key: &str, text: &str) -> Result<(), Faults> {
        if self.is_strict() && text.trim().is_empty() {
            return Err(Faults::one(Path::root().key(key), "a text should be here"));
        }
        Ok(())
    }

    /// The exits of the node that edges leave by.
    pub fn exits_in_use(&self) -> impl Iterator<Item = &str> {
        let from_here = self.document.edges.iter().filter(|edge| edge.source == self.spec.id.as_str());
        from_here.filter_map(|edge| edge.source_handle.as_deref())
    }

    /// The graph inside the node. `missing` says what should be there if there is none.
    pub(crate) fn graph(&self, missing: &str) -> Result<Graph, Faults> {
        let Some(inner) = &self.spec.inside else {
            return Err(Faults::one(Path::root().key("sub_graph"), missing));
        };
        self.graph_of(inner)
    }

    /// A graph that stands in the document apart from the nodes.
    pub(crate) fn graph_of(&self, inner: &Document) -> Result<Graph, Faults> {
        if self.scope.depth >= MAX_DEPTH {
            return Err(Faults::one(Path::root(), format!("containers lie more than {MAX_DEPTH} deep")));
        }
        let checked = Graph::check(inner, self.kinds, Some(self.scope));
        match checked.graph {
            Some(graph) => Ok(graph),
            None => Err(Faults(checked.problems.into_iter().map(Fault::Inside).collect())),
        }
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Map(entries) => {
            let entries = entries.iter().filter(|(_, entry)| **entry != Value::Null);
            Value::Map(entries.map(|(key, entry)| (key.clone(), without_nulls(entry))).collect())
        }
        Value::List(items) => Value::List(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// Reads a value as a type. Forms leave texts where numbers, true or false are wanted (`'1000'`), and numbers where texts
/// are: each is taken as what fits.
pub(crate) fn read<T: DeserializeOwned>(mut value: Value, at: &Path) -> Result<T, Faults> {
    let read = loop {
        match from_value(value.clone()) {
            Err(error) if loosen::<T>(&mut value, error.path()) => {}
            read => break read,
        }
    };
    read.map_err(|error| {
        let inner = error.path().clone();
        let message = error.to_string();
        let message = message.strip_prefix(&format!("at {inner}: ")).unwrap_or(&message).to_owned();
        Faults::one(join(at, &inner), message)
    })
}

/// Puts what fits in the place of a value that doesn't; whether there is such a thing.
fn loosen<T: DeserializeOwned>(value: &mut Value, place: &Path) -> bool {
    let Some(found) = at_path(value, place).cloned() else { return false };
    let others: Vec<Value> = match &found {
        Value::String(text) if text.trim().is_empty() => vec![Value::Null],
        Value::String(text) => {
            let word = match text.trim() {
                "true" => Some(true.into()),
                "false" => Some(false.into()),
                _ => None,
            };
            number(text).into_iter().chain(word).collect()
        }
        Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Bool(_) => vec![to_text(&found).into()],
        _ => Vec::new(),
    };
    for other in others {
        let Some(slot) = at_path(value, place) else { return false };
        *slot = other;
        // What is wrong elsewhere is looked at next.
        if from_value::<T>(value.clone()).err().is_none_or(|error| error.path() != place) {
            return true;
        }
    }
    at_path(value, place).into_iter().for_each(|slot| *slot = found.clone());
    false
}

fn at_path<'v>(value: &'v mut Value, place: &Path) -> Option<&'v mut Value> {
    place.segments().iter().try_fold(value, |value, segment| match value {
        Value::Map(entries) => entries.get_mut(&*segment.as_key()),
        Value::List(items) => items.get_mut(segment.as_index()?),
        _ => None,
    })
}

/// The path `inner` behind `outer`.
pub(crate) fn join(outer: &Path, inner: &Path) -> Path {
    let mut path = outer.clone();
    inner.segments().iter().cloned().for_each(|segment: Segment| path.push(segment));
    path
}

/// What is wrong with the data of a node, each with its place in them.
#[derive(Debug, Default)]
pub struct Faults(pub(crate) Vec<Fault>);

/// One thing that is wrong with a node.
#[derive(Debug)]
pub(crate) enum Fault {
    /// In its data, at this place of them.
    Here { path: Path, message: String },
    /// In a graph inside it.
    Inside(Problem),
}

impl Faults {
    /// One thing.
    pub fn one(path: Path, message: impl Into<String>) -> Self {
        let mut faults = Self::default();
        faults.add(path, message);
        faults
    }

    /// Adds a thing.
    pub fn add(&mut self, path: Path, message: impl Into<String>) {
        self.0.push(Fault::Here { path, message: message.into() });
    }

    /// The first thing, in words.
    pub(crate) fn first(self) -> String {
        self.0.into_iter().next().map_or_else(String::new, |fault| match fault {
            Fault::Here { message, .. } => message,
            Fault::Inside(problem) => problem.to_string(),
        })
    }

    /// Adds what is wrong with another part.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// `value` if nothing is wrong.
    pub fn none_or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    /// Keeps what went well and collects what didn't.
    pub fn keep<T>(&mut self, result: Result<T, Self>) -> Option<T> {
        result.map_err(|others| self.extend(others)).ok()
    }
}

/// The kinds of nodes that an engine has, and the functions that their templates may call beside Jinja's own.
///
/// ```
/// use piton_flow::{Build, Built, Faults, Kinds};
/// use piton_types::Path;
/// // The docs of `piton_flow::nodes` show one that builds a node.
/// fn echo(_: &Build<'_>) -> Built {
///     Err(Faults::one(Path::root(), "it isn't licensed here"))
/// }
/// let kinds = Kinds::builtin().with("my-company.echo", echo);
/// assert!(kinds.names().any(|name| name == "my-company.echo"));
/// ```
#[derive(Clone, Default)]
pub struct Kinds {
    kinds: Arc<BTreeMap<String, Arc<dyn Kind>>>,
    pub(crate) functions: Functions,
}

impl Kinds {
    /// The kinds of the engine itself.
    pub fn builtin() -> Self {
        // One table for all runs: those that wait hold on to it.
        static BUILTIN: LazyLock<Kinds> = LazyLock::new(crate::nodes::kinds);
        BUILTIN.clone()
    }

    /// These and one more, in the place of one of the same name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, kind: impl Kind + 'static) -> Self {
        Arc::make_mut(&mut self.kinds).insert(name.into(), Arc::new(kind));
        self
    }

    /// These, whose templates may also call a function, as `{{ name(value) }}` or `{{ value|name }}`. It must give the
    /// same for the same values: a template may be rendered again after a crash.
    #[must_use]
    pub fn with_function(
        mut self,
        name: impl Into<String>,
        function: impl Fn(&[Value]) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.functions.add(name.into(), Arc::new(function));
        self
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.kinds.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&dyn Kind> {
        self.kinds.get(name).map(|kind| &**kind)
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.kinds.keys()).finish()
    }
}
