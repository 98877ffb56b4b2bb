//! Runs over a store: resumed, raced for, crashed at every call.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod autosave;
mod bounded;
mod branches;
mod clocks;
mod crash;
mod effects;
mod events;
mod faults;
mod going_back;
mod holders;
mod leases;
mod many;
mod notify;

mod parts;
mod progress;
mod questions;
mod recovery;
mod redaction;
mod retries;
mod simulation;
mod steps;
mod stopping;
mod support;
mod turns;
mod wrong_clocks;
