//! Integration tests of the workspace.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod capture;
mod drift;
mod hostile;
mod lifecycle;
mod merging;
mod model;
mod optimistic;
mod order;
mod partial;
mod plans;
mod reports;
mod reservations;
mod rules;
mod secrets;
mod sessions;
mod undo;
mod world;
mod writers;
