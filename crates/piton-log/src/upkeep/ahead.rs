//! Reading ahead on other threads. A few pieces are under way at a time, so memory stays bounded, and the caller gets
//! them in order.

use std::collections::VecDeque;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// More threads than these would only wait for the disk.
const MOST: usize = 4;

/// What is made of each of some things, in their order.
pub(super) struct Ahead<I: Iterator, T> {
    items: I,
    work: fn(&Handle, I::Item) -> T,
    under_way: VecDeque<JoinHandle<T>>,
    most: usize,
}

impl<I, T> Ahead<I, T>
where
    I: Iterator<Item: Send + 'static>,
    T: Send + 'static,
{
    /// `work` is done on a thread that may wait, with the runtime that drives the store.
    pub(super) fn new(items: I, work: fn(&Handle, I::Item) -> T) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // One more than there are cores, so that none is idle while the caller is still busy with the piece that it
        // took.
        Self { items, work, under_way: VecDeque::new(), most: (cores + 1).min(MOST) }
    }

    /// The next one; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<T> {
        while self.under_way.len() < self.most
            && let Some(item) = self.items.next()
        {
            let (work, runtime) = (self.work, Handle::current());
            self.under_way.push_back(tokio::task::spawn_blocking(move || work(&runtime, item)));
        }
        match self.under_way.pop_front()?.await {
            Ok(done) => Some(done),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}
