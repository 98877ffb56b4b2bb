//! Connections that read. A read takes one, uses it on the calling thread and puts it back; they are
//! opened as they are needed. The first reads of a handle use the connection that writes, if nobody else does: to open
//! one more takes as long as a dozen of them, and a short command needs no more.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use piton_store::StoreError;
use rusqlite::Connection;

use crate::connect::{self, Target};
use crate::writer::{Core, Failure, locked};

/// Connections that are kept for the next read.
const KEPT: usize = 4;

/// How many reads may use the connection that writes.
const FEW: u32 = 32;

/// The connections that nobody uses at the moment.
pub(crate) struct Pool {
    target: Target,
    free: Mutex<Vec<Connection>>,
    /// Reads so far, up to [`FEW`]; as many from when a connection is opened.
    reads: AtomicU32,
    closed: AtomicBool,
    keep_log: AtomicBool,
}

impl Pool {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            free: Mutex::default(),
            reads: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            keep_log: AtomicBool::new(false),
        }
    }

    /// How its connections reach the database.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    fn take(&self) -> rusqlite::Result<Connection> {
        if let Some(conn) = locked(&self.free).pop() {
            return Ok(conn);
        }
        self.reads.store(FEW, Ordering::Relaxed);
        self.target.reader()
    }

    /// Whether a read may do without a connection of its own.
    fn is_young(&self) -> bool {
        self.reads.load(Ordering::Relaxed) < FEW && self.reads.fetch_add(1, Ordering::Relaxed) < FEW
    }

    fn put_back(&self, conn: Connection) {
        if self.keep_log.load(Ordering::Acquire) {
            connect::keep_log(&conn);
        }
        let mut free = locked(&self.free);
        if free.len() < KEPT && !self.closed.load(Ordering::Acquire) {
            free.push(conn);
        }
    }

    /// See [`connect::keep_log`].
    pub(crate) fn keep_log(&self) {
        self.keep_log.store(true, Ordering::Release);
        locked(&self.free).iter().for_each(connect::keep_log);
    }

    /// Closes the connections that nobody uses; the others are closed when they come back.
    pub(crate) fn close(&self) {
        let mut free = locked(&self.free);
        self.closed.store(true, Ordering::Release);
        free.clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Core {
    /// Reads.
    pub(crate) fn read<T>(&self, op: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, StoreError> {
        if self.pool.is_closed() {
            return Err(self.closed());
        }
        let fail = |error: rusqlite::Error| crate::errors::translate(&error, &self.files.database);
        let spare = if self.pool.is_young() { self.free_writer() } else { None };
        let read = match spare.as_deref() {
            Some(Some(writer)) if writer.conn.is_autocommit() && self.poison.get().is_none() => {
                // Whoever writes decides himself how long to try; whoever reads waits.
                writer.conn.busy_timeout(self.options.patience).map_err(fail)?;
                let read = op(&writer.conn);
                writer.conn.busy_timeout(Duration::ZERO).map_err(fail)?;
                read
            }
            _ => {
                drop(spare);
                let conn = self.pool.take().map_err(fail)?;
                let read = op(&conn);
                self.pool.put_back(conn);
                read
            }
        };
        read.map_err(|failure| match failure {
            Failure::Refused(refusal) => refusal,
            Failure::Sql(error) => fail(error),
        })
    }
}
