//! The events of a workflow, for the holder of its handle. A channel with room for a thousand is only made for a
//! listener: a run that waits and that has none has no channel.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use piton_types::Event;
use tokio::sync::broadcast;

/// How many events a listener may be behind.
const EVENTS: usize = 1_024;

/// What was told so far, or whom to tell.
#[derive(Debug, Clone)]
pub(crate) struct Told(Arc<Mutex<Stage>>);

#[derive(Debug)]
enum Stage {
    /// No listener yet: the newest are kept for the first one.
    Kept(VecDeque<Event>),
    Heard(broadcast::Sender<Event>),
}

impl Told {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Stage::Kept(VecDeque::new()))))
    }

    pub(crate) fn tell(&self, event: &Event) {
        // Without a handle there will be no listener.
        let is_held = Arc::strong_count(&self.0) > 1;
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Stage::Kept(events) if is_held => {
                if events.len() == EVENTS {
                    events.pop_front();
                }
                events.push_back(event.clone());
            }
            Stage::Kept(events) => *events = VecDeque::new(),
            // Without a listener it is lost.
            Stage::Heard(listeners) => drop(listeners.send(event.clone())),
        }
    }

    /// What happens from now on; for the first who asks, everything.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Event> {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *stage {
            Stage::Heard(listeners) => listeners.subscribe(),
            Stage::Kept(events) => {
                let (listeners, listener) = broadcast::channel(EVENTS);
                for event in events.drain(..) {
                    drop(listeners.send(event));
                }
                *stage = Stage::Heard(listeners);
                listener
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: u32) -> Event {
        Event::RunCancelled { run: "r".parse().unwrap(), reason: n.to_string() }
    }

    #[test]
    fn the_first_who_listens_hears_everything() {
        let told = Told::new();
        let _handle = told.clone();
        (0..3).for_each(|n| told.tell(&event(n)));
        let (mut first, mut second) = (told.listen(), told.listen());
        told.tell(&event(3));
        let heard: Vec<_> = std::iter::from_fn(|| first.try_recv().ok()).collect();
        assert_eq!(heard, (0..4).map(event).collect::<Vec<_>>());
        assert_eq!(second.try_recv().ok(), Some(event(3)));
    }

    #[test]
    fn what_nobody_can_hear_is_not_kept() {
        let told = Told::new();
        let handle = told.clone();
        told.tell(&event(0));
        drop(handle);
        told.tell(&event(1));
        assert!(matches!(&*told.0.lock().unwrap(), Stage::Kept(events) if events.capacity() == 0));
    }
}
