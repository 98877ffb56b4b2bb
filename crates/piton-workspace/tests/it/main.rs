//! Integration tests of the workspace.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod capture;
mod model;
mod sessions;
mod undo;
mod world;
