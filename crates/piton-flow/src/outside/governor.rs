//! How much a run may use, and what it has used. Asked before each use, told after.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use piton_model::chat::Usage;
use piton_types::Value;
use serde::{Deserialize, Serialize};

use super::size;
use crate::node::NodeError;

/// How much may be used; without a number, as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// Tokens, sent and received.
    pub tokens: Option<u64>,
    /// Money, in the currency of the price list.
    pub cost: Option<f64>,
    /// Calls of tools.
    pub tool_calls: Option<u64>,
    /// Requests over HTTP, those to models not counted.
    pub requests: Option<u64>,
    /// Bytes that one node may give.
    pub output: Option<u64>,
}

/// What has been used.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Used {
    /// Tokens.
    pub tokens: u64,
    /// Money, as far as prices are known.
    pub cost: f64,
    /// Calls of tools.
    pub tool_calls: u64,
    /// Requests over HTTP.
    pub requests: u64,
}

/// A limit that is reached. What would go beyond it isn't done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitReached {
    /// Of tokens.
    #[error("the limit of {limit} tokens is reached")]
    Tokens {
        /// The limit.
        limit: u64,
    },
    /// Of money.
    #[error("the cost limit of {limit} is reached")]
    Cost {
        /// The limit.
        limit: f64,
    },
    /// There is a limit of money, and nobody knows what this costs.
    #[error("there is a cost limit, and no price for the model {model:?}")]
    Unpriced {
        /// The model.
        model: String,
    },
    /// Of calls of tools.
    #[error("the limit of {limit} tool calls is reached")]
    ToolCalls {
        /// The limit.
        limit: u64,
    },
    /// Of requests.
    #[error("the limit of {limit} requests is reached")]
    Requests {
        /// The limit.
        limit: u64,
    },
    /// Of what a node may give.
    #[error("it gave more than the limit of {limit} bytes")]
    Output {
        /// The limit.
        limit: u64,
    },
}

impl From<LimitReached> for NodeError {
    fn from(limit: LimitReached) -> Self {
        Self::new("LimitReached", limit.to_string())
    }
}

/// Counts what a run uses.
#[derive(Debug, Default)]
pub struct Governor {
    quotas: Quotas,
    used: Mutex<Used>,
}

impl Governor {
    /// One that has counted nothing yet.
    pub fn new(quotas: Quotas) -> Self {
        Self { quotas, used: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been used.
    pub fn used(&self) -> Used {
        *self.lock()
    }

    /// Counts on from what an earlier process used.
    pub fn resume(&self, used: Used) {
        *self.lock() = used;
    }

    /// Whether a model may be asked. What it will take isn't known before, so the last answer may go beyond.
    pub(crate) fn may_ask(&self, model: &str, is_priced: bool) -> Result<(), LimitReached> {
        let used = self.used();
        if let Some(limit) = self.quotas.tokens.filter(|limit| used.tokens >= *limit) {
            return Err(LimitReached::Tokens { limit });
        }
        match self.quotas.cost {
            Some(_) if !is_priced => Err(LimitReached::Unpriced { model: model.to_owned() }),
            Some(limit) if used.cost >= limit => Err(LimitReached::Cost { limit }),
            _ => Ok(()),
        }
    }

    /// Counts what a model took.
    pub(crate) fn asked(&self, usage: Usage, cost: Option<f64>) {
        let mut used = self.lock();
        used.tokens = used.tokens.saturating_add(usage.total());
        used.cost += cost.unwrap_or_default();
    }

    /// Takes one call of a tool.
    pub(crate) fn take_tool_call(&self) -> Result<(), LimitReached> {
        let mut used = self.lock();
        if let Some(limit) = self.quotas.tool_calls.filter(|limit| used.tool_calls >= *limit) {
            return Err(LimitReached::ToolCalls { limit });
        }
        used.tool_calls += 1;
        Ok(())
    }

    /// Takes one request.
    pub(crate) fn take_request(&self) -> Result<(), LimitReached> {
        let mut used = self.lock();
        if let Some(limit) = self.quotas.requests.filter(|limit| used.requests >= *limit) {
            return Err(LimitReached::Requests { limit });
        }
        used.requests += 1;
        Ok(())
    }

    /// Whether a node may give so much.
    pub(crate) fn admit(&self, variables: &BTreeMap<String, Value>) -> Result<(), LimitReached> {
        match self.quotas.output {
            Some(limit) if variables.values().map(size).sum::<u64>() > limit => Err(LimitReached::Output { limit }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_named_when_it_is_reached() {
        let governor = Governor::new(Quotas {
            tokens: Some(10),
            cost: Some(1.0),
            tool_calls: Some(1),
            requests: Some(1),
            output: Some(100),
        });
        assert_eq!(governor.may_ask("m", true), Ok(()));
        assert_eq!(governor.may_ask("m", false), Err(LimitReached::Unpriced { model: "m".to_owned() }));
        governor.asked(Usage { input: 1, output: 2 }, Some(2.0));
        assert_eq!(governor.may_ask("m", true), Err(LimitReached::Cost { limit: 1.0 }));
        governor.resume(Used { tokens: 10, ..Used::default() });
        assert_eq!(governor.may_ask("m", true), Err(LimitReached::Tokens { limit: 10 }));
        assert_eq!(governor.take_tool_call(), Ok(()));
        assert_eq!(governor.take_tool_call(), Err(LimitReached::ToolCalls { limit: 1 }));
        assert_eq!(governor.take_request(), Ok(()));
        assert_eq!(governor.take_request(), Err(LimitReached::Requests { limit: 1 }));
        let large = BTreeMap::from([("x".to_owned(), Value::from("x".repeat(101)))]);
        assert_eq!(governor.admit(&large), Err(LimitReached::Output { limit: 100 }));
        assert_eq!(governor.admit(&BTreeMap::new()), Ok(()));
    }
}
