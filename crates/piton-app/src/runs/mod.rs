//! What is done with runs: looking at them, driving them, putting them back.

pub mod back;
pub mod usage;
