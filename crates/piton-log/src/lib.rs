//! What the bytes of a run's log mean, over any [`Store`](piton_store::Store).
//!
//! - [`state`]: values as Merkle trees, edited by path, saved at the cost of the change.
//! - [`RunLog`]: the log of one run, with its entries, hashes, states and folding.
//! - [`ContentWriter`] and [`ContentReader`]: contents of files, in compressed packs.
//! - [`EmbeddedStore`] makes a store of an embedder's own
//!   [`CheckpointStore`](piton_store::CheckpointStore), and [`LogCheckpointStore`] that of any store.
//! - [`upkeep`]: giving space back, checking, copying, repairing.

mod codec;
#[cfg(feature = "conformance")]
#[expect(clippy::missing_panics_doc, clippy::unwrap_used, reason = "a behaviour fails by panicking")]
pub mod conformance;
mod contents;
mod difference;
mod embedded;
mod framed;
mod log_checkpoints;
mod pack;
mod run_log;
mod sealed;
mod segment;
pub mod state;
pub mod upkeep;

pub use contents::{ContentReader, ContentWriter};
pub use embedded::EmbeddedStore;
pub use log_checkpoints::LogCheckpointStore;
pub use run_log::{Chain, Content, Draft, DraftPart, NewPart, NewRun, Removed, RunLog};
pub use sealed::SealedEntry;
