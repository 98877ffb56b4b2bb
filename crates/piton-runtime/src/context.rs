//! What a run needs from outside.

use std::sync::Arc;

use piton_store::{Store, StoreError};
use piton_types::{Clock, Holder, Random};

use crate::{OpenRun, Run, RunError, SystemClock, SystemRandom, this_process};

/// What a run needs from outside. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Where the run's log lives.
    pub store: Arc<dyn Store>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where ids come from.
    pub random: Arc<dyn Random>,
    /// Which process this is, for other processes that find the run.
    pub holder: Holder,
}

impl Context {
    /// The system's clock and randomness, and this process.
    pub fn system(store: Arc<dyn Store>) -> Self {
        Self { store, clock: Arc::new(SystemClock::new()), random: Arc::new(SystemRandom), holder: this_process() }
    }

    /// That the store keeps what came before: one that has only the newest checkpoint of a run can't do `what`.
    pub(crate) fn check_history(&self, what: &'static str) -> Result<(), RunError> {
        if self.store.capabilities().history {
            return Ok(());
        }
        Err(StoreError::Unsupported { store: "a store that keeps only the newest checkpoint", what }.into())
    }

    /// Opens the run of this id, and creates it if there is none: [`Run::open`] with nothing but an id, which also names
    /// the run.
    ///
    /// # Errors
    ///
    /// As [`Run::open`], and [`RunError::Name`] if `id` isn't one.
    pub async fn run(&self, id: &str) -> Result<Run, RunError> {
        Run::open(self, OpenRun { id: Some(id.parse()?), name: id.to_owned(), ..OpenRun::default() }).await
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("store", &self.store.url())
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}
