//! `start`: what the workflow is given, checked against what it asks for.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use piton_types::{Path, Value, from_json};
use serde::Deserialize;

use crate::engine::Inputs;
use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::problem::{Place, Problems};
use crate::value::{as_f64, is_empty, number, to_text};

#[derive(Debug, Deserialize)]
struct Data {
    /// The inputs of the workflow.
    #[serde(default)]
    variables: Vec<Variable>,
}

/// An input that the workflow asks for.
#[derive(Debug, Deserialize)]
struct Variable {
    /// Its name.
    variable: String,
    /// `string` (also `text-input`, `paragraph`), `number`, `boolean`, `select`, `object`, `array`, `file` and the
    /// like.
    #[serde(rename = "type", default = "text")]
    kind: String,
    /// Without it the run doesn't begin.
    #[serde(default)]
    required: bool,
    /// What it is if nothing is given.
    #[serde(default)]
    default: Value,
    /// What it may be.
    #[serde(default)]
    options: Option<Vec<Value>>,
    /// The most characters.
    #[serde(default)]
    max_length: Value,
}

fn text() -> String {
    "string".to_owned()
}

/// What an input must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any scalar; numbers stay numbers, so that a template can compare them.
    Text,
    Number,
    Bool,
    Select,
    MultiSelect,
    Object,
    List(Items),
    File,
    Files,
    Any,
}

/// What the items of a list must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Items {
    Text,
    Number,
    Bool,
    Object,
    Any,
}

impl From<Items> for Kind {
    fn from(items: Items) -> Self {
        match items {
            Items::Text => Self::Text,
            Items::Number => Self::Number,
            Items::Bool => Self::Bool,
            Items::Object => Self::Object,
            Items::Any => Self::Any,
        }
    }
}

impl Kind {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "string" | "text" | "text-input" | "textarea" | "paragraph" | "secret" | "url" | "email" | "date"
            | "datetime" | "external_data_tool" => Self::Text,
            "number" | "integer" | "float" => Self::Number,
            "boolean" | "bool" | "checkbox" => Self::Bool,
            "select" | "radio" | "dropdown" => Self::Select,
            "multi_select" | "multi-select" => Self::MultiSelect,
            "object" | "json" | "json_object" => Self::Object,
            "file" => Self::File,
            "file-list" | "files" | "array[file]" => Self::Files,
            "any" => Self::Any,
            "array[string]" | "array[text]" => Self::List(Items::Text),
            "array[number]" | "array[integer]" | "array[float]" => Self::List(Items::Number),
            "array[boolean]" | "array[bool]" => Self::List(Items::Bool),
            "array[object]" => Self::List(Items::Object),
            list if list == "array" || list.starts_with("array[") => Self::List(Items::Any),
            _ => return None,
        })
    }
}

/// Why a value isn't what is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// Which of its items is meant, if it is one of them.
    pub(crate) item: Option<usize>,
    /// Why.
    pub(crate) message: String,
}

impl Unfit {
    fn item(item: usize, Self { message, .. }: Self) -> Self {
        Self { item: Some(item), message }
    }

    /// Adds it to what is wrong with a document, with the place of the item if it is one.
    pub(crate) fn tell(self, at: Path, faults: &mut Faults) {
        let at = match self.item {
            Some(item) => at.index(item),
            None => at,
        };
        faults.add(at, self.message);
    }
}

impl From<String> for Unfit {
    fn from(message: String) -> Self {
        Self { item: None, message }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.item {
            Some(item) => write!(f, "item {}: {}", item + 1, self.message),
            None => f.write_str(&self.message),
        }
    }
}

