//! Who is told what happens. Without a listener an event isn't made.

use piton_types::Event;
use tokio::sync::mpsc;

/// Who is told what happens in a run.
#[derive(Clone, Copy, Default)]
pub enum EventSink<'a> {
    /// No listener.
    #[default]
    None,
    /// A function, called with every event in order.
    Call(&'a (dyn Fn(&Event) + Sync)),
    /// A bounded channel. When it is full the run waits; when its other end is gone the events are
    /// dropped.
    Channel(&'a mpsc::Sender<Event>),
}

impl EventSink<'_> {
    /// Tells an event.
    pub(crate) async fn tell(&self, event: impl FnOnce() -> Event) {
        match self {
            Self::None => {}
            Self::Call(listen) => listen(&event()),
            Self::Channel(sender) => drop(sender.send(event()).await),
        }
    }

    pub(crate) const fn has_listener(&self) -> bool {
        !matches!(self, Self::None)
    }
}

impl std::fmt::Debug for EventSink<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.has_listener() { "EventSink(listener)" } else { "EventSink(no listener)" })
    }
}
