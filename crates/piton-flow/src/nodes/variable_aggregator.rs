//! `variable-aggregator`: the first of several variables that there is, where branches meet. Gives
//! `output`, or one map per group.

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::Selector;

#[derive(Debug, Deserialize)]
struct Data {
    /// The first of these that is there is given as `output`.
    #[serde(default)]
    variables: Vec<Selector>,
    /// Several groups, each with what is there first.
    advanced_settings: Option<Advanced>,
}

#[derive(Debug, Deserialize)]
struct Advanced {
    /// Whether they count.
    #[serde(default)]
    group_enabled: bool,
    /// The groups.
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    /// Under which name it is given.
    group_name: String,
    /// The first of these that is there.
    #[serde(default)]
    variables: Vec<Selector>,
}

#[derive(Debug)]
struct Aggregator {
    variables: Vec<Selector>,
    groups: Vec<Group>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let groups = data.advanced_settings.filter(|advanced| advanced.group_enabled).map(|advanced| advanced.groups);
    let groups = groups.unwrap_or_default();
    if data.variables.is_empty() && groups.is_empty() && build.is_strict() {
        return Err(Faults::one(Path::root().key("variables"), "a variable should be here"));
    }
    Ok(Box::new(Aggregator { variables: data.variables, groups }))
}

/// The first that is there.
fn first(selectors: &[Selector], pool: &VariablePool) -> Value {
    let mut found = selectors.iter().filter_map(|selector| pool.find(selector));
    found.find(|value| **value != Value::Null).cloned().unwrap_or_default()
}

#[async_trait]
impl Node for Aggregator {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        if self.groups.is_empty() {
            return Ok(Value::map([("output", first(&self.variables, variables))]));
        }
        let groups = self
            .groups
            .iter()
            .map(|group| (group.group_name.as_str(), Value::map([("output", first(&group.variables, variables))])));
        Ok(Value::map(groups))
    }

    async fn run(&self, inputs: &Value, _context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        Ok(NodeOutput { variables: inputs.as_map().cloned().unwrap_or_default(), ..NodeOutput::default() })
    }

    fn references(&self) -> Vec<&Selector> {
        self.variables.iter().chain(self.groups.iter().flat_map(|group| &group.variables)).collect()
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }
}
