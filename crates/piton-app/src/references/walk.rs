//! The runs of a store, newest first, read only as far as they are looked at.

use std::collections::VecDeque;
use std::sync::Arc;

use piton_store::{RunQuery, Store, StoreError};
use piton_types::RunSummary;

/// How many are read at a time.
const PAGE: usize = 64;

/// A walk over the runs of a store.
pub struct Runs {
    store: Arc<dyn Store>,
    read: VecDeque<RunSummary>,
    query: RunQuery,
    ended: bool,
}

impl Runs {
    /// From the run that was changed last.
    pub fn newest_first(store: Arc<dyn Store>) -> Self {
        Self::of_folders(store, Vec::new())
    }

    /// The same of runs that belong to one of these folders; of all if there are none.
    pub fn of_folders(store: Arc<dyn Store>, folders: Vec<String>) -> Self {
        let query = RunQuery { folders, limit: Some(PAGE), ..RunQuery::default() };
        Self { store, read: VecDeque::new(), query, ended: false }
    }

    /// The next run.
    pub async fn next(&mut self) -> Result<Option<RunSummary>, StoreError> {
        if self.read.is_empty() && !self.ended {
            self.read = self.store.list(self.query.clone()).await?.into();
            self.ended = self.read.len() < PAGE;
            if let Some(last) = self.read.back() {
                self.query.after = Some((last.updated_at, last.id.clone()));
            }
        }
        Ok(self.read.pop_front())
    }
}
