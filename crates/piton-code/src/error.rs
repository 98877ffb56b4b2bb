//! What can go wrong with code.

use std::time::Duration;

use piton_process::ProcessError;

/// An error of a piece of code, or of where it runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// It isn't the language that it should be.
    #[error("the code can't be read: {0}")]
    Syntax(String),
    /// It has no function `main`.
    #[error("the code has no function main")]
    NoMain,
    /// It threw something.
    #[error("{0}")]
    Thrown(String),
    /// It was stopped: it took too long.
    #[error("the code took longer than {} seconds", after.as_secs_f64())]
    TimedOut {
        /// How long it may take.
        after: Duration,
    },
    /// It was stopped: it wanted too much memory.
    #[error("the code wanted more than {limit} bytes of memory")]
    OutOfMemory {
        /// How much it may have.
        limit: u64,
    },
    /// What it returned or printed is too long.
    #[error("the code gave more than {limit} bytes")]
    TooMuchOutput {
        /// How much it may give.
        limit: u64,
    },
    /// What it returned isn't a value.
    #[error("what main returned can't be kept: {0}")]
    Result(String),
    /// An input can't be given to it.
    #[error("the inputs can't be given to it: {0}")]
    Inputs(String),
    /// It ended without a word.
    #[error("the code ended with {exit_code}{}", if said.is_empty() { String::new() } else { format!(": {said}") })]
    Ended {
        /// As a shell gives it.
        exit_code: i32,
        /// The end of what it printed.
        said: String,
    },
    /// It wasn't run.
    #[error(transparent)]
    Process(ProcessError),
    /// The engine failed.
    #[error("the JavaScript engine failed: {0}")]
    Engine(String),
}
