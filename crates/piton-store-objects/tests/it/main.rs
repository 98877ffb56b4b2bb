//! Objects and the store over them: the conformance suite, what people read, hostile hands, damage, faults, races.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

#[cfg(feature = "cloud")]
mod cloud;
mod folder;
mod listing;
mod objects;
mod races;
#[cfg(feature = "redis")]
mod redis;
mod stores;
mod support;
