//! The suite that every store must pass, also through a pooler that gives each transaction another connection.

use std::sync::Arc;

use piton_store::conformance::{Encrypted, Fixture};
use piton_store::{Store, async_trait};
use piton_testing::SeededRandom;

use crate::support::{POOLER, SERVER, open, schema};

struct Postgres(String);

impl Postgres {
    fn direct() -> Self {
        Self(SERVER.url(&schema()))
    }

    fn pooled() -> Self {
        Self(SERVER.url_at(POOLER.port(), &schema()))
    }
}

#[async_trait]
impl Fixture for Postgres {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(open(&self.0).await)
    }
}

piton_store::conformance!(Postgres::direct(); core folding leases upkeep changes queue);
piton_log::conformance!(Postgres::direct());

mod pooled {
    use super::*;

    piton_store::conformance!(Postgres::pooled(); core folding leases upkeep changes queue);
    piton_log::conformance!(Postgres::pooled());
}

/// With every pack in an object store.
mod outside {
    use piton_store_objects::{MemoryObjects, ObjectPacks};
    use piton_store_postgres::{OutsidePacks, PostgresStore, PostgresUrl};

    use super::*;

    struct Outside(String, Arc<MemoryObjects>);

    #[async_trait]
    impl Fixture for Outside {
        async fn open(&self) -> Arc<dyn Store> {
            let packs = OutsidePacks::new(Arc::new(ObjectPacks::new(Arc::clone(&self.1) as _))).larger_than(0);
            Arc::new(PostgresStore::open_with(PostgresUrl::parse(&self.0).unwrap(), true, Some(packs)).await.unwrap())
        }
    }

    fn new() -> Outside {
        Outside(SERVER.url(&schema()), Arc::new(MemoryObjects::new()))
    }

    piton_store::conformance!(new(); core folding leases upkeep changes queue);
    piton_log::conformance!(new());
}

mod encrypted {
    use super::*;

    fn new() -> Encrypted<Postgres> {
        Encrypted::new(Postgres::direct(), Arc::new(SeededRandom::new(5)))
    }

    piton_store::conformance!(new(); core folding leases upkeep changes queue);
    piton_log::conformance!(new());
}
