//! The facade as an application uses it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
#[cfg(feature = "flow")]
mod chats;
#[cfg(feature = "flow")]
mod checkpoint_store;
mod copies;
#[cfg(all(feature = "flow", feature = "plugin-system", feature = "security"))]
mod embedder;
mod executions;
mod files;
mod full_disk;
mod keeping;
mod names;
mod repairs;
