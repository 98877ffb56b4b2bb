//! From events to hooks, without holding a run up.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use piton_types::{Clock, Event, Value};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Notice, Notify, NotifyError};
use crate::Listener;

/// How many notices may wait.
const QUEUE: usize = 64;

/// Of what the hooks are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NotifyOn {
    /// A run failed: its retries are used up.
    pub failed: bool,
    /// A run waits for an answer.
    pub waiting: bool,
    /// A run completed.
    pub completed: bool,
}

impl Default for NotifyOn {
    /// What a person has to do something about.
    fn default() -> Self {
        Self { failed: true, waiting: true, completed: false }
    }
}

/// Tells hooks what happens to runs.
///
/// ```
/// use std::sync::Arc;
/// use piton_runtime::notify::{CommandHook, Notifier, NotifyOn};
/// use piton_runtime::{Context, Failure, Listener, OpenRun, Run};
/// use piton_store_objects::ObjectStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), piton_runtime::RunError> {
/// let context = Context::system(Arc::new(ObjectStore::in_memory()));
/// let hooks = vec![Arc::new(CommandHook::new("cat", [] as [&str; 0])) as _];
/// let notifier = Notifier::new(hooks, NotifyOn::default(), Arc::clone(&context.clock));
/// let events = notifier.listener(Listener::default());
/// let run = Run::open(&context, OpenRun { events, ..OpenRun::default() }).await?;
/// run.fail(Failure::new("network", "nobody answers")).await?;
/// drop(run);
/// assert_eq!(notifier.finish().await.delivered, 1);
/// # Ok(())
/// # }
/// ```
pub struct Notifier {
    queue: mpsc::Sender<Notice>,
    worker: JoinHandle<()>,
    on: NotifyOn,
    clock: Arc<dyn Clock>,
    counts: Arc<Counts>,
}

/// What became of the notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// Told.
    pub delivered: u64,
    /// Hooks that failed.
    pub failed: u64,
    /// Thrown away because too many were waiting.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Counts {
    delivered: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

impl Notifier {
    /// Tells these hooks. Needs a tokio runtime.
    pub fn new(hooks: Vec<Arc<dyn Notify>>, on: NotifyOn, clock: Arc<dyn Clock>) -> Self {
        Self::with_limit(hooks, on, clock, Duration::from_secs(10))
    }

    /// The same, with a time limit for each hook.
    pub fn with_limit(hooks: Vec<Arc<dyn Notify>>, on: NotifyOn, clock: Arc<dyn Clock>, limit: Duration) -> Self {
        let (queue, notices) = mpsc::channel(QUEUE);
        let counts = Arc::new(Counts::default());
        let worker = tokio::spawn(work(hooks, notices, limit, Arc::clone(&counts)));
        Self { queue, worker, on, clock, counts }
    }

    /// A listener that tells `next` everything and the hooks what they are to know.
    pub fn listener(&self, next: Listener) -> Listener {
        let (queue, on) = (self.queue.clone(), self.on);
        let (clock, counts) = (Arc::clone(&self.clock), Arc::clone(&self.counts));
        Listener::new(move |event| {
            next.pass_on(event);
            let Some(notice) = notice(event, on, &*clock) else { return };
            if let Err(error) = queue.try_send(notice) {
                counts.dropped.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "a notice was thrown away");
            }
        })
    }

    /// Waits until every notice was delivered or given up. The listeners must be gone by then.
    pub async fn finish(self) -> Delivered {
        drop(self.queue);
        // A hook that panics takes the worker with it; what it was to tell is lost, the run isn't.
        drop(self.worker.await);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Delivered {
            delivered: count(&self.counts.delivered),
            failed: count(&self.counts.failed),
            dropped: count(&self.counts.dropped),
        }
    }
}

fn notice(event: &Event, on: NotifyOn, clock: &dyn Clock) -> Option<Notice> {
    let (run, kind, message, outputs) = match event {
        Event::RunFailed { run, error } if on.failed => (run, "failed", error.clone(), Value::Null),
        // With a step it is a question; without, a person or a program stopped the run and knows.
        Event::RunPaused { run, step: Some(step), prompt } if on.waiting => {
            (run, "waiting", format!("{step}: {prompt}"), Value::Null)
        }
        Event::RunSucceeded { run, outputs } if on.completed => (run, "completed", String::new(), outputs.clone()),
        _ => return None,
    };
    Some(Notice { run: run.clone(), event: kind, message, outputs, at: clock.now() })
}

async fn work(hooks: Vec<Arc<dyn Notify>>, mut notices: mpsc::Receiver<Notice>, limit: Duration, counts: Arc<Counts>) {
    let mut complained = BTreeSet::new();
    while let Some(notice) = notices.recv().await {
        for hook in &hooks {
            let told = tokio::time::timeout(limit, hook.notify(&notice)).await;
            match told.unwrap_or(Err(NotifyError::Timeout(limit))) {
                Ok(()) => {
                    counts.delivered.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    counts.failed.fetch_add(1, Ordering::Relaxed);
                    // Once is enough: a hook that is wrong is wrong every time.
                    if complained.insert(hook.name()) {
                        tracing::warn!(run = %notice.run, hook = hook.name(), %error, "a hook couldn't tell of it");
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("on", &self.on).field("counts", &self.counts).finish_non_exhaustive()
    }
}
