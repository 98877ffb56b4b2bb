//! Looking after work that runs: letting it go on, holding it up, cutting it short.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use crate::activity::Activity;
use crate::control::Control;

/// What the holder of a run wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Nothing new begins. What runs ends.
    Pause,
    /// Nothing new begins. What runs may end within this time; without it, takes its time.
    Stop(Option<Duration>),
    /// Everything ends, now.
    Cut,
}

/// How the work stands when it needs no more looking after.
#[derive(Debug)]
pub(crate) enum Rest<T> {
    /// It ended.
    Ended(T),
    /// Nothing can happen until a person answers.
    Waits,
    /// Nothing begins, nothing runs: it was asked to pause.
    Paused,
    /// Nothing begins, and nothing runs or its time is over: it was asked to stop.
    Stopped,
    /// It was to end at once.
    Cut,
}

/// Where orders come from.
pub(crate) trait Orders {
    /// The next one. It may be dropped while it waits, and then must not lose any.
    fn next(&mut self) -> impl Future<Output = Order> + Send;
}

/// Looks after work until it ends or comes to rest. Dropping the work afterwards loses nothing but what was running.
/// `waits` tells whether a node waits for an answer.
pub(crate) async fn attend<T, W: Future<Output = T>>(
    mut work: Pin<&mut W>,
    activity: &Activity<'_>,
    control: &Control,
    orders: &mut impl Orders,
    waits: impl Fn() -> bool,
) -> Rest<T> {
    let mut deadline: Option<Instant> = None;
    loop {
        let over = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        // While nothing may begin, everything that isn't busy is at rest.
        let done = activity.until_rest(work.as_mut(), || control.is_closed() || waits());
        tokio::select! {
            biased;
            order = orders.next() => match order {
                Order::Pause => control.close(),
                Order::Stop(grace) => {
                    control.stop();
                    let asked = grace.map(|grace| Instant::now() + grace);
                    deadline = deadline.into_iter().chain(asked).min();
                }
                Order::Cut => return Rest::Cut,
            },
            () = over => return Rest::Stopped,
            done = done => return match done {
                Some(done) => Rest::Ended(done),
                None if control.is_stopping() => Rest::Stopped,
                None if control.is_closed() => Rest::Paused,
                None => Rest::Waits,
            },
        }
    }
}
