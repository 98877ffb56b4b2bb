//! `end`: what the workflow gives. A variable that isn't there is null.

use async_trait::async_trait;
use piton_types::Value;
use serde::Deserialize;

use crate::kind::{Build, Built};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::{Mapping, Selector};

#[derive(Debug, Deserialize)]
struct End {
    /// What is given: each a name and a selector.
    #[serde(default)]
    outputs: Vec<Mapping>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    Ok(Box::new(build.data::<End>()?))
}

#[async_trait]
impl Node for End {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(Value::map(self.outputs.iter().map(|output| (&*output.variable, variables.select(&output.selector)))))
    }

    async fn run(&self, inputs: &Value, _context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        Ok(NodeOutput { variables: inputs.as_map().cloned().unwrap_or_default(), ..NodeOutput::default() })
    }

    fn references(&self) -> Vec<&Selector> {
        self.outputs.iter().map(|output| &output.selector).collect()
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }
}