#[derive(Debug)]
struct Start {
    variables: Vec<(Variable, Kind)>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let mut faults = Faults::default();
    let mut variables: Vec<(Variable, Kind)> = Vec::with_capacity(data.variables.len());
    for (place, variable) in data.variables.into_iter().enumerate() {
        let path = Path::root().key("variables").index(place);
        if variables.iter().any(|(other, _)| other.variable == variable.variable) {
            faults.add(path.clone().key("variable"), format!("there is a variable {:?} already", variable.variable));
        }
        match Kind::parse(&variable.kind) {
            Some(kind) => {
                let options = variable.options.as_deref().unwrap_or_default();
                if build.is_strict() && is_given(&variable.default) {
                    let fits = accept_one(kind, &variable.default, options, longest(&variable));
                    let _ = fits.map_err(|unfit| unfit.tell(path.key("default"), &mut faults));
                }
                variables.push((variable, kind));
            }
            None => faults.add(path.key("type"), format!("there is no type {:?}", variable.kind)),
        }
    }
    faults.none_or(Box::new(Start { variables }))
}

impl Start {
    /// The variables with these inputs, and everything that is wrong with them.
    fn accept(&self, mut inputs: Inputs, lenient: bool) -> Result<Inputs, Problems> {
        let mut problems = Problems::default();
        let mut accepted = BTreeMap::new();
        for (variable, kind) in &self.variables {
            let name = &variable.variable;
            let given = inputs.remove(name).filter(|given| *given != Value::Null);
            let mut given = given.unwrap_or_else(|| variable.default.clone());
            // Forms leave an empty text where nothing was given.
            let is_blank = given.as_str().is_some_and(|text| text.trim().is_empty());
            match kind {
                Kind::Text | Kind::Any => {}
                Kind::Select if is_blank && !variable.required => {
                    accepted.insert(name.clone(), given);
                    continue;
                }
                _ if is_blank => given = Value::Null,
                _ => {}
            }
            let is_missing =
                given == Value::Null || (variable.required && is_empty(&given) && !matches!(kind, Kind::List(_)));
            if is_missing {
                if variable.required && !lenient {
                    problems.add(Place::Input(name.clone()), "it is required");
                }
                accepted.insert(name.clone(), given);
                continue;
            }
            let options = variable.options.as_deref().unwrap_or_default();
            match accept_one(*kind, &given, options, longest(variable)) {
                Ok(value) => drop(accepted.insert(name.clone(), value)),
                Err(_) if lenient => drop(accepted.insert(name.clone(), given)),
                Err(unfit) => problems.add(Place::Input(name.clone()), unfit.to_string()),
            }
        }
        if lenient {
            for (name, value) in inputs {
                accepted.entry(name).or_insert(value);
            }
        } else {
            for name in inputs.keys() {
                problems.add(Place::Input(name.chars().take(40).collect()), "the workflow doesn't ask for it");
                let known = self.variables.iter().map(|(variable, _)| variable.variable.as_str());
                if let Some(near) = crate::graph::nearest(name, known) {
                    problems.hint(format!("did you mean {near:?}?"));
                }
            }
        }
        problems.none_or(accepted)
    }
}

/// How long a text may be, or how many files there may be.
fn longest(variable: &Variable) -> Option<usize> {
    as_f64(&variable.max_length).map(|most| most as usize).filter(|most| *most > 0)
}

/// Whether a default says something: forms leave an empty text where nothing was given.
pub(crate) fn is_given(default: &Value) -> bool {
    *default != Value::Null && default.as_str().is_none_or(|text| !text.trim().is_empty())
}

