//! What happened in a run and isn't written yet (decision 4 of the design): one plain list, in order.
//!
//! Nodes and the dispatcher only add to the list. [`writing`] runs the work of a run and writes the list, as one commit,
//! whenever the work waits: for a node that takes a while, for a person, or for the list itself to be written. A node
//! that touches the world waits for that before it begins, so its intent is in the same commit as everything before it.
//! Events stand in the list between what they tell of, and are told when that is written: no listener hears of a node
//! that may have to run again.
//!
//! The work is one task, and the list is written beside it by the same task. So a node counts in the order of the list,
//! and a write is never cut short by the end of a node that waits for it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use piton_types::{Event, StepPath};
use tokio::sync::oneshot;

use crate::engine::Host;
use crate::journal::{Beginning, Begun, Happened, JournalError, NodeDone, Written};
use crate::node::Effect;
use crate::outside::Outside;
use crate::value::weight;

/// A node that took so long is written when it ends, before another begins.
const QUICK: Duration = Duration::from_millis(5);

/// How many nodes that ended may wait to be written, and how many bytes of values; then no other begins before they are.
const MOST_ENDED: usize = 64;
const MOST_BYTES: usize = 256 << 10;

/// How many events may wait to be told; then the node that has another waits.
const MOST_EVENTS: usize = 256;

/// What happened and isn't written yet, or wasn't told.
#[derive(Debug, Default)]
pub struct Burst(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    items: Vec<Item>,
    ended: usize,
    bytes: usize,
    events: usize,
    /// A node ended that is written before another begins.
    is_due: bool,
}

enum Item {
    Happened(Happened, Option<oneshot::Sender<Begun>>),
    Event(Event),
    /// To be called when everything before it is written and told.
    Call(Box<dyn FnOnce() + Send>),
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Happened(happened, _) => happened.fmt(f),
            Self::Event(event) => event.fmt(f),
            Self::Call(_) => f.write_str("Call"),
        }
    }
}

impl Burst {
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.list().items.is_empty()
    }

    /// Whether the list should be written before another node begins.
    pub(crate) fn is_due(&self) -> bool {
        let list = self.list();
        list.is_due || list.ended >= MOST_ENDED || list.bytes >= MOST_BYTES
    }

    /// Whether so many events wait that the next one should.
    pub(crate) fn is_crowded(&self) -> bool {
        let list = self.list();
        list.events >= MOST_EVENTS || list.bytes >= MOST_BYTES
    }

    /// Adds an event, to be told when what happened before it is written.
    pub(crate) fn tell(&self, event: Event) {
        let mut list = self.list();
        list.events += 1;
        if let Event::StepText { text, .. } | Event::Answer { text, .. } = &event {
            list.bytes += text.len();
        }
        list.items.push(Item::Event(event));
    }

    /// Adds something that happened.
    pub(crate) fn add(&self, happened: Happened) {
        self.list().items.push(Item::Happened(happened, None));
    }

    /// Adds that a node ended.
    pub(crate) fn ended(&self, done: NodeDone) {
        let mut list = self.list();
        list.ended += 1;
        list.bytes += weight(&done.inputs) + done.result.as_ref().map_or_else(String::len, weight);
        // Another attempt looks into the journal for what the one before it did inside.
        list.is_due |= done.effect == Effect::Outward || done.duration >= QUICK || done.retry.is_some();
        list.items.push(Item::Happened(Happened::Ended(done), None));
    }

    /// Adds that work is about to begin, and waits for what the journal says to that.
    pub(crate) async fn begin(&self, beginning: Beginning) -> Begun {
        let (answer, begun) = oneshot::channel();
        self.list().items.push(Item::Happened(Happened::Began(beginning), Some(answer)));
        or_never(begun).await
    }

    /// Adds a call that is made when everything before it is written and told. It isn't made if that fails.
    pub(crate) fn call(&self, call: impl FnOnce() + Send + 'static) {
        self.list().items.push(Item::Call(Box::new(call)));
    }

    /// Waits until everything so far is written and told.
    pub(crate) async fn written(&self) {
        let (answer, written) = oneshot::channel();
        // A caller that stopped waiting needs no answer.
        self.call(move || {
            let _ = answer.send(());
        });
        or_never(written).await;
    }

    /// Takes everything, without work that nothing waits for any more: it doesn't begin.
    fn take(&self) -> Vec<Item> {
        let mut items = std::mem::take(&mut *self.list()).items;
        items.retain(|item| !matches!(item, Item::Happened(_, Some(answer)) if answer.is_closed()));
        items
    }
}

/// The list is written by what runs the work that waits for it. If that fails, the work ends there.
async fn or_never<T>(answer: oneshot::Receiver<T>) -> T {
    match answer.await {
        Ok(answer) => answer,
        Err(_) => std::future::pending().await,
    }
}

/// Runs `work`, and writes and tells what happened in it: whenever it waits, and when it has ended. If a write fails, the
/// work is dropped.
pub(crate) async fn writing<T>(host: &Host<'_>, work: impl Future<Output = T>) -> Result<T, JournalError> {
    let (mut work, mut done) = (pin!(work), None);
    let mut writer = pin!(None);
    poll_fn(|cx| {
        loop {
            if done.is_none()
                && let Poll::Ready(ended) = work.as_mut().poll(cx)
            {
                done = Some(ended);
            }
            if writer.is_none() && !host.burst.is_empty() {
                writer.set(Some(write(host)));
            }
            let Some(writes) = writer.as_mut().as_pin_mut() else {
                return done.take().map_or(Poll::Pending, |done| Poll::Ready(Ok(done)));
            };
            match writes.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => writer.set(None),
            }
        }
    })
    .await
}

/// Writes what is in the list, then tells it.
async fn write(host: &Host<'_>) -> Result<(), JournalError> {
    let (mut burst, mut after) = (Vec::new(), Vec::new());
    for item in host.burst.take() {
        match item {
            Item::Happened(happened, answer) => {
                let step = match &happened {
                    Happened::Ended(done) => Some(done.step.clone()),
                    _ => None,
                };
                burst.push(happened);
                after.push(After::Written(step, answer));
            }
            Item::Event(event) => after.push(After::Event(event)),
            Item::Call(call) => after.push(After::Call(call)),
        }
    }
    let written = if burst.is_empty() { Vec::new() } else { host.journal.write(burst).await? };
    let mut written = written.into_iter();
    for after in after {
        match after {
            After::Event(event) => host.events.tell(|| event).await,
            After::Call(call) => call(),
            After::Written(step, answer) => {
                let Written { begun, checkpoint } = written.next().unwrap_or_default();
                if let Some(checkpoint) = checkpoint {
                    host.events
                        .tell(|| Event::CheckpointSaved { checkpoint: checkpoint.clone(), step: step.clone() })
                        .await;
                    if let (Some(step), Some(outside)) = (step, host.services.get::<Outside>()) {
                        outside.saved(host, &step, &checkpoint)?;
                    }
                }
                if let (Some(answer), Some(begun)) = (answer, begun) {
                    // Work that was cut short meanwhile needs no answer.
                    drop(answer.send(begun));
                }
            }
        }
    }
    Ok(())
}

/// What is done when the list is written.
enum After {
    Event(Event),
    Written(Option<StepPath>, Option<oneshot::Sender<Begun>>),
    Call(Box<dyn FnOnce() + Send>),
}
