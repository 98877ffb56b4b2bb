//! Code that a workflow carries with it.
//!
//! - [`JavaScript`] runs in this process, in an engine that has no way out: no files, no network, no
//!   modules, bounded memory and time.
//! - [`Python`] runs the machine's own interpreter in a process of its own, shut into a sandbox.
//!
//! Both call the code's `main` with the inputs and give back what it returns as a value.

mod error;
mod javascript;
mod python;

pub use error::CodeError;
pub use javascript::{JavaScript, Surroundings};
pub use python::Python;

use std::time::Duration;

/// How many bytes of what code threw are kept.
const MAX_MESSAGE: usize = 64 << 10;

/// What a piece of code may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeLimits {
    /// How long it may take.
    pub time: Duration,
    /// How many bytes of memory it may have.
    pub memory: u64,
    /// How many bytes its result may have, roughly, and how many it may print.
    pub output: u64,
}

impl Default for CodeLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(30), memory: 256 << 20, output: 4 << 20 }
    }
}
