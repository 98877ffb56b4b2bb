//! What is done with a store as a whole.

pub mod keeping;
