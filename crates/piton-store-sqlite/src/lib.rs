//! Piton's default store: one SQLite database, no server.
//!
//! - An append is one transaction with one row for each entry, on the calling thread (`writer`). The commit that leaves
//!   SQLite's WAL long moves it into the database (`wal`).
//! - Every page carries a checksum (`vfs`), and a WAL that a crash left behind is checked before SQLite recovers it
//!   (`wal_scan`): what was damaged is an error, never a wrong or missing row.
//!
//! Beside the database `PATH` there are `PATH-wal` and `PATH-shm` while it is open (they are SQLite's),
//! and `PATH-lock`, which every open handle holds a shared lock on. All are readable by their owner only.
//!
//! What is *not* promised: the newest commit of a WAL that a crash left can't be told from a torn one
//! if it is damaged, so it is dropped (its bytes are kept in `PATH-wal.damaged-N`); and pages that are
//! still in the WAL of a running process are protected by the hashes of the records alone.

mod append;
mod blobs;
mod changes;
mod checkpoints;
mod connect;
mod counters;
mod driver;
mod errors;
#[cfg(test)]
mod fault_tests;
mod files;
mod gather;
mod index;
mod inspect;
mod list;
mod log;
mod mapping;
mod mark;
mod open;
mod options;
mod pages;
mod pool;
mod queue;
mod replace;
mod schema;
mod set_aside;
mod store;
mod upgrade;
mod upkeep;
mod version;
mod vfs;
mod wal;
mod wal_file;
mod wal_origin;
mod wal_scan;
mod writer;

pub use checkpoints::SqliteCheckpointStore;
pub use counters::Counters;
pub use driver::SqliteDriver;
pub use gather::gather;
pub use options::{DamagedWal, SqliteOptions};
pub use replace::replace;
pub use store::SqliteStore;
#[doc(hidden)]
pub use upgrade::{Formats, Step};
