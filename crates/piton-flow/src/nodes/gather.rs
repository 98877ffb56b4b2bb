//! `gather`: goes on when all branches that lead to it are there, or the first, or some of them. Gives
//! `results`, `completed_count` and `first_result`.

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Join, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::Selector;

#[derive(Debug, Deserialize)]
struct Data {
    #[serde(default)]
    variables: Vec<Selector>,
    #[serde(default)]
    join_mode: Value,
    #[serde(default = "yes")]
    cancel_remaining: bool,
}

const fn yes() -> bool {
    true
}

#[derive(Debug)]
struct Gather {
    variables: Vec<Selector>,
    join: Join,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let word = data.join_mode.as_str().or_else(|| data.join_mode.field("type").and_then(Value::as_str));
    let count = data.join_mode.field("n").and_then(Value::as_i64).and_then(|n| usize::try_from(n).ok());
    let cancel = data.cancel_remaining;
    let join = match (word, count) {
        (None | Some("all"), _) => Join::All,
        (Some("any"), _) => Join::AtLeast { count: 1, cancel },
        (Some("n_of_m"), Some(count @ 1..)) => Join::AtLeast { count, cancel },
        _ => {
            let message = "it should be all, any, or {type: n_of_m, n: a number above 0}";
            return Err(Faults::one(Path::root().key("join_mode"), message));
        }
    };
    Ok(Box::new(Gather { variables: data.variables, join }))
}

#[async_trait]
impl Node for Gather {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        let found = self.variables.iter().filter_map(|selector| variables.find(selector));
        let results = found.filter(|value| **value != Value::Null).cloned().collect();
        Ok(Value::map([("results", Value::List(results))]))
    }

    async fn run(&self, inputs: &Value, _context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let results = inputs.field("results").and_then(Value::as_list).unwrap_or_default();
        let count = i64::try_from(results.len()).unwrap_or(i64::MAX);
        let mut output = NodeOutput::of([("results", results.to_vec().into()), ("completed_count", count.into())]);
        if let Some(first) = results.first() {
            output.variables.insert("first_result".to_owned(), first.clone());
        }
        Ok(output)
    }

    fn references(&self) -> Vec<&Selector> {
        self.variables.iter().collect()
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn join(&self) -> Join {
        self.join
    }
}
