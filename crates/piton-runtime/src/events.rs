//! Telling whoever listens. Nothing is told before the log has it.

use std::fmt;
use std::sync::Arc;

use piton_types::Event;

/// Is told what happens to a run, in order, on the task that drives it: it should be quick.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<Listen>>);

type Listen = dyn Fn(&Event) + Send + Sync;

impl Listener {
    /// Calls `listen` with every event.
    pub fn new(listen: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listen)))
    }

    /// Tells an event.
    pub fn tell(&self, event: &Event) {
        if let Some(listen) = &self.0 {
            listen(event);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Listener(somebody)" } else { "Listener(nobody)" })
    }
}
