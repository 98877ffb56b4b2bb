//! `start`: what the workflow is given, checked against what it asks for.

use std::collections::BTreeMap;

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use super::{BuildError, Node};
use crate::engine::{Host, Inputs};
use crate::pool::{Pool, Selector};
use crate::problem::{Place, Problems};

/// The data of a start node.
#[derive(Debug, Deserialize)]
pub(super) struct Data {
    #[serde(default)]
    variables: Vec<Variable>,
}

/// An input that the workflow asks for.
#[derive(Debug, Deserialize)]
struct Variable {
    variable: String,
    #[serde(rename = "type", default = "text")]
    kind: String,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    default: Value,
    #[serde(default)]
    options: Vec<String>,
    max_length: Option<usize>,
}

fn text() -> String {
    "string".to_owned()
}

/// What an input must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Any scalar; numbers stay numbers, so that a template can compare them.
    Text,
    Number,
    Bool,
    Select,
    Object,
    List,
}

impl Kind {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "string" | "text-input" | "paragraph" => Self::Text,
            "number" => Self::Number,
            "boolean" | "checkbox" => Self::Bool,
            "select" => Self::Select,
            "object" | "json" | "json_object" => Self::Object,
            list if list == "array" || list.starts_with("array[") => Self::List,
            _ => return None,
        })
    }
}

/// The start node.
#[derive(Debug)]
pub(super) struct Start {
    variables: Vec<(Variable, Kind)>,
}

impl Start {
    pub(super) fn build(data: Data) -> Result<Self, BuildError> {
        let mut variables: Vec<(Variable, Kind)> = Vec::with_capacity(data.variables.len());
        for (place, variable) in data.variables.into_iter().enumerate() {
            let path = Path::root().key("variables").index(place);
            if variables.iter().any(|(other, _)| other.variable == variable.variable) {
                let message = format!("there is a variable {:?} already", variable.variable);
                return Err(BuildError { path: path.key("variable"), message });
            }
            let Some(kind) = Kind::parse(&variable.kind) else {
                let message = format!("this version of the engine has no type {:?}", variable.kind);
                return Err(BuildError { path: path.key("type"), message });
            };
            variables.push((variable, kind));
        }
        Ok(Self { variables })
    }

    /// The variables with these inputs, and everything that is wrong with them.
    fn accept(&self, inputs: &Inputs) -> Result<Value, Problems> {
        let mut problems = Problems::default();
        let mut accepted = BTreeMap::new();
        for (variable, kind) in &self.variables {
            let name = &variable.variable;
            let given = inputs.get(name).filter(|given| !matches!(given, Value::Null)).unwrap_or(&variable.default);
            if *given == Value::Null {
                if variable.required {
                    problems.add(Place::Input(name.clone()), "it is required");
                }
                accepted.insert(name.clone(), Value::Null);
                continue;
            }
            match variable.accept(*kind, given) {
                Ok(value) => drop(accepted.insert(name.clone(), value)),
                Err(message) => problems.add(Place::Input(name.clone()), message),
            }
        }
        for name in inputs.keys().filter(|name| !accepted.contains_key(*name)) {
            if self.variables.iter().all(|(variable, _)| variable.variable != **name) {
                problems.add(Place::Input(name.chars().take(40).collect()), "the workflow doesn't ask for it");
            }
        }
        problems.none_or(Value::Map(accepted))
    }
}

impl Variable {
    fn accept(&self, kind: Kind, given: &Value) -> Result<Value, String> {
        let wanted = |what: &str| Err(format!("{what} is wanted, not {}", given.kind()));
        match (kind, given) {
            (Kind::Text, Value::String(text)) if self.max_length.is_some_and(|most| text.chars().count() > most) => {
                Err(format!("it is longer than {} characters", self.max_length.unwrap_or_default()))
            }
            (Kind::Text, Value::String(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Bool(_))
            | (Kind::Number, Value::Int(_) | Value::UInt(_) | Value::Float(_))
            | (Kind::Bool, Value::Bool(_))
            | (Kind::Object, Value::Map(_))
            | (Kind::List, Value::List(_)) => Ok(given.clone()),
            // From a command line everything is text.
            (Kind::Number, Value::String(text)) => number(text).ok_or_else(|| format!("{text:?} is not a number")),
            (Kind::Bool, Value::String(text)) => {
                text.parse().map(Value::Bool).map_err(|_| format!("{text:?} is neither true nor false"))
            }
            (Kind::Select, Value::String(text)) => {
                if self.options.contains(text) {
                    Ok(given.clone())
                } else {
                    Err(format!("{text:?} is not one of {}", self.options.join(", ")))
                }
            }
            (Kind::Text, _) => wanted("a text"),
            (Kind::Number, _) => wanted("a number"),
            (Kind::Bool, _) => wanted("true or false"),
            (Kind::Select, _) => wanted("one of its options"),
            (Kind::Object, _) => wanted("a map"),
            (Kind::List, _) => wanted("a list"),
        }
    }
}

fn number(text: &str) -> Option<Value> {
    let integer = text.parse().map(Value::Int).ok();
    integer.or_else(|| text.parse().ok().filter(|x: &f64| x.is_finite()).map(Value::Float))
}

#[async_trait]
impl Node for Start {
    fn inputs(&self, pool: &Pool) -> Result<Value, String> {
        Ok(pool.inputs().clone())
    }

    async fn run(&self, inputs: &Value, _host: &Host<'_>) -> Result<Value, String> {
        let inputs = inputs.as_map().ok_or("its inputs are no map")?;
        self.accept(inputs).map_err(|problems| problems.to_string())
    }

    fn selectors(&self) -> Vec<&Selector> {
        Vec::new()
    }

    fn check(&self, inputs: &Inputs) -> Result<(), Problems> {
        self.accept(inputs).map(drop)
    }
}
