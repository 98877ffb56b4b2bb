//! `sub-workflow`: a workflow inside this one, with inputs of its own. It sees the variables around it,
//! and gives what its end nodes give. Its graph stands in the document (`sub_graph`), or in a file beside
//! it (`file`), which becomes part of the document before it runs.

use async_trait::async_trait;
use piton_types::Value;
use serde::Deserialize;

use super::container::{self, Round};
use crate::bundle::FILE;
use crate::graph::Graph;
use crate::kind::{Build, Built};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::Selector;

#[derive(Debug, Deserialize)]
struct Data {
    /// What the workflow inside, or in `file`, is given.
    #[serde(default, alias = "inputs")]
    variables: Vec<Variable>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    /// The name of its input.
    variable: String,
    /// Where the value is.
    value_selector: Option<Selector>,
    /// The value, said here.
    #[serde(default)]
    value: Value,
}

#[derive(Debug)]
struct SubWorkflow {
    variables: Vec<Variable>,
    graph: Graph,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let missing = match build.spec.data.field(FILE) {
        None => "the nodes and edges of a workflow, or a file that has them, should be here",
        Some(_) => "the file that it names wasn't read: only documents in files may name others",
    };
    let graph = build.graph(missing)?;
    Ok(Box::new(SubWorkflow { variables: data.variables, graph }))
}

#[async_trait]
impl Node for SubWorkflow {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(Value::map(self.variables.iter().map(|variable| {
            let given = variable.value_selector.as_ref().map(|selector| variables.select(selector));
            (variable.variable.as_str(), given.unwrap_or_else(|| variable.value.clone()))
        })))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let start = &self.graph.nodes[self.graph.start].node;
        let given = inputs.as_map().cloned().unwrap_or_default();
        let accepted =
            start.accepts(given, true).map_err(|problems| NodeError::new("InputError", problems.to_string()))?;
        let round = accepted.into_iter().fold(Round::new(0), |round, (name, value)| round.with(&name, value));
        let ended = container::run(context, &self.graph, context.variables().clone(), round).await?;
        Ok(NodeOutput {
            variables: ended.outputs,
            assignments: ended.assignments,
            exceptions: ended.exceptions,
            exit: None,
        })
    }

    fn references(&self) -> Vec<&Selector> {
        self.variables.iter().filter_map(|variable| variable.value_selector.as_ref()).collect()
    }

    fn effect(&self) -> Effect {
        // What outward nodes inside it give is recorded by themselves.
        Effect::Pure
    }

    fn graphs(&self) -> Vec<&Graph> {
        vec![&self.graph]
    }
}
