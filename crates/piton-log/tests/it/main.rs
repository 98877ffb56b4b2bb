//! Run logs over stores keep what they are given.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod differences;
mod growing;
mod logs;
mod merges;
mod segments;
