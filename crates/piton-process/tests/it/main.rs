//! Programs and their sandboxes, against real ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod jobs;
#[cfg(target_os = "linux")]
mod sandbox;
