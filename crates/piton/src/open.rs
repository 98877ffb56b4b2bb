//! The first call of a program: a store by its URL.

use piton_runtime::Context;
use piton_store::{Registry, StoreError};
use piton_store_objects::{FolderDriver, MemoryDriver};

/// Opens the store at `url`, and makes it if there is none: `sqlite:runs.db`, `file:runs` (a folder of plain files), or
/// `memory:`, which ends with the process. With the feature `postgres` also `postgres://USER:PASSWORD@HOST/DATABASE`, with
/// `?schema=NAME` if it isn't to be `piton`: a store that many machines share. No password file is read, and
/// large packs stay in the database.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let piton = piton::open("memory:").await?;
/// let mut run = piton.run("nightly").await?;
/// let bees: usize = run.step("count", "bees", async |topic| Ok::<_, std::io::Error>(topic.len())).await?;
/// run.complete(bees).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`StoreError::Invalid`] if it isn't the URL of a store or what is there isn't one, and whatever the store finds
/// when it is opened.
pub async fn open(url: &str) -> Result<Context, StoreError> {
    let registry = Registry::default().with("file", FolderDriver { create: true }).with("memory", MemoryDriver);
    #[cfg(feature = "sqlite")]
    let registry = registry.with("sqlite", piton_store_sqlite::SqliteDriver { create: true, looks: false });
    #[cfg(feature = "postgres")]
    let registry = {
        let driver = piton_store_postgres::PostgresDriver { create: true, ..Default::default() };
        registry.with("postgres", driver.clone()).with("postgresql", driver)
    };
    Ok(Context::system(registry.open(url).await?))
}
