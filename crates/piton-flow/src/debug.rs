//! The port of a debugger: the dispatcher asks it before a node begins and after one ended, and waits until it lets the
//! run go on. Without one nothing is asked and nothing is made for it.
//!
//! Under a debugger the nodes of a graph run one at a time. What ended before a stop is written before the debugger is
//! told, so a process that dies at a stop loses nothing. While the run stands, no time of it is counted.

use std::fmt;

use async_trait::async_trait;
use piton_types::{StepPath, Value};
use serde::{Deserialize, Serialize};

use crate::condition::{Conditions, parse};
use crate::engine::Host;
use crate::id::NodeId;
use crate::pool::VariablePool;
use crate::selector::Selector;

/// On which side of a node the run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It hasn't begun.
    #[default]
    Before,
    /// It has ended, well or badly.
    After,
}

/// Where a run is: at one side of a node.
pub struct Moment<'a> {
    pub(crate) host: &'a Host<'a>,
    /// The node's place in the run.
    pub step: &'a StepPath,
    /// The node.
    pub node: &'a NodeId,
    /// What it does, as in `code`.
    pub kind: &'a str,
    /// What people call it.
    pub title: &'a str,
    /// On which side of it the run is.
    pub phase: Phase,
    /// Why the node failed, if it did. Whether the run goes on all the same is the document's to say.
    pub error: Option<&'a str>,
    /// The variables, with what the node gave if it has ended.
    pub variables: VariablePool,
}

/// What becomes of a run that stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It goes on.
    GoOn,
    /// Nothing begins any more; a run that is kept is paused. A node that has failed ends the run as it would without a
    /// debugger.
    Leave,
}

/// Decides where a run stands still, and for how long.
#[async_trait]
pub trait Debugger: Send + Sync + fmt::Debug {
    /// Whether the run is to stand there. It is asked at every node, so it must be quick.
    fn stops(&self, moment: &Moment<'_>) -> bool;

    /// The run stands. It goes on when this returns. Dropped when the run is stopped meanwhile.
    async fn stopped(&self, moment: Moment<'_>) -> Then;
}

impl fmt::Debug for Moment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moment").field("step", &self.step).field("phase", &self.phase).finish_non_exhaustive()
    }
}

impl Moment<'_> {
    /// Sets variables for everything that begins or ends from now on. When this returns, they are kept as durably as
    /// what nodes gave.
    ///
    /// # Errors
    ///
    /// If the host of the run has no [`Control`](crate::Control), or they can't be kept.
    pub async fn set(&mut self, values: Vec<(Selector, Value)>) -> Result<(), String> {
        let Some(control) = self.host.control else { return Err("its host takes no variables".to_owned()) };
        #[cfg(feature = "checkpoint")]
        if self.host.facts().keeps {
            let (done, kept) = tokio::sync::oneshot::channel();
            crate::runner::updates::make(values, self.host, control, done);
            kept.await.map_err(|_| "the run has ended".to_owned())??;
            control.make_updates(&mut self.variables, None, &mut Vec::new());
            return Ok(());
        }
        control.update(values);
        control.make_updates(&mut self.variables, None, &mut Vec::new());
        Ok(())
    }
}

/// A condition on the variables, as a debugger's user writes it: a variable, an operator of `if-else`, a value.
///
/// ```
/// use piton_flow::{Selector, VariablePool, When};
/// let mut pool = VariablePool::default();
/// pool.assign(&Selector::of("start", "n"), 7.into());
/// assert!("start.n > 5".parse::<When>()?.is_met(&pool));
/// assert!(!"start.n is empty".parse::<When>()?.is_met(&pool));
/// assert!("start.n nearly 5".parse::<When>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct When {
    text: String,
    conditions: Conditions,
}

impl When {
    /// Whether it is met. What can't be compared isn't.
    pub fn is_met(&self, variables: &VariablePool) -> bool {
        self.conditions.met(variables).unwrap_or(false)
    }
}

impl std::str::FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.trim().to_owned(), conditions: parse(text)? })
    }
}

impl TryFrom<String> for When {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<When> for String {
    fn from(when: When) -> Self {
        when.text
    }
}

impl PartialEq for When {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
