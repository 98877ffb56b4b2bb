//! A damaged store, as far as it can be read: where a list can't be had, what it would have led to is looked for in
//! another way, or left out.

use std::sync::Arc;

use async_trait::async_trait;
use piton_types::{BlobId, RunId, Seq};

use crate::state::IdMap;
use piton_store::{
    Blobs, Fold, Leases, Log, PackId, PackInfo, Record, RunIndex, SegmentInfo, Span, Store, StoreError, Upkeep, forward,
};

/// Reads on past damage. Only for reading: a repair writes what it finds to another store.
pub(super) struct Tolerant {
    inner: Arc<dyn Store>,
}

impl Tolerant {
    pub(super) fn over(store: &Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Self { inner: Arc::clone(store) })
    }
}

/// What was read, or nothing.
fn or_nothing<T: Default>(read: Result<T, StoreError>) -> Result<T, StoreError> {
    match read {
        Err(StoreError::Corrupt { .. }) => Ok(T::default()),
        other => other,
    }
}

#[async_trait]
impl Log for Tolerant {
    forward! { append head }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        let error = match self.inner.read(run, span).await {
            Err(error @ StoreError::Corrupt { .. }) if span.from != span.to => error,
            other => return other,
        };
        // One by one, without packs that can't be read and without entries that can't.
        let Some(head) = or_nothing(self.inner.head(run).await)? else { return Err(error) };
        let mut records = Vec::new();
        for seq in (span.from.0..=span.to.min(head.seq).0).map(Seq) {
            let one = Span { from: seq, to: seq, limit: 1, newest_first: false, ..span };
            let found = match self.inner.read(run, one).await {
                Err(StoreError::Corrupt { .. }) => or_nothing(self.inner.read(run, Span { packs: false, ..one }).await),
                other => other,
            };
            records.extend(found?);
        }
        if span.newest_first {
            records.reverse();
        }
        records.truncate(span.limit);
        Ok(records)
    }
}

#[async_trait]
impl Fold for Tolerant {
    forward! { section fold }

    async fn segments(&self, run: &RunId) -> Result<Vec<SegmentInfo>, StoreError> {
        or_nothing(self.inner.segments(run).await)
    }
}

#[async_trait]
impl Blobs for Tolerant {
    forward! { stage pin pack pack_part }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        match self.inner.locate(ids).await {
            Err(StoreError::Corrupt { .. }) => {}
            other => return other,
        }
        // Each pack says itself what it has.
        let mut places: IdMap<PackId> = IdMap::default();
        let mut after = None;
        loop {
            let page = self.packs(after, 1000).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            for pack in &page {
                let ids = or_nothing(self.inner.pack_ids(pack.id).await)?;
                places.extend(ids.into_iter().map(|id| (id, pack.id)));
            }
        }
        Ok(ids.iter().map(|id| places.get(id).copied()).collect())
    }
}

#[async_trait]
impl Upkeep for Tolerant {
    forward! { remove pack_ids condemn pardon sweep note notes set_note inspect run_ids totals }

    async fn packs(&self, after: Option<PackId>, limit: usize) -> Result<Vec<PackInfo>, StoreError> {
        or_nothing(self.inner.packs(after, limit).await)
    }
}

#[async_trait]
impl RunIndex for Tolerant {
    forward! { summary list }
}

#[async_trait]
impl Leases for Tolerant {
    forward! { lease beat release }
}

#[async_trait]
impl Store for Tolerant {
    forward! { capabilities hashing redaction syncs url usage close folding leases upkeep changes queue }
}
