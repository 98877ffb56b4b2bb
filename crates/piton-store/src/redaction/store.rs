//! A store whose users keep to a redaction policy: it hands the policy to whoever encodes values, as it hands on
//! how blobs are named. The records themselves pass through as they are.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{BlobId, Fence, Holder, RunId, RunSummary, Timestamp};

use super::Redaction;
use crate::{
    Blobs, Capabilities, Commit, Defect, Era, Hashing, Head, Lease, Log, PackId, PackInfo, Record, Reliance, RunIndex,
    RunQuery, Section, Segment, SegmentInfo, Span, Store, StoreError, Sweep, Swept, Upkeep, Usage,
};

/// A store in which secrets are redacted: values give way to `secret:NAME` before they are encoded, and get the
/// secrets that the policy knows back when they are read through here.
///
/// It should be used for a store from its beginning: what was stored without it is read as if it had been stored with it.
pub struct RedactedStore {
    inner: Arc<dyn Store>,
    redaction: Arc<Redaction>,
}

impl RedactedStore {
    /// `inner` under a policy.
    pub fn new(inner: Arc<dyn Store>, redaction: Arc<Redaction>) -> Self {
        Self { inner, redaction }
    }
}

#[async_trait]
impl Log for RedactedStore {
    async fn append(&self, commit: Commit) -> Result<(), StoreError> {
        self.inner.append(commit).await
    }

    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError> {
        self.inner.head(run).await
    }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        self.inner.read(run, span).await
    }

    async fn segments(&self, run: &RunId) -> Result<Vec<SegmentInfo>, StoreError> {
        self.inner.segments(run).await
    }

    async fn section(&self, run: &RunId, segment: SegmentInfo, section: Section) -> Result<Bytes, StoreError> {
        self.inner.section(run, segment, section).await
    }

    async fn fold(&self, run: &RunId, segment: Segment) -> Result<(), StoreError> {
        self.inner.fold(run, segment).await
    }
}

#[async_trait]
impl Blobs for RedactedStore {
    async fn stage(&self, pack: Bytes, ids: &[BlobId]) -> Result<PackId, StoreError> {
        self.inner.stage(pack, ids).await
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        self.inner.locate(ids).await
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        self.inner.pack(pack).await
    }

    async fn era(&self) -> Result<Era, StoreError> {
        self.inner.era().await
    }
}

#[async_trait]
impl Upkeep for RedactedStore {
    async fn remove(&self, run: &RunId, head: Head) -> Result<(), StoreError> {
        self.inner.remove(run, head).await
    }

    async fn packs(&self, after: Option<PackId>, limit: usize) -> Result<Vec<PackInfo>, StoreError> {
        self.inner.packs(after, limit).await
    }

    async fn pack_ids(&self, pack: PackId) -> Result<Vec<BlobId>, StoreError> {
        self.inner.pack_ids(pack).await
    }

    async fn rely(&self, run: &RunId, head: Head, reliance: Reliance) -> Result<(), StoreError> {
        self.inner.rely(run, head, reliance).await
    }

    async fn next_era(&self) -> Result<Era, StoreError> {
        self.inner.next_era().await
    }

    async fn condemn(&self, packs: &[PackId], at: Timestamp) -> Result<u64, StoreError> {
        self.inner.condemn(packs, at).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        self.inner.sweep(sweep).await
    }

    async fn note(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.inner.note(key).await
    }

    async fn set_note(&self, key: &str, note: Option<Bytes>) -> Result<(), StoreError> {
        self.inner.set_note(key, note).await
    }

    async fn inspect(&self) -> Result<Vec<Defect>, StoreError> {
        self.inner.inspect().await
    }
}

#[async_trait]
impl RunIndex for RedactedStore {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        self.inner.summary(run).await
    }

    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        self.inner.list(query).await
    }

    async fn lease(&self, run: &RunId) -> Result<Option<Lease>, StoreError> {
        self.inner.lease(run).await
    }

    async fn beat(&self, run: &RunId, fence: Fence, holder: &Holder) -> Result<u64, StoreError> {
        self.inner.beat(run, fence, holder).await
    }

    async fn release(&self, run: &RunId, fence: Fence) -> Result<(), StoreError> {
        self.inner.release(run, fence).await
    }
}

#[async_trait]
impl Store for RedactedStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn hashing(&self) -> &Hashing {
        self.inner.hashing()
    }

    fn redaction(&self) -> Option<&Arc<Redaction>> {
        Some(&self.redaction)
    }

    fn url(&self) -> String {
        self.inner.url()
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.inner.usage().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

impl std::fmt::Debug for RedactedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedactedStore").field("url", &self.url()).field("redaction", &self.redaction).finish()
    }
}
