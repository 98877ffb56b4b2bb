//! How much a run may use, and what it has used. Asked before each use, told after.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use piton_model::chat::Usage;
use piton_types::{RunId, Value};
use serde::{Deserialize, Serialize};

use crate::node::NodeError;
use crate::value::weight;

/// How much may be used; without a number, as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LimitReached(String);

impl From<LimitReached> for NodeError {
    fn from(limit: LimitReached) -> Self {
        Self::new("LimitReached", limit.0)
    }
}

/// Counts what each run uses. The quotas are each run's.
#[derive(Debug, Default)]
pub struct Governor {
    quotas: Quotas,
    used: Mutex<HashMap<RunId, Used>>,
}

impl Governor {
    /// One that has counted nothing yet.
    pub fn new(quotas: Quotas) -> Self {
        Self { quotas, used: Mutex::default() }
    }

    #[cfg(feature = "checkpoint")]
    pub(crate) const fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Used>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a run has used.
    pub fn used(&self, run: &RunId) -> Used {
        self.lock().get(run).copied().unwrap_or_default()
    }

    /// Counts on from what a run used before, here or in an earlier process.
    pub fn resume(&self, run: &RunId, used: Used) {
        self.lock().insert(run.clone(), used);
    }

    fn count<T>(&self, run: &RunId, count: impl FnOnce(&mut Used) -> T) -> T {
        let mut runs = self.lock();
        match runs.get_mut(run) {
            Some(used) => count(used),
            None => count(runs.entry(run.clone()).or_default()),
        }
    }

    /// Whether a model may be asked. What it will take isn't known before, so the last answer may go beyond.
    pub(crate) fn may_ask(&self, run: &RunId, model: &str, is_priced: bool) -> Result<(), LimitReached> {
        let used = self.used(run);
        if let Some(limit) = self.quotas.tokens.filter(|limit| used.tokens >= *limit) {
            return Err(LimitReached(format!("the limit of {limit} tokens is reached")));
        }
        match self.quotas.cost {
            Some(_) if !is_priced => {
                Err(LimitReached(format!("there is a cost limit, and no price for the model {model:?}")))
            }
            Some(limit) if used.cost >= limit => Err(LimitReached(format!("the cost limit of {limit} is reached"))),
            _ => Ok(()),
        }
    }

    /// Counts what a model took.
    pub(crate) fn asked(&self, run: &RunId, usage: Usage, cost: Option<f64>) {
        self.count(run, |used| {
            used.tokens = used.tokens.saturating_add(usage.total());
            used.cost += cost.unwrap_or_default();
        });
    }

    /// Takes one call of a tool.
    pub(crate) fn take_tool_call(&self, run: &RunId) -> Result<(), LimitReached> {
        self.count(run, |used| match self.quotas.tool_calls.filter(|limit| used.tool_calls >= *limit) {
            Some(limit) => Err(LimitReached(format!("the limit of {limit} tool calls is reached"))),
            None => {
                used.tool_calls += 1;
                Ok(())
            }
        })
    }

    /// Takes one request.
    pub(crate) fn take_request(&self, run: &RunId) -> Result<(), LimitReached> {
        self.count(run, |used| match self.quotas.requests.filter(|limit| used.requests >= *limit) {
            Some(limit) => Err(LimitReached(format!("the limit of {limit} requests is reached"))),
            None => {
                used.requests += 1;
                Ok(())
            }
        })
    }

    /// Whether a node may give so much.
    pub(crate) fn admit(&self, variables: &BTreeMap<String, Value>) -> Result<(), LimitReached> {
        match self.quotas.output {
            Some(limit) if variables.values().map(|value| weight(value) as u64).sum::<u64>() > limit => {
                Err(LimitReached(format!("it gave more than the limit of {limit} bytes")))
            }
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
        let reached = |said: &str| Err(LimitReached(said.to_owned()));
        let (run, other): (RunId, RunId) = ("a".parse().unwrap(), "b".parse().unwrap());
        assert_eq!(governor.may_ask(&run, "m", true), Ok(()));
        assert_eq!(
            governor.may_ask(&run, "m", false),
            reached("there is a cost limit, and no price for the model \"m\"")
        );
        governor.asked(&run, Usage { input: 1, output: 2 }, Some(2.0));
        assert_eq!(governor.may_ask(&run, "m", true), reached("the cost limit of 1 is reached"));
        governor.resume(&run, Used { tokens: 10, ..Used::default() });
        assert_eq!(governor.may_ask(&run, "m", true), reached("the limit of 10 tokens is reached"));
        assert_eq!(governor.take_tool_call(&run), Ok(()));
        assert_eq!(governor.take_tool_call(&run), reached("the limit of 1 tool calls is reached"));
        assert_eq!(governor.take_request(&run), Ok(()));
        assert_eq!(governor.take_request(&run), reached("the limit of 1 requests is reached"));
        assert_eq!(governor.take_request(&other), Ok(()), "each run has its own");
        let large = BTreeMap::from([("x".to_owned(), Value::from("x".repeat(101)))]);
        assert_eq!(governor.admit(&large), reached("it gave more than the limit of 100 bytes"));
        assert_eq!(governor.admit(&BTreeMap::new()), Ok(()));
    }
}
