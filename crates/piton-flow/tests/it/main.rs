//! Documents, refused and run; with the feature `checkpoint` also crashed and resumed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "checkpoint")]
mod bounded;
#[cfg(feature = "checkpoint")]
mod bursts;
mod commands;
#[cfg(feature = "checkpoint")]
mod debugger;
mod dispatch;
#[cfg(feature = "checkpoint")]
mod durable;
#[cfg(feature = "checkpoint")]
mod handle;
mod hostile;
#[cfg(feature = "checkpoint")]
mod journal;
#[cfg(feature = "checkpoint")]
mod ledger;
mod loose;
mod outside;
#[cfg(feature = "checkpoint")]
mod properties;
#[cfg(feature = "checkpoint")]
mod questions;
#[cfg(feature = "checkpoint")]
mod resume;
mod runs;
#[path = "../../../piton-model/tests/it/server.rs"]
mod server;
mod support;
mod validation;
