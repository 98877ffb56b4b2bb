//! Who is told what happens. Nobody costs nothing: an event is made only for somebody.

use piton_types::Event;
use tokio::sync::mpsc;

/// Who is told what happens in a run.
#[derive(Clone, Copy, Default)]
pub enum EventSink<'a> {
    /// Nobody.
    #[default]
    Nobody,
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
            Self::Nobody => {}
            Self::Call(listen) => listen(&event()),
            Self::Channel(sender) => drop(sender.send(event()).await),
        }
    }

    pub(crate) const fn is_somebody(&self) -> bool {
        !matches!(self, Self::Nobody)
    }
}

impl std::fmt::Debug for EventSink<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_somebody() { "EventSink(somebody)" } else { "EventSink(nobody)" })
    }
}
