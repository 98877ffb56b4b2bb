//! `gather`: goes on when all branches that lead to it are there, or the first, or some of them; with `timeout_secs`
//! it waits no longer than that once the first is there. Gives `results`, `completed_count` and `first_result`.

use std::time::Duration;

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Join, Node, NodeContext, NodeError, NodeOutput, Patience};
use crate::pool::VariablePool;
use crate::selector::Selector;

#[derive(Debug, Deserialize)]
struct Data {
    /// What the branches give: `results` in this order.
    #[serde(default)]
    variables: Vec<Selector>,
    /// `all` if nothing is said, `any`, or `{type: n_of_m, n: 2}`.
    #[serde(default)]
    join_mode: Value,
    /// Branches that come too late are cut short; yes if nothing is said.
    #[serde(default = "yes")]
    cancel_remaining: bool,
    /// How long it waits once the first branch is there.
    timeout_secs: Option<f64>,
    /// What it does then: `proceed_with_available` or `fail`.
    #[serde(default)]
    timeout_strategy: Late,
}

/// What happens when the time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Late {
    /// It goes on with what is there.
    #[default]
    ProceedWithAvailable,
    Fail,
}

const fn yes() -> bool {
    true
}

#[derive(Debug)]
struct Gather {
    variables: Vec<Selector>,
    join: Join,
    patience: Option<Patience>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let word = data.join_mode.as_str().or_else(|| data.join_mode.field("type").and_then(Value::as_str));
    let count = data.join_mode.field("n").and_then(Value::as_i64).and_then(|n| usize::try_from(n).ok());
    let cancel = data.cancel_remaining;
    let join = match (word, count) {
        // What comes late may be cancelled only by who doesn't wait for it.
        (None | Some("all"), _) if data.timeout_secs.is_some() => Join::AtLeast { count: usize::MAX, cancel },
        (None | Some("all"), _) => Join::All,
        (Some("any"), _) => Join::AtLeast { count: 1, cancel },
        (Some("n_of_m"), Some(count @ 1..)) => Join::AtLeast { count, cancel },
        _ => {
            let message = "it should be all, any, or {type: n_of_m, n: a number above 0}";
            return Err(Faults::one(Path::root().key("join_mode"), message));
        }
    };
    // That it is a time at all is checked with the settings that any node may have.
    let time = data.timeout_secs.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let begins = data.timeout_strategy == Late::ProceedWithAvailable;
    let patience = time.map(|time| Patience { time, begins });
    Ok(Box::new(Gather { variables: data.variables, join, patience }))
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

    fn patience(&self) -> Option<Patience> {
        self.patience
    }
}
