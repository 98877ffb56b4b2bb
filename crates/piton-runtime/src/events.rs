//! Telling a listener what happens. Nothing is told before the log has it.

use std::fmt;
use std::sync::Arc;

use piton_store::Redaction;
use piton_types::{Event, from_value, to_value};

/// Is told what happens to a run, in order, on the task that drives it: it should be quick.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<Listen>>);

type Listen = dyn Fn(&Event) + Send + Sync;

impl Listener {
    /// Calls `listen` with every event.
    pub fn new(listen: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listen)))
    }

    /// Tells events without the secrets that the store's policy knows.
    pub(crate) fn redacted(self, redaction: Option<&Arc<Redaction>>) -> Self {
        let (Some(listen), Some(redaction)) = (&self.0, redaction) else { return self };
        let (listen, redaction) = (Arc::clone(listen), Arc::clone(redaction));
        Self::new(move |event| {
            let shown = to_value(event).map(|value| redaction.shown_value(&value)).and_then(from_value);
            match shown {
                Ok(event) => listen(&event),
                // Rather nothing than a secret.
                Err(error) => tracing::error!(%error, "an event can't be redacted, and isn't told"),
            }
        })
    }

    /// Tells an event, which is put together only if there is a listener.
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(listen) = &self.0 {
            listen(&event());
        }
    }

    /// Tells an event that is there already.
    pub fn pass_on(&self, event: &Event) {
        if let Some(listen) = &self.0 {
            listen(event);
        }
    }

    /// Whether there is a listener.
    pub fn listens(&self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Listener" } else { "Listener(none)" })
    }
}
