//! What these tests share.

pub(crate) use piton_testing::{Line, id};

/// Runs a test's future.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}
