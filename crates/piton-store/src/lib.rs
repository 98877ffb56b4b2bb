//! Piton's store: the traits that a store implements, the encoding of state, and the typed log of a
//! run that is built on both.
//!
//! - [`Store`] = [`Log`] + [`Blobs`] + [`RunIndex`] + [`Upkeep`]: opaque bytes in order. [`MemoryStore`] is one.
//! - [`state`]: values as Merkle trees, edited by path, saved at the cost of the change.
//! - [`RunLog`]: the log of one run, with its entries, hashes, states and folding.
//! - [`ContentWriter`] and [`ContentReader`]: contents of files, in compressed packs.
//! - [`CheckpointStore`]: three methods for embedders, and [`EmbeddedStore`], which makes a store of them.
//! - [`Registry`]: stores by URL.

mod backend;
mod checkpoint_store;
mod codec;
#[cfg(feature = "conformance")]
#[expect(clippy::missing_panics_doc, clippy::unwrap_used, reason = "a behaviour fails by panicking")]
pub mod conformance;
mod contents;
mod difference;
mod embedded;
mod error;
mod framed;
mod hashing;
mod memory;
mod pack;
mod registry;
mod run_log;
mod sealed;
mod segment;
pub mod state;

pub use async_trait::async_trait;
pub use bytes::Bytes;

pub use backend::{
    Blobs, Capabilities, Commit, Defect, Era, Head, Lease, Log, PackId, PackInfo, PackState, Record, Reliance,
    RunIndex, RunQuery, Section, Segment, SegmentInfo, Span, Store, Sweep, Swept, Upkeep, Usage,
};
pub use checkpoint_store::{CheckpointError, CheckpointStore, Expected, MemoryCheckpointStore, Saved};
pub use contents::{ContentReader, ContentWriter};
pub use embedded::EmbeddedStore;
pub use error::StoreError;
pub use hashing::Hashing;
pub use memory::MemoryStore;
pub use registry::{Driver, Registry};
pub use run_log::{Content, Draft, DraftPart, NewPart, NewRun, Receipt, RunLog};
pub use sealed::SealedEntry;
