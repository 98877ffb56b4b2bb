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

    /// Tells an event if that can be done at once; else gives it back.
    pub(crate) fn tell_now(&self, event: Event) -> Option<Event> {
        match self {
            Self::Nobody => None,
            Self::Call(listen) => {
                listen(&event);
                None
            }
            Self::Channel(sender) => match sender.try_send(event) {
                Err(mpsc::error::TrySendError::Full(event)) => Some(event),
                _ => None,
            },
        }
    }

    /// Tells what `next` gives, until it gives nothing. Each is asked for only when it can be told at once: whoever stops
    /// waiting before has taken nothing away.
    pub(crate) async fn tell_all(&self, mut next: impl FnMut() -> Option<Event>) {
        loop {
            let place = match self {
                Self::Channel(sender) => sender.reserve().await.ok(),
                _ => None,
            };
            let Some(event) = next() else { return };
            match (self, place) {
                (Self::Call(listen), _) => listen(&event),
                (_, Some(place)) => place.send(event),
                _ => {}
            }
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
