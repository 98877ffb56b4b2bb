//! Document text to a plain value, in bounded time and memory, whatever the text.

use piton_types::{JsonError, Path, Segment, Value, from_json};
use serde::{Deserialize, Serialize};
use serde_saphyr::{DuplicateKeyPolicy, NonFiniteFloatPolicy};

use crate::problem::{Place, Problems};

/// The longest document, in bytes.
const MAX_TEXT: usize = 8 << 20;

/// How many lists and maps may lie inside one another.
const MAX_DEPTH: usize = 100;

/// How many nodes a YAML document may have once its aliases are resolved.
const MAX_NODES: usize = 500_000;

/// The stack that a text is read on. The readers recurse, the YAML one with some 20 KB a level when it
/// isn't optimised, and the caller's stack may be small; a value never nests more than 128 levels.
const STACK: usize = 16 << 20;

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// YAML 1.2; `yes` and `no` are words.
    Yaml,
    /// JSON.
    Json,
    /// TOML 1.1.
    Toml,
}

impl Format {
    /// The format that a file name's ending stands for.
    pub fn of_file_name(name: &str) -> Option<Self> {
        match name.rsplit_once('.')?.1.to_ascii_lowercase().as_str() {
            "yml" | "yaml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }

    /// What a text says. Duplicate keys, what doesn't fit 64 bits, NaN and the infinities are refused.
    pub fn read(self, text: &str) -> Result<Value, Problems> {
        if text.len() > MAX_TEXT {
            let message = format!("it has {} bytes; at most {MAX_TEXT} are allowed", text.len());
            return Err(Problems::one(Place::Whole, message));
        }
        let read = || match self {
            Self::Yaml => read_yaml(text),
            Self::Json => read_json(text),
            Self::Toml => read_toml(text),
        };
        on_a_large_stack(read)
            .unwrap_or_else(|error| Err(Problems::one(Place::Whole, format!("it can't be read now: {error}"))))
    }
}

/// Does something that recurses with the text.
pub(crate) fn on_a_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let ended = worker.map_err(|error| error.to_string())?.join();
        ended.map_err(|_| "it came to no end".to_owned())
    })
}

/// How YAML is read: nothing twice, nothing without end.
pub(crate) fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_aliases: 1_000,
            max_anchors: 1_000,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn read_yaml(text: &str) -> Result<Value, Problems> {
    let value: Value = serde_saphyr::from_str_with_options(text, yaml_options()).map_err(|error| {
        let place = error.location().map_or(Place::Whole, |at| Place::Text {
            line: usize::try_from(at.line()).unwrap_or(usize::MAX),
            column: usize::try_from(at.column()).unwrap_or(usize::MAX),
        });
        Problems::one(place, first_line(&error.to_string()))
    })?;
    Ok(value)
}

fn read_json(text: &str) -> Result<Value, Problems> {
    from_json(text.as_bytes()).map_err(|error| {
        let place = match error {
            JsonError::Syntax { line, column, .. }
            | JsonError::DuplicateKey { line, column, .. }
            | JsonError::OutOfRange { line, column, .. }
            | JsonError::TooDeep { line, column } => Place::Text { line, column },
            _ => Place::Whole,
        };
        let message = error.to_string();
        // The place stands before it already.
        let message = message.strip_prefix(&format!("{place}: ")).unwrap_or(&message);
        Problems::one(place, message)
    })
}

fn read_toml(text: &str) -> Result<Value, Problems> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or(Place::Whole, |span| text_place(text, span.start));
        Problems::one(place, first_line(error.message()))
    })?;
    let mut problems = Problems::default();
    let value = from_toml(toml::Value::Table(table), &mut Path::root(), &mut problems);
    problems.none_or(value)
}

/// Dates become their text. The depth is bounded by TOML's own reader.
fn from_toml(value: toml::Value, path: &mut Path, problems: &mut Problems) -> Value {
    let mut inner = |segment, value| {
        path.push(segment);
        let value = from_toml(value, path, problems);
        path.pop();
        value
    };
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(n) => Value::Int(n),
        toml::Value::Boolean(b) => Value::Bool(b),
        toml::Value::Datetime(at) => Value::String(at.to_string()),
        toml::Value::Array(items) => {
            Value::List(items.into_iter().enumerate().map(|(n, item)| inner(Segment::Index(n), item)).collect())
        }
        toml::Value::Table(entries) => {
            Value::Map(entries.into_iter().map(|(key, entry)| (key.clone(), inner(Segment::Key(key), entry))).collect())
        }
        toml::Value::Float(x) => {
            if !x.is_finite() {
                problems.add(Place::Path(path.clone()), format!("{x} is not a finite number"));
            }
            Value::Float(x)
        }
    }
}

fn text_place(text: &str, byte: usize) -> Place {
    let before = &text[..text.floor_char_boundary(byte)];
    let line = before.rsplit('\n').next().unwrap_or_default();
    Place::Text { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
}

fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}
