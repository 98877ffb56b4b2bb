//! A store that is watched: how often each call was made, how long it took, how many bytes went through it.
//!
//! What is measured is what its user waits for, everything below included. Nothing is kept but counters, so it costs
//! two looks at the clock and a few additions per call, and no memory that grows.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{BlobId, Durability, RunId};
use serde::Serialize;

use crate::{
    Blobs, Commit, Fold, Head, Leases, Log, PackId, Pin, Record, RunIndex, Section, Segment, SegmentInfo, Span, Store,
    StoreError, Sweep, Swept, Upkeep, forward,
};

/// A call that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// A commit that was to survive a power cut.
    Commit,
    /// A commit that needn't.
    RelaxedCommit,
    /// Looking where a log ends.
    Head,
    /// Reading entries.
    Read,
    /// Reading a section of a segment.
    Section,
    /// Folding.
    Fold,
    /// Staging a pack.
    Stage,
    /// Reading a staged pack.
    Pack,
    /// Looking blobs up.
    Locate,
    /// Deleting what no run needs.
    Sweep,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Commit,
        Self::RelaxedCommit,
        Self::Head,
        Self::Read,
        Self::Section,
        Self::Fold,
        Self::Stage,
        Self::Pack,
        Self::Locate,
        Self::Sweep,
    ];
}

/// Of each power of two so many classes of latency are told apart: a quantile is right to a fifth.
const CLASSES: usize = 4;
/// Up to 2^36 ns, over a minute; what takes longer counts with that.
const BUCKETS: usize = CLASSES * 37;

/// What is known of one call.
#[derive(Debug)]
struct Meter {
    count: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
    longest: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Default for Meter {
    fn default() -> Self {
        let [count, failed, bytes, nanos, longest] = Default::default();
        Self { count, failed, bytes, nanos, longest, latency: std::array::from_fn(|_| AtomicU64::default()) }
    }
}

impl Meter {
    fn add(&self, took: Duration, bytes: u64, failed: bool) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
        self.latency[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self, call: Call) -> Measured {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let latency: Vec<u64> = self.latency.iter().map(get).collect();
        let longest = get(&self.longest);
        let quantile = |percent: u64| {
            let wanted = (latency.iter().sum::<u64>() * percent).div_ceil(100).max(1);
            let mut seen = 0;
            let found = latency.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            found.map_or(0, |at| limit(at).min(longest)) / 1000
        };
        Measured {
            call,
            count: get(&self.count),
            failed: get(&self.failed),
            bytes: get(&self.bytes),
            total_us: get(&self.nanos) / 1000,
            p50_us: quantile(50),
            p90_us: quantile(90),
            p99_us: quantile(99),
            longest_us: longest / 1000,
        }
    }
}

/// The class of a latency.
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(CLASSES as u64);
    let power = nanos.ilog2() as usize;
    let class = usize::try_from(nanos >> (power - 2)).unwrap_or(0) % CLASSES;
    (power * CLASSES + class).min(BUCKETS - 1)
}

/// What no latency of a class is above.
fn limit(bucket: usize) -> u64 {
    let (power, class) = (bucket / CLASSES, (bucket % CLASSES) as u64);
    ((CLASSES as u64 + class + 1) << power.saturating_sub(2)) - 1
}

/// What is known of one call, read off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Measured {
    /// Which.
    pub call: Call,
    /// How often it was made.
    pub count: u64,
    /// How often it failed. A conflict is a failure here.
    pub failed: u64,
    /// Bytes that it stored or read, without those of calls that failed.
    pub bytes: u64,
    /// How long all of them took together, in microseconds.
    pub total_us: u64,
    /// Half of them took no longer.
    pub p50_us: u64,
    /// Nine of ten took no longer.
    pub p90_us: u64,
    /// Ninety-nine of a hundred took no longer.
    pub p99_us: u64,
    /// None took longer.
    pub longest_us: u64,
}

/// The counters of a [`MeteredStore`].
#[derive(Debug, Default)]
pub struct Metrics {
    meters: [Meter; Call::ALL.len()],
}

impl Metrics {
    /// What is known of a call.
    pub fn of(&self, call: Call) -> Measured {
        self.meters[call as usize].read(call)
    }

    /// What is known of every call that was made.
    pub fn all(&self) -> Vec<Measured> {
        Call::ALL.into_iter().map(|call| self.of(call)).filter(|measured| measured.count > 0).collect()
    }

    /// Commits, of either kind, that were acknowledged.
    pub fn commits(&self) -> u64 {
        let [durable, relaxed] = [Call::Commit, Call::RelaxedCommit].map(|call| self.of(call));
        durable.count + relaxed.count - durable.failed - relaxed.failed
    }

    /// Bytes that were handed to the store: entries, packs and segments.
    pub fn written(&self) -> u64 {
        [Call::Commit, Call::RelaxedCommit, Call::Stage, Call::Fold].map(|call| self.of(call).bytes).iter().sum()
    }
}

