//! Runs over a store: resumed, raced for, crashed at every call.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod autosave;
mod crash;
mod events;
mod holders;
mod notify;
mod parts;
mod recovery;
mod steps;
mod support;
