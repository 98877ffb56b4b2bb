//! What is done with runs: looking at them, driving them, putting them back.

pub mod answer;
pub mod back;
pub mod changes;
pub mod diff;
pub mod drive;
pub mod events;
pub mod fork;
pub mod graph;
pub mod list;
pub mod log;
pub mod pages;
pub mod put_back;
pub mod queue;
pub mod resume;
pub mod retry;
mod schedule;
pub mod show;
pub mod start;
pub mod steer;
pub mod story;
pub mod summary;
