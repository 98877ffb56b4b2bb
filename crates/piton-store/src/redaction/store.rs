//! A store whose users keep to a redaction policy: it hands the policy to the code that encodes values, as it hands on
//! how blobs are named. The records themselves pass through as they are.

use std::sync::Arc;

use async_trait::async_trait;

use super::Redaction;
use crate::{Blobs, Fold, Leases, Log, RunIndex, Store, Upkeep, forward};

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
    forward! { append head read }
}

#[async_trait]
impl Fold for RedactedStore {
    forward! { segments section fold }
}

#[async_trait]
impl Blobs for RedactedStore {
    forward! { stage pin locate pack pack_part }
}

#[async_trait]
impl Upkeep for RedactedStore {
    forward! { remove packs pack_ids condemn pardon sweep note notes set_note inspect run_ids totals }
}

#[async_trait]
impl RunIndex for RedactedStore {
    forward! { summary list }
}

#[async_trait]
impl Leases for RedactedStore {
    forward! { lease beat release }
}

#[async_trait]
impl Store for RedactedStore {
    forward! { capabilities hashing syncs url usage close folding leases upkeep changes queue }

    fn redaction(&self) -> Option<&Arc<Redaction>> {
        Some(&self.redaction)
    }
}

impl std::fmt::Debug for RedactedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedactedStore").field("url", &self.url()).field("redaction", &self.redaction).finish()
    }
}
