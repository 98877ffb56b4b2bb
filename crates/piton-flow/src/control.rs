//! The hand that whoever holds a run has on it: nothing new may begin, variables change.

use std::sync::{Mutex, PoisonError};

use piton_types::Value;
use tokio::sync::watch;

use crate::selector::Selector;

/// Lets the nodes of a run begin, or not yet; and changes its variables.
#[derive(Debug)]
pub struct Control {
    closed: watch::Sender<bool>,
    updates: Mutex<Vec<(Selector, Value)>>,
}

impl Default for Control {
    fn default() -> Self {
        Self { closed: watch::Sender::new(false), updates: Mutex::default() }
    }
}

impl Control {
    /// From now on no node begins. Those that run go on.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Nodes may begin again.
    pub fn open(&self) {
        self.closed.send_replace(false);
    }

    /// Whether no node may begin.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Sets variables before the next node begins.
    pub fn update(&self, updates: impl IntoIterator<Item = (Selector, Value)>) {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner).extend(updates);
    }

    pub(crate) async fn opened(&self) {
        // The sender is ours, so there is always somebody to wait for.
        let _ = self.closed.subscribe().wait_for(|closed| !closed).await;
    }

    pub(crate) fn take_updates(&self) -> Vec<(Selector, Value)> {
        std::mem::take(&mut self.updates.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
