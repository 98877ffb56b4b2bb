//! A store that a server opens once for all that it does: a verb that closes its store when it is done leaves it open.

use std::sync::Arc;

use piton_store::{Blobs, Fold, Leases, Log, RunIndex, Store, Upkeep, async_trait, forward};
use tokio::sync::Mutex;

/// The one store that the calls of a server share, once it is open.
#[derive(Default)]
pub(crate) struct Held(Mutex<Option<Arc<dyn Store>>>);

impl Held {
    /// The store that is held, or the one that `open` gives, which is held from then on.
    pub(crate) async fn or_open<E>(
        &self,
        open: impl Future<Output = Result<Arc<dyn Store>, E>>,
    ) -> Result<Arc<dyn Store>, E> {
        let mut held = self.0.lock().await;
        if let Some(store) = &*held {
            return Ok(Arc::clone(store));
        }
        let store: Arc<dyn Store> = Arc::new(Lent { inner: open.await? });
        *held = Some(Arc::clone(&store));
        Ok(store)
    }

    /// Holds it no more: the next call opens it anew. Calls that still have it go on with it.
    pub(crate) async fn let_go(&self) {
        drop(self.0.lock().await.take());
    }
}

/// A store that its users don't close.
struct Lent {
    inner: Arc<dyn Store>,
}

#[async_trait]
impl Log for Lent {
    forward! { append head read }
}

#[async_trait]
impl Fold for Lent {
    forward! { segments section fold }
}

#[async_trait]
impl Blobs for Lent {
    forward! { stage pin locate pack pack_part }
}

#[async_trait]
impl Upkeep for Lent {
    forward! { remove packs pack_ids condemn pardon notes note set_note sweep inspect run_ids totals }
}

#[async_trait]
impl RunIndex for Lent {
    forward! { summary list }
}

#[async_trait]
impl Leases for Lent {
    forward! { lease beat release }
}

#[async_trait]
impl Store for Lent {
    forward! { capabilities hashing redaction syncs url usage folding leases upkeep changes queue }

    async fn close(&self) -> Result<(), piton_store::StoreError> {
        Ok(())
    }
}
