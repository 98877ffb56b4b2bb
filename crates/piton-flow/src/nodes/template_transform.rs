//! `template-transform`: a Jinja template over variables of its own. Gives `output`.

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use super::{BuildError, Node};
use crate::engine::Host;
use crate::pool::{Pool, Selector};
use crate::template::Template;

/// The data of a template-transform node.
#[derive(Debug, Deserialize)]
pub(super) struct Data {
    template: String,
    #[serde(default)]
    variables: Vec<Variable>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    variable: String,
    value_selector: Selector,
}

/// A template-transform node.
#[derive(Debug)]
pub(super) struct TemplateTransform {
    template: Template,
    variables: Vec<Variable>,
}

impl TemplateTransform {
    pub(super) fn build(data: Data) -> Result<Self, BuildError> {
        let template = Template::jinja(&data.template)
            .map_err(|message| BuildError { path: Path::root().key("template"), message })?;
        Ok(Self { template, variables: data.variables })
    }
}

#[async_trait]
impl Node for TemplateTransform {
    fn inputs(&self, pool: &Pool) -> Result<Value, String> {
        Ok(Value::map(self.variables.iter().map(|from| (&*from.variable, pool.select(&from.value_selector)))))
    }

    async fn run(&self, inputs: &Value, _host: &Host<'_>) -> Result<Value, String> {
        let variables = inputs.as_map().ok_or("its inputs are no map")?;
        Ok(Value::map([("output", Value::from(self.template.render(variables)?))]))
    }

    fn selectors(&self) -> Vec<&Selector> {
        self.variables.iter().map(|from| &from.value_selector).collect()
    }
}