/// A value as the kind wants it, or why it can't be.
pub(crate) fn accept_one(kind: Kind, given: &Value, options: &[Value], most: Option<usize>) -> Result<Value, Unfit> {
    let wanted = |what: &str| Err(format!("{what} is wanted, not {}", given.kind()).into());
    let each = |kind: Kind, items: &[Value]| {
        let items = items.iter().enumerate();
        let accepted =
            items.map(|(place, item)| accept_one(kind, item, &[], None).map_err(|unfit| Unfit::item(place, unfit)));
        accepted.collect::<Result<Vec<_>, _>>().map(Value::List)
    };
    let is_option =
        |value: &Value| options.is_empty() || options.iter().any(|option| to_text(option) == to_text(value));
    let refused = |value: &Value| {
        let options: Vec<_> = options.iter().map(to_text).collect();
        format!("{:?} is not one of {}", to_text(value), options.join(", "))
    };
    match (kind, given) {
        (Kind::Text, Value::String(text)) if most.is_some_and(|most| text.chars().count() > most) => {
            Err(format!("it is longer than {} characters", most.unwrap_or_default()).into())
        }
        (Kind::Any, _)
        | (Kind::Text, Value::String(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Bool(_))
        | (Kind::Number, Value::Int(_) | Value::UInt(_) | Value::Float(_))
        | (Kind::Bool, Value::Bool(_))
        | (Kind::Object | Kind::File, Value::Map(_)) => Ok(given.clone()),
        (Kind::List(kind), Value::List(items)) => each(kind.into(), items),
        // From a command line everything is text.
        (Kind::Number, Value::String(text)) => number(text).ok_or_else(|| format!("{text:?} is not a number").into()),
        (Kind::Bool, Value::String(text)) => match text.trim().to_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(true.into()),
            "false" | "0" | "no" | "off" => Ok(false.into()),
            _ => Err(format!("{text:?} is neither true nor false").into()),
        },
        (Kind::Bool, Value::Int(n @ (0 | 1))) => Ok(Value::Bool(*n == 1)),
        (Kind::Object, Value::String(text)) => match from_json(text.as_bytes()) {
            Ok(map @ Value::Map(_)) => Ok(map),
            _ => wanted("a map"),
        },
        (Kind::List(kind), Value::String(text)) => match from_json(text.as_bytes()) {
            Ok(Value::List(items)) => each(kind.into(), &items),
            _ => wanted("a list"),
        },
        (Kind::File, Value::String(place)) => Ok(file(place)),
        (Kind::Files, Value::List(items)) => {
            let most = most.unwrap_or(usize::MAX);
            if items.len() > most {
                return Err(format!("at most {most} files are wanted, not {}", items.len()).into());
            }
            each(Kind::File, items)
        }
        (Kind::Files, one @ (Value::String(_) | Value::Map(_))) => {
            accept_one(Kind::File, one, &[], None).map(|file| Value::List(vec![file]))
        }
        (Kind::Select, Value::String(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_)) => {
            if is_option(given) {
                Ok(given.clone())
            } else {
                Err(refused(given).into())
            }
        }
        (Kind::MultiSelect, Value::List(items)) => match items.iter().position(|item| !is_option(item)) {
            Some(wrong) => Err(Unfit::item(wrong, refused(&items[wrong]).into())),
            None => Ok(given.clone()),
        },
        (Kind::Text, _) => wanted("a text"),
        (Kind::Number, _) => wanted("a number"),
        (Kind::Bool, _) => wanted("true or false"),
        (Kind::Select, _) => wanted("one of its options"),
        (Kind::MultiSelect, _) => wanted("a list of its options"),
        (Kind::Object, _) => wanted("a map"),
        (Kind::List(_), _) => wanted("a list"),
        (Kind::File, _) => wanted("a file"),
        (Kind::Files, _) => wanted("a list of files"),
    }
}

/// A file with its content, as nodes that read files want it.
pub fn file_with(name: &str, content: Vec<u8>) -> Value {
    let Value::Map(mut file) = file(name) else { return Value::Null };
    file.remove("path");
    let kind = match file.get("extension").and_then(Value::as_str).unwrap_or_default() {
        ".png" => "image/png",
        ".jpg" | ".jpeg" => "image/jpeg",
        ".gif" => "image/gif",
        ".webp" => "image/webp",
        ".svg" => "image/svg+xml",
        ".pdf" => "application/pdf",
        ".html" | ".htm" => "text/html",
        ".csv" => "text/csv",
        ".json" => "application/json",
        ".md" => "text/markdown",
        ".txt" => "text/plain",
        ".mp3" => "audio/mpeg",
        ".wav" => "audio/wav",
        ".mp4" => "video/mp4",
        _ => "application/octet-stream",
    };
    file.insert("mime_type".to_owned(), kind.into());
    file.insert("size".to_owned(), (content.len() as u64).into());
    file.insert("content".to_owned(), Value::Bytes(content));
    Value::Map(file)
}

