//! Tests of the PostgreSQL store on a real server, which they start themselves. Where PostgreSQL isn't installed they fail.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod conformance;
mod faults;
mod outside;
mod support;
