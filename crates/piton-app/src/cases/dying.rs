//! A store at one of whose calls the process dies: really, by SIGKILL, or only for its caller, which gets no answer
//! from then on.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use piton_store::{
    Blobs, Bytes, Commit, Defect, Fold, Head, Lease, Leases, Log, PackId, PackInfo, Pin, Record, RunIndex, RunQuery,
    Section, Segment, SegmentInfo, Span, Store, StoreError, Sweep, Swept, Totals, Upkeep, Usage, forward,
};
use piton_types::{BlobId, Fence, Holder, RunId, RunSummary, Timestamp};

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

    async fn pass<T>(&self, call: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
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
    /// Every entry is a call of its own: so whatever was recorded before one is in the log when it dies there.
    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        for commit in commits {
            self.appends.lock().unwrap_or_else(PoisonError::into_inner).push(self.calls() + 1);
            self.pass(self.inner.append(vec![commit])).await?;
        }
        Ok(())
    }

    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError> {
        self.pass(self.inner.head(run)).await
    }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        self.pass(self.inner.read(run, span)).await
    }
}

#[async_trait]
impl Fold for DyingStore {
    async fn segments(&self, run: &RunId) -> Result<Vec<SegmentInfo>, StoreError> {
        self.pass(self.inner.segments(run)).await
    }

    async fn section(&self, run: &RunId, segment: SegmentInfo, section: Section) -> Result<Bytes, StoreError> {
        self.pass(self.inner.section(run, segment, section)).await
    }

    async fn fold(&self, run: &RunId, segment: Segment) -> Result<(), StoreError> {
        self.pass(self.inner.fold(run, segment)).await
    }
}

#[async_trait]
impl Blobs for DyingStore {
    async fn stage(&self, id: PackId, pack: Bytes, ids: &[BlobId], pin: Pin) -> Result<(), StoreError> {
        self.pass(self.inner.stage(id, pack, ids, pin)).await
    }

    async fn pin(&self, packs: &[PackId], pin: Pin) -> Result<(), StoreError> {
        self.pass(self.inner.pin(packs, pin)).await
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        self.pass(self.inner.locate(ids)).await
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        self.pass(self.inner.pack(pack)).await
    }

    async fn pack_part(&self, pack: PackId, from: u64, length: usize) -> Result<Option<Bytes>, StoreError> {
        self.pass(self.inner.pack_part(pack, from, length)).await
    }
}

#[async_trait]
impl Upkeep for DyingStore {
    async fn remove(&self, run: &RunId, head: Head) -> Result<(), StoreError> {
        self.pass(self.inner.remove(run, head)).await
    }

    async fn packs(&self, after: Option<PackId>, limit: usize) -> Result<Vec<PackInfo>, StoreError> {
        self.pass(self.inner.packs(after, limit)).await
    }

    async fn pack_ids(&self, pack: PackId) -> Result<Vec<BlobId>, StoreError> {
        self.pass(self.inner.pack_ids(pack)).await
    }

    async fn pardon(&self, packs: &[PackId]) -> Result<(), StoreError> {
        self.pass(self.inner.pardon(packs)).await
    }

    async fn notes(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        self.pass(self.inner.notes(prefix)).await
    }

    async fn condemn(&self, packs: &[PackId], at: Timestamp) -> Result<u64, StoreError> {
        self.pass(self.inner.condemn(packs, at)).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        self.pass(self.inner.sweep(sweep)).await
    }

    async fn note(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.pass(self.inner.note(key)).await
    }

    async fn set_note(&self, key: &str, note: Option<Bytes>) -> Result<(), StoreError> {
        self.pass(self.inner.set_note(key, note)).await
    }

    async fn run_ids(&self) -> Result<Vec<RunId>, StoreError> {
        self.pass(self.inner.run_ids()).await
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        self.pass(self.inner.totals()).await
    }

    async fn inspect(&self) -> Result<Vec<Defect>, StoreError> {
        self.pass(self.inner.inspect()).await
    }
}

#[async_trait]
impl RunIndex for DyingStore {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        self.pass(self.inner.summary(run)).await
    }

    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        self.pass(self.inner.list(query)).await
    }
}

#[async_trait]
impl Leases for DyingStore {
    async fn lease(&self, run: &RunId) -> Result<Option<Lease>, StoreError> {
        self.pass(self.inner.lease(run)).await
    }

    async fn beat(&self, run: &RunId, fence: Fence, holder: &Holder) -> Result<u64, StoreError> {
        self.pass(self.inner.beat(run, fence, holder)).await
    }

    async fn release(&self, run: &RunId, fence: Fence) -> Result<(), StoreError> {
        self.pass(self.inner.release(run, fence)).await
    }
}

#[async_trait]
impl Store for DyingStore {
    forward! { capabilities hashing redaction syncs url folding leases upkeep changes queue }

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.pass(self.inner.usage()).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.pass(self.inner.close()).await
    }
}
