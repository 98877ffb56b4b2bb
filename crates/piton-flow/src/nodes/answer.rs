//! `answer`: a text with variables in it, for the person who talks with the workflow. Gives `answer`.
//! Braces that name no variable are text.

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::reply::Reply;
use crate::selector::Selector;

#[derive(Debug, Deserialize)]
struct Data {
    /// The text, with variables as `{{#NODE.NAME#}}`.
    answer: String,
}

#[derive(Debug)]
struct Answer {
    reply: Reply,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    if data.answer.trim().is_empty() && build.is_strict() {
        return Err(Faults::one(Path::root().key("answer"), "a text should be here"));
    }
    Ok(Box::new(Answer { reply: Reply::parse(&data.answer) }))
}

#[async_trait]
impl Node for Answer {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(Value::map([("answer", self.reply.render(variables).into())]))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        if context.is_strict()
            && let Some(missing) = self.reply.missing(context.variables())
        {
            return Err(NodeError::new("TemplateError", format!("Variable not found: {missing}")));
        }
        Ok(NodeOutput { variables: inputs.as_map().cloned().unwrap_or_default(), ..NodeOutput::default() })
    }

    fn references(&self) -> Vec<&Selector> {
        self.reply.references().collect()
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn streams(&self) -> Option<&Reply> {
        Some(&self.reply)
    }
}
