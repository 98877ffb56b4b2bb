//! A thread of a store, which starts when there is first something for it to do. Most commands end before that.

use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use piton_store::StoreError;

use crate::writer::{Core, locked};

/// What a thread does, and how far it is with that.
pub(crate) struct Helper {
    name: &'static str,
    work: fn(Arc<Core>),
    stage: Mutex<Stage>,
}

enum Stage {
    Waiting,
    Running(JoinHandle<()>),
    /// The store is closed.
    Ended,
}

impl Helper {
    pub(crate) const fn new(name: &'static str, work: fn(Arc<Core>)) -> Self {
        Self { name, work, stage: Mutex::new(Stage::Waiting) }
    }

    /// Starts it unless it has been started, or the store is closed. One that has panicked isn't started again: nobody
    /// knows what it left.
    pub(crate) fn start(&self, core: &Weak<Core>) -> Result<(), StoreError> {
        let mut stage = locked(&self.stage);
        if let Stage::Running(thread) = &*stage
            && thread.is_finished()
        {
            return Err(StoreError::Unavailable { detail: format!("the thread {} of the store has ended", self.name) });
        }
        let (Stage::Waiting, Some(core)) = (&*stage, core.upgrade()) else { return Ok(()) };
        let work = self.work;
        let thread = std::thread::Builder::new().name(self.name.to_owned()).spawn(move || work(core));
        *stage =
            Stage::Running(thread.map_err(|error| StoreError::Unavailable { detail: format!("no thread: {error}") })?);
        Ok(())
    }

    /// Waits for its end, which the caller has asked for. It doesn't start again.
    pub(crate) fn join(&self) {
        let stage = std::mem::replace(&mut *locked(&self.stage), Stage::Ended);
        if let Stage::Running(thread) = stage
            && thread.join().is_err()
        {
            tracing::error!(self.name, "a thread of the store panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SqliteOptions, SqliteStore};

    /// Whoever needs it is told, instead of waiting for it for ever.
    #[test]
    fn a_thread_that_panicked_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("store.db"), SqliteOptions::default()).unwrap();
        let helper = Helper::new("piton-test", |_| panic!("on purpose"));
        helper.start(&store.core.me).unwrap();
        while matches!(&*locked(&helper.stage), Stage::Running(thread) if !thread.is_finished()) {
            std::thread::yield_now();
        }
        assert!(matches!(helper.start(&store.core.me), Err(StoreError::Unavailable { .. })));
        helper.join();
        helper.start(&store.core.me).unwrap();
    }
}
