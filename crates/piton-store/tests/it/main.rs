//! The decorators of this crate pass the conformance suite.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod encryption;
mod stores;
mod support;
mod toy;