/// A store whose calls are counted and timed. Each call is also an event of `tracing`, on the level `TRACE`, or `DEBUG`
/// if it failed.
pub struct MeteredStore {
    inner: Arc<dyn Store>,
    metrics: Arc<Metrics>,
}

impl MeteredStore {
    /// `inner`, measured from now on.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, metrics: Arc::default() }
    }

    /// What was measured. It stays readable when the store is closed.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    async fn measure<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, StoreError>> + Send,
        bytes: impl Fn(&T) -> usize + Send,
    ) -> Result<T, StoreError> {
        let started = Instant::now();
        let done = work.await;
        let took = started.elapsed();
        let bytes = done.as_ref().map_or(0, bytes);
        self.metrics.meters[call as usize].add(took, bytes as u64, done.is_err());
        match &done {
            Ok(_) => tracing::trace!(?call, bytes, ?took, "store"),
            Err(error) => tracing::debug!(?call, ?took, %error, "store"),
        }
        done
    }
}

/// What it is to commit these at once, and how many bytes they have.
fn about(commits: &[Commit]) -> (Call, usize) {
    let durable = commits.iter().any(|commit| commit.durability == Durability::Durable);
    let call = if durable { Call::Commit } else { Call::RelaxedCommit };
    (call, commits.iter().map(|commit| commit.entry.len() + commit.pack.len()).sum())
}

#[async_trait]
impl Log for MeteredStore {
    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        let (call, bytes) = about(&commits);
        self.measure(call, self.inner.append(commits), |()| bytes).await
    }

    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError> {
        self.measure(Call::Head, self.inner.head(run), |_| 0).await
    }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        let bytes = |records: &Vec<Record>| records.iter().map(|record| record.entry.len() + record.pack.len()).sum();
        self.measure(Call::Read, self.inner.read(run, span), bytes).await
    }
}

#[async_trait]
impl Fold for MeteredStore {
    forward! { segments }

    async fn section(&self, run: &RunId, segment: SegmentInfo, section: Section) -> Result<Bytes, StoreError> {
        self.measure(Call::Section, self.inner.section(run, segment, section), Bytes::len).await
    }

    async fn fold(&self, run: &RunId, segment: Segment) -> Result<(), StoreError> {
        let bytes = segment.entries.len() + segment.index.len() + segment.nodes.len();
        self.measure(Call::Fold, self.inner.fold(run, segment), |()| bytes).await
    }
}

#[async_trait]
impl Blobs for MeteredStore {
    forward! { pin }

    async fn stage(&self, id: PackId, pack: Bytes, ids: &[BlobId], pin: Pin) -> Result<(), StoreError> {
        let bytes = pack.len();
        self.measure(Call::Stage, self.inner.stage(id, pack, ids, pin), |()| bytes).await
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        self.measure(Call::Locate, self.inner.locate(ids), |_| 0).await
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        self.measure(Call::Pack, self.inner.pack(pack), Bytes::len).await
    }

    async fn pack_part(&self, pack: PackId, from: u64, length: usize) -> Result<Option<Bytes>, StoreError> {
        let size = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        self.measure(Call::Pack, self.inner.pack_part(pack, from, length), size).await
    }
}

#[async_trait]
impl Upkeep for MeteredStore {
    forward! { remove packs pack_ids condemn pardon note notes set_note inspect run_ids totals }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        let bytes = |swept: &Swept| usize::try_from(swept.bytes).unwrap_or(usize::MAX);
        self.measure(Call::Sweep, self.inner.sweep(sweep), bytes).await
    }
}

#[async_trait]
impl RunIndex for MeteredStore {
    forward! { summary list }
}

#[async_trait]
impl Leases for MeteredStore {
    forward! { lease beat release }
}

#[async_trait]
impl Store for MeteredStore {
    forward! { capabilities hashing redaction syncs url usage close folding leases upkeep changes queue }
}

impl std::fmt::Debug for MeteredStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeteredStore").field("url", &self.url()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_latencies_are_a_fifth_wide_and_have_no_gaps() {
        for nanos in (0..5_000).chain((12..36).map(|power| (1 << power) + 77)) {
            let at = bucket(nanos);
            assert!(nanos <= limit(at), "{nanos}");
            assert!(at == 0 || nanos > limit(at - 1) || nanos < 8, "{nanos} is in class {at}");
            assert!(limit(at) <= nanos.max(4) + nanos.max(4) / 4, "{nanos} counts as {}", limit(at));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_what_was_added() {
        let meter = Meter::default();
        for micros in 1..=100 {
            meter.add(Duration::from_micros(micros), 10, micros == 7);
        }
        let measured = meter.read(Call::Read);
        assert_eq!((measured.count, measured.failed, measured.bytes), (100, 1, 1000));
        assert!((50..=60).contains(&measured.p50_us), "{measured:?}");
        assert!((90..=100).contains(&measured.p90_us), "{measured:?}");
        assert_eq!((measured.longest_us, measured.total_us), (100, 5050));
    }
}
