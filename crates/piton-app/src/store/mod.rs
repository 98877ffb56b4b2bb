//! What is done with a store as a whole.

pub mod check;
pub mod keeping;
