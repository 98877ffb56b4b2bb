//! `start`: what the workflow is given, checked against what it asks for.

use std::collections::BTreeMap;

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use crate::engine::Inputs;
use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::problem::{Place, Problems};
use crate::value::number;

/// The data of a start node.
#[derive(Debug, Deserialize)]
struct Data {
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
            Some(kind) => variables.push((variable, kind)),
            None => faults.add(path.key("type"), format!("there is no type {:?}", variable.kind)),
        }
    }
    faults.none_or(Box::new(Start { variables }))
}

impl Start {
    /// The variables with these inputs, and everything that is wrong with them.
    fn accept(&self, inputs: &Inputs) -> Result<BTreeMap<String, Value>, Problems> {
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
        problems.none_or(accepted)
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

#[async_trait]
impl Node for Start {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(Value::Map(variables.inputs().clone()))
    }

    async fn run(&self, inputs: &Value, _context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let inputs = inputs.as_map().ok_or("its inputs are no map")?;
        let variables = self.accept(inputs).map_err(|problems| problems.to_string())?;
        Ok(NodeOutput { variables, ..NodeOutput::default() })
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn accepts(&self, inputs: &Inputs) -> Result<(), Problems> {
        self.accept(inputs).map(drop)
    }
}
