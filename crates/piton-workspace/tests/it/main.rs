//! Integration tests of the workspace.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod capture;
mod hostile;
mod model;
mod sessions;
mod undo;
mod world;
