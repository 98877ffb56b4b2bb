//! Piton's store: the traits that a store implements, the encoding of state, and the typed log of a
//! run that is built on both.
//!
//! - [`Store`] = [`Log`] + [`Blobs`] + [`RunIndex`] + [`Upkeep`]: opaque bytes in order.
//! - [`state`]: values as Merkle trees, edited by path, saved at the cost of the change.
//! - [`RunLog`]: the log of one run, with its entries, hashes, states and folding.
//! - [`ContentWriter`] and [`ContentReader`]: contents of files, in compressed packs.
//! - [`CheckpointStore`]: three methods for embedders, and [`EmbeddedStore`], which makes a store of them.
//! - [`EncryptedStore`]: any of them, encrypted.
//! - [`RedactedStore`]: any of them, without the secrets in values.
//! - [`MeteredStore`]: any of them, measured. [`forward!`] helps to write more such decorators.
//! - [`Registry`]: stores by URL.
//! - [`upkeep`]: giving space back, checking, copying.

mod backend;
pub mod checked;
mod checkpoint_store;
mod codec;
#[cfg(feature = "conformance")]
#[expect(clippy::missing_panics_doc, clippy::unwrap_used, reason = "a behaviour fails by panicking")]
pub mod conformance;
mod contents;
mod difference;
mod embedded;
mod encrypted;
mod error;
mod exchange;
mod forward;
mod framed;
mod hashing;
mod log_checkpoints;
mod metered;
mod pack;
mod redaction;
mod registry;
mod run_log;
mod sealed;
mod segment;
pub mod state;
pub mod upkeep;

pub use async_trait::async_trait;
pub use bytes::Bytes;
#[doc(hidden)]
pub use piton_types as types;

pub use backend::{
    Blobs, Capabilities, Commit, Defect, Era, Head, Lease, Log, PackId, PackInfo, PackState, Record, Reliance,
    RunIndex, RunQuery, Section, Segment, SegmentInfo, Span, Store, Sweep, Swept, Totals, Upkeep, Usage,
};
pub use checkpoint_store::{CheckpointError, CheckpointStore, Expected, MemoryCheckpointStore, Saved};
pub use contents::{ContentReader, ContentWriter};
pub use embedded::EmbeddedStore;
pub use encrypted::{EncryptedCheckpointStore, EncryptedStore, Key, is_encrypted};
pub use error::StoreError;
pub use exchange::exchange;
pub use hashing::Hashing;
pub use log_checkpoints::LogCheckpointStore;
pub use metered::{Call, Measured, MeteredStore, Metrics};
pub use redaction::{Finding, FoundBy, RedactedStore, Redaction, RedactionError, RedactionPolicy, SecretFiles};
pub use registry::{Driver, Registry};
pub use run_log::{Chain, Chained, Content, Draft, DraftPart, EncodedBody, NewPart, NewRun, Receipt, Removed, RunLog};
pub use sealed::SealedEntry;
