//! What the user of a debugger may say. A shell parses texts, forms or requests into these.

use std::collections::BTreeMap;
use std::fmt;

use piton_flow::{Moment, Phase, When};
use piton_types::Value;
use serde::{Deserialize, Serialize};

/// A place at which the run stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Breakpoint {
    /// The id of a node, wherever it lies; or the place of one in the run, as in `loop/3/node`.
    pub node: String,
    /// On which side of it.
    #[serde(default)]
    pub phase: Phase,
    /// Only if this holds.
    #[serde(default, rename = "if", skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
}

impl Breakpoint {
    /// A breakpoint before a node, whatever holds.
    pub fn before(node: impl Into<String>) -> Self {
        Self { node: node.into(), phase: Phase::Before, when: None }
    }

    /// Whether the run is there.
    pub(super) fn is_at(&self, moment: &Moment<'_>) -> bool {
        moment.phase == self.phase
            && names(&self.node, moment)
            && self.when.as_ref().is_none_or(|when| when.is_met(&moment.variables))
    }
}

/// Whether a text names the node at which the run is.
pub(super) fn names(text: &str, moment: &Moment<'_>) -> bool {
    moment.node.as_str() == text || moment.step.as_str() == text
}

impl fmt::Display for Breakpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.phase == Phase::Before { "before" } else { "after" };
        write!(f, "{side} {}", self.node)?;
        match &self.when {
            Some(when) => write!(f, " if {when}"),
            None => Ok(()),
        }
    }
}

/// What a debugger is told to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Stop there from now on.
    Break(Breakpoint),
    /// Stop after nodes that fail, or don't.
    OnError {
        /// Whether to.
        on: bool,
    },
    /// Don't stop at this node any more; without one, at none.
    Clear {
        /// The node, as the breakpoint names it.
        node: Option<String>,
    },
    /// Go on to the next side of a node.
    Step,
    /// Go on to before the next node.
    Next,
    /// Go on to the next breakpoint.
    Continue,
    /// Go on to before this node, or to a breakpoint on the way.
    To {
        /// The node.
        node: String,
    },
    /// Look at variables.
    Variables {
        /// Only this one, or those of this node.
        name: Option<String>,
    },
    /// Set variables, by `node.variable`.
    Set {
        /// Their values.
        variables: BTreeMap<String, Value>,
    },
    /// Go back to before a step, or to a checkpoint or entry by its number; without either, to before the step that
    /// ended last.
    Back {
        /// The step, or the number.
        to: Option<String>,
    },
    /// Say where the run stands, and which breakpoints there are.
    State,
    /// Leave the run as it is, to go on with it later.
    Quit,
}
