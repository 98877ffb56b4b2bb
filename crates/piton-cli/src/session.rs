//! One call of the program: the app of its folder, and the way to the user.

use std::ffi::OsString;
use std::ops::Deref;
use std::sync::Arc;

use piton_app::{App, Surroundings};
use piton_types::{CheckpointRef, RunId, Timestamp};

use crate::failure::Failure;
use crate::output::Output;
use crate::{pager, table};

/// One call of the program.
#[derive(Debug)]
pub(crate) struct Session {
    /// Shared with the listener that is told what a run does.
    pub(crate) output: Arc<Output>,
    app: App,
}

impl Session {
    pub(crate) fn new(output: Output, surroundings: Surroundings, lookup: fn(&str) -> Option<OsString>) -> Self {
        let output = Arc::new(output);
        let app = App::new(Arc::clone(&output) as _, surroundings, lookup);
        output.call_runs_by(app.names());
        Self { output, app }
    }

    /// What a run is called here.
    pub(crate) fn called(&self, run: &RunId) -> String {
        self.names().of(run)
    }

    /// A checkpoint by the name of its run.
    pub(crate) fn named(&self, checkpoint: &CheckpointRef) -> String {
        format!("{}@{}", self.called(&checkpoint.run), checkpoint.seq)
    }

    /// Data that may be long: on a terminal that is too low for it, through the user's pager.
    pub(crate) fn paged(&self, text: &str) -> Result<(), Failure> {
        let named = ["PITON_PAGER", "PAGER"].into_iter().find_map(|name| self.variable(name));
        let pager = named.unwrap_or_else(|| "less".to_owned());
        match self.output.is_higher(text) && !matches!(pager.trim(), "" | "cat") {
            true if pager::show(&pager, text) => Ok(()),
            _ => self.output.data(text),
        }
    }

    /// How long ago that was, as people say it.
    pub(crate) fn age(&self, at: Timestamp) -> String {
        table::age(self.now().since(at))
    }
}

impl Deref for Session {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}
