//! `end`: what the workflow gives. A variable that isn't there is null.

use async_trait::async_trait;
use piton_types::Value;
use serde::Deserialize;

use super::Node;
use crate::engine::Host;
use crate::pool::{Pool, Selector};

/// The data of an end node.
#[derive(Debug, Deserialize)]
pub(super) struct Data {
    #[serde(default)]
    outputs: Vec<Output>,
}

#[derive(Debug, Deserialize)]
struct Output {
    variable: String,
    value_selector: Selector,
}

/// An end node.
#[derive(Debug)]
pub(super) struct End {
    outputs: Vec<Output>,
}

impl End {
    pub(super) fn build(data: Data) -> Self {
        Self { outputs: data.outputs }
    }
}

#[async_trait]
impl Node for End {
    fn inputs(&self, pool: &Pool) -> Result<Value, String> {
        Ok(Value::map(self.outputs.iter().map(|output| (&*output.variable, pool.select(&output.value_selector)))))
    }

    async fn run(&self, inputs: &Value, _host: &Host<'_>) -> Result<Value, String> {
        Ok(inputs.clone())
    }

    fn selectors(&self) -> Vec<&Selector> {
        self.outputs.iter().map(|output| &output.value_selector).collect()
    }
}
