//! One signal that stops many runs.

use std::time::Duration;

use tokio::sync::watch;

/// How long running nodes may go on when a run stops, unless the caller says otherwise.
pub(crate) const GRACE: Duration = Duration::from_secs(30);

/// Stops every run that was given it or a clone of it: nothing new begins, what runs may end within the time, what
/// is unfinished then goes on with the run.
///
/// ```
/// use piton_flow::SafeStopSignal;
/// let signal = SafeStopSignal::new();
/// let other = signal.clone();
/// signal.trigger(5);
/// assert!(other.is_triggered());
/// assert_eq!(other.timeout_secs(), 5);
/// ```
#[derive(Debug, Clone)]
pub struct SafeStopSignal(watch::Sender<Option<Given>>);

/// What the signal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    /// Stop; what runs may go on for so long.
    Stop(Duration),
    /// End at once.
    Abort,
}

impl Default for SafeStopSignal {
    fn default() -> Self {
        Self::new()
    }
}

impl SafeStopSignal {
    /// A signal that wasn't given yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Gives the signal. What runs may go on for so long. Given again, the shorter time counts.
    pub fn trigger(&self, timeout_secs: u64) {
        let grace = Duration::from_secs(timeout_secs);
        self.0.send_modify(|given| {
            *given = Some(match *given {
                None => Given::Stop(grace),
                Some(Given::Stop(before)) => Given::Stop(before.min(grace)),
                Some(Given::Abort) => Given::Abort,
            });
        });
    }

    /// Ends the runs at once: they are failed.
    pub fn abort(&self) {
        self.0.send_replace(Some(Given::Abort));
    }

    /// Whether it was given.
    pub fn is_triggered(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Ends when it is given; at once if it was.
    pub async fn cancelled(&self) {
        self.given(None).await;
    }

    /// How long what runs may go on, in seconds; 30 unless the caller says otherwise.
    pub fn timeout_secs(&self) -> u64 {
        match *self.0.borrow() {
            None => GRACE.as_secs(),
            Some(Given::Stop(grace)) => grace.as_secs(),
            Some(Given::Abort) => 0,
        }
    }

    /// What is said next, if `known` is what was said before.
    pub(crate) async fn given(&self, known: Option<Given>) -> Given {
        let mut given = self.0.subscribe();
        // The sender is ours, so the wait never fails.
        let found = given.wait_for(|given| *given != known).await.ok().and_then(|given| *given);
        match found {
            Some(given) => given,
            None => std::future::pending().await,
        }
    }
}
