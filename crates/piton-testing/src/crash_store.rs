//! A store that dies at a chosen call, so that a test can loop over every call of a piece of work.
//!
//! ```text
//! let calls = { run the work on CrashStore::new(inner, Fault::None); store.calls() };
//! for n in 1..=calls {
//!     for fault in [Fault::CrashBefore(n), Fault::CrashAfter(n)] {
//!         run the work on CrashStore::new(inner, fault);  // it fails somewhere
//!         drop all that the work held; continue on `inner`; compare with the uninterrupted work
//!     }
//! }
//! ```

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Blobs, Commit, Fold, Leases, Log, PackId, Pin, RunIndex, Store, StoreError, Upkeep, forward};
use piton_types::{BlobId, Durability};
use tokio::sync::Notify;

/// What goes wrong, and at which call. Calls count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: for counting the calls.
    None,
    /// The process dies just before this call: it isn't performed, and no call is from then on.
    CrashBefore(u64),
    /// The process dies just after this call: it is performed, but its answer is lost, and no call is
    /// performed from then on.
    CrashAfter(u64),
    /// The process is stopped just before this call, until it is [let go on](CrashStore::let_go_on).
    StopBefore(u64),
    /// The store can't be reached for `calls` calls from call `from` on; then it is back.
    Away {
        /// The first call that fails.
        from: u64,
        /// How many fail.
        calls: u64,
        /// The calls reach the store all the same; only their answers are lost.
        performed: bool,
    },
}

/// What the fault makes of one call.
#[derive(Clone, Copy)]
enum Fate {
    Answered,
    AnswerLost(&'static str),
    NotPerformed(&'static str),
}

/// A decorator that passes every call to the store below it until its [`Fault`] strikes. Calls that
/// fail by it get [`StoreError::Unavailable`].
///
/// What needs no I/O (`capabilities`, `hashing`, `url`) is not counted and never fails.
pub struct CrashStore {
    inner: Arc<dyn Store>,
    fault: Fault,
    calls: AtomicU64,
    away: AtomicBool,
    names: Mutex<Vec<&'static str>>,
    stopped: AtomicBool,
    go_on: Notify,
    forgets_pins: bool,
    chains: bool,
}

impl CrashStore {
    /// A store that works like `inner` until `fault` strikes.
    pub fn new(inner: Arc<dyn Store>, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            calls: AtomicU64::new(0),
            away: AtomicBool::new(false),
            names: Mutex::default(),
            stopped: AtomicBool::new(false),
            go_on: Notify::new(),
            forgets_pins: false,
            chains: false,
        }
    }

    /// The same, but several entries may be one call. Without, each is one, so that the fault may strike between any two.
    #[must_use]
    pub fn with_chains(mut self) -> Self {
        self.chains = true;
        self
    }

    /// The same, but nothing is pinned and no writer says which snapshot it shares folders with: the negative control of
    /// what depends on that.
    #[must_use]
    pub fn forgetting_pins(mut self) -> Self {
        self.forgets_pins = true;
        self
    }

    /// Whether a call waits to be let go on.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Lets the call go on that is stopped, or will be.
    pub fn let_go_on(&self) {
        self.go_on.notify_one();
    }

    /// How many calls were made, failed ones included.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The methods called so far, in order: for the message of a failed test.
    pub fn names(&self) -> Vec<&'static str> {
        self.names.lock().expect("no holder of this lock can panic").clone()
    }

    /// Whether the fault has struck.
    pub fn struck(&self) -> bool {
        match self.fault {
            Fault::None | Fault::StopBefore(_) => false,
            Fault::CrashBefore(at) | Fault::CrashAfter(at) | Fault::Away { from: at, .. } => self.calls() >= at,
        }
    }

    /// Takes the store away, or brings it back, by hand; calls made meanwhile fail and still count.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// The store below, which survives the crash.
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    fn pinned(&self, pin: Pin) -> Pin {
        match self.forgets_pins {
            true => Pin { life: Duration::ZERO, ..pin },
            false => pin,
        }
    }

    fn fate(&self, call: u64) -> Fate {
        const CRASHED: &str = "crashed";
        const AWAY: &str = "away";
        if self.away.load(Ordering::SeqCst) {
            return Fate::NotPerformed(AWAY);
        }
        match self.fault {
            Fault::CrashBefore(at) if call >= at => Fate::NotPerformed(CRASHED),
            Fault::CrashAfter(at) if call == at => Fate::AnswerLost(CRASHED),
            Fault::CrashAfter(at) if call > at => Fate::NotPerformed(CRASHED),
            Fault::Away { from, calls, performed } if call >= from && call - from < calls => {
                if performed {
                    Fate::AnswerLost(AWAY)
                } else {
                    Fate::NotPerformed(AWAY)
                }
            }
            _ => Fate::Answered,
        }
    }

    /// Futures do nothing before they are polled, so one that is dropped here was not performed.
    async fn pass<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let number = {
            let mut names = self.names.lock().expect("no holder of this lock can panic");
            names.push(name);
            self.calls.fetch_add(1, Ordering::SeqCst) + 1
        };
        if self.fault == Fault::StopBefore(number) {
            self.stopped.store(true, Ordering::SeqCst);
            self.go_on.notified().await;
            self.stopped.store(false, Ordering::SeqCst);
        }
        let why = match self.fate(number) {
            Fate::Answered => return call.await,
            Fate::AnswerLost(why) => {
                drop(call.await);
                why
            }
            Fate::NotPerformed(why) => why,
        };
        Err(StoreError::Unavailable { detail: format!("{why} at call {number} ({name})") })
    }
}

#[async_trait]
impl Log for CrashStore {
    forward! { via pass: head read }

    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        if self.chains && commits.len() > 1 {
            return self.pass("append_several", self.inner.append(commits)).await;
        }
        Commit::check_together(&commits)?;
        for commit in commits {
            let name = match commit.durability {
                Durability::Durable => "append",
                Durability::Relaxed => "append_relaxed",
            };
            self.pass(name, self.inner.append(vec![commit])).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Fold for CrashStore {
    forward! { via pass: segments section fold }
}

#[async_trait]
impl Blobs for CrashStore {
    forward! { via pass: locate pack pack_part }

    async fn stage(&self, id: PackId, pack: Bytes, ids: &[BlobId], pin: Pin) -> Result<(), StoreError> {
        self.pass("stage", self.inner.stage(id, pack, ids, self.pinned(pin))).await
    }

    async fn pin(&self, packs: &[PackId], pin: Pin) -> Result<(), StoreError> {
        self.pass("pin", self.inner.pin(packs, self.pinned(pin))).await
    }
}

#[async_trait]
impl Upkeep for CrashStore {
    forward! { via pass: remove packs pack_ids condemn pardon sweep note notes run_ids totals inspect }

    async fn set_note(&self, key: &str, note: Option<Bytes>) -> Result<(), StoreError> {
        let note = note.filter(|_| !self.forgets_pins || !key.starts_with("sharing/"));
        self.pass("set_note", self.inner.set_note(key, note)).await
    }
}

#[async_trait]
impl RunIndex for CrashStore {
    forward! { via pass: summary list }
}

#[async_trait]
impl Leases for CrashStore {
    forward! { via pass: lease beat release }
}

#[async_trait]
impl Store for CrashStore {
    forward! { capabilities hashing redaction syncs url folding leases upkeep changes queue }
    forward! { via pass: usage close }
}
