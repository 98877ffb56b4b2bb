//! What a run may use, and what it has. Both are in its state, so a limit holds in whichever process goes on.

use piton_types::TokenUsage;
use serde::{Deserialize, Serialize};

use crate::RunError;

/// What a run may use in all.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Money, in the currency of the price list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<f64>,
    /// Tokens, in and out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

/// What was used and what may be.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// Used so far.
    pub used: TokenUsage,
    /// In so many calls.
    pub calls: u64,
    /// The limits.
    pub budget: Budget,
}

/// What went wrong with an agent's context.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The call would cost more than is left, so it wasn't made.
    #[error("{calls} calls cost {used} so far and the next may cost {next}: more than the {limit} of the budget")]
    OverCost {
        /// Calls so far.
        calls: u64,
        /// Used so far.
        used: f64,
        /// What the next call may cost.
        next: f64,
        /// The limit.
        limit: f64,
    },
    /// The call would use more tokens than are left, so it wasn't made.
    #[error("{calls} calls used {used} tokens so far and the next may use {next}: more than the {limit} of the budget")]
    OverTokens {
        /// Calls so far.
        calls: u64,
        /// Used so far.
        used: u64,
        /// What the next call may use.
        next: u64,
        /// The limit.
        limit: u64,
    },
    /// What a call is said to have cost is no amount of money.
    #[error("{cost} is no cost")]
    NoCost {
        /// What was said.
        cost: f64,
    },
    /// The run couldn't go on.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Ledger {
    /// That a call which may use `next` fits the budget. What was used to the last token leaves nothing, not
    /// even for a call that is thought to cost nothing.
    pub fn check(&self, next: TokenUsage) -> Result<(), AgentError> {
        check_cost(next.cost)?;
        let calls = self.calls;
        if let Some(limit) = self.budget.max_cost
            && (self.used.cost + next.cost > limit || self.used.cost >= limit)
        {
            return Err(AgentError::OverCost { calls, used: self.used.cost, next: next.cost, limit });
        }
        let used = self.used.total();
        if let Some(limit) = self.budget.max_tokens
            && (used.saturating_add(next.total()) > limit || used >= limit)
        {
            return Err(AgentError::OverTokens { calls, used, next: next.total(), limit });
        }
        Ok(())
    }

    /// The ledger after a call that used `usage`.
    pub fn after(&self, usage: TokenUsage) -> Result<Self, AgentError> {
        check_cost(usage.cost)?;
        let used = TokenUsage {
            input: self.used.input.saturating_add(usage.input),
            output: self.used.output.saturating_add(usage.output),
            cost: self.used.cost + usage.cost,
        };
        Ok(Self { used, calls: self.calls + 1, budget: self.budget })
    }
}

fn check_cost(cost: f64) -> Result<(), AgentError> {
    if cost.is_finite() && cost >= 0.0 { Ok(()) } else { Err(AgentError::NoCost { cost }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, output: u64, cost: f64) -> TokenUsage {
        TokenUsage { input, output, cost }
    }

    #[test]
    fn a_limit_is_reached_exactly_and_not_passed() {
        let budget = Budget { max_cost: Some(1.0), max_tokens: Some(100) };
        let ledger = Ledger { used: usage(40, 20, 0.5), calls: 3, budget };
        assert!(ledger.check(usage(20, 20, 0.5)).is_ok());
        assert!(matches!(ledger.check(usage(20, 21, 0.0)), Err(AgentError::OverTokens { used: 60, next: 41, .. })));
        let over = ledger.check(usage(0, 0, 0.75)).unwrap_err();
        insta::assert_snapshot!(over, @"3 calls cost 0.5 so far and the next may cost 0.75: more than the 1 of the budget");
        let spent = ledger.after(usage(40, 0, 0.0)).unwrap();
        assert_eq!((spent.used.total(), spent.calls), (100, 4));
        assert!(spent.check(TokenUsage::default()).is_err(), "nothing is left");
        assert!(
            Ledger::default().check(usage(u64::MAX, u64::MAX / 2, 1e300)).is_ok(),
            "without limits everything fits"
        );
    }

    #[test]
    fn what_is_no_amount_of_money_is_refused() {
        for cost in [f64::NAN, f64::INFINITY, -0.01] {
            assert!(matches!(Ledger::default().after(usage(1, 1, cost)), Err(AgentError::NoCost { .. })));
            assert!(matches!(Ledger::default().check(usage(1, 1, cost)), Err(AgentError::NoCost { .. })));
        }
    }
}
