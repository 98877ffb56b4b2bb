//! What a durable run has counted so far: time, tokens, cost, calls. Each entry of a node carries the sums, so a process
//! that goes on with the run counts on from where it was.

use std::collections::BTreeMap;
use std::time::Duration;

use piton_types::{TokenUsage, Value, from_value};
use serde::{Deserialize, Serialize};

use crate::outside::Used;

/// The sums. What is zero isn't stored.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Tally {
    /// How long it was driven.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) elapsed_ms: u64,
    /// Nodes of the outermost graph that ended well.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) steps: u64,
    /// Failures that it went on from.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) exceptions: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) prompt_tokens: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) completion_tokens: u64,
    #[serde(skip_serializing_if = "costs_nothing")]
    pub(crate) cost: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) tool_calls: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) requests: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn costs_nothing(cost: &f64) -> bool {
    *cost == 0.0
}

impl Tally {
    /// As an entry has it. One that can't be read was written by something else: nothing was counted.
    pub(crate) fn read(value: Value) -> Self {
        from_value(value).unwrap_or_default()
    }

    /// As entries have it; the same as by serde, which takes longer, and every node has one.
    pub(crate) fn value(&self) -> Value {
        let counts = [
            ("completion_tokens", self.completion_tokens),
            ("elapsed_ms", self.elapsed_ms),
            ("exceptions", self.exceptions),
            ("prompt_tokens", self.prompt_tokens),
            ("requests", self.requests),
            ("steps", self.steps),
            ("tool_calls", self.tool_calls),
        ];
        let mut value: BTreeMap<String, Value> = BTreeMap::new();
        value.extend(counts.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), n.into())));
        if !costs_nothing(&self.cost) {
            value.insert("cost".to_owned(), self.cost.into());
        }
        Value::Map(value)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms)
    }

    pub(crate) fn usage(&self) -> TokenUsage {
        TokenUsage { input: self.prompt_tokens, output: self.completion_tokens, cost: self.cost }
    }

    pub(crate) fn add(&mut self, usage: TokenUsage) {
        self.prompt_tokens += usage.input;
        self.completion_tokens += usage.output;
        self.cost += usage.cost;
    }

    /// As quotas count it.
    pub(crate) fn used(&self) -> Used {
        Used {
            tokens: self.prompt_tokens.saturating_add(self.completion_tokens),
            cost: self.cost,
            tool_calls: self.tool_calls,
            requests: self.requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_stored_as_serde_would() {
        let all = Tally {
            elapsed_ms: 1,
            steps: 2,
            exceptions: 3,
            prompt_tokens: 4,
            completion_tokens: u64::MAX,
            cost: 0.25,
            tool_calls: 6,
            requests: 7,
        };
        for tally in [Tally::default(), Tally { steps: 9, ..Tally::default() }, all] {
            assert_eq!(tally.value(), piton_types::to_value(&tally).unwrap());
            assert_eq!(Tally::read(tally.value()), tally);
        }
    }
}
