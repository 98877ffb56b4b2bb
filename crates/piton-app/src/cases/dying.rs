//! A store at one of whose calls the process dies: really, by SIGKILL, or only for its caller, which gets no answer
//! from then on.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use piton_store::{Blobs, Commit, Fold, Leases, Log, RunIndex, Store, StoreError, Upkeep, forward};

/// When it dies, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// At which call, from 1; 0 for never.
    pub call: u64,
    /// When the call has been performed, before its answer is heard.
    pub after: bool,
    /// By SIGKILL.
    pub really: bool,
}

impl Death {
    /// It lives.
    pub const NEVER: Self = Self { call: 0, after: false, really: false };
}

/// A store that works like another one until the process dies.
pub(crate) struct DyingStore {
    inner: Arc<dyn Store>,
    death: Death,
    calls: AtomicU64,
    /// The calls that added an entry.
    appends: Mutex<Vec<u64>>,
}

impl DyingStore {
    pub(crate) fn new(inner: Arc<dyn Store>, death: Death) -> Self {
        Self { inner, death, calls: AtomicU64::new(0), appends: Mutex::default() }
    }

    /// How many calls were made.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Which of them added an entry.
    pub(crate) fn appends(&self) -> Vec<u64> {
        self.appends.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn pass<T>(
        &self,
        _: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let Death { call: at, after, really } = self.death;
        if at == 0 || number < at {
            return call.await;
        }
        if number == at && after {
            drop(call.await);
        }
        if really {
            kill_this_process();
        }
        Err(StoreError::Unavailable { detail: format!("the process died at call {at}") })
    }
}

/// Ends this process as `kill -9` does: nothing is cleaned up, nothing is written.
fn kill_this_process() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // It takes effect before this process runs on; if not, this is the next best.
    std::process::abort()
}

#[async_trait]
impl Log for DyingStore {
    forward! { via pass: head read }

    /// Every entry is a call of its own: so whatever was recorded before one is in the log when it dies there.
    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        for commit in commits {
            self.appends.lock().unwrap_or_else(PoisonError::into_inner).push(self.calls() + 1);
            self.pass("append", self.inner.append(vec![commit])).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Fold for DyingStore {
    forward! { via pass: segments section fold }
}

#[async_trait]
impl Blobs for DyingStore {
    forward! { via pass: stage pin locate pack pack_part }
}

#[async_trait]
impl Upkeep for DyingStore {
    forward! { via pass: remove packs pack_ids condemn pardon sweep note notes set_note run_ids totals inspect }
}

#[async_trait]
impl RunIndex for DyingStore {
    forward! { via pass: summary list }
}

#[async_trait]
impl Leases for DyingStore {
    forward! { via pass: lease beat release }
}

#[async_trait]
impl Store for DyingStore {
    forward! { capabilities hashing redaction syncs url folding leases upkeep changes queue }
    forward! { via pass: usage close }
}
