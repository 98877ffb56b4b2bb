//! The memory store passes the conformance suite.

use std::sync::Arc;

use piton_store::conformance::Fixture;
use piton_store::{MemoryStore, Store, async_trait};

struct Memory(Arc<MemoryStore>);

#[async_trait]
impl Fixture for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
}

mod memory {
    use super::*;

    piton_store::conformance!(Memory(Arc::new(MemoryStore::new())));
}
