//! Piton's store for teams: one schema of a PostgreSQL database, which any number of processes on any number of machines
//! may use at once.
//!
//! - An append is one statement, and so one round trip (`append`): it moves the run's row on if that ends where the writer
//!   says and no higher fence is there, and inserts the entries. The server compares the fence in the statement that writes.
//! - If the connection breaks before the answer is there, the store asks again where the log ends (`append`).
//! - No statement stays prepared and no setting stays changed in a session, so a pooler in transaction mode may be in between.
//! - All times are the server's (`queue`).
//! - Large packs may be in an object store (`outside`).
//!
//! What is *not* promised: the server keeps the bytes. Whether it does so as it should is its settings' affair; a server that
//! answers before the disk has a commit is refused (`schema`). What it returns is checked by the hashes of the records.

mod append;
mod blobs;
mod changes;
mod connect;
mod driver;
mod errors;
mod index;
mod leases;
mod list;
mod log;
mod outside;
mod params;
mod passfile;
mod queue;
mod schema;
mod store;
mod text;
mod tls;
mod upkeep;
mod url;

pub use driver::PostgresDriver;
pub use errors::NOT_LET_IN;
pub use outside::OutsidePacks;
pub use store::PostgresStore;
pub use url::PostgresUrl;
