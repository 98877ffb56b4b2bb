//! Connections that read. A read takes one, uses it on the calling thread and puts it back; the pool opens them as they
//! are needed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use piton_store::StoreError;
use rusqlite::Connection;

use crate::connect::{self, Target};
use crate::errors::translate;
use crate::writer::{Core, Failure, locked};

/// Connections that the pool keeps for the next read.
const KEPT: usize = 4;

/// The connections that no read uses at the moment.
pub(crate) struct Pool {
    target: Target,
    free: Mutex<Vec<Connection>>,
    closed: AtomicBool,
    keep_wal: AtomicBool,
}

impl Pool {
    pub(crate) fn new(target: Target) -> Self {
        Self { target, free: Mutex::default(), closed: AtomicBool::new(false), keep_wal: AtomicBool::new(false) }
    }

    fn take(&self) -> rusqlite::Result<Connection> {
        let free = locked(&self.free).pop();
        free.map_or_else(|| self.target.reader(), Ok)
    }

    fn put_back(&self, conn: Connection) {
        if self.keep_wal.load(Ordering::Acquire) {
            connect::keep_wal(&conn);
        }
        let mut free = locked(&self.free);
        if free.len() < KEPT && !self.closed.load(Ordering::Acquire) {
            free.push(conn);
        }
    }

    /// See [`connect::keep_wal`].
    pub(crate) fn keep_wal(&self) {
        self.keep_wal.store(true, Ordering::Release);
        locked(&self.free).iter().for_each(connect::keep_wal);
    }

    /// Closes the connections that no read uses; the others are closed when they come back.
    pub(crate) fn close(&self) {
        let mut free = locked(&self.free);
        self.closed.store(true, Ordering::Release);
        free.clear();
    }
}

impl Core {
    /// Reads.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, StoreError> {
        if self.pool.closed.load(Ordering::Acquire) {
            return Err(self.closed());
        }
        let fail = |error: rusqlite::Error| translate(&error, &self.files.database);
        let conn = self.pool.take().map_err(fail)?;
        let read = work(&conn);
        self.pool.put_back(conn);
        read.map_err(|failure| match failure {
            Failure::Refused(refusal) => refusal,
            Failure::Sql(error) => fail(error),
        })
    }
}
