//! The hand that the holder of a run has on it: nothing new may begin, variables change; and what the holder sees: which
//! nodes run, which ended last.

use std::collections::BTreeSet;
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
    /// How many steps of the log have them.
    #[cfg(feature = "checkpoint")]
    update_steps: u32,
    running: BTreeSet<StepPath>,
    last: Option<StepPath>,
    failed: Vec<(StepPath, String)>,
}

/// A variable to be set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Update {
    pub(crate) selector: Selector,
    pub(crate) value: Value,
    /// Its place in the order in which nodes ended, if it was made in an earlier process: when the run goes on, it comes
    /// between the same nodes again. Without one it comes behind them all.
    pub(crate) order: Option<u64>,
}

impl Update {
    /// Takes the place of what was assigned before it.
    fn overrule(&self, assignments: &mut Vec<(Selector, Value)>) {
        let inside = |one: &Selector, other: &Selector| one.node == other.node && one.path.starts_with(&other.path);
        assignments.retain(|(set, _)| !inside(set, &self.selector));
        if assignments.iter().any(|(set, _)| inside(&self.selector, set)) {
            assignments.push((self.selector.clone(), self.value.clone()));
        }
    }
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
        let updates = updates.into_iter().map(|(selector, value)| Update { selector, value, order: None });
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

    /// Makes the updates that these variables haven't had: all, or those that came before this place in the order. They
    /// take the place of what these `assignments` set before. Each graph has variables of its own, so updates stay for all
    /// that run or will.
    pub(crate) fn make_updates(
        &self,
        pool: &mut VariablePool,
        before: Option<u64>,
        assignments: &mut Vec<(Selector, Value)>,
    ) {
        let seen = self.seen();
        let is_due = |update: &&Update| before.is_none_or(|before| update.order.is_some_and(|order| order < before));
        let count = seen.updates[pool.updates..].iter().take_while(is_due).count();
        make(&seen.updates, pool, pool.updates + count, assignments);
    }

    /// A round ended, which had `ended` and these `late` assignments: what was set by hand while it ran is made around it
    /// too, and returned; what was set by hand after it takes the place of what it has set.
    pub(crate) fn round_ended(
        &self,
        around: &mut VariablePool,
        assignments: &mut Vec<(Selector, Value)>,
        ended: &VariablePool,
        late: &mut Vec<(Selector, Value)>,
    ) -> Vec<(Selector, Value)> {
        let seen = self.seen();
        let known = around.updates;
        make(&seen.updates, around, ended.updates, assignments);
        seen.updates[ended.updates..around.updates.max(ended.updates)].iter().for_each(|update| update.overrule(late));
        let made = &seen.updates[known..around.updates];
        made.iter().map(|update| (update.selector.clone(), update.value.clone())).collect()
    }

    /// Makes updates again that variables had before: so many in all.
    pub(crate) fn make_again(&self, pool: &mut VariablePool, count: usize) {
        let seen = self.seen();
        make(&seen.updates, pool, count.min(seen.updates.len()), &mut Vec::new());
    }

    /// Whether there are updates that these variables haven't had.
    pub(crate) fn has_updates(&self, pool: &VariablePool) -> bool {
        self.seen().updates.len() > pool.updates
    }

    #[cfg(feature = "checkpoint")]
    /// The updates that the log has, in so many steps.
    pub(crate) fn put_updates(&self, steps: u32, updates: impl IntoIterator<Item = Update>) {
        let mut seen = self.seen();
        seen.update_steps = steps;
        seen.updates.extend(updates);
    }

    /// The number of the next step of updates, from 1.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn next_update_step(&self) -> u32 {
        let mut seen = self.seen();
        seen.update_steps += 1;
        seen.update_steps
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

/// Makes the updates up to a number, from those that the variables have had.
fn make(updates: &[Update], pool: &mut VariablePool, until: usize, assignments: &mut Vec<(Selector, Value)>) {
    while pool.updates < until {
        let update = &updates[pool.updates];
        pool.assign(&update.selector, update.value.clone());
        update.overrule(assignments);
        pool.updates += 1;
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
