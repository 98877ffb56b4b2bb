//! The store as its user holds it: opening, closing, and what it says of itself.

use async_trait::async_trait;
use piton_store::{Capabilities, Changes, Fold, Hashing, Leases, Queue, Store, StoreError, Upkeep, Usage};

use crate::connect::Core;
use crate::params::{Params, count};
use crate::{OutsidePacks, PostgresUrl, schema};

/// A store in one schema of a PostgreSQL database. Several handles, in one process or in many, may have the same store open.
///
/// ```no_run
/// # async fn open() -> Result<(), piton_store::StoreError> {
/// use piton_store_postgres::{PostgresStore, PostgresUrl};
///
/// let url = PostgresUrl::parse("postgres://me@db.example/team?schema=nightly")?;
/// let store = PostgresStore::open(url.with_password("…"), true).await?;
/// # Ok(())
/// # }
/// ```
pub struct PostgresStore {
    pub(crate) core: Core,
    pub(crate) outside: Option<OutsidePacks>,
}

impl PostgresStore {
    /// Opens the store at `url`, and makes its tables if there are none and `create` says so.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the server can't be reached, `Denied` if it doesn't let the user in or doing that, `Invalid` if it is too
    /// old, acknowledges what it could lose, or the schema has tables of others, `TooNew` if a newer version made the
    /// tables, `ReadOnly` if it is a standby, `NotFound` if there is no such database or, without `create`, no store.
    pub async fn open(url: PostgresUrl, create: bool) -> Result<Self, StoreError> {
        Self::open_with(url, create, None).await
    }

    /// The same with a place for large packs, which is the one that `blobs=` in the URL names. A store keeps to the place that
    /// it was first opened with; packs that were in the database before stay there.
    ///
    /// # Errors
    ///
    /// As above, and `Invalid` if its large packs are elsewhere.
    pub async fn open_with(url: PostgresUrl, create: bool, outside: Option<OutsidePacks>) -> Result<Self, StoreError> {
        let core = Core::new(&url)?;
        let outside = schema::open(&core, create, outside).await?;
        Ok(Self { core, outside })
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("url", &self.core.shown).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn folding(&self) -> Option<&dyn Fold> {
        Some(self)
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn upkeep(&self) -> Option<&dyn Upkeep> {
        Some(self)
    }

    fn changes(&self) -> Option<&dyn Changes> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn hashing(&self) -> &Hashing {
        &Hashing::PLAIN
    }

    fn url(&self) -> String {
        self.core.shown.clone()
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        let sql = "SELECT (SELECT count(*) FROM @run), coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
                   + (SELECT coalesce(sum(size), 0)::bigint FROM @pack)
                   FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";
        let row = self.core.one(sql, &Params::default().with(self.core.schema.as_str())).await?;
        Ok(Usage { runs: count(&row, 0)?, bytes: count(&row, 1)? })
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.core.close();
        Ok(())
    }
}
