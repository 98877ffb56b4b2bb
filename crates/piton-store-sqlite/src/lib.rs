//! Piton's default store: one SQLite database, no server.
//!
//! - An append is one row, and most often one page (`places`). It commits on the calling thread if the writer is free, and
//!   otherwise together with whatever else is waiting, at the price of one sync.
//! - Every page carries a checksum (`vfs`), and a log that a crash left behind is checked before
//!   SQLite recovers it (`wal_scan`): what was damaged is an error, never a wrong or missing row.
//! - Checkpoints, growing the log and giving space back are done by a thread of their own
//!   (`maintenance`), never by an append.
//!
//! Beside the database `PATH` there are `PATH-wal` and `PATH-shm` while it is open (they are SQLite's),
//! and `PATH-lock`, which every open handle holds a shared lock on. All are readable by their owner only.
//!
//! What is *not* promised: the newest commit of a log that a crash left can't be told from a torn one
//! if it is damaged, so it is dropped (its bytes are kept in `PATH-wal.damaged-N`); and pages that are
//! still in the log of a running process are protected by the hashes of the records alone.

mod append;
mod blobs;
mod checkpoints;
mod connect;
mod counters;
mod driver;
mod errors;
#[cfg(test)]
mod fault_tests;
mod files;
mod gather;
mod group;
mod helper;
mod hot;
mod index;
mod inspect;
mod list;
mod log;
mod log_origin;
mod maintenance;
mod mark;
mod marks;
mod open;
mod options;
mod pages;
mod places;
mod pool;
mod replace;
mod schema;
mod set_aside;
mod store;
mod syncs;
mod upgrade;
mod upkeep;
mod version;
mod vfs;
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
