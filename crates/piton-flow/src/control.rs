//! The hand that the holder of a run has on it: nothing new may begin, variables change; and what the holder sees: which
//! nodes run, which ended last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piton_types::{StepPath, Value};
use tokio::sync::watch;

use crate::pool::VariablePool;
use crate::selector::Selector;

/// Lets the nodes of a run begin, or not yet; and changes its variables.
///
/// Clones are the same control.
#[derive(Debug, Clone)]
pub struct Control {
    gate: watch::Sender<Gate>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// No node begins.
    Closed,
    /// No node begins, and one that fails is no reason to end the run: it is tried again when it goes on.
    Stopping,
}

#[derive(Debug, Default)]
struct Seen {
    /// All of them, in order.
    updates: Vec<Update>,
    running: BTreeSet<StepPath>,
    last: Option<StepPath>,
    /// The nodes of the outermost graph that have ended well, and the variables that each has set, its own aside.
    ended: BTreeMap<String, Vec<Selector>>,
    failed: Vec<(StepPath, String)>,
}

/// Variables to be set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Update {
    pub(crate) selector: Selector,
    pub(crate) value: Value,
    /// Nodes that had set the same before: when a run goes on, it comes after them again.
    pub(crate) after: Vec<String>,
}

impl Default for Control {
    fn default() -> Self {
        Self { gate: watch::Sender::new(Gate::Open), seen: Arc::default() }
    }
}

impl Control {
    /// From now on no node begins. Those that run go on.
    pub fn close(&self) {
        self.gate.send_if_modified(|gate| *gate == Gate::Open && std::mem::replace(gate, Gate::Closed) == Gate::Open);
    }

    /// Nodes may begin again.
    pub fn open(&self) {
        self.gate.send_replace(Gate::Open);
    }

    /// Whether no node may begin.
    pub fn is_closed(&self) -> bool {
        *self.gate.borrow() != Gate::Open
    }

    /// Sets variables before the next node begins.
    pub fn update(&self, updates: impl IntoIterator<Item = (Selector, Value)>) {
        let updates = updates.into_iter().map(|(selector, value)| Update { selector, value, after: Vec::new() });
        self.seen().updates.extend(updates);
    }

    /// The steps that are being worked at. One that waits for a person isn't, nor one that only others inside it
    /// work at.
    pub fn running(&self) -> Vec<StepPath> {
        self.seen().running.iter().cloned().collect()
    }

    /// The step that ended last.
    pub fn last_completed(&self) -> Option<StepPath> {
        self.seen().last.clone()
    }

    pub(crate) fn stop(&self) {
        self.gate.send_replace(Gate::Stopping);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.gate.borrow() == Gate::Stopping
    }

    /// Ends when the run is to stop.
    pub(crate) async fn stopping(&self) {
        let _ = self.gate.subscribe().wait_for(|gate| *gate == Gate::Stopping).await;
    }

    pub(crate) async fn opened(&self) {
        // The sender is ours, so the wait never fails.
        let _ = self.gate.subscribe().wait_for(|gate| *gate == Gate::Open).await;
    }

    /// Makes the updates that these variables haven't had, if the nodes that they come after have ended. Each graph has
    /// variables of its own, so they stay for all that run or will.
    pub(crate) fn make_updates(&self, pool: &mut VariablePool) {
        for (number, update) in self.seen().updates.iter().enumerate() {
            if update.after.iter().all(|node| pool.scope(node).is_some()) {
                pool.update(number, &update.selector, &update.value);
            }
        }
    }

    #[cfg(feature = "checkpoint")]
    pub(crate) fn put_updates(&self, updates: impl IntoIterator<Item = Update>) {
        self.seen().updates.extend(updates);
    }

    pub(crate) fn began(&self, step: &StepPath) {
        self.seen().running.insert(step.clone());
    }

    pub(crate) fn rests(&self, step: &StepPath) {
        self.seen().running.remove(step);
    }

    pub(crate) fn completed(&self, step: &StepPath) {
        self.seen().last = Some(step.clone());
    }

    /// A node of the outermost graph ended well, and set these variables besides its own.
    pub(crate) fn set(&self, node: &str, variables: Vec<Selector>) {
        self.seen().ended.insert(node.to_owned(), variables);
    }

    /// The nodes that have set this variable so far.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn setters(&self, variable: &Selector) -> Vec<String> {
        let seen = self.seen();
        let is_setter = |node: &str, set: &[Selector]| node == variable.node || set.contains(variable);
        seen.ended.iter().filter(|(node, set)| is_setter(node, set)).map(|(node, _)| node.clone()).collect()
    }

    /// A node failed while the run was stopping.
    pub(crate) fn failed(&self, step: StepPath, error: String) {
        self.seen().failed.push((step, error));
    }

    /// Whether a node failed while the run was stopping.
    pub(crate) fn has_failed(&self, step: &StepPath) -> bool {
        self.seen().failed.iter().any(|(failed, _)| failed == step)
    }

    /// The nodes that failed while the run was stopping.
    pub(crate) fn failures(&self) -> Vec<(StepPath, String)> {
        self.seen().failed.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node that is being worked at, until dropped.
#[derive(Debug)]
pub(crate) struct Working<'a>(Option<(&'a Control, &'a StepPath)>);

impl<'a> Working<'a> {
    pub(crate) fn at(step: &'a StepPath, control: Option<&'a Control>) -> Self {
        Self(control.map(|control| (control, step)).inspect(|(control, step)| control.began(step)))
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if let Some((control, step)) = self.0 {
            control.rests(step);
        }
    }
}

/// A node that is worked at, but waits, until dropped.
#[derive(Debug)]
pub(crate) struct Pausing<'a>(Option<(&'a Control, &'a StepPath)>);

impl<'a> Pausing<'a> {
    pub(crate) fn at(step: &'a StepPath, control: Option<&'a Control>) -> Self {
        Self(control.map(|control| (control, step)).inspect(|(control, step)| control.rests(step)))
    }
}

impl Drop for Pausing<'_> {
    fn drop(&mut self) {
        if let Some((control, step)) = self.0 {
            control.began(step);
        }
    }
}
