//! What these tests share.

pub(crate) use piton_testing::{Line, id};

/// Runs a test's future.
/// Without the driver for sockets, which wakes itself by a `write`: a test that lets writes fail would hit that one too.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap().block_on(future)
}
