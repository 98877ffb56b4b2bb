//! What is done with runs: looking at them, driving them, putting them back.

pub mod answer;
pub mod back;
pub mod diff;
pub mod drive;
pub mod events;
pub mod fork;
pub mod list;
pub mod log;
pub mod put_back;
pub mod resume;
pub mod retry;
pub mod show;
pub mod start;
pub mod steer;
pub mod usage;
