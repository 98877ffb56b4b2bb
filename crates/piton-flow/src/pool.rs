//! The variables of a running workflow: what each finished node gave, by its id.

use std::collections::BTreeMap;

use piton_types::Value;
use serde::Deserialize;

use crate::engine::Inputs;

/// A variable of a node, and perhaps a place inside it: `[node, variable, …]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(crate) struct Selector {
    pub(crate) node: String,
    pub(crate) path: Vec<String>,
}

impl TryFrom<Vec<String>> for Selector {
    type Error = &'static str;

    fn try_from(mut words: Vec<String>) -> Result<Self, &'static str> {
        if words.len() < 2 {
            return Err("a selector is a list of a node's id and one of its variables");
        }
        let node = words.remove(0);
        Ok(Self { node, path: words })
    }
}

/// The variables.
#[derive(Debug)]
pub(crate) struct Pool {
    inputs: Value,
    outputs: BTreeMap<String, Value>,
}

impl Pool {
    pub(crate) fn new(inputs: Inputs) -> Self {
        Self { inputs: Value::Map(inputs), outputs: BTreeMap::new() }
    }

    /// What the workflow was given.
    pub(crate) const fn inputs(&self) -> &Value {
        &self.inputs
    }

    /// What the finished nodes gave.
    pub(crate) const fn outputs(&self) -> &BTreeMap<String, Value> {
        &self.outputs
    }

    pub(crate) fn set(&mut self, node: &str, outputs: Value) {
        self.outputs.insert(node.to_owned(), outputs);
    }

    /// The variable, if there is one.
    pub(crate) fn find(&self, selector: &Selector) -> Option<&Value> {
        selector.path.iter().try_fold(self.outputs.get(&selector.node)?, |value, key| match value {
            Value::Map(entries) => entries.get(key),
            Value::List(items) => items.get(key.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// The variable, or null if there is none.
    pub(crate) fn select(&self, selector: &Selector) -> Value {
        self.find(selector).cloned().unwrap_or_default()
    }
}
