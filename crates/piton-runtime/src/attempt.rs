//! One attempt at a piece of work: it may end, fail, panic, take too long, or be told to stop.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::core::Core;

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum Attempt<T> {
    /// By itself.
    Ended(T),
    /// With a panic, which said this.
    Panicked(String),
    /// It took longer than it may.
    TimedOut(Duration),
    /// The run was told to stop, and its time is over.
    Interrupted,
}

impl Core {
    /// Runs `work`, whatever it does.
    pub(crate) async fn attempt<T>(&self, work: impl Future<Output = T>, timeout: Option<Duration>) -> Attempt<T> {
        let mut work = pin!(work);
        let mut interrupted = pin!(self.interrupted());
        let mut late = timeout.map(|timeout| (timeout, self.context.clock.sleep(timeout)));
        std::future::poll_fn(|cx| {
            // A future that panicked isn't polled again.
            match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
                Ok(Poll::Ready(ended)) => return Poll::Ready(Attempt::Ended(ended)),
                Ok(Poll::Pending) => {}
                Err(panic) => return Poll::Ready(Attempt::Panicked(message(&*panic))),
            }
            if let Some((timeout, late)) = &mut late
                && late.as_mut().poll(cx).is_ready()
            {
                return Poll::Ready(Attempt::TimedOut(*timeout));
            }
            interrupted.as_mut().poll(cx).map(|()| Attempt::Interrupted)
        })
        .await
    }

    /// Sleeps, unless the run is told to stop; says whether the time has passed.
    pub(crate) async fn pause(&self, duration: Duration) -> bool {
        let mut sleep = self.context.clock.sleep(duration);
        let mut asked = pin!(self.asked());
        std::future::poll_fn(|cx| {
            if sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            asked.as_mut().poll(cx).map(|()| false)
        })
        .await
    }

    /// Sleeps, unless `other` happens before or the run is told to stop.
    pub(crate) async fn pause_or(&self, duration: Duration, other: impl Future<Output = ()>) {
        let mut pause = pin!(self.pause(duration));
        let mut other = pin!(other);
        std::future::poll_fn(|cx| {
            if pause.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            other.as_mut().poll(cx)
        })
        .await;
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it said nothing").to_owned()
}
