//! What these tests share: one server, a schema for each test.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use piton_store_postgres::{PostgresStore, PostgresUrl};
use piton_testing::postgres::{Pooler, Server};

/// The server of this process.
pub(crate) static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

/// A pooler in front of it.
pub(crate) static POOLER: LazyLock<Pooler> = LazyLock::new(|| Pooler::start(&SERVER));

/// The name of a schema that no other test has.
pub(crate) fn schema() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Opens the store at a URL.
pub(crate) async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(PostgresUrl::parse(url).unwrap(), true).await.unwrap()
}
