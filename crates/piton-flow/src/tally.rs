//! What a durable run has counted so far: time, tokens, cost, calls. Each entry of a node carries the sums, so a process
//! that goes on with the run counts on from where it was.

use std::time::Duration;

use piton_types::{TokenUsage, Value, from_value, to_value};
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

    /// As entries have it.
    pub(crate) fn value(&self) -> Value {
        to_value(self).unwrap_or_default()
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
