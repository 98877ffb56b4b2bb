//! Linux: parent-death signals, process groups, and two ways to shut a program in.

mod bubblewrap;
mod choice;
mod kernel;
mod limits;
mod seccomp;
mod start;
mod watcher;

pub(crate) use choice::choose;
pub use start::exit_code;
pub(crate) use start::{Group, prepare, spawn};
