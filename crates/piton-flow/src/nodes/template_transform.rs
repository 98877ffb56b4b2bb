//! `template-transform`: a Jinja template over variables of its own. Gives `output`.

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::{Mapping, Selector};
use crate::template::Template;

#[derive(Debug, Deserialize)]
struct Data {
    /// A Jinja template.
    template: String,
    /// The names that it may use, each with a selector.
    #[serde(default)]
    variables: Vec<Mapping>,
}

#[derive(Debug)]
struct TemplateTransform {
    template: Template,
    variables: Vec<Mapping>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    build.filled("template", &data.template)?;
    let template = Template::jinja(&data.template, build.functions())
        .map_err(|message| Faults::one(Path::root().key("template"), message))?;
    Ok(Box::new(TemplateTransform { template, variables: data.variables }))
}

#[async_trait]
impl Node for TemplateTransform {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(Value::map(self.variables.iter().map(|from| (&*from.variable, variables.select(&from.selector)))))
    }

    async fn run(&self, inputs: &Value, _context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let variables = inputs.as_map().ok_or("its inputs are no map")?;
        let text = self.template.render(variables).map_err(|message| NodeError::new("TemplateError", message))?;
        Ok(NodeOutput::of([("output", text.into())]))
    }

    fn gives(&self) -> Option<Vec<&str>> {
        Some(vec!["output"])
    }

    fn references(&self) -> Vec<&Selector> {
        self.variables.iter().map(|from| &from.selector).collect()
    }

    fn undefined(&self) -> (Vec<&str>, Vec<&str>) {
        let known: Vec<&str> = self.variables.iter().map(|from| &*from.variable).collect();
        (self.template.undefined(&known), known)
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }
}
