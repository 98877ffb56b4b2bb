//! Whether anything is being done: what max time counts, and what tells that a run only waits for people.
//!
//! Everything of a run is polled by one task. So when its work was polled and is pending, no node is busy and nothing
//! wants to be polled again, then nothing can happen any more until a person answers or lets it go on.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::{Instant, Sleep};

/// How many are busy at a place of a run: a node, or all nodes of a graph. A place is busy for the one around it as
/// long as anything in it is.
#[derive(Debug, Default)]
pub(crate) struct Activity<'a> {
    busy: AtomicUsize,
    around: Option<&'a Activity<'a>>,
}

/// Work that is busy.
#[derive(Debug)]
pub(crate) struct Busy<'a>(&'a Activity<'a>);

/// Work that was busy and waits.
#[derive(Debug)]
pub(crate) struct Resting<'a>(&'a Activity<'a>);

impl<'a> Activity<'a> {
    /// A place inside this one.
    pub(crate) const fn inside(&'a self) -> Self {
        Activity { busy: AtomicUsize::new(0), around: Some(self) }
    }

    /// Work is busy here, until what this returns is dropped.
    pub(crate) fn begin(&'a self) -> Busy<'a> {
        self.enter();
        Busy(self)
    }

    /// Work that is busy here isn't, until what this returns is dropped.
    pub(crate) fn rest(&'a self) -> Resting<'a> {
        self.exit();
        Resting(self)
    }

    fn enter(&self) {
        if self.busy.fetch_add(1, Ordering::Relaxed) == 0
            && let Some(around) = self.around
        {
            around.enter();
        }
    }

    fn exit(&self) {
        if self.busy.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some(around) = self.around
        {
            around.exit();
        }
    }

    /// How many are busy here; those inside a place inside are one.
    pub(crate) fn count(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Runs `work` for at most `most` of the time in which work is busy here; `None` if it took longer.
    pub(crate) async fn within<T>(&self, most: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut left = most;
        let mut running: Option<(Instant, Pin<Box<Sleep>>)> = None;
        std::future::poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            match (&mut running, self.count()) {
                (Some((since, _)), 0) => {
                    left = left.saturating_sub(since.elapsed());
                    running = None;
                }
                (none @ None, 1..) => *none = Some((Instant::now(), Box::pin(tokio::time::sleep(left)))),
                _ => {}
            }
            match &mut running {
                Some((_, over)) => over.as_mut().poll(cx).map(|()| None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Runs `work` until it ends, or no work is busy here and `rest` agrees; `None` then.
    pub(crate) async fn until_rest<T>(&self, work: impl Future<Output = T>, rest: impl Fn() -> bool) -> Option<T> {
        let mut work = pin!(work);
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let mut was_quiet = false;
        std::future::poll_fn(|cx| {
            bell.waker.register(cx.waker());
            if bell.rung.swap(false, Ordering::AcqRel) {
                was_quiet = false;
            }
            match work.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                // If it rang, something can go on, although it isn't busy yet.
                Poll::Pending if self.count() > 0 || bell.rung.load(Ordering::Acquire) || !rest() => {
                    was_quiet = false;
                    Poll::Pending
                }
                Poll::Pending if was_quiet => Poll::Ready(None),
                // Work that gives way to others is woken only when the runtime has seen to those, so once more after
                // them.
                Poll::Pending => {
                    was_quiet = true;
                    let _ = pin!(tokio::task::yield_now()).poll(cx);
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Tells whether work wants to be polled again.
#[derive(Debug, Default)]
struct Bell {
    rung: AtomicBool,
    waker: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.exit();
    }
}

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        self.0.enter();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_busy_as_long_as_anything_in_it_is() {
        let run = Activity::default();
        let (node, graph) = (run.inside(), run.inside());
        let inner = graph.inside();
        let (a, b) = (inner.begin(), inner.begin());
        assert_eq!((run.count(), graph.count(), inner.count()), (1, 1, 2));
        let c = node.begin();
        assert_eq!(run.count(), 2);
        drop(a);
        assert_eq!((run.count(), inner.count()), (2, 1));
        drop((b, c));
        assert_eq!((run.count(), graph.count(), inner.count()), (0, 0, 0));
    }

    /// What was never polled isn't busy, but wants to be.
    #[tokio::test]
    async fn work_that_wants_to_be_polled_again_is_not_at_rest() {
        let run = Activity::default();
        let work = async {
            tokio::task::yield_now().await;
            7
        };
        assert_eq!(run.until_rest(work, || true).await, Some(7));
        assert_eq!(run.until_rest(std::future::pending::<()>(), || true).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_while_nothing_is_busy() {
        let run = Activity::default();
        let second = Duration::from_secs(1);
        let work = async {
            let busy = run.begin();
            tokio::time::sleep(second).await;
            drop(busy);
            tokio::time::sleep(second * 1000).await;
            let _busy = run.begin();
            tokio::time::sleep(second).await;
            7
        };
        assert_eq!(run.within(second * 3, work).await, Some(7));
        let work = async {
            let _busy = run.begin();
            tokio::time::sleep(second * 4).await;
        };
        assert_eq!(run.within(second * 3, work).await, None);
    }
}
