//! The memory store passes the conformance suite; logs over it keep what they are given.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod differences;

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
