//! Tests of the SQLite store on real files.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

use piton_store_sqlite::{SqliteOptions, SqliteStore};

mod blobs;
mod child;
mod conformance;
mod crash;
mod damage;
mod faults;
mod folding;
mod forged;
mod golden;
mod hostile;
mod listing;
mod origin;
mod support;
mod upgrades;
mod upkeep;
mod writing;
