//! Piton's store: the traits that a store implements, its errors, and what is put around any of them. What the bytes mean
//! that a store keeps is decided above it, in `piton-log`.
//!
//! - [`Store`] = [`Log`] + [`Blobs`] + [`RunIndex`]: opaque bytes in order. [`Fold`], [`Leases`], [`Upkeep`], [`Changes`] and
//!   [`Queue`] are what a store may offer beyond that.
//! - [`CheckpointStore`]: three methods for embedders.
//! - [`EncryptedStore`]: any store, encrypted.
//! - [`RedactedStore`]: any store, without the secrets in values.
//! - [`MeteredStore`]: any store, measured. [`forward!`] helps to write more such decorators.
//! - [`Registry`]: stores by URL.
//! - `conformance`: what every store must do, by feature.

mod backend;
pub mod checked;
mod checkpoint_store;
#[cfg(feature = "conformance")]
#[expect(clippy::missing_panics_doc, clippy::unwrap_used, reason = "a behaviour fails by panicking")]
pub mod conformance;
mod encrypted;
mod error;
mod exchange;
mod forward;
mod hashing;
mod metered;
mod offered;
mod pack_place;
mod packs;
mod queue;
mod redaction;
mod registry;

pub use async_trait::async_trait;
pub use bytes::Bytes;
#[doc(hidden)]
pub use piton_types as types;

pub use backend::{
    Blobs, Capabilities, Changes, Commit, Cursor, Defect, Fold, Head, Lease, Leases, Log, Owner, PackInfo, PackState,
    Pin, Record, RunIndex, RunQuery, Section, Segment, SegmentInfo, Span, Store, Sweep, Swept, Totals, Upkeep, Usage,
};
pub use checkpoint_store::{CheckpointError, CheckpointStore, Expected, MemoryCheckpointStore, Saved};
pub use encrypted::{EncryptedCheckpointStore, EncryptedStore, Key, is_encrypted};
pub use error::StoreError;
pub use exchange::exchange;
pub use hashing::Hashing;
pub use metered::{Call, Measured, MeteredStore, Metrics};
pub use pack_place::PackPlace;
pub use packs::{pack, stage};
pub use piton_types::PackId;
pub use queue::{Depth, Limit, Place, Queue, Waiting, WorkerInfo, WorkerStanding};
pub use redaction::{Finding, FoundBy, RedactedStore, Redaction, RedactionError, RedactionPolicy, SecretFiles};
pub use registry::{Driver, Registry, without_secrets};
