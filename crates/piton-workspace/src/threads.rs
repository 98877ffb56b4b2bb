//! Threads for walking and for reading and writing files, started when they are first needed: a command on a few
//! files does without.

use std::path::PathBuf;
use std::sync::OnceLock;

use rayon::ThreadPool;

use crate::WorkspaceError;

/// How many there are at most; more only wait for the disk.
const MOST: usize = 8;
/// Folders nest deeply, and each takes some of the stack.
const STACK: usize = 64 << 20;

pub(crate) struct Threads {
    /// Whose they are, for an error.
    root: PathBuf,
    pool: OnceLock<ThreadPool>,
}

impl Threads {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, pool: OnceLock::new() }
    }

    /// Whether the calling thread is one of them. On any other, work must not be shared except by [`run`](Self::run).
    pub(crate) fn is_one() -> bool {
        rayon::current_thread_index().is_some()
    }

    /// Does both, side by side if the calling thread is one of them.
    pub(crate) fn both<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
        if Self::is_one() { rayon::join(a, b) } else { (a(), b()) }
    }

    /// Runs `work` on one of them if there is much to do, and else on the calling thread.
    pub(crate) fn run_if<T: Send>(&self, much: bool, work: impl FnOnce() -> T + Send) -> Result<T, WorkspaceError> {
        if much { self.run(work) } else { Ok(work()) }
    }

    /// Runs `work` on one of them, so that it can be shared among all.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, WorkspaceError> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool.install(work));
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(std::thread::available_parallelism().map_or(2, |n| n.get().min(MOST)))
            .stack_size(STACK)
            .build()
            .map_err(|error| WorkspaceError::file("start threads for", &self.root, std::io::Error::other(error)))?;
        Ok(self.pool.get_or_init(|| pool).install(work))
    }
}
