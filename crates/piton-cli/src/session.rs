//! One call of the program: the app of its folder, and the way to the user.

use std::ffi::OsString;
use std::ops::Deref;
use std::sync::Arc;

use piton_app::{App, Surroundings};
use piton_types::Timestamp;

use crate::output::Output;
use crate::table;

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
        Self { output, app }
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
