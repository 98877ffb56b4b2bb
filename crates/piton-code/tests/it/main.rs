//! Code, well-behaved and not, in both languages.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod javascript;
#[cfg(target_os = "linux")]
mod python;
