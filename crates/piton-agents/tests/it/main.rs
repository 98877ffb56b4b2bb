//! What agents say and do, against real runs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod danger;