/// A file by its address or path, as nodes that read files want it.
fn file(place: &str) -> Value {
    let is_remote = place.starts_with("http://") || place.starts_with("https://");
    let path = place.split(['?', '#']).next().unwrap_or(place);
    let name = if is_remote { path.rsplit('/').next() } else { place.rsplit(['/', '\\']).next() }.unwrap_or(place);
    let extension = name.rsplit_once('.').map(|(_, extension)| format!(".{}", extension.to_lowercase()));
    let extension = extension.unwrap_or_default();
    let kind = match extension.as_str() {
        ".png" | ".jpg" | ".jpeg" | ".gif" | ".webp" | ".svg" => "image",
        ".mp3" | ".wav" | ".m4a" | ".ogg" | ".flac" => "audio",
        ".mp4" | ".mov" | ".webm" | ".mpeg" => "video",
        ".txt" | ".md" | ".pdf" | ".html" | ".htm" | ".csv" | ".json" | ".xml" | ".doc" | ".docx" | ".xls"
        | ".xlsx" => "document",
        _ => "custom",
    };
    let (method, key) = if is_remote { ("remote_url", "url") } else { ("local_file", "path") };
    Value::map([
        ("type", kind.into()),
        ("transfer_method", method.into()),
        (key, place.into()),
        ("filename", name.into()),
        ("extension", extension.into()),
    ])
}

#[async_trait]
impl Node for Start {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(Value::Map(variables.inputs().clone()))
    }

    async fn run(&self, inputs: &Value, _context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        // They were accepted before the run began.
        Ok(NodeOutput { variables: inputs.as_map().cloned().unwrap_or_default(), ..NodeOutput::default() })
    }

    fn gives(&self) -> Option<Vec<&str>> {
        Some(self.variables.iter().map(|(variable, _)| variable.variable.as_str()).collect())
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn accepts(&self, inputs: Inputs, lenient: bool) -> Result<Inputs, Problems> {
        self.accept(inputs, lenient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        let field = |file: &Value, name: &str| file.field(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let remote = file("https://example.org/a/Photo.JPG?size=1");
        assert_eq!(
            [field(&remote, "type"), field(&remote, "filename"), field(&remote, "transfer_method")],
            ["image", "Photo.JPG", "remote_url"]
        );
        let local = file("notes/todo.md");
        assert_eq!(
            [field(&local, "type"), field(&local, "path"), field(&local, "extension")],
            ["document", "notes/todo.md", ".md"]
        );
    }

    #[test]
    fn texts_of_a_command_line_become_what_is_asked_for() {
        let accept = |kind: &str, given: Value| accept_one(Kind::parse(kind).unwrap(), &given, &[], None);
        assert_eq!(accept("number", " 2.5".into()), Ok(2.5.into()));
        assert_eq!(accept("checkbox", "true".into()), Ok(true.into()));
        assert_eq!(accept("array[string]", r#"["a"]"#.into()), Ok(vec!["a".into()].into()));
        assert_eq!(accept("json_object", r#"{"a": 1}"#.into()), Ok(Value::map([("a", 1.into())])));
        assert!(accept("json_object", "[]".into()).is_err());
        assert_eq!(accept("array[number]", r#"["1", 2]"#.into()), Ok(vec![1.into(), 2.into()].into()));
        let unfit = accept("array[number]", r#"[1, "two"]"#.into()).unwrap_err();
        assert_eq!((unfit.item, unfit.to_string().as_str()), (Some(1), r#"item 2: "two" is not a number"#));
        assert_eq!(accept("array", r#"[1, "two"]"#.into()), Ok(vec![1.into(), "two".into()].into()));
        assert!(accept("file-list", "a.txt".into()).is_ok_and(|list| list.as_list().is_some()));
    }
}
